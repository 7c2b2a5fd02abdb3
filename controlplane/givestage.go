package controlplane

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

// partBytes bounds a part: sealed and encoded it stays below what an entry of the log, and
// a body, may be.
const partBytes = 96 << 10

// telling is what the other group was told of in this term.
type telling struct {
	attempt uint64
	part    uint64                    // the last that it has
	unsent  *fsm.StageRegion          // whose answer was not seen: it is sent again as it is
	has     map[fsm.NodeName]uint64   // digests of the nodes that it knows of,
	hasToo  map[fsm.TenantName]uint64 // and of the tenants
	unready time.Time                 // since when the region, or the other group, is not ready; zero: both are
	silent  time.Time                 // since when the other group takes nothing; zero: it does
	knows   map[fsm.NodeName]bool     // nodes that know their new authority
	work    sync.WaitGroup
}

// stage tells the other group of what is new, and gives the region away once it has
// everything, as it is now.
func (g *giving) stage(ctx context.Context) bool {
	if g.unsent != nil && g.send(ctx, g.unsent) == nil {
		return false
	}
	state := g.group.State()
	if r := state.Unready(g.region); r != nil {
		g.notReady(ctx, r, false)
		return false
	}
	digest := state.Digest(g.region)
	var in *proto.Intake
	nodes, tenants := state.Given(g.region)
	for _, p := range g.parts(state.Settings(), nodes, tenants) {
		if in = g.send(ctx, p); in == nil {
			return false
		}
	}
	switch {
	case in.Arrived || in.Over:
		g.notReady(ctx, &fsm.Refusal{Code: fsm.CodeRegionNotReady, Text: "the other group has ended this hand-over"}, true)
		return false
	case in.Digest != digestText(digest):
		g.tellAnew()
		g.notReady(ctx, &fsm.Refusal{Code: fsm.CodeRegionNotReady, Text: "what the other group was told of is not what there is; it is told anew"}, false)
		return false
	case in.NotReady != nil:
		g.notReady(ctx, &fsm.Refusal{Code: in.NotReady.Code, Text: in.NotReady.Text, Fields: in.NotReady.Fields}, false)
		return false
	}
	g.unready = time.Time{}
	if !g.decide(ctx, &fsm.GiveRegion{ID: g.job, Digest: digest}) {
		return false // something has changed: it is told of
	}
	g.logger.Info("a region was given to another directory", "region", string(g.region), "to", g.to.String(), "job", g.job)
	return true
}

// tellAnew has everything told again, from the first part on.
func (g *giving) tellAnew() {
	g.attempt++
	g.part, g.has, g.hasToo, g.unsent = 0, nil, nil, nil
}

// tellAgain tells the other group of what was given, which it has lost.
func (g *giving) tellAgain(ctx context.Context) *fsm.Refusal {
	state := g.group.State()
	g.tellAnew()
	for _, p := range g.parts(state.Settings(), slices.Collect(state.StagedNodes()), state.StagedTenants()) {
		p.Given = true
		if _, r, _ := g.askIntake(ctx, g.to, g.job, p); r != nil {
			return r
		}
	}
	g.logger.Warn("a region was told of again, which the group that it was given to has lost", "region", string(g.region), "to", g.to.String(), "job", g.job)
	return nil
}

// parts are what the other group does not have yet of nodes and tenants, the last of them
// maybe empty: its answer says how all stands.
func (g *giving) parts(settings fsm.Settings, nodes []*fsm.Node, tenants iter.Seq2[*fsm.Tenant, *fsm.Placed]) (parts []*fsm.StageRegion) {
	size := 0
	add := func() *fsm.StageRegion {
		size = 0
		parts = append(parts, &fsm.StageRegion{Giver: g.giver, Region: g.region, Try: g.term<<20 | g.attempt, Part: g.part + 1 + uint64(len(parts)),
			Longest: max(settings.LongestLease, settings.AutoFailover)})
		return parts[len(parts)-1]
	}
	last := add()
	room := func(bytes int) {
		if size += bytes; size > partBytes {
			last = add()
			size = bytes
		}
	}
	is, isToo := make(map[fsm.NodeName]bool), make(map[fsm.TenantName]bool)
	for _, n := range nodes {
		if is[n.Name] = true; g.has[n.Name] != fsm.NodeDigest(n) {
			if last.Node != nil {
				last = add()
			}
			last.Node = n
		}
	}
	for t, p := range tenants {
		if isToo[t.Name] = true; g.hasToo[t.Name] != fsm.TenantDigest(t, p) {
			room(2*len(t.Name) + (2+len(p.Copies))*(fsm.MaxName+32))
			last.Tenants = append(last.Tenants, fsm.GivenTenant{Tenant: *t, Unit: *p})
		}
	}
	for n := range g.has {
		if !is[n] {
			room(fsm.MaxName)
			last.GoneNodes = append(last.GoneNodes, n)
		}
	}
	for t := range g.hasToo {
		if !isToo[t] {
			room(fsm.MaxName)
			last.GoneTenants = append(last.GoneTenants, t)
		}
	}
	return parts
}

// send tells of one part, and gives what the other group knows then; nil where that is not
// known: the part is sent again as it is.
func (g *giving) send(ctx context.Context, p *fsm.StageRegion) *proto.Intake {
	in, r, final := g.askIntake(ctx, g.to, g.job, p)
	if r != nil {
		g.unsent = p
		g.blocked(ctx, &g.silent, r, final)
		return nil
	}
	g.unsent, g.part, g.silent = nil, p.Part, time.Time{}
	if g.has == nil {
		g.has, g.hasToo = make(map[fsm.NodeName]uint64), make(map[fsm.TenantName]uint64)
	}
	if p.Node != nil {
		g.has[p.Node.Name] = fsm.NodeDigest(p.Node)
	}
	for i := range p.Tenants {
		g.hasToo[p.Tenants[i].Tenant.Name] = fsm.TenantDigest(&p.Tenants[i].Tenant, &p.Tenants[i].Unit)
	}
	for _, n := range p.GoneNodes {
		delete(g.has, n)
	}
	for _, t := range p.GoneTenants {
		delete(g.hasToo, t)
	}
	return in
}

// notReady notes why the region is not given yet. What the other group takes meanwhile
// does not make it ready: it may be this hand-over that what is in the way waits for.
func (g *giving) notReady(ctx context.Context, r *fsm.Refusal, final bool) {
	g.blocked(ctx, &g.unready, r, final)
}

// blocked notes what is in the way, and has the hand-over undone where it stays so, or
// will. The region is this directory's still.
func (g *giving) blocked(ctx context.Context, since *time.Time, r *fsm.Refusal, final bool) {
	if since.IsZero() {
		*since = time.Now()
	}
	g.note(ctx, r.Text)
	if final || time.Since(*since) > cmp.Or(g.config.GiveWithin, giveWithin) {
		g.advance(ctx, fsm.StepCopy, fsm.StepUndo, r)
	}
}
