package main

import (
	"errors"
	"fmt"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

type nodesDrain struct {
	Name  fsm.NodeName `arg:"" help:"Name of the node."`
	Force bool         `xor:"force" help:"Pinned tenants too; and begin although not everything has a place to go to."`
	Wait  bool         `help:"Wait until nothing is left on it, and show how far that is."`
	Show  bool         `xor:"force" help:"Begin nothing: only show how far it is."`
}

// Help says what a drain does.
func (*nodesDrain) Help() string {
	return `Empties a node before maintenance, or for good: nothing new is placed on it, its tenants
go to their copies or are moved, a few at a time, and what it keeps copies of is copied
elsewhere. No request fails. It goes on whoever leads, until it is ended:

  domicile admin nodes drain eu1 --wait     then stop the machine
  domicile admin nodes drain eu1 --show     how far it is, and what cannot leave
  domicile admin nodes undrain eu1          it takes tenants again; domicile admin rebalance fills it
  domicile admin nodes delete eu1           or it is not needed any more`
}

// Run drains a node.
func (c *nodesDrain) Run(a *admin) error {
	if !c.Show {
		begun, err := a.DrainNode(a.ctx, c.Name, c.Force)
		if err != nil {
			return err
		}
		if !c.Wait {
			if a.json {
				return a.print(begun, nil, nil)
			}
			return a.say("node %s is being drained: %d of %d units are left; see: domicile admin nodes drain %s --show", c.Name, begun.Left, begun.Units, c.Name)
		}
	}
	last := ""
	for {
		d, err := a.Drain(a.ctx, c.Name)
		if err != nil {
			return err
		}
		if !c.Wait || d.State == proto.Drained {
			return a.printDrain(&d)
		}
		if !a.json {
			last = a.progress(last, drainLine(&d))
		}
		select {
		case <-a.ctx.Done():
			return a.ctx.Err()
		case <-time.After(watchEvery):
		}
	}
}

// drainLine tells how far a drain is, on a line.
func drainLine(d *proto.DrainState) string {
	line := fmt.Sprintf("node %s: %d of %d units are left (%d tenants, of which %d are on their way; %d copies)",
		d.Node, d.Left, d.Units, d.Primaries, d.Moving, d.Copies)
	if len(d.Blocked) > 0 {
		line += fmt.Sprintf("; %s, for one, stays: %s", d.Blocked[0].Tenant, d.Blocked[0].Why)
	}
	return line
}

func (a *admin) printDrain(d *proto.DrainState) error {
	if a.json {
		return a.print(d, nil, nil)
	}
	if d.State == proto.Drained {
		return a.say("node %s is drained: nothing is left on it", d.Node)
	}
	if err := a.say("%s", drainLine(&proto.DrainState{DrainBegun: d.DrainBegun, Primaries: d.Primaries, Moving: d.Moving, Copies: d.Copies})); err != nil || len(d.Blocked) == 0 {
		return err
	}
	var rows [][]string
	for _, b := range d.Blocked {
		rows = append(rows, []string{string(b.Tenant), b.Why})
	}
	return a.print(d, []string{"TENANT", "WHY IT STAYS"}, rows)
}

type nodesUndrain struct {
	Name fsm.NodeName `arg:"" help:"Name of the node."`
}

// Run ends a drain.
func (c *nodesUndrain) Run(a *admin) error {
	if err := a.UndrainNode(a.ctx, c.Name); err != nil {
		return err
	}
	if a.json {
		return a.print(map[string]any{"node": c.Name, "drain": false}, nil, nil)
	}
	return a.say("node %s takes tenants again; what has left it stays away until: domicile admin rebalance", c.Name)
}

type adminRebalance struct {
	DryRun    bool            `help:"Only show what would be moved, and why."`
	Region    *fsm.RegionName `help:"Of this region alone; else each region apart."`
	Threshold *float64        `placeholder:"0.1" help:"Share of what a node should hold by which it may hold more or less. Default: 0.1."`
	Max       *int            `placeholder:"N" help:"At most so many moves, 1 to 1000. Default: 100."`
	Wait      bool            `help:"Wait until the last move has begun."`
}

// Help says what is balanced.
func (*adminRebalance) Help() string {
	return `Moves tenants so that each node holds its share of the bytes of its region, by weight. As
few are moved as bring every node within the threshold of its share; a tenant goes to its
own copy where that helps, so that nothing is copied. Pinned tenants stay. Moves begin as
their turn comes (domicile admin settings: moves-per-node), and no request fails.

  domicile admin rebalance --dry-run
  domicile admin rebalance --region eu --max 20
  domicile admin moves --active`
}

// Run rebalances.
func (c *adminRebalance) Run(a *admin) error {
	plan, err := a.Rebalance(a.ctx, proto.Rebalance{DryRun: c.DryRun, Region: c.Region, Threshold: c.Threshold, Max: c.Max})
	if err != nil {
		return err
	}
	switch {
	case a.json && c.Wait && plan.ID != 0: // how it ended is printed
	case a.json:
		err = a.print(plan, nil, nil)
	default:
		err = a.printPlan(&plan)
	}
	if err != nil || !c.Wait || plan.ID == 0 {
		return err
	}
	return a.watchMove(plan.ID)
}

func (a *admin) printPlan(p *proto.RebalancePlan) error {
	var nodes, moves [][]string
	for _, n := range p.Nodes {
		nodes = append(nodes, []string{string(n.Node), string(n.Region), bytesText(n.Bytes), bytesText(n.Ideal), bytesText(n.After),
			fmt.Sprint(n.Units), fmt.Sprint(n.UnitsAfter), n.Note})
	}
	for _, m := range p.Moves {
		how := "copy"
		if m.SwitchOver {
			how = "switch over"
		}
		moves = append(moves, []string{string(m.Tenant), string(m.From), string(m.To), bytesText(m.Bytes), how, m.Why})
	}
	err := a.print(p, []string{"NODE", "REGION", "BYTES", "SHARE", "AFTER", "TENANTS", "AFTER", "NOTE"}, nodes)
	if len(moves) > 0 {
		err = errors.Join(err, a.say(""), a.print(p, []string{"TENANT", "FROM", "TO", "BYTES", "HOW", "WHY"}, moves))
	}
	for i, why := range p.Left {
		if i == 0 {
			err = errors.Join(err, a.say(""))
		}
		err = errors.Join(err, a.say("%s", why))
	}
	end := fmt.Sprintf("rebalance %s has begun: %d moves; watch it with: domicile admin moves watch %s", p.ID, len(p.Moves), p.ID)
	switch {
	case p.ID != 0:
	case len(p.Moves) == 0:
		end = "nothing is to be moved"
	default:
		end = fmt.Sprintf("%d moves would be made", len(p.Moves))
	}
	return errors.Join(err, a.say("\n%s", end))
}
