package proto

import (
	"fmt"

	"domicile/fsm"
	"domicile/proto/internal/pb"
)

// putCommand puts c into m under its number.
func putCommand(m *pb.Entry, c fsm.Command) error {
	switch c := c.(type) {
	case *fsm.Bootstrap:
		m.Command = &pb.Entry_Bootstrap{Bootstrap: &pb.Bootstrap{Scope: fromScope(c.Scope), Settings: fromSettings(c.Settings)}}
	case *fsm.SetSettings:
		m.Command = &pb.Entry_SetSettings{SetSettings: &pb.SetSettings{Settings: fromSettings(c.Settings)}}
	case *fsm.PutMember:
		m.Command = &pb.Entry_PutMember{PutMember: &pb.PutMember{Member: fromMember(&c.Member)}}
	case *fsm.DeleteMember:
		m.Command = &pb.Entry_DeleteMember{DeleteMember: &pb.DeleteMember{Id: string(c.ID)}}
	case *fsm.PutNode:
		m.Command = &pb.Entry_PutNode{PutNode: &pb.PutNode{
			Name: string(c.Name), Addr: c.Addr, Token: c.Token, Region: text(c.Region), Zone: text(c.Zone),
			Standby: text(c.Standby), Weight: c.Weight, Exclusive: c.Exclusive,
		}}
	case *fsm.DeleteNode:
		m.Command = &pb.Entry_DeleteNode{DeleteNode: &pb.DeleteNode{Name: string(c.Name), Force: c.Force}}
	case *fsm.RecordUsage:
		m.Command = &pb.Entry_RecordUsage{RecordUsage: &pb.RecordUsage{Usage: list(c.Usage, fromNodeUsage)}}
	case *fsm.CreateTenant:
		m.Command = &pb.Entry_CreateTenant{CreateTenant: &pb.CreateTenant{
			Name: string(c.Name), Region: text(c.Region), Node: text(c.Node), Buckets: c.Buckets,
			Hash: uint32(c.Hash), Pinned: c.Pinned, Schema: c.Schema, Silent: names[string](c.Silent), Origin: text(c.Origin),
		}}
	case *fsm.DeleteTenant:
		m.Command = &pb.Entry_DeleteTenant{DeleteTenant: &pb.DeleteTenant{Name: string(c.Name)}}
	case *fsm.AdvanceJob:
		m.Command = &pb.Entry_AdvanceJob{AdvanceJob: &pb.AdvanceJob{
			Id: uint64(c.ID), From: uint32(c.From), To: uint32(c.To), Refusal: fromRefusal(c.Refusal), Keep: uint64(c.Keep),
		}}
	case *fsm.NoteJob:
		m.Command = &pb.Entry_NoteJob{NoteJob: &pb.NoteJob{Id: uint64(c.ID), Problem: c.Problem, Pause: int64(c.Pause), Bytes: c.Bytes, From: string(c.From), To: string(c.To)}}
	case *fsm.SetPin:
		m.Command = &pb.Entry_SetPin{SetPin: &pb.SetPin{Tenant: string(c.Tenant), Pinned: c.Pinned}}
	case *fsm.PutRegion:
		m.Command = &pb.Entry_PutRegion{PutRegion: &pb.PutRegion{Region: fromRegion(&c.Region)}}
	case *fsm.DeleteRegion:
		m.Command = &pb.Entry_DeleteRegion{DeleteRegion: &pb.DeleteRegion{Name: string(c.Name)}}
	default:
		if !putCopiesCommand(m, c) && !putRecoveryCommand(m, c) && !putMoveCommand(m, c) && !putTaskCommand(m, c) && !putAdoptCommand(m, c) {
			return fmt.Errorf("an entry holds a %T, which has no number", c)
		}
	}
	return nil
}

// command gives the command that m holds; nil for none that is known.
func command(m *pb.Entry) fsm.Command {
	switch c := m.Command.(type) {
	case *pb.Entry_Bootstrap:
		return &fsm.Bootstrap{Scope: toScope(c.Bootstrap.GetScope()), Settings: toSettings(c.Bootstrap.GetSettings())}
	case *pb.Entry_SetSettings:
		return &fsm.SetSettings{Settings: toSettings(c.SetSettings.GetSettings())}
	case *pb.Entry_PutMember:
		return &fsm.PutMember{Member: *toMember(c.PutMember.GetMember())}
	case *pb.Entry_DeleteMember:
		return &fsm.DeleteMember{ID: fsm.MemberID(c.DeleteMember.GetId())}
	case *pb.Entry_PutNode:
		n := c.PutNode
		return &fsm.PutNode{
			Name: fsm.NodeName(n.Name), Addr: n.Addr, Token: n.Token, Region: name[fsm.RegionName](n.Region),
			Zone: name[fsm.ZoneName](n.Zone), Standby: name[fsm.NodeName](n.Standby), Weight: n.Weight, Exclusive: n.Exclusive,
		}
	case *pb.Entry_DeleteNode:
		return &fsm.DeleteNode{Name: fsm.NodeName(c.DeleteNode.GetName()), Force: c.DeleteNode.GetForce()}
	case *pb.Entry_RecordUsage:
		return &fsm.RecordUsage{Usage: list(c.RecordUsage.GetUsage(), toNodeUsage)}
	case *pb.Entry_CreateTenant:
		t := c.CreateTenant
		return &fsm.CreateTenant{
			Name: fsm.TenantName(t.Name), Region: name[fsm.RegionName](t.Region), Node: name[fsm.NodeName](t.Node),
			Buckets: t.Buckets, Hash: small[fsm.Hash](t.Hash), Pinned: t.Pinned, Schema: t.Schema,
			Silent: names[fsm.NodeName](t.Silent), Origin: name[fsm.RegionName](t.Origin),
		}
	case *pb.Entry_DeleteTenant:
		return &fsm.DeleteTenant{Name: fsm.TenantName(c.DeleteTenant.GetName())}
	case *pb.Entry_AdvanceJob:
		a := c.AdvanceJob
		return &fsm.AdvanceJob{
			ID: fsm.JobID(a.Id), From: small[fsm.JobStep](a.From), To: small[fsm.JobStep](a.To), Refusal: toRefusal(a.Refusal), Keep: fsm.UnitID(a.Keep),
		}
	case *pb.Entry_NoteJob:
		n := c.NoteJob
		return &fsm.NoteJob{ID: fsm.JobID(n.GetId()), Problem: n.GetProblem(), Pause: fsm.Millis(n.GetPause()), Bytes: n.GetBytes(),
			From: fsm.NodeName(n.GetFrom()), To: fsm.NodeName(n.GetTo())}
	case *pb.Entry_SetPin:
		return &fsm.SetPin{Tenant: fsm.TenantName(c.SetPin.GetTenant()), Pinned: c.SetPin.GetPinned()}
	case *pb.Entry_PutRegion:
		return &fsm.PutRegion{Region: *toRegion(c.PutRegion.GetRegion())}
	case *pb.Entry_DeleteRegion:
		return &fsm.DeleteRegion{Name: fsm.RegionName(c.DeleteRegion.GetName())}
	}
	return copiesCommand(m)
}

func fromNodeUsage(u fsm.NodeUsage) *pb.NodeUsage {
	return &pb.NodeUsage{Node: string(u.Node), Bytes: u.Bytes}
}

func toNodeUsage(u *pb.NodeUsage) fsm.NodeUsage {
	return fsm.NodeUsage{Node: fsm.NodeName(u.GetNode()), Bytes: u.GetBytes()}
}

// text and name carry an optional name over; nil stays nil.
func text[T ~string](n *T) *string {
	if n == nil {
		return nil
	}
	t := string(*n)
	return &t
}

func name[T ~string](t *string) *T {
	if t == nil {
		return nil
	}
	n := T(*t)
	return &n
}

// names carries a list of names over; an empty one is nil.
func names[T, F ~string](from []F) []T {
	return list(from, func(n F) T { return T(n) })
}

// list maps a list; an empty one is nil.
func list[T, F any](from []F, to func(F) T) []T {
	if len(from) == 0 {
		return nil
	}
	out := make([]T, len(from))
	for i := range from {
		out[i] = to(from[i])
	}
	return out
}

// small narrows a number that is a byte in package fsm; what does not fit
// becomes 255, which none of its kinds is, and never another's number.
func small[T ~uint8](n uint32) T {
	return T(min(n, 255))
}
