package main

import (
	"errors"
	"fmt"
	"time"

	"domicile/client"
	"domicile/fsm"
	"domicile/proto"
)

// watchEvery is how often a move or a drain is asked how far it is.
const watchEvery = 500 * time.Millisecond

type tenantsMove struct {
	Name   fsm.TenantName  `arg:"" help:"Name of the tenant."`
	To     *fsm.NodeName   `help:"Node that it is to go to."`
	Region *fsm.RegionName `help:"Region that it is to go to: to --to, or to the node there with the fewest bytes. Has to be named for a tenant to leave its own."`
	Wait   bool            `default:"true" negatable:"" help:"Wait until it is written at its new node, and show how far it is."`
}

// Help says what a move is.
func (*tenantsMove) Help() string {
	return `A tenant moves while it is in use: it is copied while it goes on being written, and
writes wait only for the last of it, some milliseconds whatever its size. No request
fails: those that come meanwhile wait at the proxy. Where the new node has a copy in sync
already, nothing is copied.

The command fails and nothing has changed where the move is refused, undone as a node
failed, or cancelled (domicile admin moves cancel ID). Interrupted, it goes on.

Examples:

  domicile admin tenants move acme --to eu2               to a node of its region
  domicile admin tenants move acme --region us            to another region
  domicile admin tenants move acme --to us1 --region us   to a node of another region
  domicile admin tenants move acme --to eu2 --no-wait     then: domicile admin moves watch ID`
}

// Run moves a tenant.
func (c *tenantsMove) Run(a *admin) error {
	if c.To == nil && c.Region == nil {
		return usagef("say where tenant %s is to go: --to NODE, --region REGION, or both", c.Name)
	}
	a.follow = "domicile admin moves --tenant " + string(c.Name)
	put := proto.MoveTenant{To: c.To, Region: c.Region, Wait: &c.Wait}
	end := func() {}
	if c.Wait && !a.json {
		end = a.showMove(c.Name)
	}
	moved, move, err := a.MoveTenant(a.ctx, c.Name, put)
	end()
	switch {
	case err != nil:
		return err
	case moved != nil:
		return a.printMoved(moved)
	case c.Wait:
		return a.watchMove(move.ID)
	case a.json:
		return a.print(move, nil, nil)
	}
	return a.say("move %s of tenant %s from %s to %s has begun; watch it with: domicile admin moves watch %s", move.ID, move.Tenant, move.From, move.To, move.ID)
}

func (a *admin) printMoved(m *proto.TenantMoved) error {
	if a.json {
		return a.print(m, nil, nil)
	}
	size := ""
	if m.Bytes > 0 {
		size = " (" + bytesText(m.Bytes) + ")"
	}
	if err := a.say("tenant %s moved from node %s to %s, region %q%s, in %s; writes waited %s", m.Tenant, m.From, m.To, m.Region, size,
		millis(m.MS), pauseText(m.PauseMS)); err != nil {
		return err
	}
	if m.Unreplicated != "" {
		return a.say("it has no replica: %s", m.Unreplicated)
	}
	return a.say("its replica is on node %s", m.ReplicaOn)
}

func millis(ms uint64) string { return (time.Duration(ms) * time.Millisecond).String() }

func pauseText(ms *uint64) string {
	if ms == nil {
		return "for a time that is not known"
	}
	return millis(*ms)
}

// showMove shows how far the move of a tenant is until the function that it returns is
// called. What cannot be asked is not shown: the answer to the move itself counts.
func (a *admin) showMove(name fsm.TenantName) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		last := ""
		for {
			select {
			case <-stop:
				return
			case <-a.ctx.Done():
				return
			case <-tick.C:
			}
			page, _, err := a.MovesPage(a.ctx, client.ListMoves{Tenant: name, Active: true, Limit: 1})
			if err == nil && len(page) == 1 {
				last = a.progress(last, moveText(&page[0]))
			}
		}
	}()
	return func() { close(stop); <-done }
}

// progress prints a line for people beside the output, where it differs from the last.
func (a *admin) progress(last, line string) string {
	if line != last {
		fmt.Fprintln(a.out.stderr, line)
	}
	return line
}

// moveText tells how far a move is, on a line.
func moveText(m *proto.Move) string {
	if m.Kind == proto.KindRebalance {
		return fmt.Sprintf("rebalance %s: not begun: %s", m.ID, count(len(m.Planned), "move"))
	}
	line := fmt.Sprintf("move %s of %s from %s to %s: %s", m.ID, m.Tenant, m.From, m.To, m.Step)
	if m.Waiting != "" {
		return line + ", waits: " + m.Waiting
	}
	if m.BytesTotal > 0 && m.Step == proto.MoveCopying {
		line += fmt.Sprintf(", %s of %s (%d %%)", bytesText(m.Bytes), bytesText(m.BytesTotal), 100*(m.Bytes>>6)/max(m.BytesTotal>>6, 1))
	}
	if m.Rate > 0 {
		line += ", " + bytesText(m.Rate) + "/s"
	}
	if m.ExpectedEnd != nil {
		line += ", " + max(time.Until(*m.ExpectedEnd).Round(time.Second), 0).String() + " left"
	}
	if m.Problem != "" {
		line += ": " + m.Problem
	}
	return line
}

// watchMove shows how far a move or a rebalance is until it is over, and tells how it
// went: an error unless it is done.
func (a *admin) watchMove(id fsm.JobID) error {
	last := ""
	a.follow = "domicile admin moves watch " + id.String()
	for {
		m, err := a.Move(a.ctx, id)
		if err != nil {
			return err
		}
		over := m.Outcome != "" || m.Step == proto.MoveCleaning && m.PauseMS != nil
		if !a.json && !over {
			last = a.progress(last, moveText(&m))
		}
		if over {
			return errors.Join(a.printMoves(m, []proto.Move{m}), failedMove(&m))
		}
		select {
		case <-a.ctx.Done():
			return a.ctx.Err()
		case <-time.After(watchEvery):
		}
	}
}

// failedMove makes an error of a move that has ended otherwise than it should.
func failedMove(m *proto.Move) error {
	if m.Outcome == "" || m.Outcome == proto.MoveWasDone {
		return nil
	}
	return fmt.Errorf("%s %s was not carried out (%s): %s", m.Kind, m.ID, m.Outcome, m.Problem)
}

type adminMoves struct {
	List   movesList   `cmd:"" default:"withargs" aliases:"ls" help:"List the moves, the newest first: those under way, and the last that ended, with their write pauses."`
	Show   movesShow   `cmd:"" aliases:"get" help:"Show one move, or a rebalance."`
	Watch  movesWatch  `cmd:"" help:"Show how far a move or a rebalance is, until it is over."`
	Cancel movesCancel `cmd:"" help:"End a move before its tenant changes nodes, or what has not begun of a rebalance."`
}

type movesList struct {
	ofRegion
	Tenant     fsm.TenantName `help:"Of this tenant alone."`
	Node       fsm.NodeName   `help:"From this node or to it."`
	Active     bool           `help:"Only those that have not ended."`
	Rebalances bool           `help:"The rebalances, in place of moves."`
}

// Help says what the columns are.
func (*movesList) Help() string {
	return `STATE is how far a move is: waiting (for its turn), copying, catching_up, frozen (writes
wait), released, flipped, cleaning (it is written at its new node; what the old one holds is
to become a copy or to go), and in the end done, undone (the tenant is where it was),
cancelled, or failed (the tenant was deleted). BYTES is what the new node has of it, none
where it had a copy, PAUSE how long writes waited. Tenants that a drain gives to their
copies are not moves: domicile admin nodes drain NODE --show.`
}

// Run lists the moves.
func (c *movesList) Run(a *admin) error {
	c.use(a)
	list := client.ListMoves{Tenant: c.Tenant, Node: c.Node, Active: c.Active}
	if c.Rebalances {
		list.Kind = proto.KindRebalance
	}
	all, err := a.Moves(a.ctx, list)
	if err != nil {
		return err
	}
	return a.printMoves(all, all)
}

func (a *admin) printMoves(v any, moves []proto.Move) error {
	var rows [][]string
	for i := range moves {
		m := &moves[i]
		what, state, note := string(m.Tenant), string(m.Step), m.Problem
		if m.Kind == proto.KindRebalance {
			what = fmt.Sprintf("(rebalance, %d not begun)", len(m.Planned))
		}
		if m.Outcome != "" {
			state = string(m.Outcome)
		}
		if m.Waiting != "" {
			state, note = "waiting", m.Waiting
		}
		size := ""
		switch {
		case m.Bytes < m.BytesTotal:
			size = bytesText(m.Bytes) + " of " + bytesText(m.BytesTotal)
		case m.Bytes > 0:
			size = bytesText(m.Bytes)
		}
		pause := ""
		if m.PauseMS != nil {
			pause = millis(*m.PauseMS)
		}
		rows = append(rows, []string{m.ID.String(), what, string(m.From), string(m.To), state, size, pause, m.Cause, m.Started.Format(time.RFC3339), note})
	}
	return a.print(v, []string{"MOVE", "TENANT", "FROM", "TO", "STATE", "BYTES", "PAUSE", "CAUSE", "STARTED", "NOTE"}, rows)
}

type movesShow struct {
	ofRegion
	ID fsm.JobID `arg:"" help:"Number of the move."`
}

// Run shows a move.
func (c *movesShow) Run(a *admin) error {
	c.use(a)
	m, err := a.Move(a.ctx, c.ID)
	if err != nil {
		return err
	}
	return a.printMoves(m, []proto.Move{m})
}

type movesWatch struct {
	ofRegion
	ID fsm.JobID `arg:"" help:"Number of the move."`
}

// Help says how it ends.
func (*movesWatch) Help() string {
	return "It ends when the tenant is written at its new node, with status 0, or when the move was undone or\n" +
		"cancelled, with status 1."
}

// Run watches a move.
func (c *movesWatch) Run(a *admin) error {
	c.use(a)
	return a.watchMove(c.ID)
}

type movesCancel struct {
	ofRegion
	ID fsm.JobID `arg:"" help:"Number of the move, or of a rebalance."`
}

// Help says until when.
func (*movesCancel) Help() string {
	return `A move can be cancelled until its tenant is given over: it stays where it is, and what was
copied is removed after a grace (domicile admin settings: remove-after). Later it is refused:
move the tenant back instead. Cancelled, a rebalance begins no more moves; those under way go
on, and are cancelled one by one (domicile admin moves --active).`
}

// Run cancels a move.
func (c *movesCancel) Run(a *admin) error {
	c.use(a)
	m, err := a.CancelMove(a.ctx, c.ID)
	if err != nil {
		return err
	}
	if a.json {
		return a.print(m, nil, nil)
	}
	if m.Kind == proto.KindRebalance {
		return a.say("rebalance %s was cancelled: not begun: %s", m.ID, count(len(m.Planned), "move"))
	}
	return a.say("move %s was cancelled: tenant %s stays on node %s", m.ID, m.Tenant, m.From)
}
