package fsm_test

import (
	"fmt"
	"strings"
	"testing"

	"domicile/fsm"
)

// dir applies commands one after the other and checks every invariant.
type dir struct {
	*fsm.State
	t      *testing.T
	events []fsm.Event // of the last command
}

func newDir(t *testing.T) *dir { return &dir{State: fsm.New(), t: t} }

func (d *dir) entry(e fsm.Entry) fsm.Result {
	d.t.Helper()
	e.Revision, e.Term = d.Revision()+1, 1
	if e.At == 0 {
		e.At = d.Now() + 1
	}
	r, events := d.Apply(e)
	d.events = events
	if err := fsm.Check(d.State); err != nil {
		d.t.Fatalf("after %T: %v", e.Cmd, err)
	}
	return r
}

func (d *dir) do(c fsm.Command) fsm.Result { d.t.Helper(); return d.entry(fsm.Entry{Cmd: c}) }

// ok applies a command that must be taken.
func (d *dir) ok(c fsm.Command) fsm.Result {
	d.t.Helper()
	r := d.do(c)
	if r.Refusal != nil {
		d.t.Fatalf("%T %+v: %v", c, c, r.Refusal)
	}
	return r
}

// refused applies a command that must be refused with code, naming each of
// names, and must change nothing.
func (d *dir) refused(code fsm.Code, c fsm.Command, names ...string) {
	d.t.Helper()
	before := fmt.Sprint(values(d.State))
	r := d.do(c)
	if r.Refusal == nil || r.Refusal.Code != code {
		d.t.Fatalf("%T %+v: %+v, want %s", c, c, r.Refusal, code)
	}
	for _, n := range names {
		if !strings.Contains(r.Refusal.Text, n) {
			d.t.Errorf("%T: %q does not name %s", c, r.Refusal.Text, n)
		}
	}
	if after := fmt.Sprint(values(d.State)); after != before || len(d.events) > 0 {
		d.t.Errorf("%T was refused and changed\n%s to\n%s, events %v", c, before, after, d.events)
	}
}

func values(s *fsm.State) (all []any) {
	for n := range s.Nodes() {
		all = append(all, *n)
	}
	for t := range s.Tenants("", "") {
		all = append(all, *t)
		for p := range s.TenantUnits(t.Name) {
			all = append(all, *p)
		}
	}
	for j := range s.Jobs() {
		all = append(all, *j)
	}
	for r := range s.Regions() {
		all = append(all, *r)
	}
	return append(all, s.Settings())
}

func ptr[T any](v T) *T { return &v }

func (d *dir) node(name fsm.NodeName, region fsm.RegionName) {
	d.t.Helper()
	d.ok(&fsm.PutNode{Name: name, Addr: ptr("127.0.0.1:8081"), Token: ptr("t"), Region: &region})
}

// tenant makes an active tenant and gives its node.
func (d *dir) tenant(c fsm.CreateTenant) fsm.NodeName {
	d.t.Helper()
	r := d.ok(&c)
	d.ok(&fsm.AdvanceJob{ID: r.Job, From: fsm.StepMake, To: fsm.StepDone})
	return r.Placed.Node
}

func TestN2AFieldLeftOutKeepsWhatIsRecorded(t *testing.T) {
	d := newDir(t)
	d.ok(&fsm.PutNode{Name: "n1", Addr: ptr("a:1"), Token: ptr("one"), Region: ptr(fsm.RegionName("eu")), Zone: ptr(fsm.ZoneName("z")), Weight: ptr(uint32(7))})
	r := d.ok(&fsm.PutNode{Name: "n1", Token: ptr("two")})
	want := fsm.Node{ID: 1, Name: "n1", Addr: "a:1", Token: "two", Region: "eu", Zone: "z", Weight: 7}
	if r.Created || *r.Node != want || len(d.events) > 0 {
		t.Fatalf("created %v, %+v, events %v; a token is no follower's business", r.Created, *r.Node, d.events)
	}
	d.refused(fsm.CodeBadRequest, &fsm.PutNode{Name: "n2", Addr: ptr("a:1")}, "n2")
	d.refused(fsm.CodeBadRequest, &fsm.PutNode{Name: "n2", Token: ptr("x")}, "n2")
}

func TestG11ReservedNamesAreRefused(t *testing.T) {
	d := newDir(t)
	for _, name := range []fsm.NodeName{"@eu", "", "N", "a.b", fsm.NodeName(strings.Repeat("n", 65))} {
		d.refused(fsm.CodeBadRequest, &fsm.PutNode{Name: name, Addr: ptr("a:1"), Token: ptr("t")})
	}
	d.refused(fsm.CodeBadRequest, &fsm.PutNode{Name: "n", Addr: ptr("a:1"), Token: ptr("t"), Region: ptr(fsm.RegionName("global"))})
	d.refused(fsm.CodeBadRequest, &fsm.PutRegion{Region: fsm.Region{Name: "global", Routers: []string{"http://a:1"}}})
}

func TestN3ARegionDoesNotChangeUnderATenantOrAPair(t *testing.T) {
	d := newDir(t)
	for _, n := range []fsm.NodeName{"n1", "n2", "n3"} {
		d.node(n, "eu")
	}
	us := ptr(fsm.RegionName("us"))
	d.tenant(fsm.CreateTenant{Name: "acme", Node: ptr(fsm.NodeName("n1"))})
	d.refused(fsm.CodeNodeInUse, &fsm.PutNode{Name: "n1", Region: us}, "acme")
	d.ok(&fsm.PutNode{Name: "n2", Standby: ptr(fsm.NodeName("n3"))})
	d.refused(fsm.CodeNodeInUse, &fsm.PutNode{Name: "n2", Region: us}, "n3")
	d.refused(fsm.CodeNodeInUse, &fsm.PutNode{Name: "n3", Region: us}, "n2")
	d.ok(&fsm.PutNode{Name: "n1", Zone: ptr(fsm.ZoneName("b"))})
	d.ok(&fsm.PutNode{Name: "n2", Standby: ptr(fsm.NodeName(""))})
	d.ok(&fsm.PutNode{Name: "n2", Region: us})
}

func TestN4TheUnnamedRegionIsOneLikeAnyOther(t *testing.T) {
	d := newDir(t)
	d.node("n1", "eu")
	unnamed := ptr(fsm.RegionName(""))
	d.refused(fsm.CodeRegionUnknown, &fsm.CreateTenant{Name: "a", Region: unnamed})
	d.node("n2", "")
	if n := d.tenant(fsm.CreateTenant{Name: "a", Region: unnamed}); n != "n2" {
		t.Fatalf("placed on %s", n)
	}
	d.refused(fsm.CodeRegionMismatch, &fsm.CreateTenant{Name: "b", Region: unnamed, Node: ptr(fsm.NodeName("n1"))}, "eu")
}

func TestN6ANodeInUseIsNotDeletedAndAPairGoesWithIt(t *testing.T) {
	d := newDir(t)
	d.refused(fsm.CodeNodeUnknown, &fsm.DeleteNode{Name: "n1"})
	for _, n := range []fsm.NodeName{"n1", "n2", "n3", "n4"} {
		d.node(n, "eu")
	}
	d.tenant(fsm.CreateTenant{Name: "acme", Node: ptr(fsm.NodeName("n1"))})
	d.refused(fsm.CodeNodeInUse, &fsm.DeleteNode{Name: "n1"}, "acme")
	d.ok(&fsm.PutNode{Name: "n1", Standby: ptr(fsm.NodeName("n2"))})
	d.ok(&fsm.DeleteNode{Name: "n2"})
	if n, _ := d.Node("n1"); n.Standby != "" {
		t.Fatalf("n1 is still in a pair with %s", n.Standby)
	}
	d.ok(&fsm.PutNode{Name: "n3", Standby: ptr(fsm.NodeName("n4"))})
	d.ok(&fsm.DeleteNode{Name: "n3"})
	if of, any := d.StandbyOf("n4"); any {
		t.Fatalf("n4 is still the standby of %s", of)
	}
}

func TestC5WhoMayBeAStandby(t *testing.T) {
	d := newDir(t)
	for _, n := range []fsm.NodeName{"n1", "n2", "n3", "n4"} {
		d.node(n, "eu")
	}
	d.node("far", "us")
	pair := func(n, s fsm.NodeName) *fsm.PutNode { return &fsm.PutNode{Name: n, Standby: &s} }
	d.refused(fsm.CodeBadRequest, pair("n1", "n1"))
	d.refused(fsm.CodeStandbyUnknown, pair("n1", "nobody"))
	d.refused(fsm.CodeRegionMismatch, pair("n1", "far"), "us", "eu")
	d.tenant(fsm.CreateTenant{Name: "acme", Node: ptr(fsm.NodeName("n3"))})
	d.refused(fsm.CodePairConflict, pair("n1", "n3"), "acme")
	d.ok(pair("n1", "n2"))
	d.refused(fsm.CodePairConflict, pair("n3", "n2"), "n1")
	d.refused(fsm.CodePairConflict, pair("n3", "n1"), "n2")
	d.refused(fsm.CodePairConflict, pair("n2", "n4"), "n1")
	d.refused(fsm.CodeNodeIsStandby, &fsm.CreateTenant{Name: "b", Node: ptr(fsm.NodeName("n2"))}, "n1")
	for i := range 12 {
		if n := d.tenant(fsm.CreateTenant{Name: fsm.TenantName(fmt.Sprintf("t%d", i)), Region: ptr(fsm.RegionName("eu"))}); n == "n2" {
			t.Fatal("a tenant was placed on a standby")
		}
	}
}

// What is kept of a refusal is the same on every server, also where its names
// are the same once they are clipped.
func TestI3AKeptRefusalIsTheSameEverywhere(t *testing.T) {
	long := strings.Repeat("n", 5000)
	kept := func() string {
		d := newDir(t)
		d.node("n1", "eu")
		job := d.ok(&fsm.CreateTenant{Name: "acme"}).Job
		d.ok(&fsm.AdvanceJob{ID: job, From: fsm.StepMake, To: fsm.StepUndo, Refusal: &fsm.Refusal{
			Code: fsm.CodeNodeRefused, Fields: map[string]string{long + "1": "a", long + "2": "b", long + "3": "c"}}})
		j, _ := d.Job(job)
		return fmt.Sprint(j.Refusal.Fields)
	}
	first := kept()
	for range 50 {
		if again := kept(); again != first {
			t.Fatalf("…%s and …%s, of one log", first[len(first)-10:], again[len(again)-10:])
		}
	}
}

// TestN5NoTwoNodesHaveOneAddress: a process under two names would lose what one of
// them does not place there.
func TestN5NoTwoNodesHaveOneAddress(t *testing.T) {
	d := newDir(t)
	put := func(n fsm.NodeName, addr string) *fsm.PutNode {
		return &fsm.PutNode{Name: n, Addr: &addr, Token: ptr("t"), Exclusive: true}
	}
	d.ok(put("n1", "a:1"))
	for _, spelling := range []string{"a:1", "http://a:1", "https://A:1"} {
		d.refused(fsm.CodeAddressTaken, put("n2", spelling), "n1")
	}
	d.ok(put("n1", "http://a:1"))
	d.ok(put("n2", "a:2"))
	d.refused(fsm.CodeAddressTaken, put("n2", "a:1"), "n1")
	d.ok(&fsm.PutNode{Name: "n2", Zone: ptr(fsm.ZoneName("z")), Exclusive: true})
	d.ok(&fsm.PutNode{Name: "n3", Addr: ptr("a:1"), Token: ptr("t")}) // an entry from before this rule
}

// TestN6ARefusalToDeleteANodeSaysWhatHelps by what the node holds.
func TestN6ARefusalToDeleteANodeSaysWhatHelps(t *testing.T) {
	d := leased(t, "n1", "n2", "n3")
	d.replicated("acme", "n1", "n2")
	says := func(n fsm.NodeName, want string) {
		t.Helper()
		d.refused(fsm.CodeNodeInUse, &fsm.DeleteNode{Name: n}, want)
	}
	says("n1", "drain it first, delete its tenants, or fail it over")
	says("n2", "force writes off what it holds as copies")
	d.ok(&fsm.PutNode{Name: "n1", Standby: ptr(fsm.NodeName("n2"))})
	says("n2", "end its pair with node n1 first")
}
