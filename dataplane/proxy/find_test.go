package proxy

import (
	"fmt"
	"testing"

	"github.com/hashicorp/go-hclog"

	"domicile/fsm"
	"domicile/proto/follow"
)

// twoTables gives a proxy of region us with a tenant of its own, acme, and n that live in
// tr.
func twoTables(tb testing.TB, n int) *Proxy {
	tb.Helper()
	p := &Proxy{}
	p.holds = newHolds(p.spot, defaultHoldLimits)
	p.dir, p.global = p.newDirectory("", hclog.NewNullLogger()), p.newDirectory("", hclog.NewNullLogger())
	tb.Cleanup(p.dir.close)
	tb.Cleanup(p.global.close)
	fill := func(d *directory, authority string, events ...fsm.Event) {
		edit := newTable().edit(1, d.newEdit())
		if err := edit.applyAll(events); err != nil {
			tb.Fatal(err)
		}
		d.publish(edit.seal(follow.Position{Authority: authority, History: 1, Revision: 1}), nil, true)
	}
	fill(p.dir, "c/us", fsm.Event{Node: &fsm.NodeInfo{Name: "n1", Addr: "127.0.0.1:1"}}, placed("acme", "n1"))
	homes := []fsm.Event{routers("tr", "http://127.0.0.1:2"), home("acme", "us"), home("between", "us")}
	for i := range n {
		homes = append(homes, home(fmt.Sprintf("tenant-%d", i), "tr"))
	}
	fill(p.global, "c/global", homes...)
	return p
}

// TestFindingWhoAnswersAllocatesNothing, in whichever of the two tables.
func TestFindingWhoAnswersAllocatesNothing(t *testing.T) {
	p := twoTables(t, 100)
	for name, want := range map[string]string{"acme": "node", "tenant-7": "tr", "between": "between", "nobody": "nobody"} {
		unit := []byte(name)
		got := func(f found) string {
			switch {
			case f.seat != nil:
				return "node"
			case f.home != nil:
				return string(f.home.name)
			case f.between:
				return "between"
			}
			return "nobody"
		}
		if f := got(p.find(unit, unit)); f != want {
			t.Errorf("%s: found %s, want %s", name, f, want)
		}
		var f found
		if n := testing.AllocsPerRun(100, func() { f = p.find(unit, unit) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		if f.home != nil {
			if n := testing.AllocsPerRun(100, func() { f.home.routers.Load().reachable() }); n != 0 {
				t.Errorf("%s: %v allocations to choose a router", name, n)
			}
		}
	}
}
