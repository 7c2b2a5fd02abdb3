package store

import (
	"context"
	"errors"
	"testing"
)

// TestI5WhatUnitsWereToldOutlivesARestart: calls are counted within a term, epochs and
// jobs within a history, and all of it goes with the unit.
func TestI5WhatUnitsWereToldOutlivesARestart(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, Config{Dir: dir})
	if _, err := s.Create(context.Background(), "acme", 1); err != nil {
		t.Fatal(err)
	}
	tell := func(h Holder, set Told) (was Told) {
		t.Helper()
		refused, err := s.Tell(h, []string{"acme"}, func(_ string, told *Told) error {
			was = *told
			told.Call, told.Epoch, told.Thawed = set.Call, set.Epoch, set.Thawed
			return nil
		})
		if err != nil || len(refused) > 0 {
			t.Fatal(refused, err)
		}
		return was
	}
	h := Holder{"c1/global", 1, 4}
	first := Told{"c1/global", 1, 4, 7, 40, "30"}
	if was := tell(h, first); was != (Told{Authority: "c1/global", History: 1, Term: 4}) {
		t.Errorf("at first: %+v", was)
	}
	must(s.TellAbsent(h, 9))
	must(s.TellAbsent(h, 8)) // late
	must(s.Close())
	s = open(t, Config{Dir: dir})
	if was := tell(h, first); was != first {
		t.Errorf("after a restart: %+v", was)
	}
	no := errors.New("no")
	refused, err := s.Tell(h, []string{"acme", "bee"}, func(unit string, told *Told) error {
		if told.Call = 99; unit == "acme" {
			return no
		}
		return nil
	})
	if err != nil || len(refused) != 1 || refused["acme"] != no || tell(h, first) != first {
		t.Errorf("what was refused counts: %v %v", refused, err)
	}
	if a, err := s.ToldAbsent(h); err != nil || a.Call != 9 {
		t.Errorf("absent: %+v, %v", a, err)
	}
	h.Term = 5
	if was := tell(h, first); was != (Told{"c1/global", 1, 5, 0, 40, "30"}) {
		t.Errorf("in the next term: %+v", was)
	}
	must(s.TellAbsent(h, 1))
	must(s.TellAbsent(Holder{"c1/global", 1, 4}, 20)) // of a term that is over
	if a, err := s.ToldAbsent(h); err != nil || a.Call != 1 {
		t.Errorf("absent in the next term: %+v, %v", a, err)
	}
	h = Holder{"c1/global", 2, 1}
	if was := tell(h, first); was != (Told{Authority: "c1/global", History: 2, Term: 1}) {
		t.Errorf("in the next history: %+v", was)
	}
	must(s.Delete(context.Background(), "acme", 1))
	if was := tell(h, first); was.Call != 0 || was.Epoch != 0 || was.Thawed != "" {
		t.Errorf("of a unit that was deleted: %+v", was)
	}
}
