package fsm

import (
	"slices"
	"strings"
)

const (
	maxReplicas        = 8
	maxRouters         = 64
	maxWait     Millis = 30 * 24 * 60 * 60 * 1000
)

func (c *change) bootstrap(cmd *Bootstrap) *Refusal {
	if c.scope.Cluster != "" {
		return refuse(CodeScope, "the directory has a scope already: "+c.scope.Authority())
	}
	switch sc := cmd.Scope; {
	case !ValidName(sc.Cluster):
		return badName("cluster", sc.Cluster)
	case sc.Region != "" && !validRegion(sc.Region):
		return badName("region", string(sc.Region))
	case sc.History == 0:
		return refuse(CodeBadRequest, "histories are numbered from 1")
	}
	if r := cmd.Settings.check(); r != nil {
		return r
	}
	c.scope = cmd.Scope
	c.replaceSettings(&cmd.Settings)
	return nil
}

func (c *change) setSettings(cmd *SetSettings) *Refusal {
	if r := cmd.Settings.check(); r != nil {
		return r
	}
	c.replaceSettings(&cmd.Settings)
	return nil
}

// replaceSettings never lowers LongestLease: leases of the longest that was in
// force may still run (architecture §3.5.5).
func (c *change) replaceSettings(next *Settings) {
	replicas, longest := c.settings.Replicas, c.settings.LongestLease
	c.settings = next.clone()
	c.settings.LongestLease = max(longest, next.LongestLease)
	if c.level >= levelCopies {
		c.settings.LongestLease = max(c.settings.LongestLease, next.AutoFailover)
		if next.Replicas != replicas {
			c.recountAll()
		}
	}
}

func (s *Settings) check() *Refusal {
	switch {
	case s.DefaultRegion != nil && *s.DefaultRegion != "" && !validRegion(*s.DefaultRegion):
		return badName("region", string(*s.DefaultRegion))
	case s.Replicas > maxReplicas:
		return refuse(CodeBadRequest, "more than 8 replicas are not kept")
	case outside(s.AutoFailover) || outside(s.LongestLease) || outside(s.RepairAfter) || outside(s.RemoveAfter):
		return refuse(CodeBadRequest, "a duration of the settings is below 0 or above 30 days")
	case s.ReplicationToken != "" && !validToken(s.ReplicationToken):
		return refuse(CodeBadRequest, "the replication token is too long, or not printable ASCII")
	}
	return nil
}

func outside(d Millis) bool { return d < 0 || d > maxWait }

func (s *Settings) clone() Settings {
	own := *s
	if s.DefaultRegion != nil {
		r := *s.DefaultRegion
		own.DefaultRegion = &r
	}
	return own
}

func (c *change) putMember(cmd *PutMember) *Refusal {
	m := cmd.Member
	switch {
	case !printable(string(m.ID), 2*MaxName):
		return refuse(CodeBadRequest, "a server's id is 1 to 128 printable ASCII characters without a space")
	case !printable(m.Raft, maxAddr) || m.API != "" && !printable(m.API, maxAddr):
		return refuse(CodeBadRequest, "the address of server "+string(m.ID)+" is missing or not an address", "server", string(m.ID))
	case m.Version < c.level:
		return refuse(CodeServerTooOld, "server "+string(m.ID)+
			" is older than the directory of its group; start it with a newer version", "server", string(m.ID))
	}
	c.members.Set(m.ID, &m)
	c.raiseLevel()
	return nil
}

func (c *change) deleteMember(cmd *DeleteMember) *Refusal {
	if _, ok := c.members.Delete(cmd.ID); !ok {
		return refuse(CodeMemberUnknown, "no server of the group has this id", "server", clip(string(cmd.ID)))
	}
	c.raiseLevel()
	return nil
}

// raiseLevel lifts the level to what all members know. It never falls: entries
// above a lower one may be in the log.
func (c *change) raiseLevel() {
	lowest, any := uint32(0), false
	c.members.Scan(func(_ MemberID, m *Member) bool {
		if !any || m.Version < lowest {
			lowest, any = m.Version, true
		}
		return true
	})
	before := c.level
	if c.level = max(c.level, lowest); before < levelCopies && c.level >= levelCopies {
		c.beginCopies()
	}
}

// beginCopies is what the first entry does at whose end all servers know of
// copies and leases.
func (c *change) beginCopies() {
	c.settings.LongestLease = max(c.settings.LongestLease, c.settings.AutoFailover)
	for _, n := range slices.Collect(c.Nodes()) {
		c.ownSeat(n.Name).list = c.at
	}
	c.recountAll()
}

func (c *change) putRegion(cmd *PutRegion) Result {
	name := cmd.Region.Name
	if !validRegion(name) {
		return refused(badName("region", string(name)))
	}
	routers := cmd.Region.Routers
	bad := len(routers) == 0 || len(routers) > maxRouters
	for _, r := range routers {
		bad = bad || !printable(r, maxAddr) || !strings.HasPrefix(r, "http://") && !strings.HasPrefix(r, "https://")
	}
	if c.level >= levelRegions {
		bad = bad || len(slices.Compact(slices.Sorted(slices.Values(routers)))) < len(routers)
	}
	if bad {
		return refused(refuse(CodeBadRequest, "give 1 to 64 routers of region "+string(name)+
			", each once, as http:// or https:// and host:port", "region", string(name)))
	}
	before, known := c.regions.Get(name)
	authority := ""
	if c.level >= levelRegions {
		if authority = cmd.Region.Authority; known && authority == "" {
			authority = before.Authority
		}
		if r := mayLead(before, name, authority); r != nil {
			return refused(r)
		}
	}
	if !known || !slices.Equal(before.Routers, routers) || before.Authority != authority || c.Recovering() && c.recovery.WithoutRegion(name) {
		r := &Region{Name: name, Routers: slices.Clone(routers), Authority: authority}
		c.regions.Set(name, r)
		c.readRegionAgain(name)
		c.events = append(c.events, Event{Region: r})
	}
	return Result{Created: !known}
}

// mayLead checks whose group a region's routers lead to. before is what is recorded of the
// region, or nil. The tenants of a region are known to its own group alone: another one of
// the same name would answer for them that they are not there.
func mayLead(before *Region, name RegionName, authority string) *Refusal {
	switch {
	case authority != "" && (!printable(authority, 2*MaxName+1) || groupOf(authority) != name):
		return refuse(CodeBadRequest, clip(authority)+" is not the group of region "+string(name), "region", string(name))
	case before == nil || before.Authority == "" || before.Authority == authority:
		return nil
	}
	return refuse(CodeRegionMismatch, "the routers lead to "+authority+", and region "+string(name)+" is kept by "+before.Authority+
		", another group; nothing was recorded: name proxies of that group, which keeps its name when it is recovered, or restored from a backup; "+
		"where the region is empty, forget it first (DELETE /_shard/regions/"+string(name)+")",
		"region", string(name), "authority", authority, "recorded", before.Authority)
}

func (c *change) deleteRegion(cmd *DeleteRegion) *Refusal {
	if _, ok := c.regions.Get(cmd.Name); !ok {
		return refuse(CodeRegionUnknown, "region "+clip(string(cmd.Name))+" is not recorded as one that keeps its own directory",
			"region", clip(string(cmd.Name)))
	}
	if r := c.homeInUse(cmd.Name); r != nil {
		return r
	}
	c.regions.Delete(cmd.Name)
	c.readRegionAgain(cmd.Name)
	c.events = append(c.events, Event{RegionGone: cmd.Name})
	return nil
}
