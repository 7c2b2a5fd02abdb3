package group

import (
	"context"

	"github.com/hashicorp/raft"
)

// addressKnown reports whether the group knows this server at the address that
// it advertises, or not at all.
func (g *Group) addressKnown() (string, bool) {
	servers, _ := g.configuration()
	for _, s := range servers {
		if s.ID == raft.ServerID(g.cfg.ID) {
			return string(s.Address), s.Address == raft.ServerAddress(g.cfg.Advertise)
		}
	}
	return "", true
}

// moveSelf lets the group know this server, its leader, by the address that it
// advertises now: the others would no longer find it after the next change.
func (g *Group) moveSelf(ctx context.Context) error {
	old, ok := g.addressKnown()
	if ok {
		return nil
	}
	g.members.Lock()
	defer g.members.Unlock()
	_, index := g.configuration()
	f := g.raft.AddVoter(raft.ServerID(g.cfg.ID), raft.ServerAddress(g.cfg.Advertise), index, g.enqueueWait(ctx))
	if err := g.changed(ctx, f); err != nil {
		return err
	}
	g.logger.Info("this server's Raft address changed", "from", old, "to", g.cfg.Advertise)
	return nil
}
