package fsm_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"domicile/fsm"
	"domicile/fsm/fsmtest"
)

var self = fsm.Member{ID: "s3", Raft: "127.0.0.1:8073", API: "http://127.0.0.1:8070", Version: fsm.Version}

// recover begins a recovery into the next history, and gives its number.
func (d *dir) recover() fsm.Revision {
	d.t.Helper()
	scope, _ := d.Scope()
	if err := d.Recover(fsm.RecoverMajority, scope.History+1, self, d.Now()+1); err != nil {
		d.t.Fatal(err)
	}
	if err := fsm.Check(d.State); err != nil {
		d.t.Fatalf("after Recover: %v", err)
	}
	return d.Recovery().ID
}

func (d *dir) nodeRefs(names ...fsm.NodeName) (refs []fsm.NodeRef) {
	for _, name := range names {
		n, _ := d.Node(name)
		refs = append(refs, fsm.NodeRef{Node: name, ID: n.ID})
	}
	return refs
}

func taken(u fsm.UnitRef, on fsm.NodeName, others ...fsm.NodeName) fsm.TakenUnit {
	return fsm.TakenUnit{UnitRef: u, Node: on, Others: others}
}

// TestO6WhileRecoveringNothingIsGrantedPromotedOrChanged: §3.8.3, with the numbers
// of the new history above all that the former one may have given.
func TestO6WhileRecoveringNothingIsGrantedPromotedOrChanged(t *testing.T) {
	d := leased(t, "n1", "n2", "n3")
	a := d.replicated("a", "n1", "n2")
	id := d.recover()
	if scope, _ := d.Scope(); scope.History != 2 || id != fsm.FirstRevision(2) || d.Revision() != id || !d.Recovering() {
		t.Fatalf("history %d, recovery %d at revision %d", scope.History, id, d.Revision())
	}
	if m, ok := d.Member("s3"); !ok || *m != self {
		t.Fatalf("the server that was kept is recorded as %+v", m)
	}
	for m := range d.Members() {
		if m.ID != "s3" {
			t.Errorf("server %s of the lost group is still a member", m.ID)
		}
	}
	for _, c := range []fsm.Command{
		&fsm.CreateTenant{Name: "b"}, &fsm.DeleteTenant{Name: "a"}, &fsm.DeleteNode{Name: "n3"}, &fsm.DeleteNode{Name: "n3", Force: true},
		&fsm.FailOver{Node: "n1", Cause: fsm.CauseLapsed}, &fsm.BeginHandover{Node: "n1", Cause: fsm.CauseHand},
		&fsm.ConfirmPromotion{Node: "n1", Epoch: 1, Units: []fsm.UnitRef{a}}, &fsm.AddCopies{Units: []fsm.CopyWanted{{UnitRef: a}}},
		&fsm.ChangeCopies{}, &fsm.DropCopies{}, &fsm.AdvanceJob{ID: 1}, &fsm.EndRelease{ID: 1}, &fsm.NodeBack{Node: "n1"},
		&fsm.SettleLease{}, &fsm.SetNodeLease{Node: "n1"}, &fsm.AdoptUnit{}, &fsm.SetPin{Tenant: "a", Pinned: true},
	} {
		d.refused(fsm.CodeRecovering, c)
	}
	d.refused(fsm.CodeStale, &fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs("n1", "n2", "n3")})
	d.refused(fsm.CodeStale, &fsm.TakeOver{Recovery: id - 1, Units: []fsm.TakenUnit{taken(a, "n1", "n2")}})
	d.refused(fsm.CodeStale, &fsm.TakeOver{Recovery: id})
	d.ok(&fsm.TakeOver{Recovery: id, Units: []fsm.TakenUnit{taken(a, "n1", "n2")}})
	d.want("a", "a n1 active flipped after n1") // not granted before it is promoted
	if g := fsmGrantable(d.State, "n1"); g != "" {
		t.Errorf("a grant would name %s", g)
	}
	d.refused(fsm.CodeStale, &fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs("n1", "n2")}, "n3")
	p, _ := d.Placed("a")
	d.ok(&fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs("n1", "n2", "n3")})
	d.ok(&fsm.ConfirmPromotion{Node: "n1", Epoch: p.Epoch, Units: []fsm.UnitRef{a}})
	if g := fsmGrantable(d.State, "n1"); d.Recovering() || g != "a" {
		t.Errorf("recovering: %v; a grant names %q", d.Recovering(), g)
	}
	d.wantCopies("a", "n2 syncing")
	d.refused(fsm.CodeStale, &fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs("n1", "n2", "n3")})
}

func fsmGrantable(s *fsm.State, n fsm.NodeName) string {
	var all []string
	for p := range s.Grantable(n) {
		all = append(all, string(p.Unit))
	}
	return strings.Join(all, " ")
}

// TestO6TheNewestBranchIsTakenOver: found on its own node, on another one that the
// directory knows as a copy or not at all, and nowhere.
func TestO6TheNewestBranchIsTakenOver(t *testing.T) {
	d := leased(t, "n1", "n2", "n3", "n4")
	a, b, c, e := d.replicated("a", "n1", "n2"), d.replicated("b", "n1", "n2"), d.replicated("c", "n1", "n2"), d.replicated("e", "n4")
	id := d.recover()
	d.refused(fsm.CodeNodeUnknown, &fsm.TakeOver{Recovery: id, Upto: "a", Units: []fsm.TakenUnit{taken(a, "n9")}}, "n9")
	d.refused(fsm.CodeBadRequest, &fsm.TakeOver{Recovery: id, Upto: "a", Units: []fsm.TakenUnit{taken(a, "n1", "n1")}}, "n1")
	d.ok(&fsm.TakeOver{Recovery: id, Upto: "a", Units: []fsm.TakenUnit{taken(a, "n2", "n1")}})
	d.want("a", "a n2 active flipped after n2")
	d.wantCopies("a", "n1 former")
	d.refused(fsm.CodeStale, &fsm.TakeOver{Recovery: id, Upto: "a", Units: []fsm.TakenUnit{taken(a, "n2", "n1")}})
	d.ok(&fsm.TakeOver{Recovery: id, After: "a", Upto: "b", Units: []fsm.TakenUnit{taken(b, "n3", "n2", "n4")}})
	d.want("b", "b n3 active flipped after n3")
	d.wantCopies("b", "n2 syncing, n4 former")
	d.ok(&fsm.TakeOver{Recovery: id, After: "b", Units: []fsm.TakenUnit{taken(c, "", "n3"), taken(e, "n4")}})
	d.want("c e", "c n1 active flipped after n1, e n4 active flipped after n4")
	d.wantCopies("c", "n2 syncing, n3 former")
	if r := d.Recovery(); r.Units != 4 || r.Moved != 2 || r.Lost != 1 || len(r.LostUnits) != 1 || r.LostUnits[0] != c {
		t.Errorf("%+v", r)
	}
}

// TestO6ANodeThatCannotBeReadBlocksUntilItIsWrittenOff: and what was taken over
// without knowing that is taken over again.
func TestO6ANodeThatCannotBeReadBlocksUntilItIsWrittenOff(t *testing.T) {
	d := leased(t, "n1", "n2")
	a := d.replicated("a", "n1", "n2")
	id := d.recover()
	d.ok(&fsm.TakeOver{Recovery: id, Units: []fsm.TakenUnit{taken(a, "n1", "n2")}})
	d.refused(fsm.CodeStale, &fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs("n2")}, "n1")
	d.refused(fsm.CodeNodeUnknown, &fsm.ForgoNode{Recovery: id, Node: "n9"}, "n9")
	d.ok(&fsm.ForgoNode{Recovery: id, Node: "http://10.0.0.9:8081"}) // a node that is not recorded
	d.ok(&fsm.ForgoNode{Recovery: id, Node: "n1"})
	if n, _ := d.Node("n1"); !n.Lost {
		t.Error("a node that was written off does not show as lost")
	}
	d.refused(fsm.CodeStale, &fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs("n2")})
	d.refused(fsm.CodeStale, &fsm.TakeOver{Recovery: id, Units: []fsm.TakenUnit{taken(a, "n1", "n2")}}, "n1")
	d.ok(&fsm.TakeOver{Recovery: id, Units: []fsm.TakenUnit{taken(a, "n2")}})
	d.wantCopies("a", "n1 former") // what it holds is not forgotten
	d.ok(&fsm.PutNode{Name: "n3", Addr: ptr("127.0.0.1:8083"), Token: ptr("t")})
	d.refused(fsm.CodeStale, &fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs("n2")}) // a node that came is read, too
	d.ok(&fsm.TakeOver{Recovery: id, Units: []fsm.TakenUnit{taken(a, "n2")}})
	d.refused(fsm.CodeStale, &fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs("n2")}, "n3")
	d.ok(&fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs("n2", "n3")})

	d.recover()
	if d.Recovery().Without("n1") {
		t.Error("a word on a node outlives the recovery that it was about")
	}
}

// TestO6WorkUnderWayWhenTheDirectoryWasKept: a create that the directory does not
// know to be done, and a handover.
func TestO6WorkUnderWayWhenTheDirectoryWasKept(t *testing.T) {
	d := leased(t, "n1", "n2", "n3")
	a := d.replicated("a", "n1", "n2")
	d.ok(&fsm.BeginHandover{Node: "n1", Cause: fsm.CauseHand})
	d.ok(&fsm.CreateTenant{Name: "made", Node: ptr(fsm.NodeName("n1"))})
	d.ok(&fsm.CreateTenant{Name: "served", Node: ptr(fsm.NodeName("n1"))})
	made, _ := d.Placed("made")
	served, _ := d.Placed("served")
	m, s := fsm.UnitRef{Unit: made.Unit, ID: made.ID}, fsm.UnitRef{Unit: served.Unit, ID: served.ID}
	id := d.recover()
	d.ok(&fsm.TakeOver{Recovery: id, Units: []fsm.TakenUnit{taken(a, "n2", "n1"), taken(m, "n1"), taken(s, "n3", "n1")}})
	d.want("a made served", "a n2 active flipped after n2, made n1 creating, served n3 active flipped after n3")
	if j, _ := d.Job(served.Job); j.Step != fsm.StepDone || j.Refusal != nil {
		t.Errorf("the create of a tenant that was served: %+v", j)
	}
	d.ok(&fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs("n1", "n2", "n3")})
	for j := range d.RunningJobs() {
		if j.Kind == fsm.JobHandover && (j.Step != fsm.StepThaw || len(d.ToThaw(j)) != 0) {
			t.Errorf("the handover: %+v", j)
		}
	}
	d.ok(&fsm.AdvanceJob{ID: made.Job, From: fsm.StepMake, To: fsm.StepDone})
}

// TestO6AUnitThatNoEntryKnowsIsAdopted by an operator, under the id that it has.
func TestO6AUnitThatNoEntryKnowsIsAdopted(t *testing.T) {
	d := leased(t, "n1", "n2")
	orphan := fsm.UnitRef{Unit: "b", ID: 900}
	d.refused(fsm.CodeBadRequest, &fsm.AdoptUnit{UnitRef: orphan, Node: "n1"})
	a := d.replicated("a", "n1", "n2")
	id := d.recover()
	d.ok(&fsm.TakeOver{Recovery: id, Units: []fsm.TakenUnit{taken(a, "n1", "n2")}})
	d.ok(&fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs("n1", "n2")})
	d.refused(fsm.CodeTenantExists, &fsm.AdoptUnit{UnitRef: fsm.UnitRef{Unit: "a", ID: 900}, Node: "n1"}, "a")
	d.refused(fsm.CodeBadRequest, &fsm.AdoptUnit{UnitRef: fsm.UnitRef{Unit: "b", ID: fsm.UnitID(id) + 1}, Node: "n1"})
	d.refused(fsm.CodeNodeUnknown, &fsm.AdoptUnit{UnitRef: orphan, Node: "n9"}, "n9")
	d.ok(&fsm.AdoptUnit{UnitRef: orphan, Node: "n1", Others: []fsm.NodeName{"n2"}})
	d.want("b", "b n1 active flipped after n1")
	d.wantCopies("b", "n2 former")
}

// TestO6RecoverRefuses what would take a number twice.
func TestO6RecoverRefuses(t *testing.T) {
	if err := fsm.New().Recover(fsm.RecoverRestored, 2, self, 1); err == nil {
		t.Error("an empty directory was recovered")
	}
	d := leased(t, "n1")
	old := self
	old.Version = 1
	for history, member := range map[uint64]fsm.Member{1: self, fsm.MaxHistory + 1: self, 3: old} {
		if err := d.Recover(fsm.RecoverRestored, history, member, 1); err == nil || d.Recovering() {
			t.Errorf("recovered into history %d, by %+v", history, member)
		}
	}
}

// TestO6AnyDirectoryCanBeRecovered whatever was under way in it, and whatever nodes
// are found to hold.
func TestO6AnyDirectoryCanBeRecovered(t *testing.T) {
	for seed := range uint64(120) {
		d, r := newDir(t), rand.New(rand.NewPCG(seed, 7))
		l := fsmtest.NewLog(seed)
		if seed >= 60 {
			l = fsmtest.NewRegionsLog(seed)
		}
		for range 300 {
			d.Apply(l.Next(d.State))
		}
		if _, ok := d.Scope(); !ok {
			continue
		}
		id := d.recover()
		var nodes []fsm.NodeName
		for n := range d.Nodes() {
			nodes = append(nodes, n.Name)
		}
		after := fsm.TenantName("")
		var names []fsm.TenantName
		for t := range d.Tenants("", "") {
			names = append(names, t.Name)
		}
		for _, name := range append(names, "") {
			cmd := &fsm.TakeOver{Recovery: id, After: after, Upto: name}
			if t, ok := d.Tenant(name); ok && (t.HasHome || r.IntN(4) == 0 && t.Buckets == 0) {
				cmd.Homes = foundHome(r, d, t, nodes)
			}
			if len(cmd.Homes) > 0 {
				d.ok(cmd)
				after = name
				continue
			}
			for p := range d.ToTakeOver(name) {
				u := fsm.TakenUnit{UnitRef: fsm.UnitRef{Unit: p.Unit, ID: p.ID}}
				for _, n := range nodes {
					switch {
					case r.IntN(4) > 0:
					case u.Node == "":
						u.Node = n
					default:
						u.Others = append(u.Others, n)
					}
				}
				cmd.Units = append(cmd.Units, u)
			}
			d.ok(cmd)
			after = name
		}
		var regions []fsm.RegionName
		for region := range d.Regions() {
			regions = append(regions, region.Name)
		}
		d.ok(&fsm.EndRecovery{Recovery: id, Nodes: d.nodeRefs(nodes...), Regions: regions})
		if err := fsm.Check(d.State); err != nil {
			t.Fatalf("seed %d, recovered: %v", seed, err)
		}
		for range 200 {
			d.Apply(l.Next(d.State))
			if err := fsm.Check(d.State); err != nil {
				t.Fatalf("seed %d, after the recovery: %v", seed, err)
			}
		}
	}
}

// foundHome finds a tenant somewhere: nil for where it is.
func foundHome(r *rand.Rand, d *dir, t *fsm.Tenant, nodes []fsm.NodeName) []fsm.TakenHome {
	h := fsm.TakenHome{Tenant: t.Name, ID: t.Claim}
	if p, ok := d.Placed(fsm.UnitName(t.Name)); ok {
		h.ID = p.ID
	}
	for region := range d.Regions() {
		if r.IntN(2) == 0 {
			h.Home = region.Name
		}
	}
	switch scope, _ := d.Scope(); {
	case scope.Region != "" || h.Home == "" && !t.HasHome:
		return nil
	case h.Home == "" && len(nodes) > 0 && r.IntN(2) == 0:
		h.Node, h.Epoch = nodes[r.IntN(len(nodes))], 7
	}
	return []fsm.TakenHome{h}
}
