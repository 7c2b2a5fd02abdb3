package main

import "domicile/fsm"

type tenantsReaders struct {
	List readersList   `cmd:"" aliases:"ls" help:"List the read replicas of a tenant."`
	Add  readersAdd    `cmd:"" help:"Have a tenant read in another region too."`
	Rm   readersRemove `cmd:"" aliases:"remove" help:"Take a tenant's read replica out of a region again."`
}

// Help says what a read replica is for.
func (*tenantsReaders) Help() string {
	return `A read replica is a copy of a tenant in another region than its own, which exists only
where it was asked for. It is read and never promoted: a tenant whose region is lost does
not go to it. Requests with Domicile-Mode: read and Domicile-Prefer: replica go to it from
proxies that were started with that --region. It may be a little behind; a read that names
a position (Domicile-After) waits for it there, or goes to the primary.

While the tenant lives in that region itself it has no read replica there: it gets one when
it moves away.

  domicile admin tenants read-replicas add acme us
  domicile admin tenants read-replicas list acme
  domicile admin tenants read-replicas rm acme us`
}

type readersList struct {
	Name fsm.TenantName `arg:"" help:"Name of the tenant."`
}

// Run lists a tenant's read replicas.
func (c *readersList) Run(a *admin) error {
	t, err := a.Tenant(a.ctx, c.Name)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, r := range t.ReadReplicas {
		rows = append(rows, []string{string(r.Region), string(r.Node), string(r.State), r.Why})
	}
	return a.print(t.ReadReplicas, []string{"REGION", "NODE", "STATE", "WHY"}, rows)
}

type readersAdd struct {
	Name   fsm.TenantName `arg:"" help:"Name of the tenant."`
	Region fsm.RegionName `arg:"" help:"Region to read it in."`
}

// Run asks for a read replica.
func (c *readersAdd) Run(a *admin) error {
	r, err := a.PutReadReplica(a.ctx, c.Name, c.Region)
	if err != nil {
		return err
	}
	if a.json {
		return a.print(r, nil, nil)
	}
	if r.Node == "" {
		return a.say("tenant %s is to be read in region %q, and is not yet: %s", r.Tenant, r.Region, r.Why)
	}
	return a.say("tenant %s is read in region %q on node %s, once its data is there", r.Tenant, r.Region, r.Node)
}

type readersRemove struct {
	Name   fsm.TenantName `arg:"" help:"Name of the tenant."`
	Region fsm.RegionName `arg:"" help:"Region to read it in no longer."`
}

// Run asks for a read replica no longer.
func (c *readersRemove) Run(a *admin) error {
	if err := a.DeleteReadReplica(a.ctx, c.Name, c.Region); err != nil {
		return err
	}
	return a.gone("read_replica", string(c.Region), "tenant %s is read in region %q no longer; its data is removed there after the grace (domicile admin settings: remove-after)", c.Name, c.Region)
}
