package proto_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"domicile/fsm"
	"domicile/proto/internal/pb"
)

// writing is a golden log on its way: some commands hold what the entries before have made.
type writing struct {
	commands []fsm.Command
	state    *fsm.State
}

func (w *writing) add(commands ...fsm.Command) fsm.Result {
	r := fsm.Result{}
	for _, c := range commands {
		w.commands = append(w.commands, c)
		entries := logOf(w.commands)
		if r, _ = w.state.Apply(entries[len(entries)-1]); r.Refusal != nil {
			panic(r.Refusal)
		}
	}
	return r
}

// begin gives a directory of this version to a group.
func (w *writing) begin(region fsm.RegionName) {
	w.add(&fsm.PutMember{Member: fsm.Member{ID: "s1", Raft: "127.0.0.1:8071", API: "http://127.0.0.1:8070", Version: 4}},
		&fsm.Bootstrap{Scope: fsm.Scope{Cluster: "c0ffee", Region: region, History: 1},
			Settings: fsm.Settings{Replicas: 1, AutoFailover: 3000, LongestLease: 4000, MovesPerNode: 3}})
}

// end has a job of this directory end, from a step.
func (w *writing) end(job fsm.JobID, from fsm.JobStep) {
	w.add(&fsm.AdvanceJob{ID: job, From: from, To: fsm.StepDone})
}

// commandsV4 holds, for the global directory, what came with version 4, with every field
// set: names with a home, a relocation out and one in, a region that is given away, and one
// that comes back. The commands of before that have got fields since are there too.
func commandsV4() []fsm.Command {
	w := &writing{state: fsm.New()}
	w.begin("")
	us, tr, eu := fsm.RegionName("us"), fsm.RegionName("tr"), fsm.RegionName("eu")
	for i, n := range []fsm.NodeName{"e1", "e2", "u1", "u2"} {
		region, zone := []fsm.RegionName{eu, us}[i/2], fsm.ZoneName("abab"[i:i+1])
		w.add(&fsm.PutNode{Name: n, Addr: ptr("127.0.0.1:808" + string(n[1:])), Token: ptr("secret"), Region: &region, Zone: &zone})
	}
	w.add(&fsm.SetNodeLease{Node: "e1", Lease: fsm.LeaseTaken},
		&fsm.PutRegion{Region: fsm.Region{Name: us, Routers: []string{"http://us:8090"}, Authority: "beef/us"}}, &fsm.PutRegion{Region: fsm.Region{Name: tr, Routers: []string{"http://tr:8090"}, Authority: "feed/tr"}})
	w.end(w.add(&fsm.CreateTenant{Name: "acme", Node: ptr(fsm.NodeName("u1")), Origin: &us}).Job, fsm.StepMake)
	stark := w.add(&fsm.CreateTenant{Name: "stark", Region: &tr, Node: ptr(fsm.NodeName("k1")), Pinned: true, Schema: "CREATE TABLE t (x)"}).Job
	w.add(&fsm.AdvanceJob{ID: stark, From: fsm.StepMake, To: fsm.StepUndo, Refusal: &fsm.Refusal{Code: fsm.CodeTenantExists, Fields: map[string]string{"id": "5"}}},
		&fsm.AdvanceJob{ID: stark, From: fsm.StepUndo, To: fsm.StepDone, Keep: 5})
	w.end(w.add(&fsm.CreateTenant{Name: "hooli", Node: ptr(fsm.NodeName("e1")), Region: &eu}).Job, fsm.StepMake)
	w.end(w.add(&fsm.CreateTenant{Name: "wayne", Region: &tr}).Job, fsm.StepMake)
	w.add(&fsm.CreateTenant{Name: "reserved", Region: &tr})
	w.relocations()
	give := w.add(&fsm.BeginGive{Region: us}).Job
	w.add(&fsm.GiveRegion{ID: give, Digest: w.state.Digest(us)}, &fsm.AdvanceJob{ID: give, From: fsm.StepPromote, To: fsm.StepClean})
	w.end(give, fsm.StepClean)
	giver := fsm.Giver{Authority: "beef/us", History: 1, Job: 8}
	w.add(&fsm.CloseIntake{Giver: giver})
	giver.Job = 9
	w.staged(giver, us, "acme")
	return w.commands
}

// relocations are one that goes from here to its end, and one that comes.
func (w *writing) relocations() {
	tr, eu := fsm.RegionName("tr"), fsm.RegionName("eu")
	hooli, _ := w.state.Placed("hooli")
	o := fsm.Origin{Authority: "c0ffee/global", History: 1, Floor: 1}
	out := w.add(&fsm.BeginRelocation{Tenant: "hooli", Region: tr, To: ptr(fsm.NodeName("k2"))}).Job
	local := w.add(&fsm.BeginTask{Origin: o, Job: out, Kind: fsm.TaskDepart, Tenant: "hooli", ID: hooli.ID}).Task.Local
	w.add(&fsm.NoteJob{ID: out, Problem: "it is far", From: "e1", To: "k2"},
		&fsm.AdvanceJob{ID: out, From: fsm.StepCopy, To: fsm.StepRelease},
		&fsm.TellTask{Origin: o, Job: out, Word: fsm.TaskRelease, Other: &fsm.Foreign{Region: tr, Node: "k2", Addr: "127.0.0.1:8092", Token: "t", Epoch: 7}},
		&fsm.EndRelease{ID: local, Released: []fsm.UnitRef{{Unit: "hooli", ID: hooli.ID}}},
		&fsm.AdvanceJob{ID: out, From: fsm.StepRelease, To: fsm.StepPromote}, &fsm.AdvanceJob{ID: out, From: fsm.StepPromote, To: fsm.StepClean},
		&fsm.TellTask{Origin: o, Job: out, Word: fsm.TaskDeparted}, &fsm.TellTask{Origin: o, Job: out, Word: fsm.TaskSettled},
		&fsm.NoteJob{ID: out, Pause: 12, Bytes: 1 << 30, From: "e1", To: "k2"})
	w.end(local, fsm.StepRemove)
	w.end(out, fsm.StepClean)
	wayne, _ := w.state.Tenant("wayne")
	in := w.add(&fsm.BeginRelocation{Tenant: "wayne", Region: eu}).Job
	w.add(w.receive(o, in, "wayne", wayne.Claim, eu, "e2"),
		&fsm.TellTask{Origin: o, Job: in, Word: fsm.TaskSource, Other: &fsm.Foreign{Region: tr, Node: "k2", Addr: "127.0.0.1:8092", Token: "t2", Epoch: 2<<50 | 9}})
}

func (w *writing) receive(o fsm.Origin, job fsm.JobID, name fsm.TenantName, id fsm.UnitID, to fsm.RegionName, node fsm.NodeName) *fsm.BeginTask {
	return &fsm.BeginTask{Origin: o, Job: job, Kind: fsm.TaskReceive, Tenant: name, ID: id, Region: &to, Node: &node, Pinned: true, Silent: []fsm.NodeName{"n9"},
		Quota: &fsm.Quota{Bytes: 1 << 40, RPS: 5, InFlight: 6}, Source: &fsm.Foreign{Region: "tr", Node: "k1", Addr: "127.0.0.1:8091", Token: "t", Epoch: 1<<50 | 7}}
}

// staged tells of a region with two nodes and a tenant, and of what is no more.
func (w *writing) staged(g fsm.Giver, r fsm.RegionName, name fsm.TenantName) {
	id := fsm.UnitID(31)
	if t, ok := w.state.Tenant(name); ok {
		id = t.Claim
	}
	part := func(n uint64) *fsm.StageRegion {
		return &fsm.StageRegion{Giver: g, Region: r, Try: 3, Part: n, Longest: 5000}
	}
	for i, n := range []fsm.NodeName{"u1", "u2", "u3"} {
		p := part(uint64(i + 1))
		p.Node = &fsm.Node{ID: 77, Name: n, Addr: "127.0.0.2:808" + string(n[1:]), Token: "secret", Region: r, Zone: "b", Weight: 2, Usage: fsm.Usage{At: 4, Bytes: 5, Units: 6},
			Lease: fsm.LeaseTaken, Lost: i == 1, Drain: &fsm.Drain{ID: 5, Since: 6, Units: 7, Forced: true}}
		w.add(p)
	}
	p := part(4)
	p.Tenants = []fsm.GivenTenant{
		{Tenant: fsm.Tenant{Name: name, Created: 4, Pinned: true, Quota: &fsm.Quota{Bytes: 1, RPS: 2, InFlight: 3}},
			Unit: fsm.Placed{ID: id, Unit: fsm.UnitName(name), Node: "u1", State: fsm.UnitActive, Epoch: 1<<50 | 3, Lacks: 9,
				Copies: []fsm.Copy{{Node: "u2", State: fsm.CopyInSync, Since: 8, Entry: 9}}}},
		{Tenant: fsm.Tenant{Name: "gone"}, Unit: fsm.Placed{ID: 32, Unit: "gone", Node: "u2", State: fsm.UnitActive, Epoch: 1}},
	}
	w.add(p)
	p = part(5)
	p.GoneNodes, p.GoneTenants = []fsm.NodeName{"u3"}, []fsm.TenantName{"gone"}
	w.add(p)
}

// commandsV4Region holds the same for a region's directory: it takes the region over from the
// global group, and then has a task of each kind at each place that is kept.
func commandsV4Region() []fsm.Command {
	w := &writing{state: fsm.New()}
	w.begin("us")
	o := fsm.Origin{Authority: "c0ffee/global", History: 2, Floor: 40}
	w.add(&fsm.BindGlobal{Authority: "c0ffee/global", History: 2})
	giver := fsm.Giver{Authority: "c0ffee/global", History: 2, Job: 33}
	w.staged(giver, "us", "acme")
	i, _ := w.state.Intake(giver.Authority)
	w.add(&fsm.ArriveRegion{Giver: giver, Digest: i.Digest}, &fsm.CloseIntake{Giver: giver}, &fsm.SetDrain{Node: "u1"}, &fsm.SetDrain{Node: "u2"}, &fsm.NodeBack{Node: "u2"})
	create := func(job fsm.JobID, name fsm.TenantName) fsm.JobID {
		return w.add(&fsm.BeginTask{Origin: o, Job: job, Kind: fsm.TaskCreate, Tenant: name, ID: fsm.UnitID(job), Region: ptr(fsm.RegionName("us")),
			Node: ptr(fsm.NodeName("u1")), Pinned: true, Schema: "CREATE TABLE t (x)", Silent: []fsm.NodeName{"u9"}}).Task.Local
	}
	for i, name := range []fsm.TenantName{"hooli", "wayne", "stark", "umbrella"} {
		local := create(fsm.JobID(40+i), name)
		w.add(&fsm.AdvanceJob{ID: local, From: fsm.StepMake, To: fsm.StepSchema})
		w.end(local, fsm.StepSchema)
	}
	create(44, "making")
	task := func(job fsm.JobID, kind fsm.TaskKind, name fsm.TenantName, id fsm.UnitID) fsm.JobID {
		return w.add(&fsm.BeginTask{Origin: o, Job: job, Kind: kind, Tenant: name, ID: id}).Task.Local
	}
	tell := func(job fsm.JobID, word fsm.TaskWord) {
		w.add(&fsm.TellTask{Origin: o, Job: job, Word: word, Other: &fsm.Foreign{Region: "tr", Node: "k1", Addr: "127.0.0.1:8091", Token: "t", Epoch: 1<<50 | 8}})
	}
	task(45, fsm.TaskDelete, "umbrella", 43)
	task(55, fsm.TaskDelete, "none", 55)
	var gone fsm.JobID
	for i, name := range []fsm.TenantName{"wayne", "stark", "hooli"} { // stays, waits, goes
		job, id := fsm.JobID(46+i), fsm.UnitID([]int{41, 42, 40}[i])
		gone = task(job, fsm.TaskDepart, name, id)
		tell(job, fsm.TaskRelease)
		if i != 1 {
			w.add(&fsm.EndRelease{ID: gone, Released: []fsm.UnitRef{{Unit: fsm.UnitName(name), ID: id}}})
			tell(job, []fsm.TaskWord{fsm.TaskUndo, 0, fsm.TaskDeparted}[i])
		}
	}
	tell(48, fsm.TaskSettled)
	w.end(gone, fsm.StepRemove)
	w.add(w.receive(o, 50, "arrived", 20, "us", "u1"), &fsm.TellTask{Origin: o, Job: 50, Word: fsm.TaskArrived}, w.receive(o, 51, "coming", 21, "us", "u2"))
	tell(51, fsm.TaskSource)
	back := w.add(w.receive(o, 52, "given-up", 22, "us", "u2")).Task.Local
	w.add(&fsm.ForgoTask{Origin: o, Job: 52, Kind: fsm.TaskReceive, Tenant: "given-up", ID: 22})
	w.end(back, fsm.StepUndo)
	w.add(&fsm.ForgoTask{Origin: o, Job: 53, Kind: fsm.TaskCreate, Tenant: "never", ID: 53})
	task(54, fsm.TaskCreate, "acme", 54) // it exists
	give := w.add(&fsm.BeginGive{Region: "us"}).Job
	w.add(&fsm.AdvanceJob{ID: give, From: fsm.StepCopy, To: fsm.StepUndo, Refusal: &fsm.Refusal{Code: fsm.CodeRegionNotReady, Text: "no"}})
	w.end(give, fsm.StepUndo)
	w.add(&fsm.BindGlobal{Authority: "c0ffee/global", History: 3}, &fsm.SettleTask{Job: 51, History: 3, Here: true})
	return w.commands
}

// TestCommandsOfVersion4AreInAGoldenLog, and the states to which they lead.
func TestCommandsOfVersion4AreInAGoldenLog(t *testing.T) {
	global, us := fsm.New(), fsm.New()
	for s, log := range map[*fsm.State][]fsm.Entry{global: goldenLogs["v4"](), us: goldenLogs["v4-region"]()} {
		for _, e := range log {
			if r, _ := s.Apply(e); r.Refusal != nil {
				t.Errorf("%d, %T: %v", e.Revision, e.Cmd, r.Refusal)
			}
		}
		if err := fsm.Check(s); err != nil {
			t.Error(err)
		}
	}
	over := map[string]bool{}
	for task := range us.Tasks() {
		over[task.Kind.String()+map[bool]string{true: " over"}[task.Over()]] = true
	}
	if len(over) != 8 {
		t.Errorf("tasks of the region: %v", over)
	}
	homes := 0
	for tenant := range global.Tenants("", "") {
		if tenant.HasHome {
			homes++
		}
	}
	if i := global.OpenIntake(); homes != 5 || i == nil || i.Part != 5 || global.Giving() != nil {
		t.Errorf("%d homes, an intake %+v", homes, i)
	}
}

// TestEveryCommandOfTheWireIsInAGoldenLog: each that an entry can hold is in a file that
// every later version reads.
func TestEveryCommandOfTheWireIsInAGoldenLog(t *testing.T) {
	commands := (&pb.Entry{}).ProtoReflect().Descriptor().Oneofs().ByName("command")
	if commands == nil {
		t.Fatal("an entry has no commands")
	}
	seen := map[protoreflect.Name]bool{}
	logs, err := filepath.Glob("testdata/*/log")
	if err != nil || len(logs) < 7 {
		t.Fatal(logs, err)
	}
	for _, path := range logs {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for r := bytes.NewReader(b); r.Len() > 0; {
			var e pb.Entry
			_, _, raw := readEntry(t, r)
			if err := e.UnmarshalVT(raw); err != nil {
				t.Fatal(err)
			}
			if f := e.ProtoReflect().WhichOneof(commands); f != nil {
				seen[f.Name()] = true
			}
		}
	}
	fields := commands.Fields()
	var missing []string
	for i := range fields.Len() {
		if name := fields.Get(i).Name(); !seen[name] {
			missing = append(missing, string(name))
		}
	}
	if slices.Sort(missing); len(missing) > 0 {
		t.Errorf("no golden log holds %s", strings.Join(missing, ", "))
	}
}
