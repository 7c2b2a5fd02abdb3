package main

import (
	"errors"
	"fmt"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

type nodesDrain struct {
	ofRegion
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

  domicile admin nodes drain eu1 --wait     until it is drained; then stop the machine
  domicile admin nodes drain eu1 --show     how far it is, and what cannot leave
  domicile admin nodes undrain eu1          it takes tenants again; domicile admin rebalance fills it
  domicile admin nodes delete eu1           or it is not needed any more

What has left a node is removed from it after a grace (domicile admin settings:
remove-after), and only then it is drained. --wait does not end while a tenant stays, a
pinned one say; interrupted, the drain goes on.`
}

// Run drains a node.
func (c *nodesDrain) Run(a *admin) error {
	c.use(a)
	a.follow = "domicile admin nodes drain " + string(c.Name) + " --show"
	if !c.Show {
		begun, err := a.DrainNode(a.ctx, c.Name, c.Force)
		if err != nil {
			return err
		}
		if !c.Wait {
			if a.json {
				return a.print(begun, nil, nil)
			}
			return a.say("node %s is being drained; see: domicile admin nodes drain %s --show", c.Name, c.Name)
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

// count says how many there are of something.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func copiesCount(n int) string {
	if n == 1 {
		return "1 copy"
	}
	return fmt.Sprintf("%d copies", n)
}

// drainLine tells how far a drain is, on a line.
func drainLine(d *proto.DrainState) string {
	line := fmt.Sprintf("node %s holds %s (%d on the way), %s", d.Node, count(d.Primaries, "tenant"), d.Moving, copiesCount(d.Copies))
	if gone := d.Left - d.Primaries - d.Copies; gone > 0 {
		line += fmt.Sprintf(", and data of %s that it is about to remove", count(gone, "tenant"))
	}
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
	line := *d
	line.Blocked = nil
	if err := a.say("%s", drainLine(&line)); err != nil || len(d.Blocked) == 0 {
		return err
	}
	var rows [][]string
	for _, b := range d.Blocked {
		rows = append(rows, []string{string(b.Tenant), b.Why})
	}
	return a.print(d, []string{"TENANT", "WHY IT STAYS"}, rows)
}

type nodesUndrain struct {
	ofRegion
	Name fsm.NodeName `arg:"" help:"Name of the node."`
}

// Run ends a drain.
func (c *nodesUndrain) Run(a *admin) error {
	c.use(a)
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
	Threshold *float64        `placeholder:"0.1" help:"Share of what a node should hold by which it may hold more or less. From 0 to 10. Default: 0.1."`
	Max       *int            `placeholder:"N" help:"At most so many moves, 1 to 1000. Default: 100."`
	Wait      bool            `help:"Wait until the last move has begun."`
}

// Help says what is balanced.
func (*adminRebalance) Help() string {
	return `Moves tenants so that each node holds its share of the bytes of its region, by weight. As
few are moved as bring every node within the threshold of its share; a tenant goes to its
own copy where that helps, so that nothing is copied. Pinned tenants stay. Moves begin as
their turn comes (domicile admin settings: moves-per-node), and no request fails.

SHARE is what a node should hold: an equal part by weight; a tenant that is larger than such
a part counts for the node that it is on, and the rest is divided.

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
	err := a.print(p, []string{"NODE", "REGION", "BYTES", "SHARE", "BYTES AFTER", "TENANTS", "TENANTS AFTER", "NOTE"}, nodes)
	if len(moves) > 0 {
		err = errors.Join(err, a.say(""), a.print(p, []string{"TENANT", "FROM", "TO", "BYTES", "HOW", "WHY"}, moves))
	}
	for i, why := range p.Left {
		if i == 0 {
			err = errors.Join(err, a.say(""))
		}
		err = errors.Join(err, a.say("%s", why))
	}
	moved := count(len(p.Moves), "move")
	end := fmt.Sprintf("rebalance %s has begun: %s; watch it with: domicile admin moves watch %s", p.ID, moved, p.ID)
	switch {
	case p.ID != 0:
	case len(p.Moves) == 0:
		end = "nothing is to be moved"
	default:
		end = moved + " would be made"
	}
	return errors.Join(err, a.say("\n%s", end))
}
