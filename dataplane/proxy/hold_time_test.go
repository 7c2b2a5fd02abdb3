package proxy

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"domicile/dataplane/proxy/http1"
)

// TestTrialsOfARefusingNodeGetFewer: the pause doubles from 20 to 250 ms, begins anew
// with news of the unit's place, and is not made longer by a trial whose client goes.
func TestTrialsOfARefusingNodeGetFewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		h, node, other := w.holds, w.nodes[0], w.nodes[1]
		begin := time.Now()
		var trials []time.Duration
		h.released = func(*queue, *ticket) { trials = append(trials, time.Since(begin)) }
		no := refusal{kind: http1.Unavailable, up: node}
		done := make(chan struct{})
		go func() { // a request that is refused at once, each time
			defer close(done)
			tk := h.newTicket("u0", true, 1, time.Hour)
			h.enter(tk, no, false)
			for range 12 {
				h.wait(tk, nil)
				no.up = w.look([]byte("u0")).up
				if len(trials) == 12 {
					tk.Ended()
					return
				}
				h.enter(tk, no, true)
			}
		}()
		ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
		time.Sleep(ms(1000))
		w.mu.Lock()
		w.units["u0"].at.up = other
		w.mu.Unlock()
		h.changed(nil, true)
		<-done
		want := []time.Duration{ms(1), ms(3), ms(7), ms(15), ms(31), ms(63), ms(127), ms(255), ms(505), ms(755), ms(1000), ms(1001)}
		if !slices.Equal(trials, want) {
			t.Errorf("tried at %v, want %v", trials, want)
		}
		// The next in the queue follows soon where a trial ends without an answer.
		first, second := h.newTicket("u1", true, 1, time.Hour), h.newTicket("u1", true, 1, time.Hour)
		no = refusal{kind: http1.Misdirected, up: other}
		h.enter(first, no, false)
		h.enter(second, no, false)
		h.wait(first, nil)
		first.Ended()
		began := time.Now()
		h.wait(second, nil)
		if got := time.Since(began); got != ms(1) {
			t.Errorf("the next trial came after %v, want %v", got, ms(1))
		}
		second.Answered()
		second.Ended()
		if h.open.Load() != 0 {
			t.Error("the queue is still there")
		}
	})
}

// TestUnitThatIsBeingPromotedIsNotAskedInVain: between the flip of a unit and the word
// that its new node was promoted the node is asked now and then only, and at that word
// at once.
func TestUnitThatIsBeingPromotedIsNotAskedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		h, node := w.holds, w.nodes[1]
		begin := time.Now()
		var trials []time.Duration
		h.released = func(*queue, *ticket) { trials = append(trials, time.Since(begin)) }
		told := func(change func(at *spot)) {
			w.mu.Lock()
			change(&w.units["u0"].at)
			w.mu.Unlock()
			h.changed(nil, true)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			tk := h.newTicket("u0", true, 1, time.Hour)
			h.enter(tk, refusal{kind: http1.Unreachable, up: w.nodes[0]}, false)
			for range 3 {
				h.wait(tk, nil)
				if len(trials) == 3 {
					break
				}
				h.enter(tk, refusal{kind: http1.Misdirected, up: node}, true)
			}
			tk.Answered()
			tk.Ended()
		}()
		synctest.Wait()
		told(func(at *spot) { at.up, at.epoch, at.promoting = node, 7, true })
		time.Sleep(600 * time.Millisecond)
		told(func(at *spot) { at.promoting = false })
		<-done
		ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
		if want := []time.Duration{ms(250), ms(500), ms(600)}; !slices.Equal(trials, want) {
			t.Errorf("tried at %v, want %v", trials, want)
		}
	})
}

// TestSlowTrialHoldsNobodyUp: a request that was not refused at once was taken, and
// the others follow although it has no answer yet.
func TestSlowTrialHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		h := w.holds
		no := refusal{kind: http1.Unavailable, up: w.nodes[0]}
		var all []*ticket
		for range 10 {
			tk := h.newTicket("u0", true, 1, time.Hour)
			h.enter(tk, no, false)
			all = append(all, tk)
		}
		began := time.Now()
		for _, tk := range all[:6] {
			h.wait(tk, nil)
		}
		h.enter(all[5], no, true) // the guess was wrong: it waits again
		h.mu.Lock()
		if q := h.queues["u0"]; q.shut != shutWrites || q.window != 1 {
			t.Errorf("the queue is shut %d with a window of %d", q.shut, q.window)
		}
		h.mu.Unlock()
		for _, tk := range all[5:] {
			h.wait(tk, nil)
		}
		if took := time.Since(began); took > 11*admittedAfter+2*pauseLeast {
			t.Errorf("10 requests were let go only after %v", took)
		}
		for _, tk := range all {
			tk.Answered()
			tk.Ended()
		}
		if n := h.counts[outcomeAnswered].Load(); n != 10 || h.open.Load() != 0 {
			t.Errorf("%d answered, %d queues left", n, h.open.Load())
		}
	})
}

// TestNewsThatComesBeforeItIsToldHoldsNobody: the table is seen to have changed by
// who comes first, which may be a request.
func TestNewsThatComesBeforeItIsToldHoldsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, kind := range []http1.RefusalKind{http1.Misdirected, http1.Unavailable} {
			w := newWorld(t, 1)
			h, old := w.holds, w.nodes[0]
			warn := func(up *http1.Upstream) { h.warn("u0", nil, refusal{kind: kind, up: up}) }
			warn(old)
			w.units["u0"].at.up = w.nodes[1]
			tk := h.newTicket("u0", false, 1, time.Hour)
			if h.join(tk) == entered {
				h.wait(tk, nil)
				tk.Answered()
			}
			warn(w.nodes[1])
			w.units["u0"].at.up = old
			tk = h.newTicket("u0", true, 1, time.Hour)
			began := time.Now()
			if h.enter(tk, refusal{kind: kind, up: w.nodes[1]}, true) == entered {
				h.wait(tk, nil)
				tk.Answered()
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("waited %v", took)
			}
			time.Sleep(time.Second)
			if h.open.Load() != 0 {
				t.Error("a queue is left")
			}
		}
	})
}

func FuzzHoldTime(f *testing.F) {
	for _, s := range []string{"", "0", "50", "99999999999", "-1", "+5", "1.5", "abc", " 7"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, asked []byte) {
		const most = 10 * time.Second
		if got := holdTime(most, asked); got < 0 || got > most {
			t.Errorf("%q: %v", asked, got)
		}
		if got := holdTime(0, asked); got != 0 {
			t.Errorf("%q with holding off: %v", asked, got)
		}
	})
}

func TestHoldTimeIsOnlyShortened(t *testing.T) {
	for asked, want := range map[string]time.Duration{
		"0": 0, "250": 250 * time.Millisecond, "10000": 10 * time.Second, "60000": 10 * time.Second,
		"": 10 * time.Second, "-1": 10 * time.Second, "+5": 10 * time.Second, "1s": 10 * time.Second, "99999999999999999999": 10 * time.Second,
	} {
		if got := holdTime(10*time.Second, []byte(asked)); got != want {
			t.Errorf("%q: %v, want %v", asked, got, want)
		}
	}
}
