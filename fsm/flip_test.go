package fsm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"domicile/fsm"
)

// where lists units with their nodes, states and epochs' ages: "a n2 active new".
func (d *dir) where(units ...fsm.UnitName) string {
	var all []string
	for _, u := range units {
		p, _ := d.Placed(u)
		text := fmt.Sprintf("%s %s %s", u, p.Node, p.State)
		if p.Epoch == uint64(d.Revision()) {
			text += " flipped"
		}
		if !p.Promoted() {
			text += " after " + string(p.Previous)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func (d *dir) want(units, want string) {
	d.t.Helper()
	names := []fsm.UnitName{}
	for _, u := range strings.Fields(units) {
		names = append(names, fsm.UnitName(u))
	}
	if got := d.where(names...); got != want {
		d.t.Fatalf("%q, want %q", got, want)
	}
}

func flips(r fsm.Result) string {
	var all []string
	for _, f := range r.Flips {
		all = append(all, fmt.Sprintf("%s %s-%s", f.Unit, f.From, f.To))
	}
	return strings.Join(all, ", ") + fmt.Sprint(" left ", r.Left)
}

func TestL5I4OneEntryFlipsAllUnitsOfANode(t *testing.T) {
	d := leased(t, "n1", "n2", "n3")
	d.at("n4", "us", "z")
	d.replicated("a", "n1", "n2")
	b := d.replicated("b", "n1", "n3")
	d.replicated("bare", "n1")
	d.replicated("c", "n2", "n1")
	job := d.ok(&fsm.CreateTenant{Name: "new", Node: ptr(fsm.NodeName("n1"))}).Job
	d.tenant(fsm.CreateTenant{Name: "gone", Node: ptr(fsm.NodeName("n1"))})
	d.ok(&fsm.DeleteTenant{Name: "gone"})
	d.change(b, "n3", fsm.CopyInSync, fsm.CopySyncing)
	d.sync(b, "n3")
	r := d.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed})
	if got, want := flips(r), "a n1-n2, b n1-n3 left [bare]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	d.want("a b bare c new gone", "a n2 active flipped after n1, b n3 active flipped after n1, bare n1 active, c n2 active, new n1 creating, gone n1 deleting")
	d.wantCopies("a", "n1 former")
	if len(d.events) != 3 || d.events[0].Unit.Node != "n2" || len(d.events[0].Unit.Copies) > 0 || !d.events[2].Node.Lost {
		t.Errorf("events %+v", d.events)
	}
	n, _ := d.Node("n1")
	p, _ := d.Placed("c")
	if !n.Lost || p.Lacks != d.Now() {
		t.Errorf("%+v, and %+v has its copy there", n, p)
	}
	// Again: nothing is left to flip, and that is no error.
	if r := d.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed}); len(r.Flips) > 0 {
		t.Errorf("a second failover flips %v", r.Flips)
	}
	d.refused(fsm.CodeNoCopy, &fsm.FailOver{Node: "n1", Cause: fsm.CauseHand}, "n1", "bare")
	d.refused(fsm.CodeNodeLost, &fsm.BeginHandover{Node: "n1", Cause: fsm.CauseHand}, "n1")
	d.ok(&fsm.AdvanceJob{ID: job, From: fsm.StepMake, To: fsm.StepDone})
	if p := d.ok(&fsm.CreateTenant{Name: "later", Region: ptr(fsm.RegionName("eu"))}).Placed; p.Node == "n1" || slices.ContainsFunc(p.Copies, func(c fsm.Copy) bool { return c.Node == "n1" }) {
		t.Errorf("placed on a lost node: %+v", p)
	}
	d.ok(&fsm.NodeBack{Node: "n1"})
	if p, _ := d.Placed("c"); p.Lacks != 0 {
		t.Error("the node is back, and its copies do not count")
	}
}

func TestL5ANodeThatTakesNoLeaseIsNotFailedOverByItself(t *testing.T) {
	d := leased(t, "n1", "n2")
	d.replicated("a", "n1", "n2")
	for _, lease := range []fsm.NodeLease{fsm.LeaseUnknown, fsm.LeaseNone} {
		d.ok(&fsm.SetNodeLease{Node: "n1", Lease: lease})
		d.refused(fsm.CodeNodeUnleased, &fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed}, "n1")
	}
	d.refused(fsm.CodeBadRequest, &fsm.SetNodeLease{Node: "n1", Lease: 3})
	d.refused(fsm.CodeNodeUnknown, &fsm.SetNodeLease{Node: "n9"})
	for _, cause := range []fsm.FlipCause{0, fsm.CauseStopped, fsm.CauseBehind, 9} {
		d.refused(fsm.CodeBadRequest, &fsm.FailOver{Node: "n1", Cause: cause})
	}
	d.refused(fsm.CodeNodeUnknown, &fsm.FailOver{Node: "n9", Cause: fsm.CauseHand})
	if r := d.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseHand, Silent: true}); flips(r) != "a n1-n2 left []" {
		t.Error(flips(r))
	}
}

// While a lease may run, only its lapse flips.
func TestI1AFailoverByHandFlipsNothingUnderALease(t *testing.T) {
	d := leased(t, "n1", "n2")
	d.replicated("a", "n1", "n2")
	d.refused(fsm.CodeStale, &fsm.FailOver{Node: "n1", Cause: fsm.CauseHand, Silent: true}, "n1")
	d.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed})
}

func TestL5WhichCopyIsChosen(t *testing.T) {
	d := leased(t, "n1", "n2", "n3", "n4", "n5")
	d.ok(&fsm.PutNode{Name: "n2", Zone: ptr(fsm.ZoneName("z-n1"))})
	d.ok(&fsm.PutNode{Name: "n3", Zone: ptr(fsm.ZoneName(""))})
	a := d.replicated("a", "n1", "n2", "n3", "n4", "n5")
	try := func(want string, choices ...fsm.NodeName) {
		t.Helper()
		cmd := &fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed}
		for _, c := range choices {
			cmd.Choices = append(cmd.Choices, fsm.Flip{UnitRef: a, From: "n1", To: c})
		}
		s := *d
		s.State = clone(t, d.State)
		if got := flips(s.ok(cmd)); got != want+" left []" {
			t.Errorf("with %v: %s, want %s", choices, got, want)
		}
	}
	try("a n1-n4")
	try("a n1-n3", "n3")
	try("a n1-n4", "n9", "n1")
	d.ok(&fsm.FailOver{Node: "n4", Cause: fsm.CauseLapsed})
	try("a n1-n5")
	try("a n1-n4", "n4") // a person may know better
	d.ok(&fsm.PutNode{Name: "n5", Zone: ptr(fsm.ZoneName("z-n1"))})
	try("a n1-n3")
	d.change(a, "n3", fsm.CopyInSync, fsm.CopySyncing)
	try("a n1-n2")
	try("a n1-n2", "n3") // not in sync: not by itself
	d.ok(&fsm.SetNodeLease{Node: "n1", Lease: fsm.LeaseNone})
	r := d.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseHand, Choices: []fsm.Flip{{UnitRef: a, From: "n1", To: "n3"}}})
	if got := flips(r); got != "a n1-n3 left []" {
		t.Fatal(got)
	}
	// The new primary may lack what these have: they begin again.
	d.wantCopies("a", "n1 former, n2 syncing, n4 syncing, n5 syncing")
}

// clone gives a state that goes its own way.
func clone(t *testing.T, s *fsm.State) *fsm.State {
	t.Helper()
	b, err := fsm.NewBuilder(s.Meta())
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	for m := range s.Members() {
		must(b.AddMember(m))
	}
	for r := range s.Regions() {
		must(b.AddRegion(r))
	}
	for n := range s.Nodes() {
		must(b.AddNode(n, s.ListRevision(n.Name)))
	}
	for x, p := range s.Placements() {
		must(b.AddTenant(x, p))
	}
	for j := range s.Jobs() {
		must(b.AddJob(j))
	}
	for x := range s.Tasks() {
		must(b.AddTask(x))
	}
	for q := range s.Requests() {
		must(b.AddRequest(q))
	}
	for i := range s.Intakes() {
		must(b.AddIntake(i))
	}
	for n := range s.StagedNodes() {
		must(b.AddStagedNode(n))
	}
	for x, p := range s.StagedTenants() {
		must(b.AddStagedTenant(x, p))
	}
	c, err := b.State()
	must(err)
	return c
}

// Until a promotion is confirmed the last primary may be chosen again, and what
// it holds is neither made to follow nor removed (architecture §3.7.6).
func TestI4UntilThePromotionIsConfirmedTheFormerPrimaryIsKept(t *testing.T) {
	d := leased(t, "n1", "n2", "n3")
	a := d.replicated("a", "n1", "n2")
	d.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed})
	d.ok(&fsm.NodeBack{Node: "n1"})
	p, _ := d.Placed("a")
	if r := d.ok(&fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: a, Node: "n1"}, {UnitRef: a, Node: "n3"}}}); len(r.Added) > 0 {
		t.Fatal("a copy of a unit that is not promoted")
	}
	d.change(a, "n1", fsm.CopyFormer, fsm.CopyLeaving)
	d.wantCopies("a", "n1 former")
	d.refused(fsm.CodeNoCopy, &fsm.BeginHandover{Node: "n2", Cause: fsm.CauseHand})
	if r := d.ok(&fsm.FailOver{Node: "n2", Cause: fsm.CauseLapsed}); flips(r) != "a n2-n1 left []" {
		t.Fatal(flips(r))
	}
	d.want("a", "a n1 active flipped after n2")
	d.ok(&fsm.ConfirmPromotion{Node: "n2", Epoch: p.Epoch, Units: []fsm.UnitRef{a}}) // late
	d.want("a", "a n1 active after n2")
	d.confirm("a")
	d.wantCopies("a", "n2 former")
	d.ok(&fsm.NodeBack{Node: "n2"})
	d.change(a, "n2", fsm.CopyFormer, fsm.CopyLeaving)
	d.wantCopies("a", "n2 former") // it is the only one beside the primary
	d.ok(&fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: a, Node: "n2"}}})
	d.wantCopies("a", "n2 syncing")
	if p, _ := d.Placed("a"); p.Lacks != 0 {
		t.Error("the former primary follows, and is not counted")
	}
	d.refused(fsm.CodeNodeUnknown, &fsm.ConfirmPromotion{Node: "n9"})
}

// A node whose promotion was never confirmed, and that takes leases, has written
// nothing: who wrote last is still the one before it.
func TestI4TwoFlipsBeforeAPromotion(t *testing.T) {
	d := leased(t, "n1", "n2", "n3")
	d.replicated("a", "n1", "n2", "n3")
	d.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed})
	d.ok(&fsm.FailOver{Node: "n2", Cause: fsm.CauseLapsed})
	d.want("a", "a n3 active flipped after n1")
	d.wantCopies("a", "n1 former, n2 former")
	if r := d.ok(&fsm.FailOver{Node: "n3", Cause: fsm.CauseLapsed}); flips(r) != " left [a]" {
		t.Fatal(flips(r)) // all are lost: what comes back first is chosen then
	}
	d.ok(&fsm.NodeBack{Node: "n1"})
	p, _ := d.Placed("a")
	if to, ok := d.Successor(p, nil); !ok || to != "n1" {
		t.Fatalf("%s %v", to, ok)
	}
	d.ok(&fsm.FailOver{Node: "n3", Cause: fsm.CauseLapsed})
	d.want("a", "a n1 active flipped after n3")
	d = leased(t, "n1", "n2", "n3")
	d.replicated("a", "n1", "n2", "n3")
	d.ok(&fsm.SetNodeLease{Node: "n2", Lease: fsm.LeaseNone})
	d.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed})
	d.ok(&fsm.FailOver{Node: "n2", Cause: fsm.CauseHand, Silent: true})
	d.want("a", "a n3 active flipped after n2") // it may have written as soon as it was asked
}

// TestI4AUnitThatItsNodeDoesNotPromoteGoesBack: until the promotion is confirmed the
// former primary may be chosen, by name, though the node that has the unit is not lost.
func TestI4AUnitThatItsNodeDoesNotPromoteGoesBack(t *testing.T) {
	d := leased(t, "n1", "n2", "n3")
	a := d.replicated("a", "n1", "n2")
	b := d.replicated("b", "n1", "n2")
	c := d.replicated("c", "n2", "n3")
	back := func(to fsm.NodeName, units ...fsm.UnitRef) *fsm.FailOver {
		f := &fsm.FailOver{Node: "n2", Cause: fsm.CauseUnpromoted, Silent: true}
		for _, u := range units {
			f.Choices = append(f.Choices, fsm.Flip{UnitRef: u, From: "n2", To: to})
		}
		return f
	}
	d.refused(fsm.CodeNoCopy, back("n1", a, b))
	d.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed})
	d.ok(&fsm.NodeBack{Node: "n1"})
	d.refused(fsm.CodeNoCopy, back("n3", a)) // holds no copy
	d.refused(fsm.CodeNoCopy, back("n3", c)) // is in sync; but n2 writes c
	d.refused(fsm.CodeNoCopy, back("n1"))
	if r := d.ok(back("n1", a, c)); flips(r) != "a n2-n1 left []" {
		t.Fatal(flips(r))
	}
	d.want("a b c", "a n1 active flipped after n2, b n2 active after n1, c n2 active")
	d.wantCopies("a", "n2 former")
	if n, _ := d.Node("n2"); n.Lost {
		t.Error("n2 counts as lost")
	}
	d.ok(&fsm.SetNodeLease{Node: "n2", Lease: fsm.LeaseNone}) // it may have been written since it was asked
	d.refused(fsm.CodeNodeUnleased, back("n1", b))
}

func TestL8I2AFailoverStaysInItsRegion(t *testing.T) {
	d := leased(t, "n1", "n2")
	d.at("n3", "us", "z")
	a := d.replicated("a", "n1", "n2")
	if r := d.ok(&fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: a, Node: "n3"}}}); len(r.Added) > 0 {
		t.Fatal("a copy in another region")
	}
	d.refused(fsm.CodeNodeInUse, &fsm.PutNode{Name: "n2", Region: ptr(fsm.RegionName("us"))}, "a copy of a")
	d.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed, Choices: []fsm.Flip{{UnitRef: a, From: "n1", To: "n3"}}})
	d.want("a", "a n2 active flipped after n1")
	d.refused(fsm.CodeNodeInUse, &fsm.PutNode{Name: "n1", Region: ptr(fsm.RegionName("us"))}, "a former copy of a")
	d.refused(fsm.CodeNodeInUse, &fsm.DeleteNode{Name: "n1"}, "a former copy of a")
	if p, c := d.NodeHolds("n1"); p != 0 || c != 0 {
		t.Errorf("n1 holds %d and %d", p, c)
	}
}

func TestC5AFlipToAStandbyEndsThePairOrTurnsItRound(t *testing.T) {
	d := leased(t, "n1", "n2", "n3")
	d.ok(&fsm.PutNode{Name: "n1", Standby: ptr(fsm.NodeName("n2"))})
	d.replicated("a", "n1", "n2")
	whole := *d
	whole.State = clone(t, d.State)
	d.ok(&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed})
	d.want("a", "a n2 active flipped after n1")
	if of, any := d.StandbyOf("n2"); any {
		t.Errorf("n2 is a primary, and the standby of %s", of)
	}
	d.confirm("a")
	p, _ := d.Placed("a")
	d.ok(&fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: fsm.UnitRef{Unit: "a", ID: p.ID}}}})
	d.wantCopies("a", "n1 former, n3 syncing") // no pair binds it
	d = &whole
	job := d.ok(&fsm.BeginHandover{Node: "n1", Cause: fsm.CauseStopped}).Job
	d.ok(&fsm.EndRelease{ID: job, Released: []fsm.UnitRef{{Unit: "a", ID: p.ID}}})
	if of, _ := d.StandbyOf("n1"); of != "n2" {
		t.Errorf("n1 handed over all that it had to n2, and is the standby of %q", of)
	}
}

func TestL1TheLongestLeaseIsLoweredOnlyOnceItIsOver(t *testing.T) {
	d := ready(t, 1)
	set := func(ms fsm.Millis) { d.ok(&fsm.SetSettings{Settings: fsm.Settings{AutoFailover: ms}}) }
	longest := func(want fsm.Millis) {
		t.Helper()
		if got := d.Settings().LongestLease; got != want {
			t.Fatalf("the longest lease is %d, want %d", got, want)
		}
	}
	longest(3000)
	set(9000)
	set(1000)
	longest(9000)
	d.refused(fsm.CodeStale, &fsm.SettleLease{LongestLease: 500})
	d.ok(&fsm.SettleLease{LongestLease: 1000})
	longest(1000)
	set(0)
	longest(1000)
	d.ok(&fsm.SettleLease{})
	longest(0)
	d.ok(&fsm.SetSettings{Settings: fsm.Settings{LongestLease: 7000}}) // a former authority's
	longest(7000)
	d.refused(fsm.CodeBadRequest, &fsm.SetSettings{Settings: fsm.Settings{LongestLease: -1}})
}
