package loops

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"domicile/fsm"
)

// report takes copies from one state to another by what their primary reports
// of them (architecture §3.7.1). Only a report of a list counts that names the
// unit and its copy as they are now.
func (p *planner) report(n *fsm.Node, news *NodeNews) {
	at := Matter{Kind: MatterReport, Node: n.Name}
	if !p.free(at) {
		if until := p.m.proposing[at]; until != forever && until > p.now {
			p.nodesAt(until)
		}
		return
	}
	r := reporting{p: p, node: n, news: news, current: news.List == p.s.ListRevision(n.Name)}
	m := &p.m.units
	for _, name := range slices.Sorted(maps.Keys(m.syncing[n.Name])) {
		if u, ok := p.s.Placed(name); ok && u.Node == n.Name {
			r.caughtUp(u, m.syncing[n.Name][name])
		}
		if len(r.changes) >= UnitsPerCall {
			break
		}
	}
	for u := range p.reported(n, news) {
		if len(r.changes) >= UnitsPerCall {
			break
		}
		if u.Node == n.Name {
			r.fellBehind(u)
		}
	}
	if len(r.changes) == 0 {
		return
	}
	if len(r.changes) >= UnitsPerCall {
		p.m.look = true
	}
	p.propose(at, &fsm.ChangeCopies{Changes: r.changes})
}

// reported yields the units that may have copies that fell behind. A node that
// takes no lease does not know which copies its units should have, so that each
// of its units is looked at.
func (p *planner) reported(n *fsm.Node, news *NodeNews) iter.Seq[*fsm.Placed] {
	if news.Following != nil {
		return p.s.HeldBy(n.Name)
	}
	return func(yield func(*fsm.Placed) bool) {
		for _, name := range slices.Sorted(maps.Keys(news.Lagging)) {
			if u, ok := p.s.Placed(name); ok && !yield(u) {
				return
			}
		}
	}
}

// reporting is one report on its way into a command.
type reporting struct {
	p       *planner
	node    *fsm.Node
	news    *NodeNews
	current bool // the list that the node holds is the newest
	changes []fsm.CopyChange
}

// counts reports whether the report is about a copy as it is: the node holds
// the newest list, or one from after the copy came into its state and the unit
// was named. A node that takes no lease holds no list, and says whom it knows.
func (r *reporting) counts(u *fsm.Placed, c fsm.Copy, named fsm.Revision) bool {
	if r.news.Following != nil {
		return true
	}
	if r.news.Lease != fsm.LeaseTaken || !u.Promoted() {
		return false
	}
	// That a copy that joined is in sync changes no list.
	if r.current && c.State == fsm.CopyInSync {
		return true
	}
	return r.news.List >= c.Entry && (r.current || r.news.List >= named)
}

// caughtUp takes copies of a unit one state on that lack nothing.
func (r *reporting) caughtUp(u *fsm.Placed, named fsm.Revision) {
	if u.State != fsm.UnitActive || !u.Promoted() || slices.Contains(r.news.Uncompared, u.Unit) || slices.Contains(r.news.Missing, u.Unit) {
		return
	}
	for _, c := range u.Copies {
		to, ok := map[fsm.CopyState]fsm.CopyState{fsm.CopySyncing: fsm.CopyJoining, fsm.CopyJoining: fsm.CopyInSync}[c.State]
		if !ok || !r.counts(u, c, named) || r.lags(u.Unit, c.Node) {
			continue
		}
		r.change(u, c, to)
	}
}

// joinGrace is how long a copy that joins may be reported as lagging: what was on
// its way when it began to count has still to arrive.
const joinGrace fsm.Millis = 150

// fellBehind takes copies that counted, and lack something, back to syncing. Where
// the primary does not hold the unit, or its file is damaged, nobody can follow it: that
// one does not says nothing of what it has.
func (r *reporting) fellBehind(u *fsm.Placed) {
	if u.State != fsm.UnitActive && u.State != fsm.UnitMoving || slices.Contains(r.news.Missing, u.Unit) || slices.Contains(r.news.Damaged, u.Unit) {
		return
	}
	for _, c := range u.Copies {
		if c.State == fsm.CopyJoining && r.p.now < c.Since+joinGrace {
			r.p.nodesAt(c.Since + joinGrace)
			continue
		}
		// That it is reported says that the list named the unit.
		if c.State.Counts() && r.counts(u, c, fsm.Revision(u.Epoch)) && r.lags(u.Unit, c.Node) {
			r.change(u, c, fsm.CopySyncing)
		}
	}
}

func (r *reporting) lags(u fsm.UnitName, copyOn fsm.NodeName) bool {
	n, ok := r.p.s.Node(copyOn)
	if !ok || n.Lost {
		return true
	}
	if news := r.p.news.Nodes[copyOn]; news != nil && news.Stopping {
		return true
	}
	addr := baseURL(n.Addr)
	if slices.Contains(r.news.Lagging[u], addr) {
		return true
	}
	return r.news.Following != nil && !slices.Contains(r.news.Following[u], addr)
}

// baseURL is the form of a recorded address in which nodes are told of each
// other.
func baseURL(addr string) string {
	if strings.Contains(addr, "://") {
		return addr
	}
	return "http://" + addr
}

func (r *reporting) change(u *fsm.Placed, c fsm.Copy, to fsm.CopyState) {
	r.changes = append(r.changes, fsm.CopyChange{UnitRef: ref(u), Epoch: u.Epoch, Node: c.Node, From: c.State, To: to})
}
