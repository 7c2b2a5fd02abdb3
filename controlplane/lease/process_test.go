package lease

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"domicile/fsm"
)

// TestI1AProcessUnderTwoNamesIsTheNodeThatWasRecordedFirst has the address of n2 come
// to lead to n1's process: the process goes on as n1, and n2 is taken for silent and
// lapses; nothing that is n2's is written there.
func TestI1AProcessUnderTwoNamesIsTheNodeThatWasRecordedFirst(t *testing.T) {
	stage(t, 900, 2, func(t *testing.T, s *scene) {
		s.place(unit("a", 0, "n1"))
		s.place(unit("b", 0, "n2"))
		synctest.Wait()
		one, two := s.node(1), s.node(2)
		if !one.writes("a") || !two.writes("b") {
			t.Fatal("the nodes do not write")
		}
		s.net.mu.Lock()
		s.net.nodes["n2:1"] = one
		s.net.mu.Unlock()
		for range 40 {
			time.Sleep(50 * time.Millisecond)
			synctest.Wait()
			if !one.writes("a") || one.writes("b") {
				t.Fatalf("it writes a: %v, b: %v", one.writes("a"), one.writes("b"))
			}
		}
		if st := s.know(t, "n1"); st.Silent || st.Expired {
			t.Errorf("n1: %+v", st)
		}
		if st := s.know(t, "n2"); !st.Silent || !st.Lapsed || st.Boot != one.boot() || !strings.Contains(st.Problem, "n1") {
			t.Errorf("n2: %+v", st)
		}
		// A new leader meets the process by either address first.
		s.stop()
		s.m.mu.Lock()
		s.m.term, s.testLog.term = 2, 2
		s.m.mu.Unlock()
		s.stop = run(s.k, 2)
		for range 40 {
			time.Sleep(50 * time.Millisecond)
			synctest.Wait()
			if one.writes("b") {
				t.Fatal("it writes b under the next leader")
			}
		}
		if !one.writes("a") {
			t.Errorf("it does not write a under the next leader: %+v", s.know(t, "n1"))
		}
		// Once the address leads to a process of its own again, that one is granted.
		s.k.Resume("n2", s.know(t, "n2").Lapse)
		s.net.mu.Lock()
		s.net.nodes["n2:1"] = two
		s.net.mu.Unlock()
		time.Sleep(2 * time.Second)
		s.k.Resume("n2", s.know(t, "n2").Lapse)
		time.Sleep(time.Second)
		synctest.Wait()
		if !two.writes("b") || !one.writes("a") {
			t.Errorf("after the address was put right: %+v, %+v", s.know(t, "n1"), s.know(t, "n2"))
		}
	})
}

// TestProcessesGoToTheFirstRecord goes through who a process is.
func TestProcessesGoToTheFirstRecord(t *testing.T) {
	var p processes
	first, later := &loop{name: "n1", id: 3}, &loop{name: "n9", id: 7}
	claim := func(boot string, l *loop, want fsm.NodeName) {
		t.Helper()
		if other, ok := p.claim(boot, l); other != want || ok != (want == "") {
			t.Errorf("%s of %s: %q, %v", boot, l.name, other, ok)
		}
	}
	claim("x", later, "")
	claim("x", first, "")
	claim("x", later, "n1")
	claim("y", first, "") // restarted: x is nobody's now
	claim("x", later, "")
	p.leave(later)
	claim("y", later, "n1")
	p.leave(first)
	claim("y", later, "")
}
