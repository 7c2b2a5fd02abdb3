package fsm_test

import (
	"fmt"
	"slices"

	"domicile/fsm"
)

func (m *model) create(c *fsm.CreateTenant, at fsm.Revision) fsm.Code {
	if !fsm.ValidName(string(c.Name)) || c.Buckets > 0 || c.Hash > 0 {
		return fsm.CodeBadRequest
	}
	if m.scope != "" && m.level >= 4 {
		return fsm.CodeNotOwner
	}
	if h := m.homes[c.Name]; h != nil {
		return h.takenHome()
	}
	if t := m.tenants[c.Name]; t != nil {
		if t.step == fsm.StepUndo || t.step == fsm.StepRemove {
			return fsm.CodeBusy
		}
		return fsm.CodeTenantExists
	}
	if m.claim(c, at) {
		return ""
	}
	node, code := m.place(c)
	if code != "" {
		return code
	}
	t := &modelTenant{
		node: node, id: fsm.UnitID(at), epoch: 1, copies: map[fsm.NodeName]fsm.CopyState{}, pinned: c.Pinned,
		job: fsm.JobID(at), step: fsm.StepMake, schema: c.Schema != "",
	}
	m.tenants[c.Name] = t
	for range m.wanted(t) {
		if n := m.placeCopy(t, c.Silent); n != "" && m.level >= 2 {
			t.copies[n] = fsm.CopySyncing
		}
	}
	return ""
}

func (m *model) place(c *fsm.CreateTenant) (fsm.NodeName, fsm.Code) {
	region := c.Region
	if region != nil {
		known := m.regions[*region]
		for _, n := range m.nodes {
			known = known || n.region == *region
		}
		if !known {
			return "", fsm.CodeRegionUnknown
		}
	}
	if c.Node != nil {
		switch n := m.nodes[*c.Node]; {
		case n == nil:
			return "", fsm.CodeNodeUnknown
		case region != nil && n.region != *region:
			return "", fsm.CodeRegionMismatch
		case m.standbyOf(*c.Node):
			return "", fsm.CodeNodeIsStandby
		case n.drain != nil:
			return "", fsm.CodeNodeDraining
		case m.own(n.region):
			return "", fsm.CodeRegionElsewhere
		}
		return *c.Node, ""
	}
	if region == nil {
		region = m.fallback
	}
	if region != nil && m.own(*region) {
		return "", fsm.CodeRegionElsewhere
	}
	if n := m.emptiest(region, "", c.Silent); n != "" {
		return n, ""
	}
	return "", fsm.CodeNoNode
}

// emptiest gives the node of a region, or of any, that a unit is placed on, but not
// another than it leaves; or "".
func (m *model) emptiest(region *fsm.RegionName, leaves fsm.NodeName, silent []fsm.NodeName) fsm.NodeName {
	best, least := fsm.NodeName(""), ""
	for name, n := range m.nodes {
		if name == leaves || m.standbyOf(name) || n.weight == 0 || n.lost || n.drain != nil || slices.Contains(silent, name) ||
			region != nil && n.region != *region || m.own(n.region) {
			continue
		}
		units := m.held(name)
		if rank := fmt.Sprintf("%020d%020d%s", n.bytes+max(0, units-n.units)*65536, units, name); best == "" || rank < least {
			best, least = name, rank
		}
	}
	return best
}
