package fsm_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"domicile/fsm"
	"domicile/fsm/fsmtest"
)

// model is the directory as the requirements tell it, with no thought for
// speed: what is known of nodes and tenants is found by looking at all of them.
type model struct {
	cluster  bool
	scope    fsm.RegionName
	fallback *fsm.RegionName
	nodes    map[fsm.NodeName]*modelNode
	tenants  map[fsm.TenantName]*modelTenant
	homes    map[fsm.TenantName]*modelHome
	regions  map[fsm.RegionName]bool
	members  map[fsm.MemberID]uint32
	level    uint32
	answers  map[string]*modelAnswer
	now      fsm.Millis
	at       fsm.Revision

	replicas      int
	auto, longest fsm.Millis
	handovers     map[fsm.NodeName]*modelHandover
	moves         map[fsm.JobID]*modelMove
	rebalance     *modelRebalance
	over          map[fsm.JobID]fsm.Code // moves and rebalances that ended in the last entry
	ended         map[fsm.JobID]bool     // all that have
}

type modelNode struct {
	region       fsm.RegionName
	zone         fsm.ZoneName
	lease        fsm.NodeLease
	lost         bool
	standby      fsm.NodeName
	weight       uint32
	bytes, units int
	drain        *modelDrain
}

type modelTenant struct {
	node   fsm.NodeName
	id     fsm.UnitID
	epoch  uint64
	copies map[fsm.NodeName]fsm.CopyState
	// previous is who may have written last, while the promotion is not confirmed.
	previous fsm.NodeName
	moving   bool
	pinned   bool
	job      fsm.JobID
	step     fsm.JobStep // 0 when no job is under way
	schema   bool
	why      fsm.Code // the create's, being undone
}

type modelAnswer struct {
	print string
	at    fsm.Millis
	code  fsm.Code
	job   fsm.JobID
}

func newModel() *model {
	return &model{
		nodes: map[fsm.NodeName]*modelNode{}, tenants: map[fsm.TenantName]*modelTenant{}, homes: map[fsm.TenantName]*modelHome{}, regions: map[fsm.RegionName]bool{},
		members: map[fsm.MemberID]uint32{}, level: 1, answers: map[string]*modelAnswer{}, handovers: map[fsm.NodeName]*modelHandover{},
		moves: map[fsm.JobID]*modelMove{}, ended: map[fsm.JobID]bool{},
	}
}

// apply gives the code that e is to be refused with, or "".
func (m *model) apply(e fsm.Entry) (fsm.Code, bool) {
	m.now = max(m.now, e.At)
	if a := m.answers[e.Key]; e.Key != "" && a != nil && m.now-a.at <= fsm.RequestAge {
		if a.print != e.Fingerprint {
			return fsm.CodeKeyReused, true
		}
		return a.code, true
	}
	code := fsm.CodeStale
	if e.Decided == 0 || e.Decided == e.Term {
		code = m.run(e)
	}
	if e.Key != "" {
		a := &modelAnswer{print: e.Fingerprint, at: m.now, code: code}
		if c, ok := e.Cmd.(*fsm.CreateTenant); ok && code == "" {
			if t := m.tenants[c.Name]; t != nil {
				a.job = t.job
			} else {
				a.job = m.homes[c.Name].job
			}
		}
		m.answers[e.Key] = a
	}
	return code, false
}

func (m *model) run(e fsm.Entry) fsm.Code {
	m.at, m.over = e.Revision, map[fsm.JobID]fsm.Code{}
	switch c := e.Cmd.(type) {
	case *fsm.Bootstrap:
		switch {
		case m.cluster:
			return fsm.CodeScope
		case c.Scope.Region == "global" || c.Scope.History == 0 || !goodSettings(c.Settings):
			return fsm.CodeBadRequest
		}
		m.cluster, m.scope = true, c.Scope.Region
		m.settle(c.Settings)
	case *fsm.SetSettings:
		if !goodSettings(c.Settings) {
			return fsm.CodeBadRequest
		}
		m.settle(c.Settings)
	case *fsm.PutMember:
		switch {
		case c.Member.ID == "" || c.Member.Raft == "":
			return fsm.CodeBadRequest
		case c.Member.Version < m.level:
			return fsm.CodeServerTooOld
		}
		m.members[c.Member.ID] = c.Member.Version
		m.raise()
	case *fsm.DeleteMember:
		if m.members[c.ID] == 0 {
			return fsm.CodeMemberUnknown
		}
		delete(m.members, c.ID)
		m.raise()
	case *fsm.PutNode:
		return m.putNode(c)
	case *fsm.DeleteNode:
		return m.deleteNode(c)
	case *fsm.RecordUsage:
		for _, u := range c.Usage {
			if n := m.nodes[u.Node]; n != nil {
				n.bytes, n.units = int(u.Bytes), m.held(u.Node)
			}
		}
	case *fsm.CreateTenant:
		return m.create(c, e.Revision)
	case *fsm.DeleteTenant:
		return m.deleteTenant(c.Name, e.Revision)
	case *fsm.AdvanceJob:
		return m.advance(c)
	case *fsm.NoteJob:
		if _, t := m.byJob(c.ID); t == nil && !m.homeJob(c.ID) && m.handover(c.ID) == nil && !m.noteMove(c) {
			return fsm.CodeStale
		}
	case *fsm.SetPin:
		return m.pin(c)
	case *fsm.PutRegion:
		if c.Region.Name == "" || c.Region.Name == "global" || c.Region.Routers[0] == "r3" {
			return fsm.CodeBadRequest
		}
		m.regions[c.Region.Name] = true
	case *fsm.DeleteRegion:
		if !m.regions[c.Name] {
			return fsm.CodeRegionUnknown
		}
		for _, h := range m.homes {
			if h.home == c.Name {
				return fsm.CodeRegionInUse
			}
		}
		delete(m.regions, c.Name)
	default:
		return m.runCopies(e.Cmd)
	}
	return ""
}

func (m *model) settle(s fsm.Settings) {
	m.fallback, m.replicas, m.auto = s.DefaultRegion, int(s.Replicas), s.AutoFailover
	if m.level >= 2 {
		m.longest = max(m.longest, m.auto)
	}
}

// raise lifts the level to what all members know (O7).
func (m *model) raise() {
	if len(m.members) > 0 {
		m.level = max(m.level, slices.Min(slices.Collect(maps.Values(m.members))))
	}
	if m.level >= 2 {
		m.longest = max(m.longest, m.auto)
	}
}

func goodSettings(s fsm.Settings) bool {
	return s.AutoFailover >= 0 && s.ReplicationToken != "not one"
}

func (m *model) held(n fsm.NodeName) (units int) {
	for _, t := range m.tenants {
		if t.node == n || t.copies[n] != 0 {
			units++
		}
	}
	return units
}

func (m *model) primaries(n fsm.NodeName) (units int) {
	for _, t := range m.tenants {
		if t.node == n {
			units++
		}
	}
	return units
}

func (m *model) standbyOf(n fsm.NodeName) bool {
	for _, o := range m.nodes {
		if o.standby == n {
			return true
		}
	}
	return false
}

func (m *model) putNode(c *fsm.PutNode) fsm.Code {
	if c.Standby != nil && *c.Standby == c.Name ||
		c.Addr != nil && slices.Contains([]string{"", "nowhere", "http://x:1/path", "a b:1"}, *c.Addr) {
		return fsm.CodeBadRequest
	}
	n, next := m.nodes[c.Name], modelNode{weight: 1}
	if n == nil && (c.Addr == nil || c.Token == nil) {
		return fsm.CodeBadRequest
	}
	if n != nil {
		next = *n
	}
	if c.Region != nil {
		next.region = *c.Region
	}
	if c.Weight != nil {
		next.weight = *c.Weight
	}
	if c.Zone != nil {
		next.zone = *c.Zone
	}
	if n == nil && c.Region == nil && m.level >= 4 {
		next.region = m.scope
	}
	if m.level >= 4 && m.scope != "" && next.region != m.scope && (n == nil || next.region != n.region) {
		return fsm.CodeRegionMismatch
	}
	if m.level >= 4 && m.own(next.region) && (n == nil || next.region != n.region) {
		return fsm.CodeRegionElsewhere
	}
	if n != nil && next.region != n.region && (m.held(c.Name) > 0 || n.standby != "" || m.standbyOf(c.Name) || m.awaits(c.Name)) {
		return fsm.CodeNodeInUse
	}
	if c.Standby != nil && *c.Standby != next.standby {
		if s := *c.Standby; s != "" {
			switch o := m.nodes[s]; {
			case o == nil:
				return fsm.CodeStandbyUnknown
			case o.region != next.region:
				return fsm.CodeRegionMismatch
			case m.standbyOf(c.Name) || m.standbyOf(s):
				return fsm.CodePairConflict
			case o.drain == nil && (o.standby != "" || m.primaries(s) > 0):
				return fsm.CodePairConflict
			case o.drain != nil:
				return fsm.CodeNodeDraining
			}
		}
		next.standby = *c.Standby
	}
	m.nodes[c.Name] = &next
	return ""
}

func (m *model) deleteTenant(name fsm.TenantName, at fsm.Revision) fsm.Code {
	t := m.tenants[name]
	if h := m.homes[name]; h != nil {
		h.remove(at)
		return ""
	}
	if t != nil && m.scope != "" && m.level >= 4 {
		return fsm.CodeNotOwner
	}
	switch {
	case t == nil && !fsm.ValidName(string(name)):
		return fsm.CodeBadRequest
	case t == nil:
		return fsm.CodeTenantUnknown
	case t.moving:
		return fsm.CodeBusy
	case t.step == 0:
		t.job, t.step, t.previous = fsm.JobID(at), fsm.StepRemove, ""
		t.targetsLeave()
	case t.step == fsm.StepMake || t.step == fsm.StepSchema:
		t.step, t.why, t.copies = fsm.StepUndo, fsm.CodeDeleted, nil
	}
	return ""
}

func (m *model) byJob(id fsm.JobID) (fsm.TenantName, *modelTenant) {
	for name, t := range m.tenants {
		if t.step != 0 && t.job == id {
			return name, t
		}
	}
	return "", nil
}

func (m *model) advance(c *fsm.AdvanceJob) fsm.Code {
	if h := m.handover(c.ID); h != nil {
		return m.advanceHandover(h, c)
	}
	if code, ok := m.advanceMove(c); ok {
		return code
	}
	if code, ok := m.advanceHome(c); ok {
		return code
	}
	name, t := m.byJob(c.ID)
	if t == nil || t.step != c.From {
		return fsm.CodeStale
	}
	creating := t.step == fsm.StepMake || t.step == fsm.StepSchema
	switch {
	case creating && c.To == fsm.StepUndo && c.Refusal != nil && c.Refusal.Code != "":
		t.step, t.why, t.copies = fsm.StepUndo, c.Refusal.Code, nil
		return ""
	case c.Refusal != nil:
		return fsm.CodeBadRequest
	case t.step == fsm.StepMake && t.schema && c.To == fsm.StepSchema:
		t.step = fsm.StepSchema
		return ""
	case c.To != fsm.StepDone || t.step == fsm.StepMake && t.schema:
		return fsm.CodeBadRequest
	}
	for _, a := range m.answers {
		if a.job == t.job {
			a.code = t.why
		}
	}
	if t.step = 0; !creating {
		delete(m.tenants, name)
	}
	return ""
}

func (m *model) pin(c *fsm.SetPin) fsm.Code {
	switch t := m.tenants[c.Tenant]; {
	case m.homes[c.Tenant] != nil:
		return fsm.CodeRegionElsewhere
	case t == nil && !fsm.ValidName(string(c.Tenant)):
		return fsm.CodeBadRequest
	case t == nil:
		return fsm.CodeTenantUnknown
	case t.step == fsm.StepUndo || t.step == fsm.StepRemove:
		return fsm.CodeBusy
	default:
		t.pinned = c.Pinned
	}
	return ""
}

// compare tells where s and the model differ.
func (m *model) compare(s *fsm.State) error {
	if s.CountTenants() != len(m.tenants)+len(m.homes) {
		return fmt.Errorf("%d tenants, the model has %d", s.CountTenants(), len(m.tenants)+len(m.homes))
	}
	for name, t := range m.tenants {
		p, ok := s.Placed(fsm.UnitName(name))
		if !ok || p.Node != t.node || (t.step == 0 && !t.moving) != (p.State == fsm.UnitActive) {
			return fmt.Errorf("tenant %s: %+v, the model has %+v", name, p, *t)
		}
		if err := m.compareCopies(t, p); err != nil {
			return fmt.Errorf("tenant %s: %+v, the model has %+v: %w", name, *p, *t, err)
		}
		if j, ok := s.Job(p.Job); t.step != 0 && (!ok || j.ID != t.job || j.Step != t.step) {
			return fmt.Errorf("tenant %s: job %+v, the model has %+v", name, j, *t)
		}
	}
	for name, n := range m.nodes {
		r, ok := s.Node(name)
		if !ok || r.Region != n.region || r.Standby != n.standby || r.Weight != n.weight || r.Lost != n.lost || r.Lease != n.lease ||
			(r.Drain != nil) != (n.drain != nil) || r.Drain != nil && *r.Drain != fsm.Drain(*n.drain) {
			return fmt.Errorf("node %s: %+v, the model has %+v", name, r, *n)
		}
	}
	if got := s.Settings(); got.LongestLease != m.longest {
		return fmt.Errorf("the longest lease is %d, the model has %d", got.LongestLease, m.longest)
	}
	if err := m.compareHomes(s); err != nil {
		return err
	}
	if err := m.compareHandovers(s); err != nil {
		return err
	}
	return m.compareMoves(s)
}

// Every answer and every placement of a long random log is what the plain
// reading of the requirements says, every invariant holds after every entry,
// and a view that follows the events equals the projection.
func TestRandomLogsAgainstTheModel(t *testing.T) {
	codes := make(map[fsm.Code]int)
	for seed := range uint64(200) {
		l, s, m, v := fsmtest.NewLog(seed), fsm.New(), newModel(), fsm.NewView()
		for i := range 400 {
			e := l.Next(s)
			before := s.Revision()
			want, replayed := m.apply(e)
			r, events := s.Apply(e)
			got := fsm.Code("")
			if r.Refusal != nil {
				got = r.Refusal.Code
			}
			codes[got]++
			where := fmt.Sprintf("log %d, entry %d, %T %+v", seed, i, e.Cmd, e.Cmd)
			if got != want || r.Replayed && !replayed || got != "" && len(events) > 0 {
				t.Fatalf("%s: refused with %q, the model says %q; replayed %v and %v", where, got, want, r.Replayed, replayed)
			}
			if err := m.compare(s); err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			if err := fsm.Check(s); err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			if err := v.Apply(before, s.Revision(), events); err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			if !v.Equal(projection(t, s)) {
				t.Fatalf("%s: the view differs from the projection", where)
			}
		}
	}
	for _, code := range []fsm.Code{
		"", fsm.CodeBadRequest, fsm.CodeNodeUnknown, fsm.CodeTenantUnknown, fsm.CodeRegionUnknown, fsm.CodeStandbyUnknown,
		fsm.CodeMemberUnknown, fsm.CodeTenantExists, fsm.CodeNodeInUse, fsm.CodeRegionMismatch, fsm.CodeNodeIsStandby,
		fsm.CodePairConflict, fsm.CodeNoNode, fsm.CodeBusy, fsm.CodeStale, fsm.CodeKeyReused, fsm.CodeScope,
		fsm.CodeNodeRefused, fsm.CodeDeleted, fsm.CodeRegionElsewhere, fsm.CodeServerTooOld,
		fsm.CodeNoCopy, fsm.CodeNodeUnleased, fsm.CodeNodeLost, fsm.CodeAlreadyThere, fsm.CodePinned, fsm.CodeNodeDraining,
		fsm.CodeNoRoom, fsm.CodeMoveUnknown, fsm.CodeMoveEnded, fsm.CodeMoveReleased, fsm.CodeNodeUnreachable, fsm.CodeRegionUnreachable, fsm.CodeRegionInUse,
	} {
		if codes[code] == 0 {
			t.Errorf("no entry was answered with %q: the logs are too tame", code)
		}
	}
}

func projection(t *testing.T, s *fsm.State) *fsm.View {
	t.Helper()
	v := fsm.NewView()
	if err := v.Load(slices.Collect(fsm.Project(s))); err != nil {
		t.Fatal(err)
	}
	if err := v.Apply(0, s.Revision(), nil); err != nil {
		t.Fatal(err)
	}
	return v
}
