package controlplane

import (
	"testing"
	"time"

	"domicile/controlplane/loops"
)

func TestM7AMoveTellsItsRateAndWhenItEnds(t *testing.T) {
	s := &Server{known: &knowledge{}}
	s.known.clear()
	begun := time.Unix(1_000, 0)
	if _, ok := s.moveProgress(7); ok {
		t.Fatal("nothing was told of it")
	}
	s.known.moved(7, &loops.Image{Bytes: 100, Total: 1000}, begun)
	if p, _ := s.moveProgress(7); p.Rate != 0 {
		t.Errorf("%+v: one look gives no rate", p)
	} else if _, known := p.left(); known {
		t.Errorf("%+v: and no end", p)
	}
	s.known.moved(7, &loops.Image{Bytes: 300, Total: 1000}, begun.Add(2*time.Second))
	p, _ := s.moveProgress(7)
	if left, ok := p.left(); p.Rate != 100 || !ok || left != 7*time.Second {
		t.Errorf("%+v, %v left", p, left)
	}
	s.known.moved(7, &loops.Image{Held: 1000}, begun.Add(3*time.Second))
	if p, _ := s.moveProgress(7); p.Bytes != 1000 || p.Total != 1000 {
		t.Errorf("%+v: it has all of it", p)
	}
	s.known.moveEnded(7)
	if _, ok := s.moveProgress(7); ok {
		t.Error("it has ended")
	}
}
