package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"domicile/fsm"
	"domicile/proto"
)

type adminBackup struct {
	File string `arg:"" help:"File to write, which must not be there; - for the standard output."`
}

// Run writes a backup of the directory: beside the file first, so that one of that
// name is whole.
func (c *adminBackup) Run(a *admin) error {
	if c.File == "-" {
		w := bufio.NewWriter(a.out.stdout)
		_, err := a.Backup(a.ctx, w)
		return errors.Join(err, w.Flush())
	}
	if _, err := os.Stat(c.File); err == nil {
		return usagef("%s is there already", c.File)
	}
	tmp, err := os.CreateTemp(filepath.Dir(c.File), filepath.Base(c.File)+".*.part") // mode 0600: it holds tokens
	if err != nil {
		return err
	}
	state, err := a.Backup(a.ctx, tmp)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err == nil {
		err = os.Link(tmp.Name(), c.File) // never over another
	}
	if err = errors.Join(err, os.Remove(tmp.Name())); err != nil {
		return err
	}
	scope, _ := state.Scope()
	if a.json {
		return a.print(map[string]any{"file": c.File, "cluster": scope.Cluster, "history": scope.History,
			"revision": state.Revision(), "tenants": state.CountTenants()}, nil, nil)
	}
	return a.say("%s: the directory of %s, history %d, revision %d, %d tenants; it holds the nodes' tokens",
		c.File, scope.Authority(), scope.History, state.Revision(), state.CountTenants())
}

type adminRestore struct {
	File    string `arg:"" optional:"" help:"A backup; - for the standard input."`
	Lost    string `placeholder:"AUTHORITY" help:"In place of a backup that nobody has: the name of the region's group that is gone with its directory, <cluster>/<region>, as 'admin regions' tells it. Its tenants are adopted from the nodes."`
	History uint64 `help:"The new history's number at least, where a node has heard of one that is newer than the backup's."`
}

// Run restores a backup into a new group.
func (c *adminRestore) Run(a *admin) error {
	if (c.File == "") == (c.Lost == "") {
		return usagef("give a backup, or --lost")
	}
	out, err := c.restore(a)
	if err != nil {
		return err
	}
	if a.json {
		return a.print(out, nil, nil)
	}
	if c.Lost != "" {
		return a.say("this is the group %s from now on, in history %d: record its nodes (`domicile admin nodes put`); `domicile admin recovery` then lists what they hold, "+
			"to be taken in with `domicile admin recovery adopt`", c.Lost, out.History)
	}
	return a.say("restored: history %d, %d tenants, %d nodes. Every node is read before anything is granted: `domicile admin recovery` tells how far that is; "+
		"add servers once it is done", out.History, out.Tenants, out.Nodes)
}

func (c *adminRestore) restore(a *admin) (out proto.Restored, err error) {
	if c.Lost != "" {
		return a.RestoreLost(a.ctx, c.Lost, c.History)
	}
	in := io.Reader(os.Stdin)
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return out, err
		}
		defer f.Close()
		in = f
	}
	backup, err := io.ReadAll(in)
	if err != nil {
		return out, err
	}
	return a.Restore(a.ctx, backup, c.History)
}

type adminRecovery struct {
	Show     recoveryShow     `cmd:"" default:"1" help:"Show what the directory's recovery waits for, or what came of it."`
	WriteOff recoveryWriteOff `cmd:"" help:"Have the recovery go on without a node, or a region, that cannot be read: what it alone holds is given up."`
	Adopt    recoveryAdopt    `cmd:"" help:"Make a unit that a node holds, and the directory does not know, the tenant of its name."`
}

type recoveryShow struct{}

// Run shows the recovery.
func (recoveryShow) Run(a *admin) error {
	r, err := a.Recovery(a.ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.print(r, nil, nil)
	}
	switch {
	case r.Recovering:
		err = a.say("history %d is being recovered (%s): nothing is granted, created or moved before every node was read or written off", r.History, r.Cause)
	case r.Cause == "":
		return a.say("history %d: the directory was never recovered", r.History)
	default:
		err = a.say("history %d was recovered (%s): %d units taken over, %d of them found elsewhere, %d found nowhere", r.History, r.Cause, r.Units, r.Moved, r.Lost)
	}
	if err == nil && r.Problem != "" {
		err = a.say("it waits: %s", r.Problem)
	}
	if err == nil && len(r.WrittenOff) > 0 {
		err = a.say("written off: %s", strings.Join(r.WrittenOff, ", "))
	}
	if err == nil && len(r.WrittenOffRegions) > 0 {
		err = a.say("regions written off: %v", r.WrittenOffRegions)
	}
	if err == nil && r.Rehomed > 0 {
		err = a.say("by the word of the regions %d tenants live elsewhere than recorded, or were not known", r.Rehomed)
	}
	if err == nil && len(r.Unread) > 0 {
		err = a.say("not asked for what they hold, as they do not answer: %v", r.Unread)
	}
	if err != nil {
		return err
	}
	return a.print(r, []string{"NODE, REGION OR UNIT", "WHAT", "WHERE", "MORE"}, recoveryRows(&r))
}

func recoveryRows(r *proto.Recovery) [][]string {
	var rows [][]string
	for _, n := range r.Nodes {
		more := n.Problem
		if n.LeftMS > 0 {
			more = strings.TrimSpace(fmt.Sprintf("a lease of before runs for %d ms %s", n.LeftMS, more))
		}
		rows = append(rows, []string{string(n.Node), n.State, "", more})
	}
	for _, g := range r.Regions {
		more := g.Problem
		if g.State == "read" {
			more = strconv.Itoa(g.Tenants) + " tenants"
		}
		rows = append(rows, []string{string(g.Region), g.State, "region", more})
	}
	for _, u := range r.LostUnits {
		rows = append(rows, []string{string(u.Unit), "lost", "", "id " + strconv.FormatUint(uint64(u.ID), 10)})
	}
	list := func(what string, units []proto.Orphan) {
		for _, o := range units {
			rows = append(rows, []string{string(o.Unit), what, string(o.Node),
				strings.TrimSpace(fmt.Sprintf("id %d, %s at %s %s", o.ID, o.Role, o.Position, o.Problem))})
		}
	}
	list("orphan", r.Orphans)
	list("damaged", r.Damaged)
	return rows
}

type recoveryWriteOff struct {
	Node   string         `arg:"" optional:"" help:"Name of a recorded node, or the address of one that is not recorded."`
	Region fsm.RegionName `help:"A region that keeps its own directory, in place of a node; 'global' in a region's own recovery that does not reach the global group."`
}

// Run writes a node, or a region, off for the recovery.
func (c *recoveryWriteOff) Run(a *admin) error {
	if (c.Node == "") == (c.Region == "") {
		return usagef("give a node, or --region")
	}
	if err := a.WriteOffForRecovery(a.ctx, proto.RecoveryWriteOff{Node: c.Node, Region: c.Region}); err != nil {
		return err
	}
	return a.say("the recovery goes on without %s", c.Node+string(c.Region))
}

type recoveryAdopt struct {
	Tenant fsm.TenantName `arg:"" help:"Name of the tenant."`
	ID     fsm.UnitID     `name:"id" required:"" help:"Id of the unit, as the list of orphans tells it."`
	Node   fsm.NodeName   `required:"" help:"Node that holds it."`
}

// Run adopts a unit.
func (c *recoveryAdopt) Run(a *admin) error {
	t, err := a.Adopt(a.ctx, proto.Adopt{Tenant: c.Tenant, ID: c.ID, Node: c.Node})
	if err != nil {
		return err
	}
	if a.json {
		return a.print(t, nil, nil)
	}
	return a.say("tenant %s is on node %s", t.Tenant, t.Node)
}
