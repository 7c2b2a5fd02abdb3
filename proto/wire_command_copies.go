package proto

import (
	"domicile/fsm"
	"domicile/proto/internal/pb"
)

// putCopiesCommand puts a command of leases, failover or copies into m; false
// for another one.
func putCopiesCommand(m *pb.Entry, c fsm.Command) bool {
	switch c := c.(type) {
	case *fsm.SetNodeLease:
		m.Command = &pb.Entry_SetNodeLease{SetNodeLease: &pb.SetNodeLease{Node: string(c.Node), Lease: uint32(c.Lease)}}
	case *fsm.NodeBack:
		m.Command = &pb.Entry_NodeBack{NodeBack: &pb.NodeBack{Node: string(c.Node)}}
	case *fsm.SettleLease:
		m.Command = &pb.Entry_SettleLease{SettleLease: &pb.SettleLease{LongestLease: int64(c.LongestLease)}}
	case *fsm.FailOver:
		m.Command = &pb.Entry_FailOver{FailOver: &pb.FailOver{
			Node: string(c.Node), Cause: uint32(c.Cause), Silent: c.Silent, Choices: list(c.Choices, fromFlip),
		}}
	case *fsm.BeginHandover:
		m.Command = &pb.Entry_BeginHandover{BeginHandover: &pb.BeginHandover{
			Node: string(c.Node), Cause: uint32(c.Cause), Units: list(c.Units, fromUnitRef), Silent: names[string](c.Silent),
			Choices: list(c.Choices, fromFlip),
		}}
	case *fsm.EndRelease:
		m.Command = &pb.Entry_EndRelease{EndRelease: &pb.EndRelease{Id: uint64(c.ID), Released: list(c.Released, fromUnitRef)}}
	case *fsm.ConfirmPromotion:
		m.Command = &pb.Entry_ConfirmPromotion{ConfirmPromotion: &pb.ConfirmPromotion{
			Node: string(c.Node), Epoch: c.Epoch, Units: list(c.Units, fromUnitRef),
		}}
	case *fsm.AddCopies:
		m.Command = &pb.Entry_AddCopies{AddCopies: &pb.AddCopies{
			Units: list(c.Units, func(w fsm.CopyWanted) *pb.CopyRef { return fromCopyRef(fsm.CopyRef(w)) }), Silent: names[string](c.Silent),
		}}
	case *fsm.ChangeCopies:
		m.Command = &pb.Entry_ChangeCopies{ChangeCopies: &pb.ChangeCopies{Changes: list(c.Changes, fromCopyChange)}}
	case *fsm.DropCopies:
		m.Command = &pb.Entry_DropCopies{DropCopies: &pb.DropCopies{Copies: list(c.Copies, fromCopyRef)}}
	default:
		return false
	}
	return true
}

// copiesCommand gives the command of leases, failover or copies that m holds;
// nil for none.
func copiesCommand(m *pb.Entry) fsm.Command {
	switch c := m.Command.(type) {
	case *pb.Entry_SetNodeLease:
		return &fsm.SetNodeLease{Node: fsm.NodeName(c.SetNodeLease.GetNode()), Lease: small[fsm.NodeLease](c.SetNodeLease.GetLease())}
	case *pb.Entry_NodeBack:
		return &fsm.NodeBack{Node: fsm.NodeName(c.NodeBack.GetNode())}
	case *pb.Entry_SettleLease:
		return &fsm.SettleLease{LongestLease: fsm.Millis(c.SettleLease.GetLongestLease())}
	case *pb.Entry_FailOver:
		f := c.FailOver
		return &fsm.FailOver{
			Node: fsm.NodeName(f.GetNode()), Cause: small[fsm.FlipCause](f.GetCause()), Silent: f.GetSilent(), Choices: list(f.GetChoices(), toFlip),
		}
	case *pb.Entry_BeginHandover:
		h := c.BeginHandover
		return &fsm.BeginHandover{
			Node: fsm.NodeName(h.GetNode()), Cause: small[fsm.FlipCause](h.GetCause()), Units: list(h.GetUnits(), toUnitRef),
			Silent: names[fsm.NodeName](h.GetSilent()), Choices: list(h.GetChoices(), toFlip),
		}
	case *pb.Entry_EndRelease:
		return &fsm.EndRelease{ID: fsm.JobID(c.EndRelease.GetId()), Released: list(c.EndRelease.GetReleased(), toUnitRef)}
	case *pb.Entry_ConfirmPromotion:
		p := c.ConfirmPromotion
		return &fsm.ConfirmPromotion{Node: fsm.NodeName(p.GetNode()), Epoch: p.GetEpoch(), Units: list(p.GetUnits(), toUnitRef)}
	case *pb.Entry_AddCopies:
		return &fsm.AddCopies{
			Units:  list(c.AddCopies.GetUnits(), func(r *pb.CopyRef) fsm.CopyWanted { return fsm.CopyWanted(toCopyRef(r)) }),
			Silent: names[fsm.NodeName](c.AddCopies.GetSilent()),
		}
	case *pb.Entry_ChangeCopies:
		return &fsm.ChangeCopies{Changes: list(c.ChangeCopies.GetChanges(), toCopyChange)}
	case *pb.Entry_DropCopies:
		return &fsm.DropCopies{Copies: list(c.DropCopies.GetCopies(), toCopyRef)}
	}
	return recoveryCommand(m)
}

func fromUnitRef(r fsm.UnitRef) *pb.UnitRef {
	return &pb.UnitRef{Unit: string(r.Unit), Id: uint64(r.ID)}
}

func toUnitRef(r *pb.UnitRef) fsm.UnitRef {
	return fsm.UnitRef{Unit: fsm.UnitName(r.GetUnit()), ID: fsm.UnitID(r.GetId())}
}

func fromFlip(f fsm.Flip) *pb.Flip {
	return &pb.Flip{Unit: string(f.Unit), Id: uint64(f.ID), From: string(f.From), To: string(f.To)}
}

func toFlip(f *pb.Flip) fsm.Flip {
	return fsm.Flip{
		UnitRef: fsm.UnitRef{Unit: fsm.UnitName(f.GetUnit()), ID: fsm.UnitID(f.GetId())},
		From:    fsm.NodeName(f.GetFrom()), To: fsm.NodeName(f.GetTo()),
	}
}

func fromCopyRef(r fsm.CopyRef) *pb.CopyRef {
	return &pb.CopyRef{Unit: string(r.Unit), Id: uint64(r.ID), Node: string(r.Node)}
}

func toCopyRef(r *pb.CopyRef) fsm.CopyRef {
	return fsm.CopyRef{UnitRef: fsm.UnitRef{Unit: fsm.UnitName(r.GetUnit()), ID: fsm.UnitID(r.GetId())}, Node: fsm.NodeName(r.GetNode())}
}

func fromCopyChange(c fsm.CopyChange) *pb.CopyChange {
	return &pb.CopyChange{
		Unit: string(c.Unit), Id: uint64(c.ID), Epoch: c.Epoch, Node: string(c.Node), From: uint32(c.From), To: uint32(c.To),
	}
}

func toCopyChange(c *pb.CopyChange) fsm.CopyChange {
	return fsm.CopyChange{
		UnitRef: fsm.UnitRef{Unit: fsm.UnitName(c.GetUnit()), ID: fsm.UnitID(c.GetId())}, Epoch: c.GetEpoch(),
		Node: fsm.NodeName(c.GetNode()), From: small[fsm.CopyState](c.GetFrom()), To: small[fsm.CopyState](c.GetTo()),
	}
}
