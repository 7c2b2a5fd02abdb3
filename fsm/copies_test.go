package fsm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"domicile/fsm"
	"domicile/fsm/fsmtest"
)

// ready gives a directory of this version with that many replicas asked for.
func ready(t *testing.T, replicas uint32) *dir {
	return &dir{State: fsmtest.Ready(fsm.Settings{Replicas: replicas, AutoFailover: 3000}), t: t}
}

// leased gives one with nodes of region eu, each in a zone of its own, that take
// leases.
func leased(t *testing.T, nodes ...fsm.NodeName) *dir {
	d := ready(t, 1)
	for _, n := range nodes {
		d.at(n, "eu", fsm.ZoneName("z-"+n))
		d.ok(&fsm.SetNodeLease{Node: n, Lease: fsm.LeaseTaken})
	}
	return d
}

func (d *dir) at(n fsm.NodeName, r fsm.RegionName, z fsm.ZoneName) {
	d.t.Helper()
	d.ok(&fsm.PutNode{Name: n, Addr: ptr("127.0.0.1:8081"), Token: ptr("t"), Region: &r, Zone: &z})
}

// replicated makes an active tenant on a node with in-sync copies on others,
// and nowhere else.
func (d *dir) replicated(name fsm.TenantName, on fsm.NodeName, copies ...fsm.NodeName) fsm.UnitRef {
	d.t.Helper()
	want := d.Settings()
	none := want
	none.Replicas = 0
	d.ok(&fsm.SetSettings{Settings: none})
	d.tenant(fsm.CreateTenant{Name: name, Node: &on})
	want.Replicas = max(want.Replicas, uint32(len(copies)))
	d.ok(&fsm.SetSettings{Settings: want})
	p, _ := d.Placed(fsm.UnitName(name))
	ref := fsm.UnitRef{Unit: p.Unit, ID: p.ID}
	for _, c := range copies {
		d.ok(&fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: ref, Node: c}}})
		d.sync(ref, c)
	}
	return ref
}

// sync brings a copy from syncing to in sync.
func (d *dir) sync(u fsm.UnitRef, n fsm.NodeName) {
	d.t.Helper()
	d.change(u, n, fsm.CopySyncing, fsm.CopyJoining)
	d.change(u, n, fsm.CopyJoining, fsm.CopyInSync)
	if got := d.copies(u.Unit); !strings.Contains(got, string(n)+" in_sync") {
		d.t.Fatalf("copies of %s: %s", u.Unit, got)
	}
}

func (d *dir) change(u fsm.UnitRef, n fsm.NodeName, from, to fsm.CopyState) {
	d.t.Helper()
	p, _ := d.Placed(u.Unit)
	d.ok(&fsm.ChangeCopies{Changes: []fsm.CopyChange{{UnitRef: u, Epoch: p.Epoch, Node: n, From: from, To: to}}})
}

// copies lists a unit's copies, as "n2 in_sync, n3 former".
func (d *dir) copies(u fsm.UnitName) string {
	p, ok := d.Placed(u)
	if !ok {
		d.t.Fatalf("no unit %s", u)
	}
	var all []string
	for _, c := range p.Copies {
		all = append(all, fmt.Sprintf("%s %s", c.Node, c.State))
	}
	return strings.Join(all, ", ")
}

func (d *dir) wantCopies(u fsm.UnitName, want string) {
	d.t.Helper()
	if got := d.copies(u); got != want {
		d.t.Fatalf("copies of %s: %q, want %q", u, got, want)
	}
}

func TestC1C2WhereACopyGoes(t *testing.T) {
	d := ready(t, 0)
	d.at("home", "eu", "a")
	d.at("far", "us", "b") // C1
	d.at("same", "eu", "a")
	d.at("bare", "eu", "")
	d.at("other1", "eu", "b")
	d.at("other2", "eu", "c")
	d.at("other3", "eu", "b")
	d.at("shut", "eu", "d")
	d.ok(&fsm.PutNode{Name: "shut", Weight: ptr(uint32(0))})
	d.at("main", "eu", "z")
	d.at("other0", "eu", "b") // a standby of another
	d.ok(&fsm.PutNode{Name: "main", Standby: ptr(fsm.NodeName("other0")), Weight: ptr(uint32(0))})
	d.tenant(fsm.CreateTenant{Name: "big", Node: ptr(fsm.NodeName("other1"))})
	order := func() (on []string) {
		v, ok := d.Explain("acme", fsm.RoleReplica)
		for _, n := range v {
			if n.May {
				on = append(on, string(n.Node))
			} else if n.Why == "" || n.Rank != 0 {
				t.Errorf("%+v", n)
			}
		}
		if !ok || len(v) != 10 {
			t.Errorf("%d verdicts", len(v))
		}
		return on
	}
	home := fsm.NodeName("home")
	d.tenant(fsm.CreateTenant{Name: "acme", Node: &home})
	p, _ := d.Placed("acme")
	acme := fsm.UnitRef{Unit: "acme", ID: p.ID}
	want := func(why, nodes string) {
		t.Helper()
		if got := strings.Join(order(), " "); got != nodes {
			t.Errorf("%s: %s, want %s", why, got, nodes)
		}
	}
	want("another zone, an unknown one, the same; then the fewest units; then the name", "other2 other3 other1 bare same")
	d.ok(&fsm.SetSettings{Settings: fsm.Settings{Replicas: 1}})
	d.ok(&fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: acme}}})
	d.wantCopies("acme", "other2 syncing")
	for i, name := range []fsm.TenantName{"b", "c", "d"} {
		placed := d.ok(&fsm.CreateTenant{Name: name, Node: &home}).Placed
		if on := placed.Copies[0].Node; on != fsm.NodeName([]string{"other3", "other1", "other2"}[i]) {
			t.Errorf("the copy of %s is on %s: the copies of one primary spread", name, on)
		}
	}
	want("holds one already; then the fewest replicas of this primary", "other2 other3 other1 bare same")
	d.change(acme, "other2", fsm.CopySyncing, fsm.CopyLeaving) // nothing of it is in sync: it stays
	d.wantCopies("acme", "other2 syncing")
	v, _ := d.Explain("acme", fsm.RolePrimary)
	if i := slices.IndexFunc(v, func(v fsm.Verdict) bool { return v.Node == "home" }); !v[i].Primary || !v[i].May {
		t.Errorf("%+v", v[i])
	}
	if _, ok := d.Explain("nobody", fsm.RoleReplica); ok {
		t.Error("a tenant that is not there was explained")
	}
}

func TestC2WhoHoldsACopyAlreadyComesBeforeOthersOfItsZone(t *testing.T) {
	d := leased(t, "n1", "n2", "n3", "n9")
	acme := d.replicated("acme", "n1", "n9")
	d.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed})
	d.confirm("acme")
	d.ok(&fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: acme}}, Silent: []fsm.NodeName{"n2"}})
	d.wantCopies("acme", "n1 former, n3 syncing") // n1 is lost, n2 is silent
	d.sync(acme, "n3")
	d.change(acme, "n1", fsm.CopyFormer, fsm.CopyLeaving)
	d.ok(&fsm.NodeBack{Node: "n1"})
	d.ok(&fsm.SetSettings{Settings: fsm.Settings{Replicas: 2, AutoFailover: 3000}})
	d.tenant(fsm.CreateTenant{Name: "more", Node: ptr(fsm.NodeName("n1"))}) // n1 has more units than n2
	d.ok(&fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: acme}}})
	d.wantCopies("acme", "n1 syncing, n3 in_sync")
}

func (d *dir) confirm(u fsm.UnitName) {
	d.t.Helper()
	p, _ := d.Placed(u)
	d.ok(&fsm.ConfirmPromotion{Node: p.Node, Epoch: p.Epoch, Units: []fsm.UnitRef{{Unit: u, ID: p.ID}}})
	if p, _ := d.Placed(u); !p.Promoted() {
		d.t.Fatalf("%s is not promoted", u)
	}
}

func TestC3ACopyInTheSameZoneMovesOnceABetterNodeIsThere(t *testing.T) {
	d := ready(t, 1)
	d.at("n1", "eu", "a")
	d.at("n2", "eu", "a")
	d.tenant(fsm.CreateTenant{Name: "acme", Node: ptr(fsm.NodeName("n1"))})
	p, _ := d.Placed("acme")
	acme := fsm.UnitRef{Unit: "acme", ID: p.ID}
	d.wantCopies("acme", "n2 syncing")
	if _, ok := d.BetterCopy(p); ok || p.Lacks != 0 {
		t.Fatalf("%+v: there is nothing better", p)
	}
	d.sync(acme, "n2")
	d.at("n3", "eu", "b")
	d.at("n4", "us", "c")
	p, _ = d.Placed("acme")
	if w, ok := d.BetterCopy(p); !ok || w.Node != "n3" || w.UnitRef != acme {
		t.Fatalf("%+v %v", w, ok)
	}
	d.ok(&fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: acme}, {UnitRef: acme}}})
	d.wantCopies("acme", "n2 in_sync, n3 syncing")
	p, _ = d.Placed("acme")
	if _, ok := d.SpareCopy(p); ok {
		t.Fatal("the only copy in sync may leave")
	}
	d.sync(acme, "n3")
	p, _ = d.Placed("acme")
	spare, ok := d.SpareCopy(p)
	if !ok || spare.Node != "n2" || spare.From != fsm.CopyInSync {
		t.Fatalf("%+v", spare)
	}
	d.ok(&fsm.ChangeCopies{Changes: []fsm.CopyChange{spare}})
	d.wantCopies("acme", "n2 leaving, n3 in_sync")
	gone := fsm.CopyRef{UnitRef: acme, Node: "n2"}
	d.ok(&fsm.DropCopies{Copies: []fsm.CopyRef{{UnitRef: acme, Node: "n3"}, gone, gone}})
	d.wantCopies("acme", "n3 in_sync")
}

func TestC4WithoutAnotherNodeThereIsNoCopyAndItIsSaid(t *testing.T) {
	d := ready(t, 1)
	why := func() string {
		p, _ := d.Placed("acme")
		if (p.Lacks == 0) != (d.Unreplicated(p) == "") {
			t.Errorf("lacks since %d: %q", p.Lacks, d.Unreplicated(p))
		}
		return d.Unreplicated(p)
	}
	d.at("n1", "eu", "a")
	d.at("n0", "us", "a")
	d.tenant(fsm.CreateTenant{Name: "acme", Node: ptr(fsm.NodeName("n1"))})
	p, _ := d.Placed("acme")
	since := p.Lacks
	if w := why(); !strings.Contains(w, "no other node is in region eu") || since != d.Now() {
		t.Errorf("%q since %d", w, since)
	}
	d.at("n2", "eu", "b")
	d.ok(&fsm.PutNode{Name: "n2", Weight: ptr(uint32(0))})
	if w := why(); !strings.Contains(w, "node n2: it has weight 0") || strings.Contains(w, "n0") {
		t.Errorf("%q", w)
	}
	add := &fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: fsm.UnitRef{Unit: "acme", ID: p.ID}}}}
	if r := d.ok(add); len(r.Added) > 0 {
		t.Fatalf("added %v", r.Added)
	}
	d.ok(&fsm.PutNode{Name: "n2", Weight: ptr(uint32(1))})
	if w := why(); !strings.Contains(w, "not been placed yet") {
		t.Errorf("%q", w)
	}
	if p, _ := d.Placed("acme"); p.Lacks != since {
		t.Errorf("lacks since %d, not since %d", p.Lacks, since)
	}
	if r := d.ok(add); len(r.Added) != 1 || r.Added[0].Node != "n2" {
		t.Fatalf("added %v", r.Added)
	}
	if w := why(); w != "" {
		t.Errorf("%q", w)
	}
	d.ok(&fsm.SetSettings{Settings: fsm.Settings{Replicas: 2}})
	if p, _ := d.Placed("acme"); p.Lacks != d.Now() {
		t.Error("two are asked for, and one is there")
	}
	d.ok(&fsm.SetSettings{Settings: fsm.Settings{Replicas: 0}})
	if p, _ := d.Placed("acme"); p.Lacks != 0 {
		t.Error("none is asked for")
	}
	d.tenant(fsm.CreateTenant{Name: "alone", Node: ptr(fsm.NodeName("n1"))})
	p, _ = d.Placed("alone")
	if w := d.Unreplicated(p); !strings.Contains(w, "--replicas 0") {
		t.Errorf("%q", w)
	}
}

func TestC5ThePairHasTheCopies(t *testing.T) {
	d := leased(t, "n1", "n2", "n3")
	old := d.replicated("old", "n1", "n3")
	d.ok(&fsm.PutNode{Name: "n1", Standby: ptr(fsm.NodeName("n2"))})
	if p, _ := d.Placed("old"); p.Lacks != d.Now() {
		t.Fatal("the copy is not on the standby, and that is not noted")
	}
	d.ok(&fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: old}}})
	d.wantCopies("old", "n2 syncing, n3 in_sync")
	d.sync(old, "n2")
	p, _ := d.Placed("old")
	if spare, ok := d.SpareCopy(p); !ok || spare.Node != "n3" {
		t.Fatalf("%+v", spare)
	}
	r := d.ok(&fsm.CreateTenant{Name: "new", Node: ptr(fsm.NodeName("n1"))})
	if c := r.Placed.Copies; len(c) != 1 || c[0].Node != "n2" {
		t.Fatalf("copies %v", c)
	}
	d.ok(&fsm.AdvanceJob{ID: r.Job, From: fsm.StepMake, To: fsm.StepDone})
	if r := d.ok(&fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: fsm.UnitRef{Unit: "new", ID: r.Placed.ID}, Node: "n3"}}}); len(r.Added) > 0 {
		t.Fatal("a copy beside the standby")
	}
	third := d.replicated("third", "n3", "n1")
	if r := d.ok(&fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: third, Node: "n2"}}}); len(r.Added) > 0 {
		t.Fatal("a copy on the standby of another node")
	}
	// n4 holds a copy of third and becomes a standby: that copy does not count there.
	d.at("n4", "eu", "z4")
	d.at("n5", "eu", "z5")
	d.ok(&fsm.SetSettings{Settings: fsm.Settings{Replicas: 2}})
	d.ok(&fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: third, Node: "n4"}}})
	d.wantCopies("third", "n1 in_sync, n4 syncing")
	d.ok(&fsm.PutNode{Name: "n5", Standby: ptr(fsm.NodeName("n4"))})
	if p, _ := d.Placed("third"); p.Lacks != d.Now() {
		t.Fatal("a copy on the standby of another node counts")
	}
	d.ok(&fsm.DeleteNode{Name: "n5"})
	if p, _ := d.Placed("third"); p.Lacks != 0 {
		t.Fatal("the pair is over, and the copy does not count")
	}
}

func TestC7TwoCopiesGoToTwoNodes(t *testing.T) {
	d := ready(t, 2)
	for _, n := range []fsm.NodeName{"n1", "n2", "n3", "n4"} {
		d.at(n, "eu", fsm.ZoneName("z-"+n))
	}
	p := d.ok(&fsm.CreateTenant{Name: "acme", Silent: []fsm.NodeName{"n2"}}).Placed
	if p.Node != "n1" || len(p.Copies) != 2 || p.Copies[0].Node != "n3" || p.Copies[1].Node != "n4" {
		t.Fatalf("%+v", p)
	}
	if j, _ := d.Job(p.Job); len(j.Targets) != 1 || j.Targets[0].Node != "n1" {
		t.Fatalf("the create works on %v: copies begin once the unit is active", j.Targets)
	}
	d.ok(&fsm.DeleteTenant{Name: "acme"})
	d.wantCopies("acme", "")
	d.tenant(fsm.CreateTenant{Name: "b"})
	job := d.ok(&fsm.DeleteTenant{Name: "b"}).Job
	if j, _ := d.Job(job); len(j.Targets) != 3 {
		t.Fatalf("T5: the delete works on %v", j.Targets)
	}
}

// What a copy may become, and on what condition.
func TestC6CopiesChangeOnlyAsTheyWereSeen(t *testing.T) {
	d := leased(t, "n1", "n2", "n3")
	acme := d.replicated("acme", "n1", "n2")
	p, _ := d.Placed("acme")
	try := func(ch fsm.CopyChange, want string) {
		t.Helper()
		d.ok(&fsm.ChangeCopies{Changes: []fsm.CopyChange{ch}})
		d.wantCopies("acme", want)
	}
	from, to := fsm.CopyInSync, fsm.CopySyncing
	ch := fsm.CopyChange{UnitRef: acme, Epoch: p.Epoch, Node: "n2", From: from, To: to}
	with := func(f func(*fsm.CopyChange)) fsm.CopyChange { c := ch; f(&c); return c }
	try(with(func(c *fsm.CopyChange) { c.ID-- }), "n2 in_sync")
	try(with(func(c *fsm.CopyChange) { c.Epoch++ }), "n2 in_sync")
	try(with(func(c *fsm.CopyChange) { c.Node = "n3" }), "n2 in_sync")
	try(with(func(c *fsm.CopyChange) { c.From = fsm.CopyJoining }), "n2 in_sync")
	try(with(func(c *fsm.CopyChange) { c.Node, c.From = "n3", 0 }), "n2 in_sync")
	for _, to := range []fsm.CopyState{fsm.CopyLeaving, fsm.CopyFormer, fsm.CopyInSync, fsm.CopyJoining, 0, 9} {
		try(with(func(c *fsm.CopyChange) { c.To = to }), "n2 in_sync")
	}
	try(ch, "n2 syncing")
	ch.From = fsm.CopySyncing
	try(with(func(c *fsm.CopyChange) { c.To = fsm.CopyInSync }), "n2 syncing") // joins first
	ch.To = fsm.CopyJoining
	try(ch, "n2 joining")
	if len(d.events) > 0 {
		t.Errorf("a follower has no use for %v", d.events)
	}
	ch.From, ch.To = fsm.CopyJoining, fsm.CopySyncing
	try(ch, "n2 syncing")
}
