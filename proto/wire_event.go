package proto

import (
	"fmt"
	"strings"

	"domicile/fsm"
	"domicile/proto/internal/pb"
)

// interner gives strings that do not keep the buffer alive that they were
// decoded from. Names of nodes and regions are few and held by every unit, so
// that one copy of each serves all.
type interner struct{ seen map[string]string }

func (in *interner) own(s string) string { return strings.Clone(s) }

func (in *interner) shared(s string) string {
	if s == "" {
		return ""
	}
	if one, ok := in.seen[s]; ok {
		return one
	}
	if in.seen == nil {
		in.seen = make(map[string]string)
	}
	one := strings.Clone(s)
	if len(in.seen) < maxInterned {
		in.seen[one] = one
	}
	return one
}

// maxInterned bounds what garbled input can make an interner keep.
const maxInterned = 1 << 16

// EncodeEvents gives the encoding of events, which DecodeEvents reads.
func EncodeEvents(events []fsm.Event) ([]byte, error) {
	m := &pb.Events{Events: list(events, func(e fsm.Event) *pb.Event { return putEvent(new(pb.Event), &e) })}
	return m.MarshalVT()
}

// DecodeEvents reads what EncodeEvents made. It fails for events of a newer
// version and for those that name nothing.
func DecodeEvents(b []byte) ([]fsm.Event, error) {
	var m pb.Events
	if err := m.UnmarshalVT(b); err != nil {
		return nil, err
	}
	return toEvents(m.Events, &interner{})
}

// putEvent writes e into m, which is empty.
func putEvent(m *pb.Event, e *fsm.Event) *pb.Event {
	switch {
	case e.Node != nil:
		n := e.Node
		m.Event = &pb.Event_Node{Node: &pb.NodeInfo{Name: string(n.Name), Addr: n.Addr, Region: string(n.Region), Zone: string(n.Zone), Lost: n.Lost, Unleased: n.Unleased}}
	case e.NodeGone != "":
		m.Event = &pb.Event_NodeGone{NodeGone: string(e.NodeGone)}
	case e.Unit != nil:
		u := e.Unit
		info := pb.UnitInfoFromVTPool()
		info.Unit, info.Id, info.Node, info.State, info.Epoch = string(u.Unit), uint64(u.ID), string(u.Node), uint32(u.State), u.Epoch
		info.Copies, info.Promoting = list(u.Copies, fromCopy), u.Promoting
		m.Event = &pb.Event_Unit{Unit: info}
	case e.UnitGone != "":
		m.Event = &pb.Event_UnitGone{UnitGone: string(e.UnitGone)}
	case e.Tenant != nil:
		t := e.Tenant
		info := &pb.TenantInfo{Name: string(t.Name), Buckets: t.Buckets, Hash: uint32(t.Hash)}
		if t.HasHome {
			info.Home, info.Id = text(&t.Home), uint64(t.ID)
		}
		m.Event = &pb.Event_Tenant{Tenant: info}
	case e.TenantGone != "":
		m.Event = &pb.Event_TenantGone{TenantGone: string(e.TenantGone)}
	case e.Region != nil:
		m.Event = &pb.Event_Region{Region: fromRegion(e.Region)}
	case e.RegionGone != "":
		m.Event = &pb.Event_RegionGone{RegionGone: string(e.RegionGone)}
	}
	return m
}

func toEvents(from []*pb.Event, in *interner) ([]fsm.Event, error) {
	events := make([]fsm.Event, len(from))
	for i, m := range from {
		toEvent(&events[i], m, in)
		if err := events[i].Valid(); err != nil {
			return nil, fmt.Errorf("event %d of %d: %w", i+1, len(from), err)
		}
	}
	return events, nil
}

// toEvent writes m into e; nothing for one that is not known.
func toEvent(e *fsm.Event, m *pb.Event, in *interner) {
	switch x := m.Event.(type) {
	case *pb.Event_Node:
		n := x.Node
		e.Node = &fsm.NodeInfo{
			Name: fsm.NodeName(in.shared(n.GetName())), Addr: in.own(n.GetAddr()),
			Region: fsm.RegionName(in.shared(n.GetRegion())), Zone: fsm.ZoneName(in.shared(n.GetZone())), Lost: n.GetLost(),
			Unleased: n.GetUnleased(),
		}
	case *pb.Event_NodeGone:
		e.NodeGone = fsm.NodeName(in.own(x.NodeGone))
	case *pb.Event_Unit:
		u := x.Unit
		e.Unit = &fsm.UnitInfo{
			Unit: fsm.UnitName(in.own(u.GetUnit())), ID: fsm.UnitID(u.GetId()), Node: fsm.NodeName(in.shared(u.GetNode())),
			State: small[fsm.UnitState](u.GetState()), Epoch: u.GetEpoch(), Copies: toCopies(u.GetCopies(), in),
			Promoting: u.GetPromoting(),
		}
	case *pb.Event_UnitGone:
		e.UnitGone = fsm.UnitName(in.own(x.UnitGone))
	case *pb.Event_Tenant:
		t := x.Tenant
		e.Tenant = &fsm.TenantInfo{Name: fsm.TenantName(in.own(t.GetName())), Buckets: t.GetBuckets(), Hash: small[fsm.Hash](t.GetHash())}
		if t != nil && t.Home != nil {
			e.Tenant.Home, e.Tenant.HasHome = fsm.RegionName(in.shared(*t.Home)), true
			e.Tenant.ID = fsm.UnitID(t.GetId())
		}
	case *pb.Event_TenantGone:
		e.TenantGone = fsm.TenantName(in.own(x.TenantGone))
	case *pb.Event_Region:
		r := &fsm.Region{Name: fsm.RegionName(in.own(x.Region.GetName())), Authority: in.own(x.Region.GetAuthority())}
		r.Routers = list(x.Region.GetRouters(), in.own)
		e.Region = r
	case *pb.Event_RegionGone:
		e.RegionGone = fsm.RegionName(in.own(x.RegionGone))
	}
}
