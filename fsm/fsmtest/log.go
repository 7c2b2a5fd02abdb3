package fsmtest

import (
	"fmt"
	"math/rand/v2"

	"domicile/fsm"
)

// Log makes entries one by one. It looks at the state that they are applied
// to, so that steps of jobs fit more often than not.
type Log struct {
	rand *rand.Rand
	at   fsm.Revision
	term uint64
	now  fsm.Millis
	// calm logs are of one region, or two, know all commands soon and delete less, so
	// that units get copies and flip; the others meet more refusals.
	calm, two bool
	levels    *levels // unless nil, the log is of NewRegionsLog
}

// NewLog begins a log; those of odd seeds are calm, every other one of these in two
// regions.
func NewLog(seed uint64) *Log {
	return &Log{rand: rand.New(rand.NewPCG(seed, 1)), term: 1, now: 1_700_000_000_000, calm: seed%2 == 1, two: seed%4 == 3}
}

// Entries gives a log of n entries that were applied to an empty state.
func Entries(seed uint64, n int) []fsm.Entry { return entries(NewLog(seed), n) }

func entries(l *Log, n int) []fsm.Entry {
	s := fsm.New()
	entries := make([]fsm.Entry, n)
	for i := range entries {
		entries[i] = l.Next(s)
		s.Apply(entries[i])
	}
	return entries
}

// Next gives an entry that may follow on s.
func (l *Log) Next(s *fsm.State) fsm.Entry {
	if l.one(40) {
		l.term++
	}
	l.at = max(l.at, s.Revision()) + 1 + fsm.Revision(l.rand.IntN(3))
	l.now += fsm.Millis(l.rand.IntN(2000) - 300)
	if l.one(100) {
		l.now += fsm.RequestAge
	}
	e := fsm.Entry{Revision: l.at, Term: l.term, At: l.now, Cmd: l.command(s)}
	if l.one(8) {
		e.Decided = l.term - uint64(l.rand.IntN(2))
	}
	if l.one(3) {
		e.Key = fmt.Sprintf("key-%d", l.rand.IntN(40))
		e.Fingerprint = fmt.Sprintf("print-%d", l.rand.IntN(2))
	}
	return e
}

func (l *Log) one(in int) bool { return l.rand.IntN(in) == 0 }

func (l *Log) command(s *fsm.State) fsm.Command {
	if l.levels != nil {
		if c := l.levelsCommand(s); c != nil {
			return c
		}
	}
	if l.calm && s.Level() < fsm.Version && l.one(4) {
		return &fsm.PutMember{Member: fsm.Member{ID: "a", Raft: "127.0.0.1:1", Version: fsm.Version}}
	}
	if l.calm && s.Settings().Replicas == 0 && l.one(4) {
		return &fsm.SetSettings{Settings: l.settings()}
	}
	if s.CountTenants() > 2 && (l.one(2) || l.calm && l.one(2)) {
		if l.one(3) {
			return l.movesCommand(s)
		}
		return l.copiesCommand(s)
	}
	switch n := l.rand.IntN(100); {
	case n < 1:
		return &fsm.Bootstrap{
			Scope:    fsm.Scope{Cluster: "c1", Region: pick[fsm.RegionName](l, "", "", "global", "eu"), History: uint64(l.rand.IntN(3))},
			Settings: l.settings(),
		}
	case n < 2:
		return &fsm.SetSettings{Settings: l.settings()}
	case n < 5:
		return &fsm.PutMember{Member: fsm.Member{
			ID: pick[fsm.MemberID](l, "a", "b", "c", ""), Raft: pick(l, "127.0.0.1:1", "127.0.0.1:2", ""),
			API: "http://127.0.0.1:3", Version: uint32(min(l.rand.IntN(8), fsm.Version)),
		}}
	case n < 6:
		return &fsm.DeleteMember{ID: pick[fsm.MemberID](l, "a", "b", "c", "x")}
	case n < 22:
		return l.putNode()
	case n < 25:
		return &fsm.DeleteNode{Name: l.node()}
	case n < 30:
		return l.usage()
	case n < 52:
		return l.createTenant()
	case n < 62:
		if l.calm && l.one(2) {
			return l.createTenant()
		}
		if t := l.job(s).Tenant; t != "" && l.one(3) {
			return &fsm.DeleteTenant{Name: t}
		}
		return &fsm.DeleteTenant{Name: l.tenant()}
	case n < 85:
		return l.advance(s)
	case n < 89:
		return &fsm.NoteJob{ID: l.job(s).ID, Problem: fmt.Sprintf("node n%d does not answer", l.rand.IntN(9))}
	case n < 94:
		return &fsm.SetPin{Tenant: l.tenant(), Pinned: l.one(2)}
	case n < 97:
		return &fsm.PutRegion{Region: fsm.Region{
			Name: pick[fsm.RegionName](l, "ap", "ap", "sa", "global", ""), Routers: []string{pick(l, "http://r1:1", "https://r2:2", "r3")},
		}}
	default:
		return &fsm.DeleteRegion{Name: pick[fsm.RegionName](l, "ap", "sa", "eu")}
	}
}

func pick[T any](l *Log, of ...T) T { return of[l.rand.IntN(len(of))] }

// maybe gives v, or nil as often as not.
func maybe[T any](l *Log, v T) *T {
	if l.one(2) {
		return nil
	}
	return &v
}

func (l *Log) node() fsm.NodeName {
	return pick(l, fsm.NodeName(fmt.Sprintf("n%d", l.rand.IntN(8))), "n1", "n2", "n3")
}

func (l *Log) tenant() fsm.TenantName {
	if l.one(50) {
		return pick[fsm.TenantName](l, "", "Bad", "a.1")
	}
	return fsm.TenantName(fmt.Sprintf("t%d", l.rand.IntN(30)))
}

func (l *Log) region() fsm.RegionName {
	switch {
	case l.two:
		return pick[fsm.RegionName](l, "eu", "us")
	case l.calm:
		return "eu"
	}
	return pick[fsm.RegionName](l, "", "eu", "eu", "us", "ap")
}

func (l *Log) settings() fsm.Settings {
	if l.calm {
		return fsm.Settings{Replicas: 1 + uint32(l.rand.IntN(2)), AutoFailover: fsm.Millis(l.rand.IntN(3) * 1000)}
	}
	return fsm.Settings{
		DefaultRegion: maybe(l, l.region()), Replicas: uint32(l.rand.IntN(3)),
		AutoFailover: fsm.Millis(l.rand.IntN(5000) - 100), ReplicationToken: pick(l, "", "secret", "not one"),
	}
}

func (l *Log) putNode() *fsm.PutNode {
	p := &fsm.PutNode{
		Name: l.node(), Addr: maybe(l, fmt.Sprintf("127.0.0.1:%d", 8000+l.rand.IntN(5))), Token: maybe(l, "token"),
		Zone: maybe(l, pick[fsm.ZoneName](l, "", "a", "b")),
	}
	if l.one(2) {
		p.Addr, p.Token = ptr("http://10.0.0.1:8081"), ptr("other")
	}
	if l.calm || l.one(3) {
		p.Region = ptr(l.region())
	}
	if l.one(4) {
		p.Standby = ptr(pick(l, "", l.node(), l.node()))
	}
	if l.one(5) {
		p.Weight = ptr(uint32(l.rand.IntN(3)))
	}
	if l.one(30) {
		p.Addr = ptr(pick(l, "", "nowhere", "http://x:1/path", "a b:1"))
	}
	return p
}

func ptr[T any](v T) *T { return &v }

func (l *Log) usage() *fsm.RecordUsage {
	u := &fsm.RecordUsage{}
	for range l.rand.IntN(4) {
		u.Usage = append(u.Usage, fsm.NodeUsage{Node: l.node(), Bytes: uint64(l.rand.IntN(1 << 20))})
	}
	return u
}

func (l *Log) createTenant() *fsm.CreateTenant {
	t := &fsm.CreateTenant{Name: l.tenant(), Pinned: l.one(5), Schema: pick(l, "", "", "CREATE TABLE t (x)")}
	if l.one(3) {
		t.Region = ptr(l.region())
	}
	if l.one(4) {
		t.Node = ptr(l.node())
	}
	if l.one(4) {
		t.Silent = []fsm.NodeName{l.node(), l.node()}
	}
	if l.one(30) {
		t.Buckets, t.Hash = uint32(l.rand.IntN(2)), fsm.Hash(l.rand.IntN(3))
	}
	return t
}

// job gives a running job, or one that is none.
func (l *Log) job(s *fsm.State) *fsm.Job {
	j, n := &fsm.Job{ID: fsm.JobID(l.at), Step: fsm.StepMake}, 0
	for r := range s.RunningJobs() {
		if n++; l.one(n) {
			j = r
		}
	}
	return j
}

func (l *Log) advance(s *fsm.State) *fsm.AdvanceJob {
	j := l.job(s)
	if j.Kind == fsm.JobMove {
		return l.advanceMove(s, j)
	}
	a := &fsm.AdvanceJob{ID: j.ID, From: j.Step, To: fsm.StepDone}
	if j.Step == fsm.StepMake && j.Schema != "" {
		a.To = fsm.StepSchema
	}
	if j.Kind == fsm.JobCreate && l.one(5) {
		a.To = fsm.StepUndo
	}
	if l.one(12) {
		a.From, a.To = fsm.JobStep(l.rand.IntN(13)), fsm.JobStep(l.rand.IntN(13))
	}
	if a.To == fsm.StepUndo && !l.one(10) {
		a.Refusal = &fsm.Refusal{
			Code: pick(l, fsm.CodeNodeRefused, fsm.CodeSchemaRefused, ""), Text: "no room",
			Fields: map[string]string{"node": "n1", "status": "507", "why": "disk", "left": "0"},
		}
	}
	return a
}
