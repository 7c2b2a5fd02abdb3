package fsmtest

import (
	"fmt"

	"domicile/fsm"
)

// levels is what a log of regions that keep their own directories knows beside its
// directory: what the other directories do.
type levels struct {
	own     fsm.RegionName // region whose directory it is; "" in the global one
	job     fsm.JobID      // the newest job of the global group that a region was asked for
	history uint64         // of the global group
	floor   fsm.JobID
	giver   fsm.Giver // who gives a region to the directory
	try     uint64
}

// NewRegionsLog begins a log of a group that knows every command from its first entry on:
// of even seeds the global one, that keeps region eu, or eu and us, itself, and of which ap,
// sa and us may keep their own directories; of odd seeds one of region eu.
func NewRegionsLog(seed uint64) *Log {
	l := NewLog(seed)
	l.calm, l.two = true, seed%4 == 0
	l.levels = &levels{history: 1, job: 1000, floor: 1000, giver: fsm.Giver{Authority: "g1/us", History: 1, Job: 10}, try: 1}
	if seed%2 == 1 {
		l.levels.own, l.levels.giver.Authority = "eu", "g1/global"
	}
	return l
}

// RegionsEntries gives n entries of such a log that were applied to an empty state.
func RegionsEntries(seed uint64, n int) []fsm.Entry { return entries(NewRegionsLog(seed), n) }

// levelsCommand gives a command of two levels of directories, or what has to be there first;
// nil where any command is as good.
func (l *Log) levelsCommand(s *fsm.State) fsm.Command {
	scope, begun := s.Scope()
	holds := 0
	for range s.Nodes() {
		holds++
	}
	open := s.OpenIntake()
	switch {
	case !begun:
		return &fsm.Bootstrap{Scope: fsm.Scope{Cluster: "c1", Region: l.levels.own, History: 1}, Settings: l.settings()}
	case s.Level() < fsm.Version:
		return &fsm.PutMember{Member: fsm.Member{ID: "a", Raft: "127.0.0.1:1", Version: fsm.Version}}
	case s.Giving() != nil && l.one(2):
		return l.give(s)
	case open != nil && !l.one(4):
		return l.takeIn(s, open)
	case l.levels.own != "" && holds == 0 && s.CountTenants() == 0 && l.one(2):
		return l.stage(s, "eu", 1)
	case holds < 4 && l.one(2) && (l.levels.own == "" || open == nil):
		return l.putNode()
	case l.one(3):
		return nil
	case scope.Region == "":
		return l.globalCommand(s, scope)
	}
	return l.regionCommand(s)
}

func (l *Log) away() fsm.RegionName { return pick[fsm.RegionName](l, "ap", "sa", "sa", "us") }

func (l *Log) globalCommand(s *fsm.State, scope fsm.Scope) fsm.Command {
	switch n := l.rand.IntN(100); {
	case n < 8:
		name := l.away()
		return &fsm.PutRegion{Region: fsm.Region{Name: name, Routers: []string{"http://" + string(name) + ":1"}}}
	case n < 28:
		t := l.createTenant()
		t.Region, t.Node = ptr(pick(l, l.away(), l.away(), "eu")), nil
		if l.one(4) {
			t.Region, t.Origin = nil, t.Region
		}
		return t
	case n < 45:
		return l.advanceHomed(s)
	case n < 57:
		b := &fsm.BeginRelocation{Tenant: l.tenant(), Region: pick(l, l.away(), l.away(), "eu", l.region())}
		if l.one(3) {
			b.To = ptr(l.node())
		}
		return b
	case n < 87:
		return l.relocation(s, scope)
	case n < 90:
		return &fsm.BeginGive{Region: pick[fsm.RegionName](l, "us", "us", "us", "ap", "")}
	case n < 92:
		return l.stage(s, "us", 1)
	case n < 94:
		l.levels.giver.Job++
		return &fsm.CloseIntake{Giver: l.levels.giver}
	case n < 97:
		return l.reader(s)
	case n < 98:
		return &fsm.BindGlobal{Authority: "g1/global", History: 1}
	}
	if l.one(2) {
		return &fsm.DeleteTenant{Name: l.tenant()}
	}
	return &fsm.CancelMove{ID: l.jobOf(s, fsm.JobRelocate).ID}
}

// jobOf gives a running job of a kind, or one that is none.
func (l *Log) jobOf(s *fsm.State, kinds ...fsm.JobKind) *fsm.Job {
	j, n := &fsm.Job{ID: fsm.JobID(l.at), Step: fsm.StepCopy}, 0
	for r := range s.RunningJobs() {
		for _, k := range kinds {
			if r.Kind == k {
				if n++; l.one(n) {
					j = r
				}
			}
		}
	}
	return j
}

// advanceHomed has a region's answer come for a tenant that it makes or removes.
func (l *Log) advanceHomed(s *fsm.State) *fsm.AdvanceJob {
	j := l.jobOf(s, fsm.JobCreate, fsm.JobDelete)
	a := &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: fsm.StepDone}
	if j.Step == fsm.StepUndo && l.one(2) {
		a.Keep = fsm.UnitID(pick(l, j.ID, fsm.JobID(l.at), 7))
		if t, ok := s.Tenant(j.Tenant); ok && t.HasHome && l.one(2) {
			a.Keep = t.Claim
		}
	}
	if j.Step != fsm.StepUndo && l.one(3) {
		a.To, a.Refusal = fsm.StepUndo, &fsm.Refusal{Code: pick(l, fsm.CodeNoNode, fsm.CodeRegionUnreachable, fsm.CodeTenantExists), Text: "no"}
	}
	return a
}

// reader asks for read replicas, or has them placed.
func (l *Log) reader(s *fsm.State) fsm.Command {
	if l.one(2) {
		return &fsm.SetReader{Tenant: l.tenant(), Region: pick[fsm.RegionName](l, "eu", "us", "us", "ap"), Wanted: !l.one(3), Silent: []fsm.NodeName{l.node()}}
	}
	p := &fsm.PlaceReaders{}
	for range 3 {
		p.Units = append(p.Units, l.ref(l.unit(s)))
	}
	return p
}

// relocation takes a relocation on, or this directory's own part of one.
func (l *Log) relocation(s *fsm.State, scope fsm.Scope) fsm.Command {
	j := l.jobOf(s, fsm.JobRelocate)
	o := fsm.Origin{Authority: scope.Authority(), History: scope.History, Floor: s.Floor()}
	if l.one(30) {
		o.Floor, o.History = fsm.JobID(l.rand.IntN(int(s.Revision())+1)), uint64(l.rand.IntN(3))
	}
	own, known := s.Task(j.ID)
	_, leaves := s.Placed(fsm.UnitName(j.Tenant))
	switch {
	case known && l.one(2):
		return l.task(s, o, own)
	case !known && l.one(2) && j.Step != fsm.StepUndo:
		b := &fsm.BeginTask{Origin: o, Job: j.ID, Kind: fsm.TaskReceive, Tenant: j.Tenant, ID: j.Unit, Region: &j.Home, Source: l.foreign()}
		if leaves {
			b = &fsm.BeginTask{Origin: o, Job: j.ID, Kind: fsm.TaskDepart, Tenant: j.Tenant, ID: j.Unit}
		}
		if l.one(20) {
			b.Kind, b.ID = fsm.TaskKind(l.rand.IntN(6)), pick(l, j.Unit, j.Unit+1, fsm.UnitID(l.at))
		}
		return b
	case !known && l.one(20):
		return &fsm.ForgoTask{Origin: o, Job: j.ID, Kind: pick(l, fsm.TaskReceive, fsm.TaskDepart), Tenant: j.Tenant, ID: j.Unit}
	case l.one(20):
		return &fsm.NoteJob{ID: j.ID, Problem: "it is far", From: l.node(), To: l.node(), Pause: 3, Bytes: 9}
	}
	next := map[fsm.JobStep]fsm.JobStep{fsm.StepCopy: fsm.StepRelease, fsm.StepRelease: fsm.StepPromote, fsm.StepPromote: fsm.StepClean}
	a := &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: next[j.Step]}
	switch {
	case a.To == 0:
		a.To = fsm.StepDone
	case l.one(8):
		a.To, a.Refusal = fsm.StepUndo, &fsm.Refusal{Code: fsm.CodeMoveUndone, Text: "no"}
	case l.one(10):
		a.To = fsm.JobStep(l.rand.IntN(14))
	}
	return a
}

// foreign is a node of another directory.
func (l *Log) foreign() *fsm.Foreign {
	f := &fsm.Foreign{Region: "xx", Node: fsm.NodeName(fmt.Sprintf("f%d", l.rand.IntN(3))), Addr: fmt.Sprintf("10.9.0.1:%d", 1+l.rand.IntN(3)),
		Token: pick(l, "", "t"), Epoch: uint64(l.rand.IntN(4))<<50 | uint64(1+l.rand.IntN(900))}
	if l.one(30) {
		f.Epoch = pick[uint64](l, 0, 1<<63-1, 1<<64-1)
	}
	return f
}

// task says something of a task that the directory knows, or does what its job stands at.
func (l *Log) task(s *fsm.State, o fsm.Origin, t *fsm.Task) fsm.Command {
	j, runs := s.Job(t.Local)
	if runs = runs && j.Ended == 0; runs && l.one(3) {
		return l.local(s, j)
	}
	switch l.rand.IntN(12) {
	case 0:
		return &fsm.ForgoTask{Origin: o, Job: t.Job, Kind: t.Kind, Tenant: t.Tenant, ID: t.ID}
	case 1, 2:
		b := &fsm.BeginTask{Origin: o, Job: t.Job, Kind: t.Kind, Tenant: t.Tenant, ID: t.ID, Source: l.foreign()}
		if l.one(8) {
			b.Kind = fsm.TaskKind(1 + l.rand.IntN(4))
		}
		return b
	case 3:
		return &fsm.TellTask{Origin: o, Job: t.Job, Word: fsm.TaskWord(l.rand.IntN(8)), Other: l.foreign()}
	}
	w := pick(l, fsm.TaskRelease, fsm.TaskRelease, fsm.TaskRelease, fsm.TaskUndo)
	switch {
	case t.Kind == fsm.TaskReceive:
		w = pick(l, fsm.TaskArrived, fsm.TaskArrived, fsm.TaskSource)
	case runs && j.Step == fsm.StepSent:
		w = pick(l, fsm.TaskDeparted, fsm.TaskDeparted, fsm.TaskUndo)
	case runs && j.Step == fsm.StepRemove:
		w = fsm.TaskSettled
	}
	return &fsm.TellTask{Origin: o, Job: t.Job, Word: w, Other: l.foreign()}
}

// local takes a job that is a task's on, as its nodes answer.
func (l *Log) local(s *fsm.State, j *fsm.Job) fsm.Command {
	a := &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: fsm.StepDone}
	switch {
	case j.Step == fsm.StepRelease:
		return l.endMoveRelease(j)
	case j.Step == fsm.StepPromote:
		if p, ok := s.Placed(fsm.UnitName(j.Tenant)); ok {
			return &fsm.ConfirmPromotion{Node: p.Node, Epoch: p.Epoch, Units: []fsm.UnitRef{{Unit: p.Unit, ID: p.ID}}}
		}
	case j.Kind == fsm.JobCreate && j.Step == fsm.StepMake && j.Schema != "":
		a.To = fsm.StepSchema
	case j.Step == fsm.StepThaw && j.Refusal == nil && !l.one(4):
		a.To = fsm.StepCopy
	}
	return a
}

// regionCommand gives what the global group asks of a region, among much that is late.
func (l *Log) regionCommand(s *fsm.State) fsm.Command {
	v := l.levels
	o := fsm.Origin{Authority: "g1/global", History: v.history, Floor: v.floor}
	switch {
	case l.one(40):
		v.floor = min(v.job, v.floor+fsm.JobID(l.rand.IntN(20)))
		o.Floor = v.floor
	case l.one(80):
		v.history++
	case l.one(30):
		o = fsm.Origin{Authority: pick(l, "g1/global", "g2/global", ""), History: v.history - 1, Floor: v.floor - 5}
	}
	var known *fsm.Task
	n := 0
	for t := range s.Tasks() {
		if n++; l.one(n) || !t.Over() && l.one(3) {
			known = t
		}
	}
	empty := s.CountTenants() == 0 && n == 0
	switch n := l.rand.IntN(100); {
	case n < 45 && known != nil:
		return l.task(s, o, known)
	case n < 50:
		return &fsm.BindGlobal{Authority: o.Authority, History: o.History}
	case n < 52:
		return &fsm.BeginGive{Region: pick[fsm.RegionName](l, "eu", "eu", "us")}
	case n < 56 || empty && l.one(3):
		return l.stage(s, "eu", 1)
	case n < 58:
		v.giver.Job++
		return &fsm.CloseIntake{Giver: v.giver}
	case n < 60:
		return l.reader(s)
	case n < 66 && known != nil:
		return &fsm.SettleTask{Job: known.Job, History: v.history - uint64(number(l.one(8))), Here: l.one(2)}
	case n < 68:
		return l.yield(s)
	}
	return l.newTask(s, o)
}

// yield gives a tenant up that another directory has, or that was here before.
func (l *Log) yield(s *fsm.State) fsm.Command {
	u := l.unit(s)
	y := &fsm.YieldTenant{UnitRef: fsm.UnitRef{Unit: u.Unit, ID: u.ID}, Epoch: u.Epoch, History: l.levels.history}
	switch {
	case l.one(8):
		y.Epoch--
	case l.one(8):
		y.History--
	}
	return y
}

// newTask is one that the region was not asked for yet, or that is of a job long over.
func (l *Log) newTask(s *fsm.State, o fsm.Origin) fsm.Command {
	v := l.levels
	v.job += 1 + fsm.JobID(l.rand.IntN(3))
	job := v.job
	if l.one(10) {
		job -= fsm.JobID(l.rand.IntN(60))
	}
	p := l.unit(s)
	b := &fsm.BeginTask{Origin: o, Job: job, Kind: pick(l, fsm.TaskDepart, fsm.TaskDepart, fsm.TaskDelete), Tenant: fsm.TenantName(p.Unit), ID: p.ID, Silent: []fsm.NodeName{l.node()}}
	if l.one(10) {
		b.ID++
	}
	if l.one(2) || p.ID <= 1 {
		c := l.createTenant()
		b.Kind, b.Tenant, b.ID, b.Node, b.Pinned, b.Schema = fsm.TaskCreate, c.Name, fsm.UnitID(job), c.Node, c.Pinned, c.Schema
		b.Region = ptr(l.region())
		if l.one(2) {
			b.Kind, b.Source, b.Quota = fsm.TaskReceive, l.foreign(), &fsm.Quota{RPS: 3}
		}
	}
	if l.one(12) {
		return &fsm.ForgoTask{Origin: o, Job: b.Job, Kind: b.Kind, Tenant: b.Tenant, ID: b.ID}
	}
	return b
}

// give takes a hand-over on that the directory gives.
func (l *Log) give(s *fsm.State) fsm.Command {
	j := s.Giving()
	switch {
	case j.Step == fsm.StepCopy && l.one(6), l.one(12):
		return &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: fsm.StepUndo, Refusal: &fsm.Refusal{Code: fsm.CodeRegionNotReady, Text: "no"}}
	case j.Step == fsm.StepCopy && l.one(2):
		return &fsm.GiveRegion{ID: j.ID, Digest: s.Digest(j.Home) + uint64(number(l.one(8)))}
	case j.Step == fsm.StepCopy: // what is in the way ends
		if r := l.job(s); r.Kind == fsm.JobDepart || r.Kind == fsm.JobReceive {
			return l.local(s, r)
		}
		return l.advance(s)
	}
	next := map[fsm.JobStep]fsm.JobStep{fsm.StepPromote: fsm.StepClean, fsm.StepClean: fsm.StepDone, fsm.StepUndo: fsm.StepDone}
	return &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: next[j.Step]}
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// takeIn takes one on that it is given.
func (l *Log) takeIn(s *fsm.State, i *fsm.Intake) fsm.Command {
	switch n := l.rand.IntN(20); {
	case i.Arrived != 0 || n == 0:
		return &fsm.CloseIntake{Giver: i.Giver}
	case n == 1:
		l.levels.try++
		return l.stage(s, i.Region, 1)
	case n < 8 && l.levels.own == "":
		return l.advanceHomed(s) // what is in the way ends
	case n < 10 && i.Part > 5:
		return &fsm.ArriveRegion{Giver: i.Giver, Digest: i.Digest + uint64(number(l.one(8)))}
	}
	return l.stage(s, i.Region, i.Part+1)
}

// stage tells of a part of a region: of a node of it, or of tenants, in the global directory
// of those that have their home there.
func (l *Log) stage(s *fsm.State, r fsm.RegionName, part uint64) *fsm.StageRegion {
	v := l.levels
	if s.OpenIntake() == nil {
		v.giver.Job++
	}
	if v.own != "" {
		v.giver.History = v.history
	}
	g := &fsm.StageRegion{Giver: v.giver, Region: r, Try: v.try, Part: part, Longest: fsm.Millis(l.rand.IntN(9000))}
	var nodes []fsm.NodeName
	for n := range s.StagedNodes() {
		nodes = append(nodes, n.Name)
	}
	switch {
	case len(nodes) < 3 || l.one(6):
		g.Node = &fsm.Node{Name: fsm.NodeName(fmt.Sprintf("g%d", l.rand.IntN(4))), Addr: fmt.Sprintf("10.8.0.1:%d", 1+l.rand.IntN(40)), Token: "t", Region: r,
			Zone: pick[fsm.ZoneName](l, "a", "b"), Weight: 1, Lease: pick(l, fsm.LeaseTaken, fsm.LeaseNone), Lost: l.one(9)}
		if l.one(5) {
			g.Node.Drain = &fsm.Drain{ID: 3, Since: 9, Units: 2}
		}
		return g
	case l.one(12):
		g.GoneNodes, g.GoneTenants = []fsm.NodeName{pick(l, nodes...)}, []fsm.TenantName{l.tenant()}
		return g
	}
	add := func(name fsm.TenantName, id fsm.UnitID) {
		on, copy := pick(l, nodes...), pick(l, nodes...)
		t := fsm.GivenTenant{Tenant: fsm.Tenant{Name: name, Created: 5, Pinned: l.one(4)},
			Unit: fsm.Placed{ID: id, Unit: fsm.UnitName(name), Node: on, State: fsm.UnitActive, Epoch: 1<<50 | uint64(1+l.rand.IntN(500))}}
		if copy != on {
			t.Unit.Copies = []fsm.Copy{{Node: copy, State: pick(l, fsm.CopyInSync, fsm.CopySyncing, fsm.CopyFormer)}}
		}
		g.Tenants = append(g.Tenants, t)
	}
	if v.own != "" {
		v.job++
		add(fsm.TenantName(fmt.Sprintf("t%d", l.rand.IntN(30))), fsm.UnitID(1<<20+v.job)) // made when the global directory kept the region
		return g
	}
	for t := range s.Tenants("", "") {
		if t.HasHome && t.Home == r && !l.one(10) {
			add(t.Name, t.Claim)
		}
	}
	return g
}
