package proto

import (
	"domicile/fsm"
	"domicile/proto/internal/pb"
)

// putTaskCommand puts a command of two levels of directories into m; false for another
// one.
func putTaskCommand(m *pb.Entry, c fsm.Command) bool {
	switch c := c.(type) {
	case *fsm.BindGlobal:
		m.Command = &pb.Entry_BindGlobal{BindGlobal: &pb.BindGlobal{Authority: c.Authority, History: c.History}}
	case *fsm.BeginTask:
		m.Command = &pb.Entry_BeginTask{BeginTask: &pb.BeginTask{
			Origin: fromOrigin(c.Origin), Job: uint64(c.Job), Kind: uint32(c.Kind), Tenant: string(c.Tenant), Id: uint64(c.ID),
			Region: text(c.Region), Node: text(c.Node), Pinned: c.Pinned, Schema: c.Schema, Silent: names[string](c.Silent),
			Quota: fromQuota(c.Quota), Source: fromForeign(c.Source),
		}}
	case *fsm.TellTask:
		m.Command = &pb.Entry_TellTask{TellTask: &pb.TellTask{
			Origin: fromOrigin(c.Origin), Job: uint64(c.Job), Word: uint32(c.Word), Other: fromForeign(c.Other),
		}}
	case *fsm.ForgoTask:
		m.Command = &pb.Entry_ForgoTask{ForgoTask: &pb.ForgoTask{
			Origin: fromOrigin(c.Origin), Job: uint64(c.Job), Kind: uint32(c.Kind), Tenant: string(c.Tenant), Id: uint64(c.ID),
		}}
	case *fsm.SettleTask:
		m.Command = &pb.Entry_SettleTask{SettleTask: &pb.SettleTask{Job: uint64(c.Job), History: c.History, Here: c.Here}}
	case *fsm.YieldTenant:
		m.Command = &pb.Entry_YieldTenant{YieldTenant: &pb.YieldTenant{Unit: string(c.Unit), Id: uint64(c.ID), Epoch: c.Epoch, History: c.History}}
	case *fsm.BeginRelocation:
		m.Command = &pb.Entry_BeginRelocation{BeginRelocation: &pb.BeginRelocation{
			Tenant: string(c.Tenant), Region: string(c.Region), To: text(c.To),
		}}
	default:
		return false
	}
	return true
}

// taskCommand gives the command of two levels of directories that m holds; nil for none.
func taskCommand(m *pb.Entry) fsm.Command {
	switch c := m.Command.(type) {
	case *pb.Entry_BindGlobal:
		return &fsm.BindGlobal{Authority: c.BindGlobal.GetAuthority(), History: c.BindGlobal.GetHistory()}
	case *pb.Entry_BeginTask:
		b := c.BeginTask
		return &fsm.BeginTask{
			Origin: toOrigin(b.GetOrigin()), Job: fsm.JobID(b.GetJob()), Kind: small[fsm.TaskKind](b.GetKind()),
			Tenant: fsm.TenantName(b.GetTenant()), ID: fsm.UnitID(b.GetId()), Region: name[fsm.RegionName](b.Region),
			Node: name[fsm.NodeName](b.Node), Pinned: b.GetPinned(), Schema: b.GetSchema(), Silent: names[fsm.NodeName](b.GetSilent()),
			Quota: toQuota(b.GetQuota()), Source: toForeign(b.GetSource()),
		}
	case *pb.Entry_TellTask:
		t := c.TellTask
		return &fsm.TellTask{
			Origin: toOrigin(t.GetOrigin()), Job: fsm.JobID(t.GetJob()), Word: small[fsm.TaskWord](t.GetWord()), Other: toForeign(t.GetOther()),
		}
	case *pb.Entry_ForgoTask:
		f := c.ForgoTask
		return &fsm.ForgoTask{
			Origin: toOrigin(f.GetOrigin()), Job: fsm.JobID(f.GetJob()), Kind: small[fsm.TaskKind](f.GetKind()),
			Tenant: fsm.TenantName(f.GetTenant()), ID: fsm.UnitID(f.GetId()),
		}
	case *pb.Entry_SettleTask:
		t := c.SettleTask
		return &fsm.SettleTask{Job: fsm.JobID(t.GetJob()), History: t.GetHistory(), Here: t.GetHere()}
	case *pb.Entry_YieldTenant:
		y := c.YieldTenant
		return &fsm.YieldTenant{UnitRef: fsm.UnitRef{Unit: fsm.UnitName(y.GetUnit()), ID: fsm.UnitID(y.GetId())}, Epoch: y.GetEpoch(), History: y.GetHistory()}
	case *pb.Entry_BeginRelocation:
		b := c.BeginRelocation
		return &fsm.BeginRelocation{Tenant: fsm.TenantName(b.GetTenant()), Region: fsm.RegionName(b.GetRegion()), To: name[fsm.NodeName](b.To)}
	}
	return adoptCommand(m)
}

func fromOrigin(o fsm.Origin) *pb.Origin {
	if o == (fsm.Origin{}) {
		return nil
	}
	return &pb.Origin{Authority: o.Authority, History: o.History, Floor: uint64(o.Floor)}
}

func toOrigin(m *pb.Origin) fsm.Origin {
	return fsm.Origin{Authority: m.GetAuthority(), History: m.GetHistory(), Floor: fsm.JobID(m.GetFloor())}
}

func fromForeign(f *fsm.Foreign) *pb.Foreign {
	if f == nil {
		return nil
	}
	return &pb.Foreign{Region: string(f.Region), Node: string(f.Node), Addr: f.Addr, Token: f.Token, Epoch: f.Epoch}
}

func toForeign(m *pb.Foreign) *fsm.Foreign {
	if m == nil {
		return nil
	}
	return &fsm.Foreign{Region: fsm.RegionName(m.Region), Node: fsm.NodeName(m.Node), Addr: m.Addr, Token: m.Token, Epoch: m.Epoch}
}

func fromTask(t *fsm.Task) *pb.Task {
	if t == nil {
		return nil
	}
	return &pb.Task{
		Job: uint64(t.Job), Kind: uint32(t.Kind), Tenant: string(t.Tenant), Id: uint64(t.ID), Local: uint64(t.Local),
		Forgone: t.Forgone, Done: t.Done, Refusal: fromRefusal(t.Refusal),
	}
}

func toTask(m *pb.Task) *fsm.Task {
	if m == nil {
		return nil
	}
	return &fsm.Task{
		Job: fsm.JobID(m.Job), Kind: small[fsm.TaskKind](m.Kind), Tenant: fsm.TenantName(m.Tenant), ID: fsm.UnitID(m.Id),
		Local: fsm.JobID(m.Local), Forgone: m.Forgone, Done: m.Done, Refusal: toRefusal(m.Refusal),
	}
}

func fromQuota(q *fsm.Quota) *pb.Quota {
	if q == nil {
		return nil
	}
	return &pb.Quota{Bytes: q.Bytes, Rps: q.RPS, InFlight: q.InFlight}
}

func toQuota(m *pb.Quota) *fsm.Quota {
	if m == nil {
		return nil
	}
	return &fsm.Quota{Bytes: m.Bytes, RPS: m.Rps, InFlight: m.InFlight}
}
