package fsm

import (
	"math"
	"strings"
)

// UnitEstimate is what a unit that its node's usage does not cover yet is
// taken to weigh, in bytes: creates that come between two reports spread.
const UnitEstimate = 64 << 10

// DefaultWeight is a node's weight when none was given.
const DefaultWeight = 1

// place chooses the node of a new tenant (T2). An operator's Node is taken
// whatever its weight; otherwise it is, of the nodes of the region that take
// new units, the one with the fewest estimated bytes, then the fewest units,
// then the first by name.
func (s *State) place(cmd *CreateTenant) (*seat, *Refusal) {
	if cmd.Region != nil && *cmd.Region != "" && !validRegion(*cmd.Region) {
		return nil, badName("region", string(*cmd.Region))
	}
	if cmd.Region != nil && !s.regionKnown(*cmd.Region) {
		return nil, refuse(CodeRegionUnknown, "no node is in region "+regionText(*cmd.Region)+
			"; record one there first, or name another region", "region", string(*cmd.Region))
	}
	if cmd.Node != nil {
		return s.placeOn(*cmd.Node, cmd.Region)
	}
	region := cmd.Region
	if region == nil {
		region = s.settings.DefaultRegion
	}
	if region != nil {
		if s.keepsOwn(*region) {
			return nil, elsewhere(*region)
		}
	}
	if c := s.best(&want{role: RolePrimary, region: region, silent: cmd.Silent}, nil); c != nil {
		return c.seat, nil
	}
	return nil, s.noNode(region, len(cmd.Silent) > 0)
}

// placeOn checks the node that was asked for by name.
func (s *State) placeOn(name NodeName, region *RegionName) (*seat, *Refusal) {
	e, ok := s.nodes.Get(name)
	if !ok {
		return nil, unknownNode(name)
	}
	n := e.node
	if region != nil && n.Region != *region {
		return nil, refuse(CodeRegionMismatch, "node "+string(n.Name)+" is in region "+regionText(n.Region)+
			", not in "+regionText(*region)+"; leave one of the two out, or make them agree",
			"node", string(n.Name), "region", string(n.Region))
	}
	if e.standbyOf != "" {
		return nil, refuse(CodeNodeIsStandby, "node "+string(n.Name)+" is the standby of "+string(e.standbyOf)+
			"; nothing is placed on a standby", "node", string(n.Name), "standby_of", string(e.standbyOf))
	}
	if n.Drain != nil {
		return nil, refuse(CodeNodeDraining, "node "+string(n.Name)+" is being drained; choose another, or end its drain", "node", string(n.Name))
	}
	if s.keepsOwn(n.Region) {
		return nil, elsewhere(n.Region)
	}
	return e, nil
}

// estimate gives the bytes that the node is taken to hold by now, and its units.
func (e *seat) estimate() (bytes uint64, units int) {
	units = e.units.Len()
	bytes = e.node.Usage.Bytes
	if fresh := units - int(e.node.Usage.Units); fresh > 0 {
		bytes += min(uint64(fresh)*UnitEstimate, math.MaxUint64-bytes)
	}
	return bytes, units
}

// noNode says why no node can be had for a new tenant.
func (s *State) noNode(region *RegionName, silent bool) *Refusal {
	if s.nodes.Len() == 0 {
		return refuse(CodeNoNode, "no node is recorded yet: record one with PUT /_shard/nodes/<name> (domicile admin nodes put)")
	}
	where, fields := "", []string(nil)
	if region != nil {
		where, fields = " in region "+regionText(*region), []string{"region", string(*region)}
	}
	if silent {
		return refuse(CodeNoNode, "no node"+where+" that takes new tenants answers", fields...)
	}
	closed := s.closedNodes(region)
	if closed == "" {
		return refuse(CodeNoNode, "no node is"+where+": record one there, or name another region", fields...)
	}
	return refuse(CodeNoNode, "no node"+where+" takes new tenants: "+closed+
		"; give one a weight above 0, or record another node", fields...)
}

// maxNamed is how many nodes a refusal names.
const maxNamed = 5

// closedNodes names the nodes of a region, or of all that have no directory of
// their own, that take no new units, and why each does not.
func (s *State) closedNodes(region *RegionName) string {
	var named []string
	more := false
	s.nodes.Scan(func(name NodeName, e *seat) bool {
		own := s.keepsOwn(e.node.Region)
		switch {
		case region != nil && e.node.Region != *region || region == nil && own:
			return true
		case len(named) == maxNamed:
			more = true
			return false
		case e.standbyOf != "":
			named = append(named, string(name)+" is the standby of "+string(e.standbyOf))
		case e.node.Drain != nil:
			named = append(named, string(name)+" is being drained")
		case e.node.Weight > 0:
			named = append(named, string(name)+" was failed over and has not answered since")
		default:
			named = append(named, string(name)+" has weight 0")
		}
		return true
	})
	if more {
		named = append(named, "and so on")
	}
	return strings.Join(named, ", ")
}

// regionKnown reports whether a node is in r or r keeps its own directory: another one,
// or this.
func (s *State) regionKnown(r RegionName) bool {
	if _, ok := s.regions.Get(r); ok || r != "" && r == s.scope.Region && s.level >= levelRegions {
		return true
	}
	known := false
	s.nodes.Scan(func(_ NodeName, e *seat) bool {
		known = e.node.Region == r
		return !known
	})
	return known
}

func elsewhere(r RegionName) *Refusal {
	return refuse(CodeRegionElsewhere, "region "+regionText(r)+
		" keeps its own directory; ask a server or proxy of that region", "region", string(r))
}

func unknownNode(name NodeName) *Refusal {
	if !ValidName(string(name)) {
		return badName("node", string(name))
	}
	return refuse(CodeNodeUnknown, "no node is called "+string(name), "node", string(name))
}

// validRegion reports whether r may name a region: "global" stands for the
// global group (Scope.Authority).
func validRegion(r RegionName) bool { return ValidName(string(r)) && r != GlobalGroup }

// regionText names a region to people.
func regionText(r RegionName) string {
	if r == "" {
		return `"" (the unnamed region)`
	}
	return string(r)
}
