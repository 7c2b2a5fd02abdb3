package main

import (
	"fmt"
	"slices"
	"strings"

	"domicile/controlplane/group"
	"domicile/fsm"
)

type recoverCmd struct {
	Data    string   `required:"" placeholder:"DIR" help:"Data folder of the one control server that is kept. Its process must be stopped."`
	Lost    []string `sep:"," placeholder:"ID" help:"Every other server of its group, by id, separated by commas: they are lost for good. Without it nothing is changed, and what the folder holds is told."`
	History uint64   `help:"Number of the new history. Default: the next one. To raise it where a node has heard of a newer one."`

	logFlags
}

// Help tells when it is used.
func (*recoverCmd) Help() string {
	return "For a group that has lost the majority of its servers for good, and cannot change anything any more. Stop what is left of it. " +
		"Run this without --lost on the folder of each server that survived: the one with the greatest term, and of those the greatest index, knows the most. " +
		"Then run it there with --lost, naming all others, and start that server as before. It is the only one of its group then, in a new history: " +
		"nodes, proxies and servers take nothing from an older one. It reads every node before it grants anything (domicile admin recovery). " +
		"The others must never be started again from their folders; give them empty ones and --join."
}

// Run looks at the folder, or recovers it.
func (c *recoverCmd) Run(e *env) error {
	cfg := group.RecoverConfig{DataDir: c.Data, History: c.History, Logger: c.logger(e, "recover")}
	for _, id := range c.Lost {
		cfg.Lost = append(cfg.Lost, fsm.MemberID(id))
	}
	r, err := group.Recover(cfg)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "server %s of cluster %s, history %d: term %d, index %d, %d tenants, %d nodes\n",
		r.ID, r.Cluster, r.History, r.Term, r.Index, r.Tenants, r.Nodes)
	if r.Recovered == 0 {
		var others []string
		for _, id := range r.Servers {
			if id != r.ID {
				others = append(others, string(id))
			}
		}
		slices.Sort(others)
		if len(others) == 0 {
			fmt.Fprintf(e.stdout, "it is the only server of its group; nothing was changed\n")
			return nil
		}
		fmt.Fprintf(e.stdout, "nothing was changed. Where %s will never come back, and no survivor tells of a greater term and index, this makes it the only server of its group:\n\n"+
			"  domicile recover --data %s --lost %s\n", strings.Join(others, " and "), c.Data, strings.Join(others, ","))
		return nil
	}
	fmt.Fprintf(e.stdout, "recovered: it is the only server of its group, in history %d. What the folder held is in %s.\n"+
		"Start it as before; `domicile admin recovery` tells what it waits for. Never start the others from their folders again.\n", r.Recovered, r.Kept)
	return nil
}
