package proto

import (
	"domicile/fsm"
	"domicile/proto/internal/pb"
)

// putAdoptCommand puts a command by which a region goes from one directory to another into
// m; false for another one.
func putAdoptCommand(m *pb.Entry, c fsm.Command) bool {
	switch c := c.(type) {
	case *fsm.BeginGive:
		m.Command = &pb.Entry_BeginGive{BeginGive: &pb.BeginGive{Region: string(c.Region)}}
	case *fsm.GiveRegion:
		m.Command = &pb.Entry_GiveRegion{GiveRegion: &pb.GiveRegion{Id: uint64(c.ID), Digest: c.Digest, Arrived: c.Arrived}}
	case *fsm.StageRegion:
		m.Command = &pb.Entry_StageRegion{StageRegion: &pb.StageRegion{
			Giver: fromGiver(c.Giver), Region: string(c.Region), Try: c.Try, Part: c.Part, Longest: int64(c.Longest), Given: c.Given, Node: fromNode(c.Node),
			Tenants:   list(c.Tenants, func(g fsm.GivenTenant) *pb.Tenant { return fromTenant(&g.Tenant, &g.Unit) }),
			GoneNodes: names[string](c.GoneNodes), GoneTenants: names[string](c.GoneTenants),
		}}
	case *fsm.ArriveRegion:
		m.Command = &pb.Entry_ArriveRegion{ArriveRegion: &pb.ArriveRegion{Giver: fromGiver(c.Giver), Digest: c.Digest}}
	case *fsm.CloseIntake:
		m.Command = &pb.Entry_CloseIntake{CloseIntake: &pb.CloseIntake{Giver: fromGiver(c.Giver), Undone: c.Undone}}
	default:
		return false
	}
	return true
}

// adoptCommand gives the command by which a region changes directories that m holds; nil
// for none.
func adoptCommand(m *pb.Entry) fsm.Command {
	switch c := m.Command.(type) {
	case *pb.Entry_BeginGive:
		return &fsm.BeginGive{Region: fsm.RegionName(c.BeginGive.GetRegion())}
	case *pb.Entry_GiveRegion:
		return &fsm.GiveRegion{ID: fsm.JobID(c.GiveRegion.GetId()), Digest: c.GiveRegion.GetDigest(), Arrived: c.GiveRegion.GetArrived()}
	case *pb.Entry_StageRegion:
		s := c.StageRegion
		return &fsm.StageRegion{
			Giver: toGiver(s.GetGiver()), Region: fsm.RegionName(s.GetRegion()), Try: s.GetTry(), Part: s.GetPart(), Longest: fsm.Millis(s.GetLongest()), Given: s.GetGiven(),
			Node: toNode(s.GetNode()), Tenants: list(s.GetTenants(), toGiven),
			GoneNodes: names[fsm.NodeName](s.GetGoneNodes()), GoneTenants: names[fsm.TenantName](s.GetGoneTenants()),
		}
	case *pb.Entry_ArriveRegion:
		return &fsm.ArriveRegion{Giver: toGiver(c.ArriveRegion.GetGiver()), Digest: c.ArriveRegion.GetDigest()}
	case *pb.Entry_CloseIntake:
		return &fsm.CloseIntake{Giver: toGiver(c.CloseIntake.GetGiver()), Undone: c.CloseIntake.GetUndone()}
	}
	return nil
}

func fromGiver(g fsm.Giver) *pb.Giver {
	return &pb.Giver{Authority: g.Authority, History: g.History, Job: uint64(g.Job)}
}

func toGiver(m *pb.Giver) fsm.Giver {
	return fsm.Giver{Authority: m.GetAuthority(), History: m.GetHistory(), Job: fsm.JobID(m.GetJob())}
}

// fromTenant writes a tenant that is one unit.
func fromTenant(t *fsm.Tenant, p *fsm.Placed) *pb.Tenant {
	m := &pb.Tenant{Unit: new(pb.Placed)}
	putTenant(m, t)
	putPlaced(m.Unit, p)
	m.Unit.Unit = ""
	return m
}

func toGivenTenant(m *pb.Tenant, in *interner) (*fsm.Tenant, *fsm.Placed) {
	t := toTenant(m, in)
	if m.Unit == nil {
		return t, nil
	}
	return t, toPlaced(m.Unit, fsm.UnitName(t.Name), in)
}

func toGiven(m *pb.Tenant) (g fsm.GivenTenant) {
	var in interner
	if t, p := toGivenTenant(m, &in); p != nil {
		g = fsm.GivenTenant{Tenant: *t, Unit: *p}
	}
	return g // one without a unit is refused
}

func fromIntake(i *fsm.Intake) *pb.Intake {
	return &pb.Intake{
		Giver: fromGiver(i.Giver), Region: string(i.Region), Try: i.Try, Part: i.Part, Digest: i.Digest, Longest: int64(i.Longest),
		Began: int64(i.Began), Arrived: uint64(i.Arrived), Nodes: list(i.Nodes, fromNodeRef), Over: i.Over, Given: i.Given,
	}
}

func toIntake(m *pb.Intake) *fsm.Intake {
	return &fsm.Intake{
		Giver: toGiver(m.Giver), Region: fsm.RegionName(m.Region), Try: m.Try, Part: m.Part, Digest: m.Digest, Longest: fsm.Millis(m.Longest),
		Began: fsm.Millis(m.Began), Arrived: fsm.Revision(m.Arrived), Nodes: list(m.Nodes, toNodeRef), Over: m.Over, Given: m.Given,
	}
}
