package loops

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"domicile/fsm"
)

// betweenSim is three directories: the global one, which keeps region eu itself, and those
// of us and tr. Calls between their groups are lost, late and repeated, groups change
// leaders, regions are cut off, and nodes do as in copySim.
type betweenSim struct {
	t      *testing.T
	r      *rand.Rand
	global *copySim
	groups map[fsm.RegionName]*copySim // "us", "tr", and "eu", which is the global one
	all    []*copySim
	cut    map[fsm.RegionName]bool
	calls  []taskFlight
	late   []taskFlight
	quiet  bool
	former *deposed       // a leader of the global group that does not know of the next
	steps  map[string]int // what was seen
}

// taskFlight is a call to a group on its way.
type taskFlight struct {
	TaskAction
	origin fsm.Origin
	asker  *Memory // of the leader that hears the answer
}

var simRegions = []fsm.RegionName{"eu", "us", "tr"}

func newBetweenSim(t *testing.T, seed uint64) *betweenSim {
	b := &betweenSim{t: t, r: rand.New(rand.NewPCG(seed, 3)), groups: map[fsm.RegionName]*copySim{}, cut: map[fsm.RegionName]bool{}, steps: map[string]int{}}
	var names []fsm.NodeName
	nodes, acked := map[fsm.NodeName]*simNode{}, map[fsm.UnitID]int{}
	for i, region := range simRegions {
		scope := region
		if region == "eu" {
			scope = ""
		}
		prefix := []string{"n", "m", "k"}[i]
		own := []fsm.NodeName{fsm.NodeName(prefix + "1"), fsm.NodeName(prefix + "2"), fsm.NodeName(prefix + "3")}
		s := newSimOf(newWorldOf(t, scope), seed*3+uint64(i), own)
		s.moves, s.r = true, b.r
		for n, node := range s.nodes {
			nodes[n] = node
		}
		names = append(names, own...)
		b.groups[region] = s
		b.all = append(b.all, s)
	}
	for _, s := range b.all {
		s.nodes, s.acked, s.all = nodes, acked, names
	}
	b.global = b.groups["eu"]
	for i := range uint64(seed%5) * 100 { // revisions of the directories have nothing to do with each other
		b.groups[simRegions[i%3]].next()
	}
	for _, region := range []fsm.RegionName{"us", "tr"} {
		b.global.apply(0, &fsm.PutRegion{Region: fsm.Region{Name: region, Routers: []string{"http://" + string(region)}}})
	}
	return b
}

// create makes a tenant in a region.
func (b *betweenSim) create(name fsm.TenantName, region fsm.RegionName) {
	b.global.apply(0, &fsm.CreateTenant{Name: name, Region: &region})
	if region == "eu" {
		return
	}
	home, ok := b.global.state.Tenant(name)
	if !ok {
		return
	}
	r := b.groups[region].apply(0, &fsm.BeginTask{Origin: b.origin(), Job: fsm.JobID(home.Claim), Kind: fsm.TaskCreate, Tenant: name, ID: home.Claim, Region: &region})
	if r.Refusal != nil {
		b.t.Fatalf("%s is not made in %s: %v", name, region, r.Refusal)
	}
}

func (b *betweenSim) origin() fsm.Origin {
	scope, _ := b.global.state.Scope()
	return fsm.Origin{Authority: scope.Authority(), History: scope.History, Floor: b.global.state.Floor()}
}

// round lets one group's leader plan.
func (b *betweenSim) round(s *copySim) {
	p := s.round()
	for _, a := range p.Tasks {
		if s != b.global {
			b.t.Errorf("the group of a region asks another: %+v", a)
		}
		s.m.BeginTask(a, s.now)
		b.calls = append(b.calls, taskFlight{a, b.origin(), s.m})
	}
	b.check()
}

// check: of a unit that two directories have, one at most grants it, and it is granted
// where its home is.
func (b *betweenSim) check() {
	for t := range b.global.state.Tenants("", "") {
		var at []string
		for _, region := range simRegions {
			s := b.groups[region]
			p, ok := s.state.Placed(fsm.UnitName(t.Name))
			if !ok {
				continue
			}
			for u := range s.state.Grantable(p.Node) {
				if u == p {
					at = append(at, string(region))
				}
			}
			if home, ok := b.global.state.TenantRegion(t.Name); p.State == fsm.UnitActive && (!ok || home != region) && s == b.global {
				b.t.Errorf("%s is active in %s, and lives in %s", t.Name, region, home)
			}
		}
		if len(at) > 1 {
			b.t.Errorf("%s may be granted by %v (I1, I4)", t.Name, at)
		}
	}
}

// do has a region's group do what a call asks for.
func (b *betweenSim) do(f *taskFlight) TaskAnswer {
	s := b.groups[f.Region]
	cmd := f.Cmd
	switch c := cmd.(type) {
	case *fsm.BeginTask:
		own := *c
		own.Origin = f.origin
		cmd = &own
	case *fsm.TellTask:
		own := *c
		own.Origin = f.origin
		b.steps[fmt.Sprint("word ", own.Word)]++
		if f.asker != b.global.m {
			b.steps[fmt.Sprint("a deposed leader's word ", own.Word)]++
		}
		cmd = &own
	case *fsm.ForgoTask:
		own := *c
		own.Origin = f.origin
		cmd = &own
	}
	if cmd != nil {
		r, events := s.state.Apply(fsm.Entry{Revision: s.next(), Term: s.term, At: s.now, Cmd: cmd})
		s.tell(events)
		s.m.ChangedAll()
		if no := r.Refusal; no != nil {
			outcome := Refused
			if no.Code == fsm.CodeBusy || no.Code == fsm.CodeRecovering {
				outcome = Unavailable
			}
			return TaskAnswer{Outcome: outcome, Refusal: no, Untouched: true}
		}
	}
	t, ok := s.state.Task(f.Job)
	if !ok {
		return TaskAnswer{Outcome: Refused, Refusal: &fsm.Refusal{Code: fsm.CodeTaskUnknown, Text: "unknown"}}
	}
	return TaskAnswer{Outcome: Done, Task: simTask(s.state, s.m.Receiving, t)}
}

// turn lets one call between groups go on, or get lost.
func (b *betweenSim) turn() {
	if len(b.calls) == 0 {
		return
	}
	i := b.r.IntN(len(b.calls))
	f := b.calls[i]
	b.calls = slices.Delete(b.calls, i, i+1)
	answer := TaskAnswer{Outcome: Silent}
	switch lost := !b.quiet && f.Region != "eu" && b.r.IntN(8) == 0; {
	case b.cut[f.Region] && f.Region != "eu":
		if b.r.IntN(3) == 0 {
			b.late = append(b.late, f)
		}
	case lost && b.r.IntN(2) == 0:
		b.do(&f)
	case lost:
		b.late = append(b.late, f)
	default:
		answer = b.do(&f)
		if !b.quiet && b.r.IntN(10) == 0 {
			b.late = append(b.late, f) // it arrives twice
		}
	}
	f.asker.EndTask(f.TaskCall, answer, b.global.now)
}

func (b *betweenSim) write() {
	writers := map[fsm.UnitID]fsm.NodeName{}
	for _, s := range b.all {
		for _, n := range s.names {
			for u, h := range s.nodes[n].units {
				if s.may(n, u) {
					if other, two := writers[h.id]; two {
						b.t.Errorf("%s and %s both write %s (I1)", other, n, u)
					}
					writers[h.id] = n
				}
			}
		}
	}
	for _, s := range b.all {
		s.write()
	}
}

func (b *betweenSim) pass(ms fsm.Millis) {
	for _, s := range b.all {
		s.now += ms
	}
}

func (b *betweenSim) anyRegion() fsm.RegionName { return simRegions[b.r.IntN(3)] }

// act is what operators do, and what goes wrong.
func (b *betweenSim) act() {
	name := fsm.TenantName(fmt.Sprint("t", b.r.IntN(4)))
	region := b.anyRegion()
	s := b.groups[region]
	node := s.names[b.r.IntN(len(s.names))]
	b.write()
	switch b.r.IntN(30) {
	case 0, 1:
		cmd := &fsm.BeginRelocation{Tenant: name, Region: region}
		if b.r.IntN(2) == 0 {
			cmd.To = &node
		}
		b.global.apply(0, cmd)
	case 2:
		if b.r.IntN(12) == 0 {
			b.global.apply(0, &fsm.CancelMove{ID: b.anyRelocation()})
		}
	case 3:
		b.cut[region] = !b.cut[region] && b.r.IntN(4) == 0
	case 4:
		if len(b.late) > 0 {
			i := b.r.IntN(len(b.late))
			b.do(&b.late[i])
			if b.r.IntN(2) == 0 {
				b.late = slices.Delete(b.late, i, i+1)
			}
		}
	case 5:
		if b.r.IntN(4) == 0 {
			b.lead(s)
		}
	case 6:
		s.nodes[node].silent = b.r.IntN(3) == 0
	case 7:
		s.nodes[node].stuck = b.r.IntN(3) == 0
	case 8:
		if b.r.IntN(4) == 0 {
			b.pass(fsm.Millis([]int{1000, 3000, 12_000, 31_000}[b.r.IntN(4)]))
		}
	case 9, 10:
		b.pass(fsm.Millis(b.r.IntN(500)))
	case 11, 12:
		s.renew(node)
	case 13, 14:
		s.sync(node)
	case 15:
		if b.r.IntN(3) == 0 {
			s.apply(0, &fsm.BeginMove{Unit: fsm.UnitName(name), To: node, Cause: fsm.CauseMove})
		}
	case 16, 17, 18:
		b.turn()
	case 19, 20:
		b.linger()
	case 21:
		b.nameAgain(name, region)
	case 22:
		b.lateAtNodes(s)
	case 23:
		b.deposeInAMove()
	case 24, 25:
		b.busy()
	default:
		s.turn()
	}
	s.m.ChangedAll()
	b.round(s)
	if b.r.IntN(2) == 0 {
		b.round(b.global)
	}
}

func (b *betweenSim) lead(s *copySim) {
	if s == b.global {
		b.depose()
	}
	s.lead()
}

// anyRelocation gives one that runs, or 0.
func (b *betweenSim) anyRelocation() (id fsm.JobID) {
	n := 0
	for j := range b.global.state.RunningJobs() {
		if j.Kind == fsm.JobRelocate {
			if n++; b.r.IntN(n) == 0 {
				id = j.ID
			}
		}
	}
	return id
}

// rounds has everything answer.
func (b *betweenSim) rounds(n int) {
	for range n {
		for _, s := range b.all {
			s.quiet = true
			for _, name := range s.names {
				s.nodes[name].silent, s.nodes[name].stuck, s.nodes[name].news.Stopping = false, false, false
				s.sync(name)
				s.renew(name)
			}
		}
		b.write()
		for _, s := range b.all {
			b.round(s)
			for len(s.calls) > 0 {
				s.turn()
			}
		}
		for len(b.calls) > 0 {
			b.turn()
		}
		b.pass(300)
	}
	for _, s := range b.all {
		b.round(s)
	}
}

// settle ends all that goes wrong.
func (b *betweenSim) settle() {
	b.quiet = true
	clear(b.cut)
	for len(b.late) > 0 {
		b.do(&b.late[0])
		b.late = b.late[1:]
	}
	b.rounds(400)
}

// ended: each tenant lives in one directory, the one that is its home, and is written
// there; nothing is left of it anywhere else, nor of any job.
func (b *betweenSim) ended() {
	want, have := map[fsm.NodeName][]string{}, map[fsm.NodeName][]string{}
	for _, region := range simRegions {
		s := b.groups[region]
		for j := range s.state.RunningJobs() {
			b.t.Errorf("%s: a job does not end: %+v, other %+v", region, *j, j.Other)
		}
		for t, p := range s.state.Placements() {
			home, ok := b.global.state.TenantRegion(t.Name)
			if p == nil && s == b.global && ok && t.HasHome && t.Job == 0 {
				if u, ok := b.groups[home].state.Placed(fsm.UnitName(t.Name)); !ok || u.ID != t.Claim {
					b.t.Errorf("%s has its home in %s, which has %+v", t.Name, home, u)
				}
				continue
			}
			if p == nil || home != region || p.State != fsm.UnitActive || !p.Promoted() || p.Lacks != 0 || !s.may(p.Node, p.Unit) {
				b.t.Errorf("%s ended in %s as %+v; its home is %s", t.Name, region, p, home)
				continue
			}
			want[p.Node] = append(want[p.Node], fmt.Sprint(p.Unit, p.ID, " primary"))
			for _, c := range p.Copies {
				want[c.Node] = append(want[c.Node], fmt.Sprint(p.Unit, p.ID, " of ", p.Node))
			}
		}
	}
	for _, name := range b.global.all {
		for u, h := range b.global.nodes[name].units {
			what := " primary"
			if h.from != "" {
				what = " of " + string(h.from)
			}
			have[name] = append(have[name], fmt.Sprint(u, h.id, what))
		}
		slices.Sort(have[name])
		slices.Sort(want[name])
		if strings.Join(have[name], ",") != strings.Join(want[name], ",") {
			b.t.Errorf("%s holds %v, the directories say %v (R21)", name, have[name], want[name])
		}
	}
}

func runBetween(t *testing.T, seed uint64, outcomes map[string]int) {
	b := newBetweenSim(t, seed)
	for i, region := range []fsm.RegionName{"eu", "us", "tr", "us"} {
		b.create(fsm.TenantName(fmt.Sprint("t", i)), region)
	}
	b.quiet = true
	b.rounds(60)
	b.quiet = false
	for _, s := range b.all {
		s.quiet = false
	}
	for range 700 {
		b.act()
		if t.Failed() {
			return
		}
	}
	b.settle()
	b.ended()
	for j := range b.global.state.Jobs() {
		if j.Kind == fsm.JobRelocate {
			how := "done"
			if j.Refusal != nil {
				how = string(j.Refusal.Code)
			}
			outcomes[how]++
		}
	}
	for what, n := range b.steps {
		outcomes[what] += n
	}
}

// TestM1M4M6R21WhateverFailsATenantLivesInOneDirectory lets tenants go from one directory
// to another among all that can fail: no instant has two writers, nothing acknowledged is
// lost, and in the end each tenant is where its home says, and nothing is left elsewhere.
func TestM1M4M6R21WhateverFailsATenantLivesInOneDirectory(t *testing.T) {
	outcomes := map[string]int{}
	seeds := uint64(60)
	if n, err := strconv.ParseUint(os.Getenv("DOMICILE_SIM_SEEDS"), 10, 32); err == nil {
		seeds = n
	}
	for seed := range seeds {
		if runBetween(t, seed, outcomes); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Log(outcomes)
	for _, how := range []string{"done", string(fsm.CodeCancelled), string(fsm.CodeMoveUndone), string(fsm.CodeRegionUnreachable),
		"made", "removed", "late at a node", "asked by a deposed leader", "a deposed leader's word undo", "a deposed leader's word departed", "a deposed leader's word arrived"} {
		if outcomes[how] < 5 {
			t.Errorf("moves ended as %v: the simulation is too tame", outcomes)
		}
	}
}

// simTask tells how a task of this directory stands, as far as the directory knows, and
// what receiving tells of those that copy.
func simTask(s *fsm.State, receiving func(fsm.JobID) Receiving, t *fsm.Task) TaskState {
	out := TaskState{Over: t.Over(), Forgone: t.Forgone, Refusal: t.Refusal}
	j, runs := s.Job(t.Local)
	if runs = runs && j.Ended == 0; runs {
		out.Step, out.Problem = j.Step, j.Problem
	}
	if p, ok := s.Placed(fsm.UnitName(t.Tenant)); ok && p.ID == t.ID {
		out.Unit = taskUnit(s, p)
		if t.Kind == fsm.TaskDepart && runs && out.Unit != nil {
			out.Unit.Token = "t"
		}
	}
	if runs && j.Kind == fsm.JobReceive && j.Step == fsm.StepCopy {
		r := receiving(j.ID)
		out.Copy = &TaskCopy{Source: *j.Other, Bytes: r.Bytes, Total: r.Total, Ready: r.Ready, Silent: r.Silent, Trouble: r.Trouble}
		out.Copy.Source.Token = ""
	}
	return out
}

func taskUnit(s *fsm.State, p *fsm.Placed) *TaskUnit {
	n, ok := s.Node(p.Node)
	if !ok {
		return nil // it was written off
	}
	u := &TaskUnit{Foreign: fsm.Foreign{Region: n.Region, Node: n.Name, Addr: n.Addr, Epoch: p.Epoch}, State: p.State, Promoted: p.Promoted()}
	if t, ok := s.Tenant(fsm.TenantName(p.Unit)); ok {
		u.Pinned, u.Quota = t.Pinned, t.Quota
	}
	return u
}
