package node

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"domicile/dataplane/node/lease"
	"domicile/dataplane/node/replica"
	"domicile/dataplane/node/store"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// maxListBody is the greatest body of an admin call that is about many units.
const maxListBody = 64 << 20

// grants takes grants one after another, so that what each changes takes effect in
// their order.
type grants struct {
	mu      sync.Mutex
	missing map[string]bool // units of the list that are not held
}

// takesNoLease is for good: the directory records it.
func takesNoLease() error {
	return httpserve.Errorf(409, "takes_no_lease", "this node runs without --lease: it writes its units without one, and is never failed over by itself")
}

// lease is /_admin/lease.
func (r *request) lease() error {
	l := r.s.fence.lease
	switch {
	case r.ctx.IsPost():
		return r.grant()
	case !r.ctx.IsGet() && !r.ctx.IsHead():
		return r.methodNotAllowed("GET, POST")
	}
	if err := r.hearReader(); err != nil {
		return err
	}
	if l == nil {
		return takesNoLease()
	}
	st := l.State()
	answer := proto.LeaseState{Primaries: st.Units}
	if st.Held {
		answer.Epoch = &st.Epoch
	}
	if st.Granted {
		left := (st.Left + time.Millisecond - 1).Milliseconds() // 0 says that it is over
		answer.LeftMS = &left
	}
	return r.json(200, answer)
}

// grant is POST lease. A grant is counted from its arrival, which is before anything
// is done about it.
func (r *request) grant() error {
	arrived := r.s.cfg.Clock.Now()
	var g proto.Grant
	if err := r.objectUpTo(maxListBody, &g); err != nil {
		return err
	}
	l := r.s.fence.lease
	if l == nil {
		return takesNoLease()
	}
	if err := lease.Check(&g); err != nil {
		return badRequest("%v", err)
	}
	s := r.s
	s.grants.mu.Lock()
	defer s.grants.mu.Unlock()
	if err := r.hold(g.Holder); err != nil {
		return err
	}
	had := l.Current()
	change, err := l.Take(&g, arrived)
	if err != nil {
		return r.notGranted(err)
	}
	s.follow(change, time.Duration(g.MS)*time.Millisecond)
	s.lookForMissing(change)
	if s.stopping.Load() {
		s.counted.take(g.Counted)
	}
	if now := l.Current(); now && !had {
		s.log.Info("lease granted", "term", g.Term, "units", l.State().Units)
	}
	return r.json(200, s.granted(&g))
}

// notGranted answers a grant that was not taken with what its sender needs to know.
func (r *request) notGranted(err error) error {
	if e, ok := errors.AsType[*lease.NotHeldError](err); ok {
		return r.json(412, proto.NotGranted{Error: e.Why, Code: "list_not_held", Epoch: e.Epoch, Boot: e.Boot})
	}
	if e, ok := errors.AsType[*lease.StaleError](err); ok {
		refused := httpserve.Errorf(409, "stale_grant", "%v", e)
		refused.Fields = map[string]any{"grant": e.Newest, "boot": r.s.fence.lease.Boot()}
		return refused
	}
	if e, ok := errors.AsType[*lease.OlderError](err); ok {
		return holderRefused(e.Holder, "this node has heard a newer holder")
	}
	return badRequest("%v", err)
}

// follow tells the replicator whose acknowledgement counts from now on.
func (s *Server) follow(c lease.Change, ms time.Duration) {
	copies := make(map[string]replica.Copies, len(c.Changed))
	for _, u := range c.Changed {
		copies[u.Name] = replica.Copies{All: u.Copies, InSync: u.InSync}
	}
	if c.Whole {
		s.replica.SetCopies(copies, ms/4)
	} else {
		s.replica.ChangeCopies(copies, c.Gone, ms/4)
	}
}

// lookForMissing finds the units of the list that are not held here: of those that
// were named, and of those that were missing before.
func (s *Server) lookForMissing(c lease.Change) {
	g := &s.grants
	if c.Whole || g.missing == nil {
		g.missing = map[string]bool{}
	}
	for _, u := range c.Changed {
		g.missing[u.Name] = true
	}
	for _, name := range c.Gone {
		delete(g.missing, name)
	}
	for name := range g.missing {
		rec, err := s.store.Get(name)
		if u, named := s.fence.lease.Unit(name); !named || err == nil && (u.ID == 0 || u.ID == rec.ID) {
			delete(g.missing, name)
		}
	}
}

// granted is the answer to a grant that was taken: its report is of the list that
// the grant has brought.
func (s *Server) granted(g *proto.Grant) proto.Granted {
	st := s.fence.lease.State()
	a := proto.Granted{Epoch: st.Epoch, LeftMS: st.Left.Milliseconds(), Grant: g.Grant, Boot: s.fence.lease.Boot(),
		Ack: s.ack(), Stopping: s.stopping.Load(), Refused: s.replica.Refused()}
	a.AwaitsCounted = a.Stopping && s.counted.hasCopies
	uncompared := s.replica.Uncompared()
	lagging, behind := s.replica.Report()
	a.CopyReport = proto.CopyReport{Lagging: byName(lagging), Behind: byName(behind), Damaged: s.damaged(func(rec *store.Record) bool {
		u, named := s.fence.lease.Unit(rec.Name)
		return named && (u.ID == 0 || u.ID == rec.ID)
	})}
	for _, name := range uncompared {
		a.Uncompared = append(a.Uncompared, fsm.UnitName(name))
	}
	for name := range s.grants.missing {
		a.Missing = append(a.Missing, fsm.UnitName(name))
	}
	slices.Sort(a.Missing)
	return a
}

// damaged gives the units that are written here, and of those that which says so, whose
// files are known to be damaged.
func (s *Server) damaged(which func(*store.Record) bool) (units []fsm.UnitName) {
	for _, name := range s.store.Damaged() {
		rec, err := s.store.Get(name)
		if err == nil && (rec.State == store.Active || rec.State == store.Pinned || rec.State == store.Sending) && which(&rec) {
			units = append(units, fsm.UnitName(name))
		}
	}
	return units
}

func (s *Server) ack() proto.Ack {
	if s.cfg.AckPrimary {
		return proto.AckPrimary
	}
	return proto.AckReplica
}

func byName(m map[string][]string) map[fsm.UnitName][]string {
	named := make(map[fsm.UnitName][]string, len(m))
	for unit, addrs := range m {
		named[fsm.UnitName(unit)] = addrs
	}
	return named
}

// copies is GET copies, for nodes that take no lease, whose grants would tell it.
func (r *request) copies() error {
	r.s.asked.Store(time.Now().UnixNano())
	following, lagging, behind := r.s.replica.ReportFollowers(copiesPatience)
	return r.json(200, struct {
		proto.CopyReport
		Following map[fsm.UnitName][]string `json:"following"`
		Boot      string                    `json:"boot"`
		Refused   map[string]string         `json:"refused,omitempty"`
		Stopping  bool                      `json:"stopping,omitempty"`
	}{proto.CopyReport{Lagging: byName(lagging), Behind: byName(behind), Damaged: r.s.damaged(func(*store.Record) bool { return true })}, byName(following), r.s.boot, r.s.replica.Refused(), r.s.stopping.Load()})
}

// copiesPatience is how long a copy may lack a commit before GET copies says so.
const copiesPatience = time.Second

// peers is what package lease reads of the world.
type peers struct{ s *Server }

func (p peers) Ready(ctx context.Context, server string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/_ready", nil)
	if err != nil {
		return false
	}
	resp, err := p.s.cfg.Probe.RoundTrip(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (p peers) Promise(ctx context.Context, addr string, units []string, d time.Duration) ([]string, error) {
	return p.s.replica.Promise(ctx, addr, units, d)
}

func (p peers) FollowedSince(unit string, t time.Duration) []string {
	return p.s.replica.FollowersSince(unit, time.Now().Add(t-p.s.cfg.Clock.Now()))
}

func (p peers) Writes(unit string) bool {
	rec, err := p.s.store.Get(unit)
	return err == nil && (rec.State == store.Active || rec.State == store.Pinned || rec.State == store.Sending)
}

// promises is the copy's side of a promise, as package replica asks for it.
type promises struct{ s *Server }

func (p promises) Promise(_ context.Context, _ string, units []replica.Followed, d time.Duration) ([]string, error) {
	names := make([]string, len(units))
	for i := range units {
		names[i] = units[i].Unit
	}
	return p.s.promises.Promise(names, d)
}

// watchLease tells of the lease's end, and ends the waits of writes whose copies are
// silent: while the control plane renews the lease it takes such a copy out within
// ms/2, so nobody else will (architecture §3.7.2).
func (s *Server) watchLease(ctx context.Context) {
	tick := time.NewTicker(leaseTick)
	defer tick.Stop()
	had := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := s.fence.lease.Current()
		if had && !now {
			s.log.Warn("lease lapsed: this node writes nothing until the control plane reaches it again, but what its copies let it")
		}
		had = now
		ago, ms, ok := s.fence.lease.Renewal()
		if !ok {
			continue
		}
		patience := ms // with a leader, that renews the lease and takes it out before
		if ago > ms/3 {
			patience = ms / 2
		}
		if n := s.replica.GiveUp(patience); n > 0 {
			s.log.Warn("writes were given up: their copies do not acknowledge them", "units", n)
		}
	}
}

// leaseTick is how often the lease is looked at.
const leaseTick = 50 * time.Millisecond
