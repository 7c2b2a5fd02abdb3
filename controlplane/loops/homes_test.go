package loops

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"domicile/fsm"
)

// levels is a global directory with the executor of one term on it, and that of region us,
// whose own executor is played at random. Calls from one to the other are lost, come late,
// and come twice.
type levels struct {
	*world
	rand   *rand.Rand
	us     *fsm.State
	at     fsm.Revision // of us
	late   []fsm.Command
	flying []TaskAction
	cut    bool
}

func newLevels(t *testing.T, seed uint64) *levels {
	w := newWorld(t)
	l := &levels{world: w, rand: rand.New(rand.NewPCG(seed, 1)), us: fsm.New()}
	w.apply(0, &fsm.PutMember{Member: fsm.Member{ID: "s1", Raft: "127.0.0.1:1", Version: fsm.Version}})
	w.apply(0, &fsm.PutRegion{Region: fsm.Region{Name: "us", Routers: []string{"http://us:1"}}})
	w.m = NewMemory(w.rev)
	l.there(&fsm.Bootstrap{Scope: fsm.Scope{Cluster: "d", Region: "us", History: 1}})
	l.there(&fsm.PutMember{Member: fsm.Member{ID: "s1", Raft: "127.0.0.1:1", Version: fsm.Version}})
	addr, token, region := "127.0.0.1:1", "t", fsm.RegionName("us")
	l.there(&fsm.PutNode{Name: "n1", Addr: &addr, Token: &token, Region: &region})
	return l
}

// there applies a command in the region.
func (l *levels) there(cmd fsm.Command) fsm.Result {
	l.at++
	r, _ := l.us.Apply(fsm.Entry{Revision: l.at, Term: 1, At: l.now, Cmd: cmd})
	return r
}

// sent gives a call as it leaves.
func (l *levels) sent(cmd fsm.Command) fsm.Command {
	scope, _ := l.state.Scope()
	from := fsm.Origin{Authority: scope.Authority(), History: scope.History, Floor: l.state.Floor()}
	switch c := cmd.(type) {
	case *fsm.BeginTask:
		order := *c
		order.Origin = from
		return &order
	case *fsm.ForgoTask:
		order := *c
		order.Origin = from
		return &order
	}
	panic(fmt.Sprintf("%T", cmd))
}

// call has the region take a call, and gives its answer.
func (l *levels) call(cmd fsm.Command) TaskAnswer {
	r := l.there(cmd)
	switch {
	case r.Refusal != nil && (r.Refusal.Code == fsm.CodeBusy || r.Refusal.Code == fsm.CodeRecovering):
		return TaskAnswer{Outcome: Unavailable, Untouched: true, Refusal: r.Refusal}
	case r.Refusal != nil:
		return TaskAnswer{Outcome: Refused, Untouched: true, Refusal: r.Refusal}
	}
	s := TaskState{Over: r.Task.Over(), Forgone: r.Task.Forgone, Refusal: r.Task.Refusal}
	if j, ok := l.us.Job(r.Task.Local); ok && j.Ended == 0 {
		s.Step = j.Step
	}
	return TaskAnswer{Outcome: Done, Task: s}
}

// look has the global group's planner plan.
func (l *levels) look() {
	p := Next(l.state.Snapshot(), l.m, nil, l.now)
	for _, a := range p.Tasks {
		l.m.BeginTask(a, l.now)
		l.flying = append(l.flying, a)
	}
	for _, q := range p.Proposals {
		l.m.Propose(q)
		r := l.apply(l.term, q.Cmd)
		l.m.Proposed(q, r.Refusal == nil, l.now)
	}
	if len(p.Calls) > 0 {
		l.t.Fatalf("the global group calls a node: %+v", p.Calls)
	}
	l.m.Forget(l.state, l.now)
}

// land ends a call that is under way.
func (l *levels) land() {
	if len(l.flying) == 0 {
		return
	}
	i := l.rand.IntN(len(l.flying))
	a := l.flying[i]
	l.flying = append(l.flying[:i], l.flying[i+1:]...)
	cmd := l.sent(a.Cmd)
	gone := &fsm.Refusal{Code: fsm.CodeRegionUnreachable, Text: "region us is not reached"}
	answer := TaskAnswer{Outcome: Silent, Refusal: gone}
	switch n := l.rand.IntN(10); {
	case l.cut && n < 8:
		answer.Untouched = true
	case n == 0: // it will arrive some time
		l.late = append(l.late, cmd)
	case n == 1: // its answer is lost
		l.call(cmd)
	case n == 2: // it comes twice
		l.late = append(l.late, cmd)
		answer = l.call(cmd)
	default:
		answer = l.call(cmd)
	}
	l.m.EndTask(a.TaskCall, answer, l.now)
}

// work lets a job of the region go on.
func (l *levels) work(well bool) {
	for j := range l.us.RunningJobs() {
		step := &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: fsm.StepDone}
		if !well && j.Step == fsm.StepMake && l.rand.IntN(3) == 0 {
			step.To, step.Refusal = fsm.StepUndo, &fsm.Refusal{Code: fsm.CodeNodeRefused, Text: "no"}
		}
		if well || l.rand.IntN(3) == 0 {
			l.there(step)
			return
		}
	}
}

func (l *levels) arrive() {
	if len(l.late) > 0 {
		i := l.rand.IntN(len(l.late))
		l.there(l.late[i])
		l.late = append(l.late[:i], l.late[i+1:]...)
	}
}

func (l *levels) client() {
	name, us := fsm.TenantName(fmt.Sprint("t", l.rand.IntN(3))), fsm.RegionName("us")
	if l.rand.IntN(2) == 0 {
		l.apply(0, &fsm.CreateTenant{Name: name, Region: &us})
	} else {
		l.apply(0, &fsm.DeleteTenant{Name: name})
	}
}

// newLeader has another server lead the global group; calls of the last one go on.
func (l *levels) newLeader() {
	for _, a := range l.flying {
		l.late = append(l.late, l.sent(a.Cmd))
	}
	l.flying = nil
	l.newTerm()
}

// rest lets both sides come to rest.
func (l *levels) rest() {
	l.cut = false
	for range 2000 {
		l.now += 500
		l.look()
		for _, a := range l.flying {
			l.m.EndTask(a.TaskCall, l.call(l.sent(a.Cmd)), l.now)
		}
		l.flying = nil
		l.work(true)
		if !running(l.state) && !running(l.us) {
			return
		}
	}
	l.t.Fatalf("jobs are left: global %v, region %v", running(l.state), running(l.us))
}

func running(s *fsm.State) bool {
	for range s.RunningJobs() {
		return true
	}
	return false
}

// agree checks that both directories say the same.
func (l *levels) agree(when string) {
	l.t.Helper()
	for _, s := range []*fsm.State{l.state, l.us} {
		if err := fsm.Check(s); err != nil {
			l.t.Fatal(err)
		}
	}
	n := 0
	for t := range l.us.Tenants("", "") {
		n++
		p, _ := l.us.Placed(fsm.UnitName(t.Name))
		if home, ok := l.state.Tenant(t.Name); !ok || home.Claim != p.ID || home.Reserved || p.State != fsm.UnitActive {
			l.t.Fatalf("%s: us has %+v, and the global directory %+v", when, p, home)
		}
	}
	if n != l.state.CountTenants() {
		l.t.Fatalf("%s: us has %d tenants, and the global directory %d names", when, n, l.state.CountTenants())
	}
}

// TestG5WhateverIsLostOrLateBothDirectoriesAgree plays creates and deletes over two levels
// with calls that are lost, late and repeated, leaders that change, and a link that is cut.
func TestG5WhateverIsLostOrLateBothDirectoriesAgree(t *testing.T) {
	for seed := range uint64(10_000) {
		l := newLevels(t, seed)
		for range 120 {
			l.now += fsm.Millis(l.rand.IntN(400))
			switch n := l.rand.IntN(40); {
			case n < 4:
				l.client()
			case n < 14:
				l.look()
			case n < 24:
				l.land()
			case n < 34:
				l.work(false)
			case n < 37:
				l.arrive()
			case n < 38:
				l.newLeader()
			default:
				l.cut = !l.cut
			}
		}
		l.rest()
		l.agree(fmt.Sprintf("seed %d", seed))
		for len(l.late) > 0 {
			l.arrive()
		}
		l.rest()
		l.agree(fmt.Sprintf("seed %d, after late calls", seed))
	}
}

// TestG9WhatWasNeverSentIsGivenUpAtOnce: a region that is not reached by the first call
// leaves the name free, or the tenant as it is; where another leader may have sent
// something it is asked until it answers.
func TestG9WhatWasNeverSentIsGivenUpAtOnce(t *testing.T) {
	us := fsm.RegionName("us")
	dead := TaskAnswer{Outcome: Silent, Untouched: true, Refusal: &fsm.Refusal{Code: fsm.CodeRegionUnreachable, Text: "not reached"}}
	once := func(l *levels, answer TaskAnswer) {
		l.look()
		for _, a := range l.flying {
			l.m.EndTask(a.TaskCall, answer, l.now)
		}
		l.flying = nil
		l.look()
		l.look()
	}
	l := newLevels(t, 1)
	job := l.apply(0, &fsm.CreateTenant{Name: "acme", Region: &us}).Job
	once(l, dead)
	if j, _ := l.state.Job(job); j.Ended == 0 || j.Refusal == nil || j.Refusal.Code != fsm.CodeRegionUnreachable || l.state.CountTenants() != 0 {
		t.Errorf("the create is at %+v", j)
	}
	job = l.apply(0, &fsm.CreateTenant{Name: "acme", Region: &us}).Job
	l.newLeader()
	once(l, dead)
	if j, _ := l.state.Job(job); j.Ended != 0 || j.Step != fsm.StepMake || j.Problem != "not reached" {
		t.Errorf("the create of the last leader is at %+v", j)
	}
	l.rest()
	l.agree("made")
	kept, _ := l.state.Tenant("acme")
	job = l.apply(0, &fsm.DeleteTenant{Name: "acme"}).Job
	once(l, dead)
	if j, _ := l.state.Job(job); j.Ended == 0 || j.Refusal == nil {
		t.Errorf("the delete is at %+v", j)
	}
	if now, ok := l.state.Tenant("acme"); !ok || now.Claim != kept.Claim || now.Job != 0 {
		t.Errorf("the tenant is %+v", now)
	}
	job = l.apply(0, &fsm.DeleteTenant{Name: "acme"}).Job
	lost := dead
	lost.Untouched = false
	once(l, lost)
	if j, _ := l.state.Job(job); j.Ended != 0 || j.Step != fsm.StepRemove {
		t.Errorf("the delete that may have arrived is at %+v", j)
	}
	l.rest()
	l.agree("deleted")
	if l.state.CountTenants() != 0 {
		t.Error("the tenant is there")
	}
}

// TestG5ACallThatWasToldNotNowMayComeAgain: the region was busy, and nothing was done; the
// same call comes once more when it is not. The name is not given back before the region has
// said that it will not be done (architecture §3.9.1). Found by the simulation of moves.
func TestG5ACallThatWasToldNotNowMayComeAgain(t *testing.T) {
	us := fsm.RegionName("us")
	l := newLevels(t, 1)
	l.apply(0, &fsm.CreateTenant{Name: "older", Region: &us}) // runs, so that late calls are heeded
	l.look()
	for _, a := range l.flying {
		l.m.EndTask(a.TaskCall, l.call(l.sent(a.Cmd)), l.now)
	}
	l.flying = nil
	job := l.apply(0, &fsm.CreateTenant{Name: "acme", Region: &us}).Job
	l.look()
	var again fsm.Command
	for _, a := range l.flying {
		if a.Job == job {
			again = l.sent(a.Cmd)
			l.m.EndTask(a.TaskCall, TaskAnswer{Outcome: Unavailable, Untouched: true, Refusal: &fsm.Refusal{Code: fsm.CodeBusy, Text: "not now"}}, l.now)
		}
	}
	l.flying = slices.DeleteFunc(l.flying, func(a TaskAction) bool { return a.Job == job })
	if again == nil {
		t.Fatal("the region was not asked")
	}
	l.look()
	l.look()
	if j, _ := l.state.Job(job); j.Step != fsm.StepUndo {
		t.Errorf("the job is at %s: its name is reserved until the region has told", j.Step)
	}
	l.now += 2 * TaskAgain
	l.look()
	for _, a := range l.flying {
		if forgo, ok := a.Cmd.(*fsm.ForgoTask); ok {
			l.m.EndTask(a.TaskCall, l.call(l.sent(forgo)), l.now)
		}
	}
	l.look()
	if _, ok := l.state.Tenant("acme"); ok {
		t.Error("the name is not given back")
	}
	if r := l.there(again); r.Refusal == nil || r.Refusal.Code != fsm.CodeTaskForgone {
		t.Errorf("the call came again: %+v", r)
	}
	l.flying = nil
	l.newLeader()
	l.rest()
	l.agree("at the end")
}
