package main

import (
	"fmt"
	"os"

	"domicile/client"
	"domicile/fsm"
	"domicile/proto"
)

type adminTenants struct {
	List    tenantsList    `cmd:"" default:"withargs" aliases:"ls" help:"List the tenants."`
	Get     tenantsGet     `cmd:"" help:"Show one tenant and where it is."`
	Explain tenantsExplain `cmd:"" help:"Say of each node whether it may hold a tenant, and why."`
	Create  tenantsCreate  `cmd:"" help:"Create a tenant in a region, on a node, or wherever there is most room. It can be written at once."`
	Delete  tenantsDelete  `cmd:"" aliases:"rm" help:"Delete a tenant and its data for good."`
	Move    tenantsMove    `cmd:"" help:"Move a tenant to another node or region while it is in use."`
	Pin     tenantsPin     `cmd:"" help:"Mark a tenant as one that stays where it is: no rebalance moves it, and no drain but a forced one."`
	Unpin   tenantsUnpin   `cmd:"" help:"Take that mark off."`

	ReadReplicas tenantsReaders `cmd:"" help:"Read replicas in other regions: list, add, remove."`
}

type tenantsList struct {
	Region *fsm.RegionName `help:"Of this region alone."`
	Prefix string          `help:"Whose names begin with this."`
	Bytes  bool            `help:"With their sizes, asked of their nodes."`
}

// Run lists the tenants, page by page.
func (c *tenantsList) Run(a *admin) error {
	all := []proto.Tenant{}
	for t, err := range a.Tenants(a.ctx, client.ListTenants{Region: c.Region, Prefix: c.Prefix, Bytes: c.Bytes}) {
		if err != nil {
			return err
		}
		all = append(all, t)
	}
	return a.printTenants(all, all)
}

type tenantsGet struct {
	Name fsm.TenantName `arg:"" help:"Name of the tenant."`
}

// Run shows a tenant.
func (c *tenantsGet) Run(a *admin) error {
	t, err := a.Tenant(a.ctx, c.Name)
	if err != nil {
		return err
	}
	return a.printTenants(t, []proto.Tenant{t})
}

func (a *admin) printTenants(v any, tenants []proto.Tenant) error {
	var rows [][]string
	for _, t := range tenants {
		size, pinned := "", ""
		if t.Bytes != nil {
			size = bytesText(*t.Bytes)
		}
		if t.Pinned {
			pinned = "pinned"
		}
		state := t.State
		if t.Unreachable {
			state = "unknown (its region is not reached)"
		}
		rows = append(rows, []string{string(t.Name), string(t.Node), state, string(t.Region), string(t.Zone), copiesText(&t), pinned, size})
	}
	return a.print(v, []string{"TENANT", "NODE", "STATE", "REGION", "ZONE", "COPIES", "PINNED", "BYTES"}, rows)
}

type tenantsCreate struct {
	Name       fsm.TenantName  `arg:"" help:"Name of the tenant: [a-z0-9_-], 1 to 64 characters."`
	Region     *fsm.RegionName `help:"Region that its data stays in."`
	Node       *fsm.NodeName   `help:"Node to keep it on."`
	SchemaFile string          `placeholder:"FILE" help:"SQL to run once in the new database."`
	Pinned     bool            `help:"Keep it where it is made."`
}

// Help shows how it is used.
func (*tenantsCreate) Help() string {
	return "Example:\n\n  domicile admin tenants create acme --region eu --schema-file schema.sql"
}

// Run creates a tenant.
func (c *tenantsCreate) Run(a *admin) error {
	put := proto.PutTenant{Region: c.Region, Node: c.Node, Pinned: c.Pinned}
	if c.SchemaFile != "" {
		sql, err := os.ReadFile(c.SchemaFile)
		if err != nil {
			return fmt.Errorf("read the schema: %w", err)
		}
		put.Schema = string(sql)
	}
	t, err := a.CreateTenant(a.ctx, c.Name, put)
	if err != nil {
		return err
	}
	if a.json {
		return a.print(t, nil, nil)
	}
	if err := a.say("tenant %s created on node %s, region %q", t.Tenant, t.Node, t.Region); err != nil {
		return err
	}
	if t.Unreplicated != "" {
		return a.say("it has no replica: %s", t.Unreplicated)
	}
	return a.say("its replica is on node %s", t.ReplicaOn)
}

type tenantsDelete struct {
	Name fsm.TenantName `arg:"" help:"Name of the tenant."`
}

// Run deletes a tenant.
func (c *tenantsDelete) Run(a *admin) error {
	if err := a.DeleteTenant(a.ctx, c.Name); err != nil {
		return err
	}
	return a.gone("tenant", string(c.Name), "tenant %s deleted", c.Name)
}

type tenantsPin struct {
	Name fsm.TenantName `arg:"" help:"Name of the tenant."`
}

// Run pins a tenant.
func (c *tenantsPin) Run(a *admin) error {
	if err := a.Pin(a.ctx, c.Name); err != nil {
		return err
	}
	return a.say("tenant %s pinned", c.Name)
}

type tenantsUnpin struct {
	Name fsm.TenantName `arg:"" help:"Name of the tenant."`
}

// Run unpins a tenant.
func (c *tenantsUnpin) Run(a *admin) error {
	if err := a.Unpin(a.ctx, c.Name); err != nil {
		return err
	}
	return a.say("tenant %s unpinned", c.Name)
}
