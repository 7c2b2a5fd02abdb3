package main

import (
	"fmt"
	"strings"

	"domicile/fsm"
	"domicile/proto"
)

type adminRegions struct {
	List   regionsList   `cmd:"" default:"1" aliases:"ls" help:"List the regions that keep a directory of their own."`
	Get    regionsGet    `cmd:"" help:"Show one."`
	Put    regionsPut    `cmd:"" help:"Record one, with the proxies to reach it by."`
	Delete regionsDelete `cmd:"" aliases:"rm" help:"Forget one that is no tenant's home."`
	Adopt  regionsAdopt  `cmd:"" help:"Give a region's nodes and tenants to its own group, while they are in use."`
	Return regionsReturn `cmd:"" help:"Give them back from its own group to the global one."`

	Tasks   regionsTasks   `cmd:"" help:"List what the global group has a region's group do."`
	Orphans regionsOrphans `cmd:"" help:"List the tenants about which a region's directory and the global one do not agree."`

	DropOrphan regionsDropOrphan `cmd:"" help:"Remove, for good, what a region has of a tenant that has departed."`
}

type regionsList struct{}

// Run lists the regions.
func (regionsList) Run(a *admin) error {
	regions, err := a.Regions(a.ctx)
	if err != nil {
		return err
	}
	return a.printRegions(regions, regions)
}

type regionsGet struct {
	Name fsm.RegionName `arg:"" help:"Name of the region."`
}

// Run shows a region.
func (c *regionsGet) Run(a *admin) error {
	r, err := a.Region(a.ctx, c.Name)
	if err != nil {
		return err
	}
	return a.printRegions(r, []proto.Region{r})
}

func (a *admin) printRegions(v any, regions []proto.Region) error {
	var rows [][]string
	for _, r := range regions {
		rows = append(rows, []string{string(r.Name), strings.Join(r.Routers, ",")})
	}
	return a.print(v, []string{"REGION", "ROUTERS"}, rows)
}

type regionsPut struct {
	Name    fsm.RegionName `arg:"" help:"Name of the region."`
	Routers []string       `required:"" sep:"," help:"Proxies of that region, as http://host:port, separated by commas."`
}

// Run records a region.
func (c *regionsPut) Run(a *admin) error {
	r, _, err := a.PutRegion(a.ctx, c.Name, proto.PutRegion{Routers: c.Routers})
	if err != nil {
		return err
	}
	if a.json {
		return a.print(r, nil, nil)
	}
	if err := a.say("region %s recorded", r.Name); err != nil || len(r.Unreachable) == 0 {
		return err
	}
	return a.say("not reached: %s; requests go there once they answer", strings.Join(r.Unreachable, ", "))
}

type regionsDelete struct {
	Name fsm.RegionName `arg:"" help:"Name of the region."`
}

// Run forgets a region.
func (c *regionsDelete) Run(a *admin) error {
	if err := a.DeleteRegion(a.ctx, c.Name); err != nil {
		return err
	}
	return a.gone("region", string(c.Name), "region %s deleted", c.Name)
}

type adminGroup struct {
	Show     groupShow     `cmd:"" default:"1" help:"Show the group: leader, term, servers and their health."`
	Add      groupAdd      `cmd:"" help:"Add a server, or give or take its vote. A server started with --join does this by itself."`
	Remove   groupRemove   `cmd:"" help:"Remove a server from the group for good."`
	Transfer groupTransfer `cmd:"" help:"Hand leadership over, before maintenance of the leader."`
}

type groupShow struct{}

// Run shows the group.
func (groupShow) Run(a *admin) error {
	g, err := a.Client.Group(a.ctx)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, s := range g.Servers {
		role, health := "voter", "healthy"
		if !s.Voter {
			role = "non-voter"
		}
		if s.ID == g.Leader {
			role = "leader"
		}
		if !s.Healthy {
			health = "not heard"
		}
		rows = append(rows, []string{string(s.ID), role, health, s.API, s.Raft})
	}
	if err := a.say("asked %s: term %d, index %d", g.ID, g.Term, g.Index); err != nil {
		return err
	}
	return a.print(g, []string{"SERVER", "ROLE", "HEALTH", "API", "RAFT"}, rows)
}

type groupAdd struct {
	ID       fsm.MemberID `arg:"" help:"Id of the server."`
	Raft     string       `required:"" help:"host:port of its Raft listener."`
	API      string       `name:"api" required:"" help:"http(s)://host:port of its admin API."`
	NonVoter bool         `help:"It follows and has no vote: a read copy."`
}

// Run adds a server.
func (c *groupAdd) Run(a *admin) error {
	voter := !c.NonVoter
	s, err := a.AddServer(a.ctx, proto.AddServer{ID: c.ID, Raft: c.Raft, API: c.API, Voter: &voter})
	if err != nil {
		return err
	}
	return a.say("server %s belongs to the group", s.ID)
}

type groupRemove struct {
	ID fsm.MemberID `arg:"" help:"Id of the server."`
}

// Run removes a server.
func (c *groupRemove) Run(a *admin) error {
	if err := a.RemoveServer(a.ctx, c.ID); err != nil {
		return err
	}
	return a.say("server %s removed; its data folder cannot be used again", c.ID)
}

type groupTransfer struct {
	To fsm.MemberID `help:"Id of the server that is to lead; without it the leader chooses."`
}

// Run hands leadership over.
func (c *groupTransfer) Run(a *admin) error {
	led, err := a.TransferLeadership(a.ctx, c.To)
	if err != nil {
		return err
	}
	return a.print(led, []string{"LEADER"}, [][]string{{fmt.Sprint(led.Leader)}})
}
