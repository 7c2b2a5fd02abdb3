package main

import (
	"fmt"

	"domicile/fsm"
	"domicile/proto"
)

type adminNodes struct {
	List     nodesList     `cmd:"" default:"1" aliases:"ls" help:"List the nodes."`
	Get      nodesGet      `cmd:"" help:"Show one node."`
	Put      nodesPut      `cmd:"" help:"Record a node, or change one; flags left out keep what is recorded. The node is asked first."`
	Failover nodesFailover `cmd:"" help:"Give a node's tenants to their copies."`
	Drain    nodesDrain    `cmd:"" help:"Empty a node while its tenants are in use."`
	Undrain  nodesUndrain  `cmd:"" help:"End a drain: the node takes tenants again."`
	Delete   nodesDelete   `cmd:"" aliases:"rm" help:"Forget a node that holds nothing, or write one off."`
}

// ofRegion says whose directory a node's name, or a move's number, belongs to.
type ofRegion struct {
	Region *string `help:"Region that keeps its own directory, to whose the name belongs. Default: the directory of the server that is asked."`
}

// use has what the command asks be asked of that directory.
func (r ofRegion) use(a *admin) {
	if r.Region != nil {
		a.Client = a.InRegion(*r.Region)
	}
}

type nodesList struct{ ofRegion }

// Help says what the columns are.
func (nodesList) Help() string {
	return `STATE is up, lapsed, lost, draining (until undrain, also when nothing is left on it) or
unleased; the milliseconds are what its lease has left. BYTES is what the node holds,
tenants, copies and what it is about to remove, when it was last asked: that may be some
seconds ago.`
}

// Run lists the nodes.
func (c *nodesList) Run(a *admin) error {
	c.use(a)
	nodes, err := a.Nodes(a.ctx)
	if err != nil {
		return err
	}
	return a.printNodes(nodes, nodes)
}

type nodesGet struct {
	ofRegion
	Name fsm.NodeName `arg:"" help:"Name of the node."`
}

// Run shows a node.
func (c *nodesGet) Run(a *admin) error {
	c.use(a)
	n, err := a.Node(a.ctx, c.Name)
	if err != nil {
		return err
	}
	return a.printNodes(n, []proto.Node{n})
}

func (a *admin) printNodes(v any, nodes []proto.Node) error {
	var rows [][]string
	for _, n := range nodes {
		state := string(n.State)
		if (n.State == proto.NodeUp || n.State == proto.NodeDraining) && n.LeaseLeftMS != nil && *n.LeaseLeftMS > 0 {
			state += fmt.Sprintf(" (%d ms)", *n.LeaseLeftMS)
		}
		if n.Problem != "" {
			state += " (" + n.Problem + ")"
		}
		rows = append(rows, []string{string(n.Name), n.Addr, string(n.Region), string(n.Zone), state, string(n.Standby),
			fmt.Sprint(n.Weight), fmt.Sprint(n.Tenants), fmt.Sprint(n.Replicas), bytesText(n.Bytes)})
	}
	return a.print(v, []string{"NODE", "ADDR", "REGION", "ZONE", "STATE", "STANDBY", "WEIGHT", "TENANTS", "REPLICAS", "BYTES"}, rows)
}

// bytesText gives a size as people read it.
func bytesText(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/unit, 0
	for ; v >= unit && i < 4; i++ {
		v /= unit
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTP"[i])
}

type nodesPut struct {
	Name          fsm.NodeName    `arg:"" help:"Name of the node: [a-z0-9_-], 1 to 64 characters."`
	Addr          *string         `placeholder:"HOST:PORT" help:"host:port, or http(s)://host:port, of the node; needed for a new one."`
	NodeToken     string          `help:"The node's --admin-token; needed for a new one."`
	NodeTokenFile string          `placeholder:"FILE" help:"File that holds the node's --admin-token."`
	Region        *fsm.RegionName `help:"Region that the node is in."`
	Zone          *fsm.ZoneName   `help:"Zone that the node is in."`
	Standby       *fsm.NodeName   `help:"Node paired with this one; no tenant is placed on it. An empty name ends the pair."`
	Weight        *uint32         `help:"Share of units relative to other nodes; 0 takes none."`
}

// Help shows how it is used.
func (*nodesPut) Help() string {
	return "Example:\n\n  domicile admin nodes put eu1 --addr 10.1.0.11:8081 --node-token-file eu1.token --region eu --zone fra"
}

// Run records a node.
func (c *nodesPut) Run(a *admin) error {
	put := proto.PutNode{Addr: c.Addr, Region: c.Region, Zone: c.Zone, Standby: c.Standby, Weight: c.Weight}
	token, err := secret("node-token", c.NodeToken, c.NodeTokenFile)
	if err != nil {
		return err
	}
	if token != "" {
		put.Token = &token
	}
	n, created, err := a.PutNode(a.ctx, c.Name, put)
	if err != nil {
		return err
	}
	if a.json {
		return a.print(n, nil, nil)
	}
	what := "changed"
	if created {
		what = "recorded"
	}
	if err := a.say("node %s %s: %s, region %q, zone %q", n.Node, what, n.Addr, n.Region, n.Zone); err != nil || len(n.Unreplicated) == 0 {
		return err
	}
	return a.say("its standby has no copy yet of %d tenants, %s for one; the work goes on", len(n.Unreplicated), n.Unreplicated[0])
}

type nodesDelete struct {
	ofRegion
	Name  fsm.NodeName `arg:"" help:"Name of the node."`
	Force bool         `help:"Write off a node that will not come back: its copies are forgotten, and no work waits for it. Fail it over first."`
}

// Run forgets a node.
func (c *nodesDelete) Run(a *admin) error {
	c.use(a)
	forget := a.DeleteNode
	if c.Force {
		forget = a.WriteOffNode
	}
	if err := forget(a.ctx, c.Name); err != nil {
		return err
	}
	return a.gone("node", string(c.Name), "node %s deleted", c.Name)
}
