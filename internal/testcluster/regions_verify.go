package testcluster

import (
	"fmt"

	"domicile/fsm"
	"domicile/internal/wait"
	"domicile/proto"
)

// Verify is Cluster.Verify over all directories, and: each name of the global directory
// is placed by the directory of its home and by no other, and each placement has its name;
// no entry of any directory placed a unit, or a copy, outside its region, or twice; nodes
// of different regions sent each other bytes of a unit only while it moved between them, or
// was read there.
func (r *Regions) Verify(acknowledged ...string) {
	r.t.Helper()
	r.Whole().Verify(acknowledged...)
	wait.For(r.t, "homes and placements agree", func() error {
		for _, w := range r.watches.all {
			w.current()
		}
		return r.watches.homesAgree()
	})
	r.watches.mu.Lock()
	wrong := r.watches.wrong
	reads := map[span]window{}
	for s, in := range r.watches.reads {
		reads[s] = in
	}
	r.watches.mu.Unlock()
	for _, text := range append(wrong, r.strayed(reads)...) {
		r.t.Error(text)
	}
}

// strayed tells what nodes of different regions sent each other without a reason.
func (r *Regions) strayed(reads map[span]window) []string {
	r.t.Helper()
	var moves []proto.Move
	wait.For(r.t, "the moves that there were are told of", func() (err error) {
		moves, err = r.moves()
		return err
	})
	switch n := r.net.(type) {
	case *gates:
		return n.tap.judge(moves, reads)
	case *namespaces: // what is in the packets is not read
		if packets := n.crossed(); packets > 0 && len(moves)+len(reads) == 0 {
			return []string{fmt.Sprintf("nodes heard %d packets from nodes of other regions, and nothing was moved or read there", packets)}
		}
	}
	return nil
}

// homesAgree compares the names of the global directory with the placements of all.
func (s *watches) homesAgree() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var global *watch
	own := map[string]*watch{}
	for _, w := range s.all {
		if w.c == s.global {
			global = w
		} else {
			own[w.c.region] = w
		}
	}
	for name := range global.tenants {
		row, _ := global.view.Tenant(name)
		if !row.HasHome {
			continue
		}
		w := own[string(row.Home)]
		if w == nil {
			return fmt.Errorf("the home of %s is %s, which keeps no directory", name, row.Home)
		}
		if !w.units[fsm.UnitName(name)] {
			return fmt.Errorf("the home of %s is %s, whose directory does not place it", name, row.Home)
		}
	}
	for _, w := range own {
		for unit := range w.units {
			row, ok := global.view.Tenant(fsm.TenantName(unit))
			if !ok || !row.HasHome || string(row.Home) != w.c.region {
				return fmt.Errorf("the directory of %s places %s, which is not at home there: %+v", w.c.region, unit, row)
			}
		}
	}
	return nil
}

// Crossed tells of which units nodes of different regions sent each other bytes so far, and
// at how many times. Of a network of namespaces it is not known.
func (r *Regions) Crossed() map[string]int {
	if g, ok := r.net.(*gates); ok {
		return g.tap.crossed()
	}
	return nil
}
