package fsm_test

import (
	"fmt"
	"strings"
	"testing"

	"domicile/fsm"
	"domicile/fsm/fsmtest"
)

// duties is what a grant to a node must say: units, ids, the addresses of the
// copies that follow, and which of those count.
func duties(s *fsm.State, n fsm.NodeName) string {
	var b strings.Builder
	for _, p := range s.Placements() {
		if p == nil || p.Node != n || !p.Promoted() || p.State == fsm.UnitDeleting {
			continue
		}
		fmt.Fprint(&b, p.Unit, " ", p.ID)
		for _, c := range p.Copies {
			if listed(c.State) {
				at, _ := s.Node(c.Node)
				fmt.Fprint(&b, " ", c.Node, " ", at.Addr, " ", c.State == fsm.CopyJoining || c.State == fsm.CopyInSync)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// A list's name changes when, and only when, what a grant must say has changed:
// so a leader sends every change, and nothing twice (architecture §3.5.9).
func TestL1AListIsNumberedAnewExactlyWhenItChanges(t *testing.T) {
	changed := 0
	for seed := range uint64(60) {
		l, s := fsmtest.NewLog(seed), fsm.New()
		before, lists := map[fsm.NodeName]string{}, map[fsm.NodeName]fsm.Revision{}
		for i := range 300 {
			level := s.Level()
			e := l.Next(s)
			s.Apply(e)
			if level < 2 {
				before = map[fsm.NodeName]string{}
			}
			for n := range s.Nodes() {
				now, list := duties(s, n.Name), s.ListRevision(n.Name)
				was, known := before[n.Name]
				if known && level == 2 && (now != was) != (list != lists[n.Name]) || list > s.Revision() {
					t.Fatalf("log %d, entry %d, %T %+v: list of %s was %d, is %d, of\n%s\nafter\n%s",
						seed, i, e.Cmd, e.Cmd, n.Name, lists[n.Name], list, now, was)
				}
				if known && now != was {
					changed++
				}
				before[n.Name], lists[n.Name] = now, list
				var granted []fsm.UnitName
				for p := range s.Grantable(n.Name) {
					granted = append(granted, p.Unit)
				}
				if len(granted) != strings.Count(now, "\n") {
					t.Fatalf("log %d, entry %d: granted to %s: %v, not\n%s", seed, i, n.Name, granted, now)
				}
			}
			for n := range before {
				if _, ok := s.Node(n); !ok {
					delete(before, n)
				}
			}
		}
	}
	if changed < 1000 {
		t.Errorf("%d changes: the logs are too tame", changed)
	}
}

func TestL1AUnitThatWasNotPromotedIsInNoList(t *testing.T) {
	d := leased(t, "n1", "n2", "n3")
	d.replicated("acme", "n1", "n2")
	list := d.ListRevision("n2")
	d.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed})
	if g1, g2 := duties(d.State, "n1"), duties(d.State, "n2"); g1 != "" || g2 != "" || d.ListRevision("n2") != list {
		t.Fatalf("lists %q and %q, %d after %d", g1, g2, d.ListRevision("n2"), list)
	}
	p, _ := d.Placed("acme")
	d.ok(&fsm.ConfirmPromotion{Node: "n2", Epoch: p.Epoch, Units: []fsm.UnitRef{{Unit: "acme", ID: p.ID}}})
	if duties(d.State, "n2") == "" || d.ListRevision("n2") != d.Revision() {
		t.Fatalf("list %d at %d", d.ListRevision("n2"), d.Revision())
	}
	list = d.Revision()
	d.ok(&fsm.PutNode{Name: "n3", Addr: ptr("10.0.0.9:1")})
	d.ok(&fsm.RecordUsage{Usage: []fsm.NodeUsage{{Node: "n2", Bytes: 7}}})
	d.ok(&fsm.SetPin{Tenant: "acme", Pinned: true})
	if d.ListRevision("n2") != list {
		t.Error("what no grant says has changed the list")
	}
}

// A directory that is raised to copies numbers every list and counts what lacks.
func TestO7CopiesBeginOnceEveryServerKnowsThem(t *testing.T) {
	d := newDir(t)
	put := func(id fsm.MemberID, v uint32) {
		d.ok(&fsm.PutMember{Member: fsm.Member{ID: id, Raft: "a:1", Version: v}})
	}
	put("a", 1)
	d.ok(&fsm.Bootstrap{Scope: fsm.Scope{Cluster: "c", History: 1}, Settings: fsm.Settings{Replicas: 1, AutoFailover: 3000}})
	d.node("n1", "eu")
	d.node("n2", "eu")
	d.tenant(fsm.CreateTenant{Name: "acme"})
	p, _ := d.Placed("acme")
	if len(p.Copies) > 0 || p.Lacks != 0 || d.Settings().LongestLease != 0 || d.ListRevision("n1") != 0 {
		t.Fatalf("a server of version 1 would have %+v otherwise, settings %+v", p, d.Settings())
	}
	put("a", 2)
	p, _ = d.Placed("acme")
	if p.Lacks != d.Now() || d.Settings().LongestLease != 3000 || d.ListRevision("n1") != d.Revision() {
		t.Fatalf("%+v, settings %+v", p, d.Settings())
	}
	if len(d.ok(&fsm.CreateTenant{Name: "new"}).Placed.Copies) != 1 {
		t.Error("no copy was placed")
	}
}

func TestO7WhichCommandsAskForWhichVersion(t *testing.T) {
	two := []fsm.Command{
		&fsm.SetNodeLease{}, &fsm.NodeBack{}, &fsm.SettleLease{}, &fsm.FailOver{}, &fsm.BeginHandover{}, &fsm.EndRelease{},
		&fsm.ConfirmPromotion{}, &fsm.AddCopies{}, &fsm.ChangeCopies{}, &fsm.DropCopies{}, &fsm.DeleteNode{Force: true},
		&fsm.SetSettings{Settings: fsm.Settings{LongestLease: 1}}, &fsm.Bootstrap{Settings: fsm.Settings{LongestLease: 1}},
	}
	for _, c := range two {
		if fsm.MinVersion(c) != 2 {
			t.Errorf("%T asks for version %d", c, fsm.MinVersion(c))
		}
	}
	three := []fsm.Command{
		&fsm.BeginMove{}, &fsm.CancelMove{}, &fsm.BeginRebalance{}, &fsm.SetDrain{},
		&fsm.SetSettings{Settings: fsm.Settings{MovesPerNode: 1, LongestLease: 1}}, &fsm.Bootstrap{Settings: fsm.Settings{MovesPerNode: 1}},
	}
	for _, c := range three {
		if fsm.MinVersion(c) != 3 {
			t.Errorf("%T asks for version %d", c, fsm.MinVersion(c))
		}
	}
	for _, c := range []fsm.Command{&fsm.DeleteNode{}, &fsm.SetSettings{}, &fsm.Bootstrap{}, &fsm.CreateTenant{}, &fsm.AdvanceJob{}} {
		if fsm.MinVersion(c) != 1 {
			t.Errorf("%T asks for version %d", c, fsm.MinVersion(c))
		}
	}
}
