package proto

import (
	"domicile/fsm"
	"domicile/proto/internal/pb"
)

// putMoveCommand puts a command of moves, drains or rebalancing into m; false for
// another one.
func putMoveCommand(m *pb.Entry, c fsm.Command) bool {
	switch c := c.(type) {
	case *fsm.BeginMove:
		m.Command = &pb.Entry_BeginMove{BeginMove: &pb.BeginMove{
			Unit: string(c.Unit), To: string(c.To), Region: text(c.Region), Cause: uint32(c.Cause), Forced: c.Forced,
			Group: uint64(c.Group), Silent: names[string](c.Silent),
		}}
	case *fsm.CancelMove:
		m.Command = &pb.Entry_CancelMove{CancelMove: &pb.CancelMove{Id: uint64(c.ID), Reason: c.Reason}}
	case *fsm.BeginRebalance:
		m.Command = &pb.Entry_BeginRebalance{BeginRebalance: &pb.BeginRebalance{Moves: list(c.Moves, fromTarget)}}
	case *fsm.SetDrain:
		m.Command = &pb.Entry_SetDrain{SetDrain: &pb.SetDrain{Node: string(c.Node), Drain: c.Drain, Forced: c.Forced}}
	case *fsm.SetReader:
		m.Command = &pb.Entry_SetReader{SetReader: &pb.SetReader{
			Tenant: string(c.Tenant), Region: string(c.Region), Wanted: c.Wanted, Silent: names[string](c.Silent),
		}}
	case *fsm.PlaceReaders:
		m.Command = &pb.Entry_PlaceReaders{PlaceReaders: &pb.PlaceReaders{Units: list(c.Units, fromUnitRef), Silent: names[string](c.Silent)}}
	default:
		return false
	}
	return true
}

// moveCommand gives the command of moves, drains or rebalancing that m holds; nil for
// none.
func moveCommand(m *pb.Entry) fsm.Command {
	switch c := m.Command.(type) {
	case *pb.Entry_BeginMove:
		b := c.BeginMove
		return &fsm.BeginMove{
			Unit: fsm.UnitName(b.GetUnit()), To: fsm.NodeName(b.GetTo()), Region: name[fsm.RegionName](b.Region),
			Cause: small[fsm.FlipCause](b.GetCause()), Forced: b.GetForced(), Group: fsm.JobID(b.GetGroup()),
			Silent: names[fsm.NodeName](b.GetSilent()),
		}
	case *pb.Entry_CancelMove:
		return &fsm.CancelMove{ID: fsm.JobID(c.CancelMove.GetId()), Reason: c.CancelMove.GetReason()}
	case *pb.Entry_BeginRebalance:
		return &fsm.BeginRebalance{Moves: list(c.BeginRebalance.GetMoves(), toTarget)}
	case *pb.Entry_SetDrain:
		d := c.SetDrain
		return &fsm.SetDrain{Node: fsm.NodeName(d.GetNode()), Drain: d.GetDrain(), Forced: d.GetForced()}
	case *pb.Entry_SetReader:
		r := c.SetReader
		return &fsm.SetReader{
			Tenant: fsm.TenantName(r.GetTenant()), Region: fsm.RegionName(r.GetRegion()), Wanted: r.GetWanted(),
			Silent: names[fsm.NodeName](r.GetSilent()),
		}
	case *pb.Entry_PlaceReaders:
		return &fsm.PlaceReaders{Units: list(c.PlaceReaders.GetUnits(), toUnitRef), Silent: names[fsm.NodeName](c.PlaceReaders.GetSilent())}
	}
	return nil
}
