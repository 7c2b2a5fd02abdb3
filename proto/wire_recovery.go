package proto

import (
	"domicile/fsm"
	"domicile/proto/internal/pb"
)

// putRecoveryCommand puts a command of the recovery of a directory into m; false
// for another one.
func putRecoveryCommand(m *pb.Entry, c fsm.Command) bool {
	switch c := c.(type) {
	case *fsm.ForgoNode:
		m.Command = &pb.Entry_ForgoNode{ForgoNode: &pb.ForgoNode{Recovery: uint64(c.Recovery), Node: c.Node, Region: string(c.Region)}}
	case *fsm.TakeOver:
		m.Command = &pb.Entry_TakeOver{TakeOver: &pb.TakeOver{
			Anew:     c.Anew,
			Recovery: uint64(c.Recovery), After: string(c.After), Upto: string(c.Upto), Units: list(c.Units, fromTakenUnit),
			Elsewhere: names[string](c.Elsewhere), Homes: list(c.Homes, fromTakenHome),
		}}
	case *fsm.EndRecovery:
		m.Command = &pb.Entry_EndRecovery{EndRecovery: &pb.EndRecovery{
			Recovery: uint64(c.Recovery), Nodes: list(c.Nodes, fromNodeRef), Regions: names[string](c.Regions),
		}}
	case *fsm.AdoptUnit:
		m.Command = &pb.Entry_AdoptUnit{AdoptUnit: &pb.AdoptUnit{
			Unit: string(c.Unit), Id: uint64(c.ID), Node: string(c.Node), Others: names[string](c.Others), Epoch: c.Epoch,
		}}
	default:
		return false
	}
	return true
}

// recoveryCommand gives the command of the recovery of a directory that m holds;
// nil for none.
func recoveryCommand(m *pb.Entry) fsm.Command {
	switch c := m.Command.(type) {
	case *pb.Entry_ForgoNode:
		f := c.ForgoNode
		return &fsm.ForgoNode{Recovery: fsm.Revision(f.GetRecovery()), Node: f.GetNode(), Region: fsm.RegionName(f.GetRegion())}
	case *pb.Entry_TakeOver:
		t := c.TakeOver
		return &fsm.TakeOver{
			Anew:     t.GetAnew(),
			Recovery: fsm.Revision(t.GetRecovery()), After: fsm.TenantName(t.GetAfter()), Upto: fsm.TenantName(t.GetUpto()),
			Units: list(t.GetUnits(), toTakenUnit), Elsewhere: names[fsm.TenantName](t.GetElsewhere()),
			Homes: list(t.GetHomes(), toTakenHome),
		}
	case *pb.Entry_EndRecovery:
		e := c.EndRecovery
		return &fsm.EndRecovery{
			Recovery: fsm.Revision(e.GetRecovery()), Nodes: list(e.GetNodes(), toNodeRef), Regions: names[fsm.RegionName](e.GetRegions()),
		}
	case *pb.Entry_AdoptUnit:
		a := c.AdoptUnit
		return &fsm.AdoptUnit{
			UnitRef: fsm.UnitRef{Unit: fsm.UnitName(a.GetUnit()), ID: fsm.UnitID(a.GetId())}, Node: fsm.NodeName(a.GetNode()),
			Others: names[fsm.NodeName](a.GetOthers()), Epoch: a.GetEpoch(),
		}
	}
	if c := moveCommand(m); c != nil {
		return c
	}
	return taskCommand(m)
}

func fromTakenUnit(u fsm.TakenUnit) *pb.TakenUnit {
	return &pb.TakenUnit{Unit: string(u.Unit), Id: uint64(u.ID), Node: string(u.Node), Others: names[string](u.Others), Epoch: u.Epoch}
}

func toTakenUnit(u *pb.TakenUnit) fsm.TakenUnit {
	return fsm.TakenUnit{
		UnitRef: fsm.UnitRef{Unit: fsm.UnitName(u.GetUnit()), ID: fsm.UnitID(u.GetId())}, Node: fsm.NodeName(u.GetNode()),
		Others: names[fsm.NodeName](u.GetOthers()), Epoch: u.GetEpoch(),
	}
}

func fromTakenHome(h fsm.TakenHome) *pb.TakenHome {
	return &pb.TakenHome{
		Tenant: string(h.Tenant), Id: uint64(h.ID), Home: string(h.Home), Node: string(h.Node), Others: names[string](h.Others), Epoch: h.Epoch,
	}
}

func toTakenHome(h *pb.TakenHome) fsm.TakenHome {
	return fsm.TakenHome{
		Tenant: fsm.TenantName(h.GetTenant()), ID: fsm.UnitID(h.GetId()), Home: fsm.RegionName(h.GetHome()), Node: fsm.NodeName(h.GetNode()),
		Others: names[fsm.NodeName](h.GetOthers()), Epoch: h.GetEpoch(),
	}
}

func fromNodeRef(n fsm.NodeRef) *pb.NodeRef {
	return &pb.NodeRef{Node: string(n.Node), Id: uint64(n.ID)}
}

func toNodeRef(n *pb.NodeRef) fsm.NodeRef {
	return fsm.NodeRef{Node: fsm.NodeName(n.GetNode()), ID: fsm.NodeID(n.GetId())}
}

func fromRecovery(r *fsm.Recovery) *pb.Recovery {
	if r == nil {
		return nil
	}
	return &pb.Recovery{
		Id: uint64(r.ID), Cause: uint32(r.Cause), Began: int64(r.Began), Raised: r.Raised, WrittenOff: r.WrittenOff,
		Taken: string(r.Taken), Settled: r.Settled, Units: r.Units, Moved: r.Moved, Lost: r.Lost,
		LostUnits: list(r.LostUnits, fromUnitRef), Ended: int64(r.Ended), EndedIn: uint64(r.EndedIn),
		WrittenOffRegions: names[string](r.WrittenOffRegions), Rehomed: r.Rehomed,
	}
}

func toRecovery(m *pb.Recovery) *fsm.Recovery {
	if m == nil {
		return nil
	}
	return &fsm.Recovery{
		ID: fsm.Revision(m.Id), Cause: small[fsm.RecoveryCause](m.Cause), Began: fsm.Millis(m.Began), Raised: m.Raised,
		WrittenOff: m.WrittenOff, Taken: fsm.TenantName(m.Taken), Settled: m.Settled, Units: m.Units, Moved: m.Moved, Lost: m.Lost,
		LostUnits: list(m.LostUnits, toUnitRef), Ended: fsm.Millis(m.Ended), EndedIn: fsm.Revision(m.EndedIn),
		WrittenOffRegions: names[fsm.RegionName](m.WrittenOffRegions), Rehomed: m.Rehomed,
	}
}
