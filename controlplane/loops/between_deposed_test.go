package loops

import (
	"maps"

	"domicile/fsm"
)

// deposed is a leader of the global group that does not know that another one leads: it goes
// on planning from the directory as it was when it lost its followers, the regions answer
// it, as they cannot know, and nothing that it proposes is committed.
type deposed struct {
	m     *Memory
	state *fsm.State
	now   fsm.Millis // of its own clock
	news  map[fsm.NodeName]*NodeNews
}

// depose has another leader lead the global group. The former one may go on for a while.
func (b *betweenSim) depose() {
	former := &deposed{m: b.global.m, state: b.global.state.Snapshot(), now: b.global.now, news: maps.Clone(b.global.told)}
	former.m.ChangedAll()
	if b.former = nil; b.r.IntN(2) == 0 {
		b.former = former
	}
}

// linger has the deposed leader go on, if there is one. What it asks of regions arrives now,
// or late and often; nodes and its own group do not listen to it.
func (b *betweenSim) linger() {
	f := b.former
	if f == nil || b.quiet {
		return
	}
	if b.r.IntN(40) == 0 {
		b.former = nil // it has found out
		return
	}
	for range 1 + b.r.IntN(4) {
		b.lingerOn(f)
	}
	b.check()
}

func (b *betweenSim) lingerOn(f *deposed) {
	f.now += fsm.Millis(b.r.IntN(1500))
	p := Next(f.state, f.m, &News{Nodes: f.news}, f.now)
	for _, a := range p.Calls {
		f.m.Begin(a)
		f.m.End(a.Call, silent, f.now)
	}
	for _, c := range p.Proposals {
		f.m.Propose(c)
		f.m.Proposed(c, false, f.now)
	}
	scope, _ := f.state.Scope()
	for _, a := range p.Tasks {
		f.m.BeginTask(a, f.now)
		call := taskFlight{a, fsm.Origin{Authority: scope.Authority(), History: scope.History, Floor: f.state.Floor()}, f.m}
		answer := TaskAnswer{Outcome: Silent}
		if a.Region != "eu" && !b.cut[a.Region] {
			b.steps["asked by a deposed leader"]++
			answer = b.do(&call)
			b.late = append(b.late, call)
		}
		f.m.EndTask(a.TaskCall, answer, f.now)
	}
}

// deposeInAMove changes the leader of the global group where a move cannot be seen to be
// done or undone yet: what its regions hear last is what matters.
func (b *betweenSim) deposeInAMove() {
	for j := range b.global.state.RunningJobs() {
		if j.Kind == fsm.JobRelocate && j.Step != fsm.StepCopy && b.r.IntN(3) == 0 {
			b.lead(b.global)
			b.linger()
			return
		}
	}
}

// nameAgain has an operator delete a tenant, or make one, mostly of a name that there was.
func (b *betweenSim) nameAgain(name fsm.TenantName, region fsm.RegionName) {
	if _, ok := b.global.state.Tenant(name); !ok {
		if r := b.global.apply(0, &fsm.CreateTenant{Name: name, Region: &region}); r.Refusal == nil {
			b.steps["made"]++
		}
		return
	}
	if b.r.IntN(5) == 0 {
		if r := b.global.apply(0, &fsm.DeleteTenant{Name: name}); r.Refusal == nil {
			b.steps["removed"]++
		}
	}
}

// lateAtNodes has a call to a node of a group arrive that was given up, and perhaps again.
func (b *betweenSim) lateAtNodes(s *copySim) {
	if len(s.late) == 0 {
		return
	}
	i := b.r.IntN(len(s.late))
	s.serve(s.late[i])
	if b.r.IntN(2) == 0 {
		s.late = append(s.late[:i], s.late[i+1:]...)
	}
	b.steps["late at a node"]++
}

// busy has every group do what it can, so that moves come far among all that goes wrong.
func (b *betweenSim) busy() {
	for range 1 + b.r.IntN(4) {
		for _, s := range b.all {
			for _, name := range s.names {
				s.sync(name)
				s.renew(name)
			}
			b.round(s)
			for range len(s.calls) {
				s.turn()
			}
			for range len(b.calls) {
				b.turn()
			}
		}
		b.write()
		b.pass(100)
	}
}
