package fsm_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"domicile/fsm"
	"domicile/fsm/fsmtest"
)

// ledger is what two levels of directories promise each other, with no thought for how it
// is kept: what becomes of a task, whoever asks for it and however often, and where a name
// leads to.
type ledger struct {
	region    fsm.RegionName // whose directory it is, "" for the global one
	authority string         // of the global group
	history   uint64
	floor     fsm.JobID
	tasks     map[fsm.JobID]*fsm.Task
	seen      map[string]int // kinds of steps that the logs took
}

// heeds says why something said of a job is not taken, "" where it is.
func (m *ledger) heeds(o fsm.Origin, job fsm.JobID) fsm.Code {
	switch {
	case o.Authority == "" || o.History == 0 || o.History > fsm.MaxHistory:
		return fsm.CodeBadRequest
	case m.region == "" && (o.Authority != "c1/global" || o.History != 1), m.authority != "" && o.Authority != m.authority:
		return fsm.CodeScope
	case o.History < m.history:
		return fsm.CodeStale
	case job < max(o.Floor, m.floor):
		return fsm.CodeTaskOver
	}
	return ""
}

// part reports whether a task may be one of the directory's: a region does all that it is
// asked, the global directory its own part of a relocation that runs.
func (m *ledger) part(s *fsm.State, job fsm.JobID, kind fsm.TaskKind, name fsm.TenantName, id fsm.UnitID) bool {
	j, ok := s.Job(job)
	depart := kind == fsm.TaskDepart || kind == fsm.TaskReceive
	return fsm.ValidName(string(name)) && id != 0 && (m.region != "" || ok && j.Ended == 0 && j.Kind == fsm.JobRelocate && j.Tenant == name && j.Unit == id && depart)
}

// want gives the code that a command is refused with, where the ledger knows it.
func (m *ledger) want(s *fsm.State, cmd fsm.Command) (fsm.Code, bool) {
	switch c := cmd.(type) {
	case *fsm.BeginTask:
		if no := m.heeds(c.Origin, c.Job); no != "" {
			return no, true
		}
		t := m.tasks[c.Job]
		switch {
		case t == nil || c.Kind > fsm.TaskDepart || !m.part(s, c.Job, c.Kind, c.Tenant, c.ID):
			return "", false
		case t.Forgone:
			return fsm.CodeTaskForgone, true
		case t.Kind != c.Kind || t.ID != c.ID:
			return fsm.CodeBadRequest, true
		}
		return "", true
	case *fsm.ForgoTask:
		no := m.heeds(c.Origin, c.Job)
		if t := m.tasks[c.Job]; no == "" && t != nil && (t.Kind != c.Kind || t.ID != c.ID) {
			no = fsm.CodeBadRequest
		}
		return no, no != "" || m.part(s, c.Job, c.Kind, c.Tenant, c.ID)
	case *fsm.TellTask:
		no := m.heeds(c.Origin, c.Job)
		t := m.tasks[c.Job]
		undone := t != nil && (t.Forgone || t.Refusal != nil)
		switch {
		case no != "":
		case t == nil:
			no = fsm.CodeTaskUnknown
		case !t.Over():
			return "", false
		case c.Word == fsm.TaskUndo && undone, !undone && (c.Word == fsm.TaskDeparted || c.Word == fsm.TaskArrived || c.Word == fsm.TaskSettled):
		default:
			no = fsm.CodeTaskOver
		}
		return no, true
	}
	return "", false
}

// said reports whether a command said what was said before: nobody is heard by that.
func (m *ledger) said(before, after *fsm.State, cmd fsm.Command) bool {
	authority := ""
	switch c := cmd.(type) {
	case *fsm.BeginTask:
		return m.tasks[c.Job] != nil
	case *fsm.StageRegion:
		authority = c.Authority
	case *fsm.CloseIntake:
		authority = c.Authority
	default:
		return false
	}
	was, _ := before.Intake(authority)
	is, _ := after.Intake(authority)
	return was == is
}

// heard notes whom an entry that was taken says that the region belongs to.
func (m *ledger) heard(cmd fsm.Command) {
	var o fsm.Origin
	switch c := cmd.(type) {
	case *fsm.BeginTask:
		o = c.Origin
	case *fsm.TellTask:
		o = c.Origin
	case *fsm.ForgoTask:
		o = c.Origin
	case *fsm.BindGlobal:
		o = fsm.Origin{Authority: c.Authority, History: c.History}
	case *fsm.StageRegion:
		o = fsm.Origin{Authority: c.Authority, History: c.History}
	case *fsm.CloseIntake:
		o = fsm.Origin{Authority: c.Authority, History: c.History}
	default:
		return
	}
	if m.region != "" {
		m.authority = o.Authority
	}
	if m.region != "" || o.Floor != 0 {
		m.history, m.floor = max(m.history, o.History), max(m.floor, o.Floor)
	}
}

// compare holds the tasks of s against what became of them before: what is over stays as it
// is, one that runs keeps its job, and none is forgotten that the floor does not forget.
func (m *ledger) compare(s *fsm.State) error {
	if up, belongs := s.Upstream(); belongs && up != (fsm.Upstream{Authority: m.authority, History: m.history, Floor: m.floor}) {
		return fmt.Errorf("it belongs to %+v, the ledger says %+v", up, *m)
	}
	now := map[fsm.JobID]*fsm.Task{}
	for t := range s.Tasks() {
		now[t.Job] = t
		was := m.tasks[t.Job]
		switch {
		case was == nil && t.Job < m.floor:
			return fmt.Errorf("task %+v was begun below the floor %d", *t, m.floor)
		case was == nil:
			m.seen[t.Kind.String()]++
		case was.Over() && (t.Forgone != was.Forgone || t.Done != was.Done || t.Refusal != was.Refusal), was.Local != t.Local, was.ID != t.ID:
			return fmt.Errorf("task %+v was %+v", *t, *was)
		case t.Over() && !was.Over():
			m.seen[fmt.Sprint(t.Kind, " ends, undone ", t.Refusal != nil)]++
		}
	}
	for job, was := range m.tasks {
		if now[job] == nil && (job >= m.floor || !was.Over()) {
			return fmt.Errorf("task %+v is forgotten above the floor %d", *was, m.floor)
		}
	}
	m.tasks = now
	return nil
}

// homed is where a name leads to.
type homed struct {
	id       fsm.UnitID
	region   fsm.RegionName
	state    fsm.UnitState // 0: it is not here
	epoch    uint64
	node     fsm.NodeName
	granted  bool
	reserved bool
}

// names gives where each name leads to.
func names(s *fsm.State) map[fsm.TenantName]homed {
	all := map[fsm.TenantName]homed{}
	for t, p := range s.Placements() {
		h := homed{id: t.Claim, reserved: t.Reserved}
		h.region, _ = s.TenantRegion(t.Name)
		if p != nil {
			h.id, h.state, h.epoch, h.node = p.ID, p.State, p.Epoch, p.Node
			for u := range s.Grantable(p.Node) {
				h.granted = h.granted || u == p
			}
		}
		all[t.Name] = h
	}
	return all
}

// advanced gives the job that a command takes on, and to which step.
func advanced(before *fsm.State, cmd fsm.Command) (*fsm.Job, fsm.JobStep) {
	switch c := cmd.(type) {
	case *fsm.AdvanceJob:
		if j, ok := before.Job(c.ID); ok {
			return j, c.To
		}
	case *fsm.EndRelease:
		if j, ok := before.Job(c.ID); ok {
			return j, 0
		}
	}
	return &fsm.Job{}, 0
}

// mayFollow says what an entry did to a name that nothing may have done: a tenant of an id
// lives in one region until its flip, is granted nowhere between two directories, and its
// epochs grow.
func mayFollow(before *fsm.State, cmd fsm.Command, name fsm.TenantName, was, is homed) error {
	j, to := advanced(before, cmd)
	task := &fsm.Task{}
	w := fsm.TaskWord(0)
	if c, ok := cmd.(*fsm.TellTask); ok {
		w = c.Word
		task, _ = before.Task(c.Job)
	}
	settles := false
	if c, ok := cmd.(*fsm.SettleTask); ok {
		t, known := before.Task(c.Job)
		settles = known && t.Tenant == name && before.Outlived(t) && c.History == before.GlobalHistory()
	}
	flips := j.Kind == fsm.JobRelocate && to == fsm.StepPromote && j.Tenant == name
	told := func(kind fsm.TaskKind, word fsm.TaskWord) bool {
		return task != nil && task.Kind == kind && task.Tenant == name && w == word
	}
	_, keeps := cmd.(*fsm.AdvanceJob)
	_, back := cmd.(*fsm.FailOver) // to the last primary of a move, before anybody was granted the unit
	switch {
	case was.id != is.id:
		if !keeps || j.Home == "" || j.Tenant != name {
			return fmt.Errorf("the name is another tenant's")
		}
	case is.granted && (is.state == fsm.UnitSent || is.state == fsm.UnitReceiving || is.state == fsm.UnitDeleting || is.reserved):
		return fmt.Errorf("it is granted")
	case was.region != is.region && is.node != "" && !flips && (j.Kind != fsm.JobMove || to != 0) && (!back || was.granted):
		return fmt.Errorf("it lives elsewhere (L8, G6)")
	case is.epoch < was.epoch && is.state != 0 && !told(fsm.TaskReceive, fsm.TaskSource):
		return fmt.Errorf("its epochs do not grow (I4)")
	case was.node != is.node && was.granted && is.granted && is.epoch == was.epoch:
		return fmt.Errorf("it changed nodes without an epoch")
	}
	allowed := true
	switch {
	case was.state == is.state:
	case was.state == fsm.UnitReceiving:
		_, forgone := cmd.(*fsm.ForgoTask)
		allowed = flips || settles || told(fsm.TaskReceive, fsm.TaskArrived) || forgone && is.state == fsm.UnitDeleting
	case was.state == fsm.UnitSent:
		allowed = settles || is.state == fsm.UnitActive && told(fsm.TaskDepart, fsm.TaskUndo) || is.state == fsm.UnitDeleting && (flips || told(fsm.TaskDepart, fsm.TaskDeparted))
	case is.state == fsm.UnitSent:
		allowed = j.Kind == fsm.JobDepart && was.state == fsm.UnitMoving
	case is.state == fsm.UnitReceiving:
		c, ok := cmd.(*fsm.BeginTask)
		allowed = ok && c.Kind == fsm.TaskReceive && c.Tenant == name
	}
	if !allowed {
		return fmt.Errorf("it cannot go from there to there by that")
	}
	return nil
}

// begun holds the names that come and go against who may do that: a name is given by who
// owns it, and a hand-over takes none from the global directory.
func begun(region fsm.RegionName, cmd fsm.Command, came bool) bool {
	_, advances := cmd.(*fsm.AdvanceJob)
	switch c := cmd.(type) {
	case *fsm.CreateTenant:
		return came && region == ""
	case *fsm.BeginTask:
		return came && region != "" && (c.Kind == fsm.TaskCreate || c.Kind == fsm.TaskReceive)
	case *fsm.ArriveRegion:
		return came && region != ""
	case *fsm.GiveRegion:
		return !came && region != ""
	}
	return advances && !came
}

// oneStep compares what an entry made of the names of a directory.
func oneStep(region fsm.RegionName, before, after *fsm.State, cmd fsm.Command) error {
	was, is := names(before), names(after)
	for name, h := range is {
		if old, ok := was[name]; !ok {
			if !begun(region, cmd, true) {
				return fmt.Errorf("%s is a tenant by that", name)
			}
		} else if err := mayFollow(before, cmd, name, old, h); err != nil {
			return fmt.Errorf("%s was %+v, is %+v: %w", name, old, h, err)
		}
	}
	for name := range was {
		if _, ok := is[name]; !ok && !begun(region, cmd, false) {
			return fmt.Errorf("%s is no tenant any more by that", name)
		}
	}
	return closedRegions(before, after)
}

// closedRegions: nothing begins in a region that is being handed over.
func closedRegions(before, after *fsm.State) error {
	closed := map[fsm.RegionName]bool{}
	if j := before.Giving(); j != nil && j.Step == fsm.StepCopy {
		closed[j.Home] = true
	}
	if i := before.OpenIntake(); i != nil && i.Arrived == 0 {
		closed[i.Region] = true
	}
	for j := range after.JobsBegun(before.Revision()) {
		region, _ := after.TenantRegion(j.Tenant)
		if j.Kind != fsm.JobHandover && (closed[region] && j.Tenant != "" || j.Home != "" && closed[j.Home]) {
			return fmt.Errorf("a job to %s %q begins in %s, which is being handed over", j.Kind, j.Tenant, region)
		}
	}
	return nil
}

// TestG4G5M6RandomLogsOfTwoLevels: whatever is asked, repeated and late, of a global
// directory and of a region's, a task becomes what it became once, and a name leads to one
// place, where the entry that may change that says; every invariant holds after every entry.
func TestG4G5M6RandomLogsOfTwoLevels(t *testing.T) {
	seen, codes := map[string]int{}, map[string]int{}
	seeds := uint64(120)
	if n, err := strconv.ParseUint(os.Getenv("DOMICILE_SIM_SEEDS"), 10, 32); err == nil {
		seeds = n
	}
	for seed := range seeds {
		randomLevels(t, seed, seen, codes)
		if t.Failed() {
			return
		}
	}
	t.Log(seen, codes)
	for _, what := range []string{"create", "delete", "depart", "receive", "create ends, undone false", "delete ends, undone false", "depart ends, undone false",
		"depart ends, undone true", "receive ends, undone false", "receive ends, undone true", "flip", "given", "arrived", "home"} {
		if seen[what] < 10 {
			t.Errorf("%q %d times: the logs are too tame", what, seen[what])
		}
	}
	for name, cmd := range levelCommands {
		if codes[name] < 10 || codes[name+" refused"] == 0 {
			t.Errorf("%T is taken %d times, and refused %d times: the logs are too tame", cmd, codes[name], codes[name+" refused"])
		}
	}
}

// levelCommands are those that came with levels.
var levelCommands = func() map[string]fsm.Command {
	all := map[string]fsm.Command{}
	for _, c := range []fsm.Command{&fsm.BindGlobal{}, &fsm.BeginTask{}, &fsm.TellTask{}, &fsm.ForgoTask{}, &fsm.BeginRelocation{}, &fsm.BeginGive{},
		&fsm.GiveRegion{}, &fsm.StageRegion{}, &fsm.ArriveRegion{}, &fsm.CloseIntake{}, &fsm.SetReader{}, &fsm.SettleTask{}, &fsm.YieldTenant{}} {
		all[fmt.Sprintf("%T", c)] = c
	}
	return all
}()

func randomLevels(t *testing.T, seed uint64, seen, codes map[string]int) {
	l, s, v := fsmtest.NewRegionsLog(seed), fsm.New(), fsm.NewView()
	m := &ledger{tasks: map[fsm.JobID]*fsm.Task{}, seen: seen}
	if seed%2 == 1 {
		m.region = "eu"
	}
	for i := range 500 {
		e := l.Next(s)
		before := s.Snapshot()
		want, known := m.want(s, e.Cmd)
		r, events := s.Apply(e)
		got := fsm.Code("")
		if r.Refusal != nil {
			got = r.Refusal.Code
		}
		where := fmt.Sprintf("log %d, entry %d, %T %+v", seed, i, e.Cmd, e.Cmd)
		decided := !r.Replayed && (e.Decided == 0 || e.Decided == e.Term) && got != fsm.CodeHandingOver && got != fsm.CodeKeyReused
		if known && decided && got != want {
			t.Fatalf("%s: refused with %q, the ledger says %q", where, got, want)
		}
		if got != "" {
			codes[fmt.Sprintf("%T refused", e.Cmd)]++
		}
		if got == "" && decided {
			said := m.said(before, s, e.Cmd)
			if !said {
				m.heard(e.Cmd)
			}
			codes[fmt.Sprintf("%T", e.Cmd)]++
			m.note(before, s, e.Cmd)
		}
		if err := m.compare(s); err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		if err := oneStep(m.region, before, s, e.Cmd); err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		if err := fsm.Check(s); err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		if err := v.Apply(before.Revision(), s.Revision(), events); err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		if !v.Equal(projection(t, s)) {
			t.Fatalf("%s: the view differs from the projection", where)
		}
	}
}

// note counts what a log did, and holds a hand-over against what it is to do: all of a
// region's names and units, and no other.
func (m *ledger) note(before, after *fsm.State, cmd fsm.Command) {
	switch c := cmd.(type) {
	case *fsm.AdvanceJob:
		j, _ := before.Job(c.ID)
		if j.Kind == fsm.JobRelocate && c.To == fsm.StepPromote {
			m.seen["flip"]++
		}
		if j.Home != "" && j.Kind == fsm.JobCreate && c.To == fsm.StepDone {
			m.seen["home"]++
		}
	case *fsm.GiveRegion:
		j, _ := before.Job(c.ID)
		if _, tenants := before.Given(j.Home); tenants != nil {
			for range tenants {
				m.seen["given"]++
			}
		}
	case *fsm.ArriveRegion:
		for range before.StagedTenants() {
			m.seen["arrived"]++
		}
	}
}
