package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"domicile/client"
	"domicile/fsm"
	"domicile/proto"
)

type nodesFailover struct {
	ofRegion
	Name  fsm.NodeName `arg:"" help:"Name of the node."`
	Force bool         `help:"For a node that takes no lease (make sure that it is dead), and for copies that may lack acknowledged writes."`
}

// Help says what happens when.
func (*nodesFailover) Help() string {
	return `A node that answers hands its tenants over: it stops writing them, waits until their
copies have everything, and gives them up; nothing is lost, and no request fails.

A node that is silent and leased is waited for until its lease has run out. The control
plane does that by itself (--auto-failover); asking only tells how it went.

A node that takes no lease (node --lease was not given) may go on writing although nobody
reaches it. Stop it first, by its power if need be, then ask with --force.

Examples:

  domicile admin nodes failover eu1           before maintenance of eu1
  domicile admin nodes failover eu1 --force   eu1 has burned down and took no leases`
}

// Run fails a node over.
func (c *nodesFailover) Run(a *admin) error {
	c.use(a)
	out, err := a.FailOver(a.ctx, c.Name, c.Force)
	if err != nil && !inPart(err) {
		return err
	}
	var rows [][]string
	for _, p := range out.Promoted {
		lost := ""
		if p.Lost != nil {
			lost = p.Lost.From + " to " + p.Lost.To
		}
		rows = append(rows, []string{string(p.Tenant), "promoted", string(p.To), lost})
	}
	for _, f := range out.Failed {
		rows = append(rows, []string{string(f.Tenant), "failed", "", f.Why})
	}
	for _, t := range out.Unreplicated {
		rows = append(rows, []string{string(t), "unreplicated", "", "it has no copy in sync; one is made when a node is free for it"})
	}
	return errors.Join(a.print(out, []string{"TENANT", "OUTCOME", "NODE", "LOST OR WHY"}, rows), err)
}

// inPart reports whether an error is about some tenants of many, of which the
// answer tells.
func inPart(err error) bool {
	var said *client.Error
	return errors.As(err, &said) && said.Status == 502 && said.Code == ""
}

type adminReplicas struct {
	List   replicasList   `cmd:"" default:"withargs" aliases:"ls" help:"List the tenants with the nodes of their copies."`
	Repair replicasRepair `cmd:"" help:"Make copies that are missing or badly placed, now, and wait until they are in sync."`
}

type replicasList struct {
	Region  *fsm.RegionName `help:"Of this region alone."`
	Prefix  string          `help:"Whose names begin with this."`
	Missing bool            `help:"Only those without a copy in sync, or with one that is not, or is in their own zone."`
}

// Run lists the tenants' copies.
func (c *replicasList) Run(a *admin) error {
	list, rows := []proto.Tenant{}, [][]string(nil)
	for t, err := range a.Tenants(a.ctx, client.ListTenants{Region: c.Region, Prefix: c.Prefix}) {
		if err != nil {
			return err
		}
		if c.Missing && t.Unreplicated == "" && !slices.ContainsFunc(t.Replicas, func(r proto.Replica) bool { return r.SameZone || r.State != inSync }) {
			continue
		}
		list = append(list, t)
		rows = append(rows, copyRows(&t)...)
	}
	return a.print(list, []string{"TENANT", "REGION", "NODE", "ZONE", "COPY", "COPY ZONE", "STATE", "SINCE", "NOTE"}, rows)
}

// inSync is the state of a copy that may be promoted.
const inSync = "in_sync"

// copyRows gives a line for each copy of a tenant, or one that says that it has none.
func copyRows(t *proto.Tenant) [][]string {
	head := []string{string(t.Name), string(t.Region), string(t.Node), string(t.Zone)}
	var rows [][]string
	for _, r := range t.Replicas {
		notes := []string{}
		if r.SameZone {
			notes = append(notes, "same zone")
		}
		if t.Unreplicated != "" {
			notes = append(notes, "unreplicated: "+t.Unreplicated)
		}
		rows = append(rows, append(slices.Clip(head), string(r.Node), string(r.Zone), r.State, r.Since.Format(time.RFC3339), strings.Join(notes, "; ")))
	}
	if rows == nil && t.Unreplicated != "" {
		rows = append(rows, append(slices.Clip(head), "", "", "", "", "unreplicated: "+t.Unreplicated))
	}
	return rows
}

// copiesText names a tenant's copies, and what is amiss with each.
func copiesText(t *proto.Tenant) string {
	var all []string
	for _, r := range t.Replicas {
		text := string(r.Node)
		if r.State != inSync {
			text += " (" + r.State + ")"
		}
		if r.SameZone {
			text += " (same zone)"
		}
		all = append(all, text)
	}
	if all == nil && t.Unreplicated != "" {
		all = append(all, "unreplicated")
	}
	for _, r := range t.ReadReplicas {
		if r.State == proto.ReaderHome {
			continue
		}
		text := cmp.Or(string(r.Node), "none") + " (read replica in " + string(r.Region)
		if r.State == proto.ReaderLost {
			text += ", lost"
		}
		all = append(all, text+")")
	}
	return strings.Join(all, ", ")
}

type replicasRepair struct{}

// Help says that it is seldom needed.
func (replicasRepair) Help() string {
	return `Copies are repaired by themselves, after a grace (domicile admin settings), when one is
missing, lost or badly placed, and when a node comes back or appears. This does not wait
for the grace. It lists the tenants whose copy came in sync, and why others have none.`
}

// Run repairs copies.
func (replicasRepair) Run(a *admin) error {
	out, err := a.RepairReplicas(a.ctx)
	if err != nil && !inPart(err) {
		return err
	}
	if err == nil && len(out.Replicated) == 0 && !a.json {
		return a.say("every tenant has the copies that it should have")
	}
	var rows [][]string
	for _, r := range out.Replicated {
		rows = append(rows, []string{string(r.Tenant), string(r.Replica), ""})
	}
	for _, f := range out.Failed {
		rows = append(rows, []string{string(f.Tenant), "", f.Why})
	}
	return errors.Join(a.print(out, []string{"TENANT", "REPLICA", "WHY NOT"}, rows), err)
}

type tenantsExplain struct {
	Name fsm.TenantName `arg:"" help:"Name of the tenant."`
	For  string         `enum:"primary,replica" default:"primary" help:"What the node would be to it: ${enum}."`
}

// Help says what the ranks mean.
func (*tenantsExplain) Help() string {
	return `Each node, whether it may hold the tenant, and its rank among those that may: the
order in which nodes are chosen. A primary goes to the node with the fewest bytes of its
region. A replica stays in its primary's region and goes, in this order, to another zone,
to a node that holds a copy already, to the one with the fewest replicas of the same
primary's tenants, to the one with the fewest tenants.

  domicile admin tenants explain acme --for replica`
}

// Run explains a tenant's placement.
func (c *tenantsExplain) Run(a *admin) error {
	role := fsm.RolePrimary
	if c.For == "replica" {
		role = fsm.RoleReplica
	}
	verdicts, err := a.Explain(a.ctx, c.Name, role)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, v := range verdicts {
		rank := "no"
		if v.May {
			rank = fmt.Sprint(v.Rank)
		}
		rows = append(rows, []string{string(v.Node), rank, v.Holds, v.Why})
	}
	return a.print(verdicts, []string{"NODE", "RANK", "HOLDS", "WHY"}, rows)
}

type adminSettings struct {
	Show settingsShow `cmd:"" default:"1" help:"Show the group's settings."`
	Set  settingsSet  `cmd:"" help:"Change settings; flags left out keep what is recorded."`
}

type settingsShow struct{}

// Help says where settings come from.
func (settingsShow) Help() string {
	return "Settings belong to the group and are in its directory. The flags of domicile control\n" +
		"only seed those of a new group; afterwards they are changed with: domicile admin settings set"
}

// Run shows the settings.
func (settingsShow) Run(a *admin) error {
	s, err := a.Settings(a.ctx)
	if err != nil {
		return err
	}
	return a.printSettings(s)
}

func (a *admin) printSettings(s proto.Settings) error {
	region := "-"
	if s.DefaultRegion != nil {
		region = fmt.Sprintf("%q", *s.DefaultRegion)
	}
	token := "-"
	if s.HasReplicationToken {
		token = "set"
	}
	span := func(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }
	lease := span(s.AutoFailoverMS)
	if s.AutoFailoverMS == 0 {
		lease = "off: nodes are not leased, and not failed over by themselves"
	}
	return a.print(s, []string{"SETTING", "VALUE"}, [][]string{
		{"replicas", fmt.Sprint(s.Replicas)}, {"auto-failover", lease}, {"repair-after", span(s.RepairAfterMS)},
		{"remove-after", span(s.RemoveAfterMS)}, {"default-region", region}, {"replication-token", token},
		{"moves-per-node", fmt.Sprint(s.MovesPerNode)}})
}

type settingsSet struct {
	Replicas             *uint32         `help:"Copies of each tenant beside its primary, 0 to 8."`
	AutoFailover         *time.Duration  `help:"Length of nodes' leases, 0: none. A node that lost its lease is failed over; at least five election timeouts keep a change of leader from holding writes."`
	RepairAfter          *time.Duration  `help:"Grace before a missing or badly placed copy is repaired."`
	RemoveAfter          *time.Duration  `help:"Grace before a copy that was given up is removed."`
	DefaultRegion        *fsm.RegionName `help:"Region of tenants that name none."`
	NoDefaultRegion      bool            `help:"Tenants that name no region go wherever there is most room."`
	ReplicationToken     string          `xor:"replication-token" help:"Secret that nodes show each other: their --replication-token."`
	ReplicationTokenFile string          `xor:"replication-token" placeholder:"FILE" help:"File that holds the replication token."`
	NoReplicationToken   bool            `xor:"replication-token" help:"Copies show their primaries nothing but what the group knows of them."`
	MovesPerNode         *uint32         `help:"Moves that copy to or from a node at once, 1 to 64."`
	Force                bool            `help:"With --auto-failover 0: also where nodes were started with --lease, which then stop writing."`
}

// Run changes settings.
func (c *settingsSet) Run(a *admin) error {
	token, err := secret("replication-token", c.ReplicationToken, c.ReplicationTokenFile)
	if err != nil {
		return err
	}
	ms := func(d *time.Duration) *int64 {
		if d == nil {
			return nil
		}
		n := d.Milliseconds()
		return &n
	}
	put := proto.PutSettings{Replicas: c.Replicas, AutoFailoverMS: ms(c.AutoFailover), RepairAfterMS: ms(c.RepairAfter),
		RemoveAfterMS: ms(c.RemoveAfter), DefaultRegion: c.DefaultRegion, NoDefaultRegion: c.NoDefaultRegion, MovesPerNode: c.MovesPerNode, Force: c.Force}
	if token != "" || c.NoReplicationToken {
		put.ReplicationToken = &token
	}
	s, err := a.PutSettings(a.ctx, put)
	if err != nil {
		return err
	}
	return a.printSettings(s)
}
