package main

import (
	"cmp"

	"domicile/fsm"
	"domicile/proto"
)

type regionsTasks struct {
	ofRegion
	Tenant fsm.TenantName `help:"Of this tenant alone."`
}

// Help says what a task is.
func (regionsTasks) Help() string {
	return `A create, a delete or a move between regions is a job of the global group; a region's part
of it is a task of the region's own group, under the number of that job (domicile admin
moves). A task is kept until its job has ended, so that one that comes late, or twice, does
nothing. STATE is the step that it is at, done, or forgone: not done, and never to be.`
}

// Run lists the tasks of a region.
func (c *regionsTasks) Run(a *admin) error {
	c.use(a)
	tasks, err := a.Tasks(a.ctx, c.Tenant)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, t := range tasks {
		state, node, problem := cmp.Or(t.Step, "begun"), "", t.Problem
		switch {
		case t.Forgone:
			state = "forgone"
		case t.Done:
			state = "done"
		}
		if t.Unit != nil {
			node = string(t.Unit.Node)
		}
		if t.Refusal != nil {
			problem = t.Refusal.Text
		}
		rows = append(rows, []string{t.Job.String(), t.Kind, string(t.Tenant), state, node, problem})
	}
	return a.print(tasks, []string{"JOB", "KIND", "TENANT", "STATE", "NODE", "PROBLEM"}, rows)
}

type regionsOrphans struct{ ofRegion }

// Help says what the kinds are, and what to do.
func (regionsOrphans) Help() string {
	return `After a recovery from an old backup a region's directory and the global one may differ. KIND is
unknown: the region has a tenant whose name is free, and gets it back by itself within two
minutes; elsewhere: the region has a tenant whose name is another one's, in HOME: nothing is
removed by itself; missing: HOME is the region, which has no such tenant: look for it with
domicile admin recovery, or delete the tenant, which frees the name; departed: a move of before
the recovery left something of it here, and nobody says that it is written elsewhere: it is
kept, and no tenant of that name can be made here, until domicile admin regions drop-orphan.`
}

// Run lists the orphans of a region.
func (c *regionsOrphans) Run(a *admin) error {
	c.use(a)
	orphans, err := a.Orphans(a.ctx)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, o := range orphans {
		rows = append(rows, []string{string(o.Tenant), o.Kind, homeOfOrphan(o)})
	}
	return a.print(orphans, []string{"TENANT", "KIND", "HOME"}, rows)
}

func homeOfOrphan(o proto.OrphanedTenant) string {
	if o.Home == nil {
		return ""
	}
	return string(*o.Home)
}

type regionsDropOrphan struct {
	ofRegion
	Tenant fsm.TenantName `arg:"" help:"Name of the tenant, as the list of orphans tells it."`
	Yes    bool           `required:"" help:"It may be all that there is of the tenant: say that it is not needed."`
}

// Run removes what is left of a tenant.
func (c *regionsDropOrphan) Run(a *admin) error {
	c.use(a)
	if err := a.DropOrphan(a.ctx, c.Tenant); err != nil {
		return err
	}
	return a.say("what is left of tenant %s goes from its nodes after remove-after", c.Tenant)
}
