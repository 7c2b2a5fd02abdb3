package loops

import "domicile/fsm"

// SettleEvery is how often a task that has outlived its job is looked at again.
const SettleEvery fsm.Millis = 1000

// settleTasks settles tasks that nobody says more of: their jobs ended in a recovery of the
// global directory, or this one was recovered from before they did. What that directory
// says now, of after they were seen, is what the jobs would have come to.
func (p *planner) settleTasks() {
	if scope, _ := p.s.Scope(); scope.Region == "" {
		return
	}
	for t := range p.s.Tasks() {
		if t.Kind != fsm.TaskDepart && t.Kind != fsm.TaskReceive || !p.s.Outlived(t) {
			continue
		}
		seen, ok := p.m.outlived[t.Job]
		if !ok {
			seen = p.now
			p.m.outlived[t.Job] = seen
		}
		up, _ := p.s.Upstream()
		names := p.news.Names
		if names == nil || names.History != up.History || names.AsOf <= seen {
			p.wakeAt(p.now + SettleEvery)
			continue
		}
		here, known := names.Home(t.Tenant, t.ID)
		if t.Kind == fsm.TaskDepart {
			// Its name is looked for as that of any tenant of the region; and as long as it was
			// not given up, so is whether another region has it.
			here = here || !known || p.s.GivesNothing(t)
		}
		if p.s.Settles(t, here) {
			p.propose(Matter{Kind: MatterSettle, Job: t.Job}, &fsm.SettleTask{Job: t.Job, History: up.History, Here: here})
		}
	}
}
