package controlplane

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"domicile/controlplane/loops"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

const (
	// answerTimeout is how long a node may take to show that it answers before a
	// failover by hand.
	answerTimeout = time.Second
	// failoverTimeout bounds the wait for promotions once the units have
	// flipped, and beyond the longest lease the wait for a silent node.
	failoverTimeout = 15 * time.Second
	// maxFailoverWait keeps the whole below what a relaying server waits.
	maxFailoverWait = 45 * time.Second
)

// failOver fails a node over by hand (L6): one that answers releases its units
// first, a silent one that is leased is waited for until its lease has run out
// (architecture §3.7.7).
func (s *Server) failOver(w http.ResponseWriter, c *change) error {
	name := fsm.NodeName(c.PathValue("node"))
	var body proto.FailOver
	if err := c.decode(&body); err != nil {
		return err
	}
	if err := s.namedNode(c, name); err != nil {
		return err
	}
	state := s.group.State()
	node, ok := state.Node(name)
	if !ok {
		return unknownNode(c.Request, name)
	}
	f := &handFailover{Server: s, c: c, w: w, node: node, force: body.Force, held: heldBy(state, name)}
	ctx, cancel := context.WithTimeout(c.Context(), maxFailoverWait)
	defer cancel()
	if err := f.run(ctx); err != nil {
		return err
	}
	out := f.describe(s.group.State())
	status := http.StatusOK
	if len(out.Failed) > 0 {
		status = http.StatusBadGateway
	}
	setRevision(w, s.group.State().Revision())
	httpserve.WriteJSON(w, status, out)
	return nil
}

// handFailover is one failover by hand.
type handFailover struct {
	*Server
	c     *change
	w     http.ResponseWriter
	node  *fsm.Node
	force bool
	held  []heldUnit
	// chosen are the copies, not in sync, that units were given to by force.
	chosen map[fsm.UnitRef]choice
}

// heldUnit is a unit that the node held when it was asked for.
type heldUnit struct {
	fsm.UnitRef
	primary bool
}

// heldBy gives the served units that a node holds, as primary or as copy.
func heldBy(state *fsm.State, n fsm.NodeName) []heldUnit {
	var units []heldUnit
	for u := range state.HeldBy(n) {
		if u.State != fsm.UnitActive && u.State != fsm.UnitMoving {
			continue
		}
		if u.Node == n || follows(u, n) {
			units = append(units, heldUnit{fsm.UnitRef{Unit: u.Unit, ID: u.ID}, u.Node == n})
		}
	}
	return units
}

func follows(u *fsm.Placed, n fsm.NodeName) bool {
	return slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool { return c.Node == n && c.State.Follows() })
}

// run does what the node's state asks for, and waits for it.
func (f *handFailover) run(ctx context.Context) error {
	leased := f.node.Lease == fsm.LeaseTaken && f.group.State().Settings().AutoFailover > 0
	why := "takes no lease, so that nothing keeps it from going on to write: make sure that it does not, then ask again with force"
	if f.node.Lease == fsm.LeaseTaken {
		why = "takes leases and is given none (auto_failover_ms is 0): ask again with force, which waits for a lease that it still holds"
	}
	switch {
	case f.c.replayed:
		return f.handOver(ctx) // Apply gives the first answer, whatever is proposed
	case !leased && !f.force && !f.node.Lost:
		return refusal(&fsm.Refusal{Code: fsm.CodeNodeUnleased, Fields: map[string]string{"node": string(f.node.Name)},
			Text: "node " + string(f.node.Name) + " " + why})
	case f.answers(ctx):
		flipped := f.flipUnpromoted(ctx)
		if err := f.handOver(ctx); err != nil && flipped == 0 {
			return err
		}
		f.waitPromoted(ctx)
		return nil
	case leased && !f.node.Lost:
		return f.waitLapse(ctx)
	}
	return f.flip(ctx)
}

// answers reports whether the node answers now.
func (f *handFailover) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err := f.nodes.stats(ctx, at(f.node))
	return err == nil
}

// handOver has the node release its units, a call's worth in each job, and waits
// until they are promoted. By force, those of which it has lost what it held go to copies
// that are not in sync, in a job of their own.
func (f *handFailover) handOver(ctx context.Context) error {
	var parts []fsm.BeginHandover
	for units := range slices.Chunk(f.ready(f.group.State()), loops.UnitsPerCall) {
		parts = append(parts, fsm.BeginHandover{Units: units})
	}
	if f.force && !f.c.replayed {
		if flips := f.choices(ctx, f.lost(ctx)); len(flips) > 0 {
			parts = append(parts, fsm.BeginHandover{Units: refsOf(flips), Choices: flips})
		}
	}
	if len(parts) == 0 {
		parts = append(parts, fsm.BeginHandover{}) // is refused, or answered as before
	}
	for i := range parts {
		cmd := &parts[i]
		cmd.Node, cmd.Cause, cmd.Silent = f.node.Name, fsm.CauseHand, f.silentNodes(ctx)
		c := *f.c
		if i > 0 {
			c.key = "" // the key stands for the first job; what follows is done as far as it goes
		}
		result, err := f.propose(f.w, &c, cmd)
		if err != nil {
			if i == 0 {
				return err
			}
			break // told as failed
		}
		if result.Replayed {
			f.held = f.heldThen(result)
			parts = parts[:1]
		}
		if result.Job != 0 {
			// Released or not, each unit is told of as the directory has it then.
			// Another job has to wait for the end of this one.
			last := i == len(parts)-1
			_, _, _ = f.waitJob(ctx, result.Job, func(j *fsm.Job) bool { return j.Ended != 0 || last && j.Step != fsm.StepRelease })
		}
		if result.Replayed {
			break
		}
	}
	f.waitPromoted(ctx)
	return nil
}

// flipUnpromoted gives units that the node was given and has not been promoted for to
// others that may have them, the former primary included (architecture §3.7.6), and
// counts them: the node has nothing to release.
func (f *handFailover) flipUnpromoted(ctx context.Context) (flipped int) {
	if f.c.replayed {
		return 0
	}
	silent, state := f.silentNodes(ctx), f.group.State()
	var flips []fsm.Flip
	for u := range state.HeldBy(f.node.Name) {
		if u.Node != f.node.Name || u.Promoted() {
			continue
		}
		if to, ok := state.Successor(u, silent); ok {
			flips = append(flips, fsm.Flip{UnitRef: fsm.UnitRef{Unit: u.Unit, ID: u.ID}, From: u.Node, To: to})
		}
	}
	for some := range slices.Chunk(flips, loops.UnitsPerCall) {
		c := *f.c
		c.key = "" // it stands for what is handed over
		result, err := f.propose(f.w, &c, &fsm.FailOver{Node: f.node.Name, Cause: fsm.CauseUnpromoted, Choices: some})
		if err != nil {
			break // told as failed
		}
		flipped += len(result.Flips)
	}
	if flipped > 0 {
		f.logger.Warn("units that their node did not promote were given to others by hand", "node", f.node.Name, "units", flipped)
	}
	return flipped
}

// heldThen gives the units that an earlier failover under the same key was about.
func (f *handFailover) heldThen(result fsm.Result) []heldUnit {
	var units []heldUnit
	for _, flip := range result.Flips {
		units = append(units, heldUnit{flip.UnitRef, true})
	}
	state := f.group.State()
	q, ok := state.Request(f.c.key)
	if !ok {
		return units
	}
	if job, ok := state.Job(q.Job); ok {
		for _, t := range job.Targets {
			units = append(units, heldUnit{fsm.UnitRef{Unit: t.Unit, ID: t.ID}, true})
		}
	}
	return units
}

// ready gives the units of the node that a copy may take over.
func (f *handFailover) ready(state *fsm.State) []fsm.UnitRef {
	var units []fsm.UnitRef
	for u := range state.HeldBy(f.node.Name) {
		if u.Node == f.node.Name && u.State == fsm.UnitActive && u.Promoted() &&
			slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool { return c.State == fsm.CopyInSync }) {
			units = append(units, fsm.UnitRef{Unit: u.Unit, ID: u.ID})
		}
	}
	return units
}

// silentNodes names the other nodes that the keeper of leases knows not to
// answer.
func (f *handFailover) silentNodes(context.Context) []fsm.NodeName {
	var silent []fsm.NodeName
	for n := range f.group.State().Nodes() {
		if n.Name != f.node.Name && f.isSilent(n.Name) {
			silent = append(silent, n.Name)
		}
	}
	return silent
}

// waitLapse waits until the node's lease has certainly run out and the executor
// has failed it over, or the node answers again.
func (f *handFailover) waitLapse(ctx context.Context) error {
	longest := time.Duration(f.group.State().Settings().LongestLease) * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, longest+longest/10+failoverTimeout)
	defer cancel()
	for {
		changed := f.keeper.Changed()
		state := f.group.State()
		node, ok := state.Node(f.node.Name)
		if !ok || node.Lost {
			if ok && f.force && f.stayed(state) {
				return f.flip(ctx)
			}
			f.waitPromoted(ctx)
			return nil
		}
		if s, ok := f.keeper.Node(node.Name); ok && s.Answered && !s.Silent && !s.Lapsed && f.answers(ctx) {
			return f.handOver(ctx)
		}
		wait, stop := context.WithCancel(ctx)
		entry := make(chan struct{})
		go func() {
			defer close(entry)
			_ = f.group.WaitRevision(wait, state.Revision()+1)
		}()
		select {
		case <-entry:
		case <-changed:
		case <-ctx.Done():
		}
		stop()
		<-entry
		if ctx.Err() != nil {
			return nil // told as failed
		}
	}
}

// flip gives the units of a silent node to their copies; with force also to copies
// that may lack acknowledged writes, the furthest ahead. That the node writes
// nothing any more an operator has made sure, but for the lease that it may hold,
// whatever the settings and the record say now: that one is waited for.
func (f *handFailover) flip(ctx context.Context) error {
	release, err := f.hold(ctx)
	if err != nil {
		return err
	}
	if release == nil {
		return f.handOver(ctx)
	}
	defer release()
	cmd := &fsm.FailOver{Node: f.node.Name, Cause: fsm.CauseHand, Silent: true}
	if f.force {
		cmd.Choices = f.choices(ctx, all)
	}
	result, err := f.propose(f.w, f.c, cmd)
	if err != nil {
		return err
	}
	f.logger.Warn("a node was failed over by hand", "node", f.node.Name, "units", len(result.Flips), "left", len(result.Left), "forced", len(cmd.Choices))
	f.changes.node(f.node.Name)
	f.waitPromoted(ctx)
	return nil
}

// hold waits until the node certainly holds no lease, and keeps it from one until
// release is called. Where the node answers meanwhile release is nil.
func (f *handFailover) hold(ctx context.Context) (release func(), err error) {
	for {
		release, left, err := f.keeper.Hold(f.node.Name)
		if err != nil {
			return nil, errNoLeader()
		}
		if release != nil {
			return release, nil
		}
		if end, ok := ctx.Deadline(); ok && time.Until(end) < left {
			return nil, refusal(&fsm.Refusal{Code: fsm.CodeStale, Fields: map[string]string{"node": string(f.node.Name)},
				Text: fmt.Sprintf("a lease of node %s may run for another %v, for which it may write; nothing was done, ask again then", f.node.Name, left)})
		}
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return nil, errNoLeader() // or the client has gone
		}
		if st, ok := f.keeper.Node(f.node.Name); ok && st.Answered && !st.Silent && f.answers(ctx) {
			return nil, nil
		}
	}
}

// stayed reports whether a unit that the node has as a primary has a copy that follows.
func (f *handFailover) stayed(state *fsm.State) bool {
	for u := range state.HeldBy(f.node.Name) {
		if u.Node == f.node.Name && u.State == fsm.UnitActive && slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool { return c.State.Listed() }) {
			return true
		}
	}
	return false
}

// waitPromoted waits until each unit that went elsewhere takes writes there.
func (f *handFailover) waitPromoted(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, failoverTimeout)
	defer cancel()
	for {
		state := f.group.State()
		waiting := slices.ContainsFunc(f.held, func(h heldUnit) bool {
			u, ok := state.Placed(h.Unit)
			return ok && u.ID == h.ID && h.primary && u.Node != f.node.Name && !u.Promoted()
		})
		if !waiting || f.group.WaitRevision(ctx, state.Revision()+1) != nil {
			break
		}
	}
	state := f.group.State()
	named := make(map[fsm.NodeName]bool)
	for _, h := range f.held {
		if u, ok := state.Placed(h.Unit); ok && h.primary && u.Node != f.node.Name && u.Promoted() {
			named[u.Node] = true
		}
	}
	for n := range named { // they are granted there, or will be within a renewal
		_ = f.keeper.AwaitNamed(ctx, n, state.Revision())
	}
}

// describe tells what became of the units that the node held.
func (f *handFailover) describe(state *fsm.State) proto.FailedOver {
	out := proto.FailedOver{Node: f.node.Name, Promoted: []proto.TenantPromoted{}, Failed: []proto.TenantFailed{}, Unreplicated: []fsm.TenantName{}}
	slices.SortFunc(f.held, func(a, b heldUnit) int { return cmp.Compare(a.Unit, b.Unit) })
	for _, h := range f.held {
		u, ok := state.Placed(h.Unit)
		if !ok || u.ID != h.ID {
			continue
		}
		tenant, _, _ := u.Unit.Split()
		switch {
		case h.primary && u.Node == f.node.Name:
			out.Failed = append(out.Failed, proto.TenantFailed{Tenant: tenant, Why: f.whyStayed(u)})
		case h.primary && !u.Promoted():
			why := f.known.why(u.Unit)
			if why == "" {
				why = "node " + string(u.Node) + " has not answered yet"
			}
			out.Failed = append(out.Failed, proto.TenantFailed{Tenant: tenant, Why: "it is placed on " + string(u.Node) + " and not promoted there yet: " + why})
		case h.primary:
			one := proto.TenantPromoted{Tenant: tenant, To: u.Node, Lost: f.known.lostOf(u.Unit)}
			if c, ok := f.chosen[h.UnitRef]; ok && c.to == u.Node {
				one.NotInSync, one.Position = true, c.position()
			}
			out.Promoted = append(out.Promoted, one)
		}
		if !f.replicated(state, u) {
			out.Unreplicated = append(out.Unreplicated, tenant)
		}
	}
	return out
}

// whyStayed says why a unit was not failed over.
func (f *handFailover) whyStayed(u *fsm.Placed) string {
	switch why := f.known.why(u.Unit); {
	case len(u.Copies) == 0 || !slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool { return c.State.Replica() }):
		return "it has no copy"
	case !slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool { return c.State == fsm.CopyInSync }):
		return "it has no copy in sync; force promotes one that may lack acknowledged writes, where the node is silent or has lost the tenant"
	case why != "":
		return why
	}
	return "it was not released in time; ask again"
}

// replicated reports whether a unit has a copy in sync, is to have none, or gets one of
// a node that is there: a former primary follows at once.
func (f *handFailover) replicated(state *fsm.State, u *fsm.Placed) bool {
	return state.CopiesWanted(u) == 0 || hasInSync(u) || u.Node != f.node.Name && copyComes(state, u)
}

// copyComes reports whether a node that is there follows a unit, or will at once, as
// a former primary does.
func copyComes(state *fsm.State, u *fsm.Placed) bool {
	return u.Promoted() && slices.ContainsFunc(u.Copies, func(c fsm.Copy) bool {
		n, ok := state.Node(c.Node)
		return ok && !n.Lost && (c.State.Replica() || c.State == fsm.CopyFormer)
	})
}
