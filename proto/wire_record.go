package proto

import (
	"cmp"
	"slices"

	"domicile/fsm"
	"domicile/proto/internal/pb"
)

func fromScope(s fsm.Scope) *pb.Scope {
	return &pb.Scope{Cluster: s.Cluster, Region: string(s.Region), History: s.History}
}

func toScope(m *pb.Scope) fsm.Scope {
	return fsm.Scope{Cluster: m.GetCluster(), Region: fsm.RegionName(m.GetRegion()), History: m.GetHistory()}
}

func fromSettings(s fsm.Settings) *pb.Settings {
	return &pb.Settings{
		DefaultRegion: text(s.DefaultRegion), Replicas: s.Replicas, AutoFailover: int64(s.AutoFailover),
		RepairAfter: int64(s.RepairAfter), RemoveAfter: int64(s.RemoveAfter), ReplicationToken: s.ReplicationToken,
		LongestLease: int64(s.LongestLease), MovesPerNode: s.MovesPerNode,
	}
}

func toSettings(m *pb.Settings) fsm.Settings {
	if m == nil {
		return fsm.Settings{}
	}
	return fsm.Settings{
		DefaultRegion: name[fsm.RegionName](m.DefaultRegion), Replicas: m.Replicas, AutoFailover: fsm.Millis(m.AutoFailover),
		RepairAfter: fsm.Millis(m.RepairAfter), RemoveAfter: fsm.Millis(m.RemoveAfter), ReplicationToken: m.ReplicationToken,
		LongestLease: fsm.Millis(m.LongestLease), MovesPerNode: m.MovesPerNode,
	}
}

func fromMember(m *fsm.Member) *pb.Member {
	return &pb.Member{Id: string(m.ID), Raft: m.Raft, Api: m.API, Version: m.Version}
}

func toMember(m *pb.Member) *fsm.Member {
	return &fsm.Member{ID: fsm.MemberID(m.GetId()), Raft: m.GetRaft(), API: m.GetApi(), Version: m.GetVersion()}
}

func fromRegion(r *fsm.Region) *pb.Region {
	return &pb.Region{Name: string(r.Name), Routers: r.Routers, Authority: r.Authority}
}

func toRegion(m *pb.Region) *fsm.Region {
	return &fsm.Region{Name: fsm.RegionName(m.GetName()), Routers: names[string](m.GetRouters()), Authority: m.GetAuthority()}
}

func fromNode(n *fsm.Node) *pb.Node {
	if n == nil {
		return nil
	}
	return &pb.Node{
		Id: uint64(n.ID), Name: string(n.Name), Addr: n.Addr, Token: n.Token, Region: string(n.Region),
		Zone: string(n.Zone), Standby: string(n.Standby), Weight: n.Weight,
		Usage: &pb.Usage{At: int64(n.Usage.At), Bytes: n.Usage.Bytes, Units: n.Usage.Units},
		Lease: uint32(n.Lease), Lost: n.Lost, Drain: fromDrain(n.Drain),
	}
}

func fromDrain(d *fsm.Drain) *pb.Drain {
	if d == nil {
		return nil
	}
	return &pb.Drain{Id: uint64(d.ID), Since: int64(d.Since), Units: d.Units, Forced: d.Forced}
}

func toDrain(m *pb.Drain) *fsm.Drain {
	if m == nil {
		return nil
	}
	return &fsm.Drain{ID: fsm.Revision(m.Id), Since: fsm.Millis(m.Since), Units: m.Units, Forced: m.Forced}
}

func toNode(m *pb.Node) *fsm.Node {
	if m == nil {
		return nil
	}
	return &fsm.Node{
		ID: fsm.NodeID(m.Id), Name: fsm.NodeName(m.Name), Addr: m.Addr, Token: m.Token, Region: fsm.RegionName(m.Region),
		Zone: fsm.ZoneName(m.Zone), Standby: fsm.NodeName(m.Standby), Weight: m.Weight,
		Usage: fsm.Usage{At: fsm.Millis(m.Usage.GetAt()), Bytes: m.Usage.GetBytes(), Units: m.Usage.GetUnits()},
		Lease: small[fsm.NodeLease](m.Lease), Lost: m.Lost, Drain: toDrain(m.Drain),
	}
}

// putTenant writes t into m, which is empty or was used before.
func putTenant(m *pb.Tenant, t *fsm.Tenant) {
	m.Name, m.Created, m.Buckets, m.Hash, m.Pinned = string(t.Name), int64(t.Created), t.Buckets, uint32(t.Hash), t.Pinned
	m.Quota, m.Home, m.Readers = fromQuota(t.Quota), nil, names[string](t.Readers)
	m.Claim, m.Job, m.Reserved = uint64(t.Claim), uint64(t.Job), t.Reserved
	if t.HasHome {
		m.Home = text(&t.Home)
	}
}

func toTenant(m *pb.Tenant, in *interner) *fsm.Tenant {
	t := &fsm.Tenant{
		Name: fsm.TenantName(in.own(m.Name)), Created: fsm.Millis(m.Created), Buckets: m.Buckets,
		Hash: small[fsm.Hash](m.Hash), Pinned: m.Pinned,
		Readers: list(m.Readers, func(r string) fsm.RegionName { return fsm.RegionName(in.shared(r)) }),
	}
	t.Quota, t.Claim, t.Job, t.Reserved = toQuota(m.Quota), fsm.UnitID(m.Claim), fsm.JobID(m.Job), m.Reserved
	if m.Home != nil {
		t.Home, t.HasHome = fsm.RegionName(in.shared(*m.Home)), true
	}
	return t
}

// putPlaced writes p into m, which is empty or was used before.
func putPlaced(m *pb.Placed, p *fsm.Placed) {
	m.Id, m.Unit, m.Node, m.State = uint64(p.ID), string(p.Unit), string(p.Node), uint32(p.State)
	m.Epoch, m.Job, m.Previous, m.Lacks = p.Epoch, uint64(p.Job), string(p.Previous), int64(p.Lacks)
	m.Copies = list(p.Copies, fromCopy)
}

func toPlaced(m *pb.Placed, unit fsm.UnitName, in *interner) *fsm.Placed {
	return &fsm.Placed{
		ID: fsm.UnitID(m.Id), Unit: unit, Node: fsm.NodeName(in.shared(m.Node)), State: small[fsm.UnitState](m.State),
		Epoch: m.Epoch, Job: fsm.JobID(m.Job), Copies: toCopies(m.Copies, in),
		Previous: fsm.NodeName(in.shared(m.Previous)), Lacks: fsm.Millis(m.Lacks),
	}
}

func fromCopy(c fsm.Copy) *pb.Copy {
	return &pb.Copy{Node: string(c.Node), State: uint32(c.State), Since: int64(c.Since), Entry: uint64(c.Entry)}
}

func toCopies(from []*pb.Copy, in *interner) []fsm.Copy {
	return list(from, func(c *pb.Copy) fsm.Copy {
		return fsm.Copy{
			Node: fsm.NodeName(in.shared(c.Node)), State: small[fsm.CopyState](c.State),
			Since: fsm.Millis(c.Since), Entry: fsm.Revision(c.Entry),
		}
	})
}

func fromJob(j *fsm.Job) *pb.Job {
	return &pb.Job{
		Id: uint64(j.ID), Kind: uint32(j.Kind), Tenant: string(j.Tenant), Step: uint32(j.Step), Schema: j.Schema,
		Started: int64(j.Started), Ended: int64(j.Ended), EndedIn: uint64(j.EndedIn), Problem: j.Problem,
		Refusal: fromRefusal(j.Refusal), Request: j.Request, Attempts: j.Attempts,
		Source: string(j.Source), Cause: uint32(j.Cause), Forced: j.Forced, Targets: list(j.Targets, fromTarget),
		Group: uint64(j.Group), Release: uint64(j.Release), Pause: int64(j.Pause), Bytes: j.Bytes,
		Home: string(j.Home), Node: string(j.Node), From: string(j.From), Unit: uint64(j.Unit), Task: uint64(j.Task),
		Other: fromForeign(j.Other), Pinned: j.Pinned, Quota: fromQuota(j.Quota), Since: int64(j.Since),
		Digest: j.Digest,
	}
}

func toJob(m *pb.Job) *fsm.Job {
	return &fsm.Job{
		ID: fsm.JobID(m.Id), Kind: small[fsm.JobKind](m.Kind), Tenant: fsm.TenantName(m.Tenant),
		Step: small[fsm.JobStep](m.Step), Schema: m.Schema, Started: fsm.Millis(m.Started), Ended: fsm.Millis(m.Ended),
		EndedIn: fsm.Revision(m.EndedIn), Problem: m.Problem, Refusal: toRefusal(m.Refusal), Request: m.Request,
		Attempts: m.Attempts, Source: fsm.NodeName(m.Source), Cause: small[fsm.FlipCause](m.Cause), Forced: m.Forced,
		Targets: list(m.Targets, toTarget),
		Group:   fsm.JobID(m.Group), Release: fsm.Revision(m.Release), Pause: fsm.Millis(m.Pause), Bytes: m.Bytes,
		Home: fsm.RegionName(m.Home), Node: fsm.NodeName(m.Node), From: fsm.RegionName(m.From), Unit: fsm.UnitID(m.Unit), Task: fsm.JobID(m.Task),
		Other: toForeign(m.Other), Pinned: m.Pinned, Quota: toQuota(m.Quota), Since: fsm.Millis(m.Since),
		Digest: m.Digest,
	}
}

func fromTarget(t fsm.Target) *pb.Target {
	return &pb.Target{Unit: string(t.Unit), Id: uint64(t.ID), Node: string(t.Node)}
}

func toTarget(t *pb.Target) fsm.Target {
	return fsm.Target{Unit: fsm.UnitName(t.Unit), ID: fsm.UnitID(t.Id), Node: fsm.NodeName(t.Node)}
}

func fromRefusal(r *fsm.Refusal) *pb.Refusal {
	if r == nil {
		return nil
	}
	m := &pb.Refusal{Code: string(r.Code), Text: r.Text}
	for k, v := range r.Fields {
		m.Details = append(m.Details, &pb.Detail{Name: k, Value: v})
	}
	slices.SortFunc(m.Details, func(a, b *pb.Detail) int { return cmp.Compare(a.Name, b.Name) })
	return m
}

func toRefusal(m *pb.Refusal) *fsm.Refusal {
	if m == nil {
		return nil
	}
	r := &fsm.Refusal{Code: fsm.Code(m.Code), Text: m.Text}
	for _, d := range m.Details {
		if r.Fields == nil {
			r.Fields = make(map[string]string, len(m.Details))
		}
		r.Fields[d.Name] = d.Value
	}
	return r
}

func fromRequest(q *fsm.Request) *pb.Request {
	m := &pb.Request{
		Key: q.Key, Fingerprint: q.Fingerprint, At: int64(q.At), Revision: uint64(q.Revision), Job: uint64(q.Job),
		Result: &pb.Result{
			Refusal: fromRefusal(q.Result.Refusal), Created: q.Result.Created,
			Node: fromNode(q.Result.Node), Job: uint64(q.Result.Job), Flips: list(q.Result.Flips, fromFlip),
			Left: names[string](q.Result.Left), Added: list(q.Result.Added, fromCopyRef), Task: fromTask(q.Result.Task),
		},
	}
	if t := q.Result.Tenant; t != nil {
		m.Result.Tenant = new(pb.Tenant)
		putTenant(m.Result.Tenant, t)
	}
	if p := q.Result.Placed; p != nil {
		m.Result.Placed = new(pb.Placed)
		putPlaced(m.Result.Placed, p)
	}
	return m
}

func toRequest(m *pb.Request, in *interner) *fsm.Request {
	r := m.Result
	q := &fsm.Request{
		Key: m.Key, Fingerprint: m.Fingerprint, At: fsm.Millis(m.At), Revision: fsm.Revision(m.Revision), Job: fsm.JobID(m.Job),
		Result: fsm.Result{
			Refusal: toRefusal(r.GetRefusal()), Created: r.GetCreated(), Node: toNode(r.GetNode()), Job: fsm.JobID(r.GetJob()),
			Flips: list(r.GetFlips(), toFlip), Left: names[fsm.UnitName](r.GetLeft()), Added: list(r.GetAdded(), toCopyRef), Task: toTask(r.GetTask()),
		},
	}
	if t := r.GetTenant(); t != nil {
		q.Result.Tenant = toTenant(t, in)
	}
	if p := r.GetPlaced(); p != nil {
		q.Result.Placed = toPlaced(p, fsm.UnitName(in.own(p.Unit)), in)
	}
	return q
}
