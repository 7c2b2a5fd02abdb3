package fsm_test

import (
	"sync"
	"testing"

	"domicile/fsm"
	"domicile/fsm/fsmtest"
)

// Snapshots are read by other goroutines while entries go on being applied;
// the race detector and Check say whether they share more than they may.
func TestSnapshotsAreReadWhileEntriesAreApplied(t *testing.T) {
	snapshots := make(chan *fsm.State, 4)
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for s := range snapshots {
				at := s.Revision()
				if err := fsm.Check(s.Snapshot()); err != nil {
					t.Error(err)
				}
				for n := range s.Nodes() {
					for p := range s.HeldBy(n.Name) {
						_ = p.Node
					}
				}
				for range fsm.Project(s) {
				}
				if s.Revision() != at {
					t.Error("a snapshot went on")
				}
			}
		})
	}
	l, s := fsmtest.NewLog(3), fsm.New()
	for range 3000 {
		s.Apply(l.Next(s))
		select {
		case snapshots <- s.Snapshot():
		default:
			s.Snapshot()
		}
	}
	close(snapshots)
	readers.Wait()
}

func TestApplyOnASnapshotPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("a snapshot was changed")
		}
	}()
	fsm.New().Snapshot().Apply(fsm.Entry{Revision: 1})
}

func TestAViewTakesNoGap(t *testing.T) {
	v := fsm.NewView()
	up := []fsm.Event{{Node: &fsm.NodeInfo{Name: "n1"}}}
	if err := v.Apply(0, 5, up); err != nil {
		t.Fatal(err)
	}
	for _, step := range [][2]fsm.Revision{{4, 6}, {0, 9}, {6, 7}, {5, 5}, {5, 4}} {
		if err := v.Apply(step[0], step[1], []fsm.Event{{NodeGone: "n1"}}); err == nil {
			t.Errorf("a view at 5 went from %d to %d", step[0], step[1])
		}
	}
	for _, bad := range []fsm.Event{{}, {NodeGone: "a", UnitGone: "b"}, {Node: &fsm.NodeInfo{}}, {Node: &fsm.NodeInfo{Name: "x"}, Unit: &fsm.UnitInfo{}}} {
		if err := v.Apply(5, 6, []fsm.Event{{NodeGone: "n1"}, bad}); err == nil {
			t.Errorf("the view took %+v", bad)
		}
	}
	if _, ok := v.Node("n1"); !ok || v.Revision() != 5 {
		t.Error("a refused change had an effect")
	}
	if err := v.Load(up); err == nil {
		t.Error("a view that has a revision was loaded")
	}
}
