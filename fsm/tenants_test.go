package fsm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"domicile/fsm"
)

// TestARefusedPlacementSaysWhichNodesThereAre: what an operator reads when
// there is nothing to place on.
func TestARefusedPlacementSaysWhichNodesThereAre(t *testing.T) {
	d := newDir(t)
	us, ap := fsm.RegionName("us"), fsm.RegionName("ap")
	create := &fsm.CreateTenant{Name: "none"}
	d.refused(fsm.CodeNoNode, create, "no node is recorded yet", "PUT /_shard/nodes/<name>", "domicile admin nodes put")
	d.node("n1", "eu")
	d.ok(&fsm.PutNode{Name: "n1", Weight: ptr(uint32(0))})
	d.node("n2", "eu")
	d.ok(&fsm.PutNode{Name: "n1", Standby: ptr(fsm.NodeName("n2"))})
	d.refused(fsm.CodeNoNode, create, "n1 has weight 0", "n2 is the standby of n1")
	d.node("n3", us)
	d.ok(&fsm.PutNode{Name: "n3", Weight: ptr(uint32(0))})
	d.refused(fsm.CodeNoNode, &fsm.CreateTenant{Name: "none", Region: &us}, "in region us", "n3 has weight 0")
	d.ok(&fsm.SetSettings{Settings: fsm.Settings{DefaultRegion: &ap}})
	d.refused(fsm.CodeNoNode, create, "no node is in region ap")
	for i := range 9 {
		name := fsm.NodeName(fmt.Sprintf("many%d", i))
		d.node(name, us)
		d.ok(&fsm.PutNode{Name: name, Weight: ptr(uint32(0))})
	}
	d.refused(fsm.CodeNoNode, &fsm.CreateTenant{Name: "none", Region: &us}, "many4 has weight 0, and so on;")
}

func TestT2ConcurrentCreatesSpread(t *testing.T) {
	d := newDir(t)
	d.node("n1", "eu")
	d.node("n2", "eu")
	d.node("n3", "eu")
	d.node("n4", "us")
	d.ok(&fsm.SetSettings{Settings: fsm.Settings{DefaultRegion: ptr(fsm.RegionName("eu"))}})
	d.ok(&fsm.RecordUsage{Usage: []fsm.NodeUsage{{Node: "n2", Bytes: 4 * fsm.UnitEstimate}, {Node: "gone", Bytes: 1}}})
	var on []string
	for i := range 8 { // none of these is finished
		r := d.ok(&fsm.CreateTenant{Name: fsm.TenantName(fmt.Sprintf("t%d", i)), Silent: []fsm.NodeName{"n9"}})
		on = append(on, string(r.Placed.Node))
	}
	if got, want := strings.Join(on, " "), "n1 n3 n1 n3 n1 n3 n1 n3"; got != want {
		t.Errorf("placed on %s, want %s: unfinished placements count, and n2 has more bytes", got, want)
	}
	if r := d.ok(&fsm.CreateTenant{Name: "level"}); r.Placed.Node != "n2" {
		t.Errorf("placed on %s; at equal bytes the node with the fewest units is n2", r.Placed.Node)
	}
	if r := d.ok(&fsm.CreateTenant{Name: "silent", Silent: []fsm.NodeName{"n1", "n3"}}); r.Placed.Node != "n2" {
		t.Errorf("placed on %s, which does not answer", r.Placed.Node)
	}
	d.refused(fsm.CodeNoNode, &fsm.CreateTenant{Name: "none", Silent: []fsm.NodeName{"n1", "n2", "n3"}}, "eu")
	d.ok(&fsm.PutNode{Name: "n4", Weight: ptr(uint32(0))})
	d.refused(fsm.CodeNoNode, &fsm.CreateTenant{Name: "none", Region: ptr(fsm.RegionName("us"))}, "us")
	d.refused(fsm.CodeRegionUnknown, &fsm.CreateTenant{Name: "none", Region: ptr(fsm.RegionName("ap"))}, "ap")
	d.refused(fsm.CodeNodeUnknown, &fsm.CreateTenant{Name: "none", Node: ptr(fsm.NodeName("n9"))}, "n9")
	if n := d.tenant(fsm.CreateTenant{Name: "named", Node: ptr(fsm.NodeName("n4"))}); n != "n4" {
		t.Errorf("placed on %s", n)
	}
	if r, _ := d.TenantRegion("named"); r != "us" {
		t.Errorf("the region of a tenant on n4 is %q (T1)", r)
	}
}

func TestT2ARegionWithItsOwnDirectoryTakesNoTenantsHere(t *testing.T) {
	d := newDir(t)
	d.node("n1", "ap")
	d.node("n2", "eu")
	d.ok(&fsm.PutRegion{Region: fsm.Region{Name: "ap", Routers: []string{"http://r:1"}}})
	d.refused(fsm.CodeRegionElsewhere, &fsm.CreateTenant{Name: "a", Region: ptr(fsm.RegionName("ap"))}, "ap")
	d.refused(fsm.CodeRegionElsewhere, &fsm.CreateTenant{Name: "a", Node: ptr(fsm.NodeName("n1"))}, "ap")
	if n := d.tenant(fsm.CreateTenant{Name: "a"}); n != "n2" {
		t.Errorf("placed on %s", n)
	}
}

func TestAProxyIsToldOnlyOfServedUnits(t *testing.T) {
	d := newDir(t)
	d.node("n1", "eu")
	r := d.ok(&fsm.CreateTenant{Name: "acme", Schema: "CREATE TABLE t(x)", Pinned: true})
	if len(d.events) > 0 || r.Placed.State != fsm.UnitCreating || r.Job != fsm.JobID(d.Revision()) || !r.Tenant.Pinned {
		t.Fatalf("%+v, events %v", r, d.events)
	}
	d.refused(fsm.CodeTenantExists, &fsm.CreateTenant{Name: "acme"}, "acme")
	d.refused(fsm.CodeBadRequest, &fsm.AdvanceJob{ID: r.Job, From: fsm.StepMake, To: fsm.StepDone})
	d.ok(&fsm.AdvanceJob{ID: r.Job, From: fsm.StepMake, To: fsm.StepSchema})
	d.refused(fsm.CodeStale, &fsm.AdvanceJob{ID: r.Job, From: fsm.StepMake, To: fsm.StepSchema})
	d.ok(&fsm.AdvanceJob{ID: r.Job, From: fsm.StepSchema, To: fsm.StepDone})
	if len(d.events) != 1 || d.events[0].Unit == nil || d.events[0].Unit.Node != "n1" || d.events[0].Unit.State != fsm.UnitActive {
		t.Fatalf("events %+v", d.events)
	}
	if j, ok := d.Job(r.Job); !ok || j.Ended == 0 || j.Schema != "" || j.Refusal != nil {
		t.Fatalf("job %+v", j)
	}
	del := d.ok(&fsm.DeleteTenant{Name: "acme"})
	if len(d.events) != 1 || d.events[0].UnitGone != "acme" {
		t.Fatalf("events %+v", d.events)
	}
	if again := d.ok(&fsm.DeleteTenant{Name: "acme"}); again.Job != del.Job || len(d.events) > 0 {
		t.Fatalf("a second delete began job %d beside %d", again.Job, del.Job)
	}
	d.refused(fsm.CodeBusy, &fsm.CreateTenant{Name: "acme"})
	d.refused(fsm.CodeBusy, &fsm.SetPin{Tenant: "acme"})
	d.refused(fsm.CodeNodeInUse, &fsm.DeleteNode{Name: "n1"}, "acme")
	d.ok(&fsm.AdvanceJob{ID: del.Job, From: fsm.StepRemove, To: fsm.StepDone})
	if _, ok := d.Tenant("acme"); ok {
		t.Fatal("the tenant is still there")
	}
	d.refused(fsm.CodeTenantUnknown, &fsm.DeleteTenant{Name: "acme"})
	d.ok(&fsm.DeleteNode{Name: "n1"})
}

func TestT5ADeleteUndoesACreateThatIsUnderWay(t *testing.T) {
	d := newDir(t)
	d.node("n1", "eu")
	create := fsm.Entry{Key: "k1", Fingerprint: "create", Cmd: &fsm.CreateTenant{Name: "acme"}}
	job := d.entry(create).Job
	remove := fsm.Entry{Key: "k2", Fingerprint: "delete", Cmd: &fsm.DeleteTenant{Name: "acme"}}
	if r := d.entry(remove); r.Job != job {
		t.Fatalf("the delete waits for job %d, not for the create's %d", r.Job, job)
	}
	d.refused(fsm.CodeStale, &fsm.AdvanceJob{ID: job, From: fsm.StepMake, To: fsm.StepDone})
	d.refused(fsm.CodeBusy, &fsm.CreateTenant{Name: "acme"})
	if r := d.entry(create); !r.Replayed || r.Job != job {
		t.Fatalf("while it is undone, the create is answered with %+v", r)
	}
	d.ok(&fsm.NoteJob{ID: job, Problem: "n1 does not answer"})
	d.ok(&fsm.AdvanceJob{ID: job, From: fsm.StepUndo, To: fsm.StepDone})
	if r := d.entry(create); !r.Replayed || r.Refusal == nil || r.Refusal.Code != fsm.CodeDeleted || r.Job != 0 {
		t.Fatalf("the create is answered with %+v", r)
	}
	if r := d.entry(remove); !r.Replayed || r.Refusal != nil || r.Job != 0 {
		t.Fatalf("the delete is answered with %+v", r)
	}
	d.tenant(fsm.CreateTenant{Name: "acme"})
}

func TestAnIdempotencyKeyIsAnsweredOnce(t *testing.T) {
	d := newDir(t)
	put := fsm.Entry{Key: "k", Fingerprint: "a", Cmd: &fsm.PutNode{Name: "n1", Addr: ptr("a:1"), Token: ptr("t")}}
	first := d.entry(put)
	d.ok(&fsm.PutNode{Name: "n1", Addr: ptr("b:1")})
	if r := d.entry(put); !r.Replayed || !r.Created || r.Node != first.Node {
		t.Fatalf("%+v, not the first answer", r)
	}
	if n, _ := d.Node("n1"); n.Addr != "b:1" {
		t.Fatal("a repeat was executed")
	}
	put.Fingerprint = "b"
	if r := d.entry(put); r.Refusal == nil || r.Refusal.Code != fsm.CodeKeyReused {
		t.Fatalf("another request under the key: %+v", r)
	}
	refusal := fsm.Entry{Key: "r", Cmd: &fsm.DeleteTenant{Name: "acme"}}
	d.entry(refusal)
	d.tenant(fsm.CreateTenant{Name: "acme"})
	if r := d.entry(refusal); !r.Replayed || r.Refusal == nil || r.Refusal.Code != fsm.CodeTenantUnknown {
		t.Fatalf("a refusal is not remembered: %+v", r)
	}
	put.Fingerprint, put.At = "a", d.Now()+fsm.RequestAge+1
	if r := d.entry(put); r.Replayed || r.Created {
		t.Fatalf("a day later: %+v", r)
	}
}

func TestRequestsAndJobsAreKeptWithinBounds(t *testing.T) {
	s := fsm.New()
	rev := fsm.Revision(0)
	apply := func(key string, c fsm.Command) fsm.Result {
		rev++
		r, _ := s.Apply(fsm.Entry{Revision: rev, Term: 1, At: 1, Key: key, Cmd: c})
		return r
	}
	apply("", &fsm.PutNode{Name: "n1", Addr: ptr("a:1"), Token: ptr("t")})
	first := apply("key-0", &fsm.CreateTenant{Name: "acme"}).Job
	for i := range fsm.RequestsKept {
		apply(fmt.Sprintf("more-%d", i), &fsm.SetPin{Tenant: "acme"})
	}
	if _, ok := s.Request("key-0"); ok {
		t.Error("a request beyond the last 100,000 is remembered")
	}
	if _, ok := s.Request("more-0"); !ok {
		t.Error("a request of the last 100,000 is forgotten")
	}
	for i := range fsm.JobsKept {
		j := apply("", &fsm.CreateTenant{Name: fsm.TenantName(fmt.Sprintf("t%d", i))}).Job
		apply("", &fsm.AdvanceJob{ID: j, From: fsm.StepMake, To: fsm.StepDone})
	}
	apply("", &fsm.AdvanceJob{ID: first, From: fsm.StepMake, To: fsm.StepDone})
	if n := len(slices.Collect(s.Jobs())); n != fsm.JobsKept {
		t.Errorf("%d ended jobs are kept", n)
	}
	if _, ok := s.Job(first); !ok {
		t.Error("the job that ended last is not kept: it is the oldest that began")
	}
	if err := fsm.Check(s); err != nil {
		t.Fatal(err)
	}
}

func TestADecisionOfAnotherTermIsStale(t *testing.T) {
	d := newDir(t)
	d.node("n1", "eu")
	job := d.ok(&fsm.CreateTenant{Name: "a"}).Job
	step := fsm.Entry{Revision: d.Revision() + 1, Term: 3, Decided: 2, Cmd: &fsm.AdvanceJob{ID: job, From: fsm.StepMake, To: fsm.StepDone}}
	if r, _ := d.Apply(step); r.Refusal == nil || r.Refusal.Code != fsm.CodeStale {
		t.Fatalf("%+v", r)
	}
	step.Revision, step.Decided = step.Revision+1, 3
	if r, _ := d.Apply(step); r.Refusal != nil {
		t.Fatal(r.Refusal)
	}
	if r, _ := d.Apply(step); r.Refusal == nil || r.Refusal.Code != fsm.CodeStale {
		t.Fatalf("an entry that was applied is taken again: %+v", r)
	}
}

func TestTheLevelIsWhatAllMembersKnowAndNeverFalls(t *testing.T) {
	d := newDir(t)
	put := func(id fsm.MemberID, v uint32) *fsm.PutMember {
		return &fsm.PutMember{Member: fsm.Member{ID: id, Raft: "a:1", Version: v}}
	}
	d.ok(put("a", 3))
	d.refused(fsm.CodeServerTooOld, put("b", 2), "b")
	d.ok(put("b", 5))
	d.ok(put("a", 4))
	if d.Level() != 4 {
		t.Fatalf("level %d", d.Level())
	}
	d.ok(&fsm.DeleteMember{ID: "a"})
	if d.Level() != 5 {
		t.Fatalf("level %d", d.Level())
	}
	d.refused(fsm.CodeMemberUnknown, &fsm.DeleteMember{ID: "a"})
}

func TestTenantsArePagedByName(t *testing.T) {
	d := newDir(t)
	d.node("n1", "eu")
	for _, n := range []fsm.TenantName{"b", "a", "ab", "abc", "ac", "-"} {
		d.tenant(fsm.CreateTenant{Name: n})
	}
	for _, c := range []struct {
		prefix string
		after  fsm.TenantName
		want   string
	}{{"", "", "- a ab abc ac b"}, {"a", "", "a ab abc ac"}, {"a", "ab", "abc ac"}, {"ab", "", "ab abc"}, {"", "b", ""}, {"ab", "b", ""}, {"b", "a", "b"}} {
		var got []string
		for x := range d.Tenants(c.prefix, c.after) {
			got = append(got, string(x.Name))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("prefix %q after %q: %q, want %q", c.prefix, c.after, s, c.want)
		}
	}
	var held []string
	for p := range d.HeldBy("n1") {
		held = append(held, string(p.Unit))
	}
	if s := strings.Join(held, " "); s != "b a ab abc ac -" {
		t.Errorf("held by n1: %q", s)
	}
}
