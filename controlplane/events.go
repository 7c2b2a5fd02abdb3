package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"domicile/controlplane/group"
	"domicile/controlplane/stream"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

const (
	// eventsKept is how many events a subscriber may fall behind before it is
	// told that it missed some.
	eventsKept = 1024
	// eventsIdle is when a comment is sent so that both ends notice a
	// connection that broke.
	eventsIdle = 15 * time.Second
	// eventsWait is the time that a subscriber has to take what is written.
	eventsWait = 10 * time.Second
	// leaderEvery is how often this server looks who leads.
	leaderEvery = 200 * time.Millisecond
)

// eventLog keeps the last events for those who watch: a cursor each, no queue.
// It hears of changes as the group's Feed does, in order.
type eventLog struct {
	mu      sync.Mutex
	events  []proto.Event // ring: event i is at i % eventsKept
	next    uint64        // number of the next event
	changed chan struct{} // closed with the next event
	closed  bool
	// before is the state after the last change, read by the goroutine that
	// publishes alone.
	before *fsm.State
}

func newEventLog() *eventLog {
	return &eventLog{events: make([]proto.Event, eventsKept), changed: make(chan struct{})}
}

// publish adds what a change of the directory tells; state is the one after it.
func (l *eventLog) publish(prev fsm.Revision, events []fsm.Event, state *fsm.State) {
	before := l.before
	l.before = state
	for _, e := range toldOfJobs(prev, state) {
		e.Revision = state.Revision()
		l.add(e)
	}
	for i := range events {
		for _, e := range told(before, state, &events[i]) {
			e.Revision = state.Revision()
			l.add(e)
		}
	}
}

// told makes events for people of a change of the directory from one state to
// another; before is nil where it is not known.
func told(before, state *fsm.State, e *fsm.Event) []proto.Event {
	var out proto.Event
	switch {
	case e.Node != nil && onlyLost(before, e.Node):
		return nil // watchLeader tells of it, and of drains
	case e.Node != nil && onlyDrained(before, state, e.Node):
		return nil
	case e.Node != nil:
		out.Event, out.Node, out.Region, out.Zone = proto.EventNodeRecorded, e.Node.Name, &e.Node.Region, &e.Node.Zone
	case e.NodeGone != "":
		out.Event, out.Node = proto.EventNodeDeleted, e.NodeGone
	case e.Unit != nil:
		return toldOfUnit(before, e.Unit)
	case e.UnitGone != "":
		tenant, _, _ := e.UnitGone.Split()
		out.Event, out.Tenant = proto.EventTenantDeleted, tenant
	case e.Region != nil:
		out.Event, out.Region = proto.EventRegionRecorded, &e.Region.Name
	case e.RegionGone != "":
		out.Event, out.Region = proto.EventRegionDeleted, &e.RegionGone
	default:
		return nil
	}
	return []proto.Event{out}
}

// onlyLost reports whether all that is new of a node is that it is lost, or is not
// any more; before is nil where it is not known.
func onlyLost(before *fsm.State, now *fsm.NodeInfo) bool {
	if before == nil {
		return false
	}
	was, ok := before.Node(now.Name)
	return ok && was.Lost != now.Lost && was.Addr == now.Addr && was.Region == now.Region && was.Zone == now.Zone
}

// onlyDrained reports whether all that is new of a node is that its drain has begun, or
// ended; before is nil where it is not known.
func onlyDrained(before, state *fsm.State, now *fsm.NodeInfo) bool {
	if before == nil {
		return false
	}
	was, ok := before.Node(now.Name)
	is, there := state.Node(now.Name)
	return ok && there && (was.Drain == nil) != (is.Drain == nil) && was.Addr == now.Addr && was.Region == now.Region && was.Zone == now.Zone
}

// toldOfUnit makes events of what a unit is now beside what it was.
func toldOfUnit(before *fsm.State, now *fsm.UnitInfo) []proto.Event {
	tenant, _, _ := now.Unit.Split()
	if before == nil {
		return nil
	}
	was, ok := before.Placed(now.Unit)
	if !ok || was.ID != now.ID || was.State == fsm.UnitCreating {
		return []proto.Event{{Event: proto.EventTenantCreated, Tenant: tenant, Node: now.Node}}
	}
	if move, ok := arrived(before, now); ok {
		return []proto.Event{{Event: proto.EventTenantMoved, Tenant: tenant, Node: now.Node, From: move.Source, Move: move.ID, Cause: move.Cause.String()}}
	}
	if was.Node != now.Node {
		return toldOfFlip(before, was, now)
	}
	var out []proto.Event
	for _, c := range now.Copies {
		then := copyState(was.Copies, c.Node)
		switch {
		case c.State == then:
		case c.State == fsm.CopyReader:
			out = append(out, proto.Event{Event: proto.EventReaderPlaced, Tenant: tenant, Node: c.Node})
		case c.State == fsm.CopyInSync:
			out = append(out, proto.Event{Event: proto.EventReplicaInSync, Tenant: tenant, Node: c.Node})
		case then == fsm.CopyInSync && c.State == fsm.CopySyncing:
			out = append(out, proto.Event{Event: proto.EventReplicaBehind, Tenant: tenant, Node: c.Node})
		}
	}
	for _, c := range was.Copies {
		if c.State.Follows() && c.State != fsm.CopyTarget && !copyState(now.Copies, c.Node).Follows() {
			out = append(out, proto.Event{Event: proto.EventReplicaGone, Tenant: tenant, Node: c.Node})
		}
	}
	return out
}

// toldOfFlip tells of a unit that has come to another node: given over on purpose, as it
// is where a node is drained, it has moved. A move tells of its own once it is promoted.
func toldOfFlip(before *fsm.State, was *fsm.Placed, now *fsm.UnitInfo) []proto.Event {
	tenant, _, _ := now.Unit.Split()
	e := proto.Event{Event: proto.EventTenantFailedOver, Tenant: tenant, Node: now.Node, From: was.Node}
	if j, ok := before.Job(was.Job); ok && was.Job != 0 {
		switch {
		case j.Kind == fsm.JobMove && j.Targets[0].Node == now.Node:
			return nil
		case j.Kind == fsm.JobHandover && j.Cause == fsm.CauseDrain:
			e.Event, e.Cause = proto.EventTenantMoved, j.Cause.String()
		}
	}
	return []proto.Event{e}
}

func copyState(copies []fsm.Copy, n fsm.NodeName) fsm.CopyState {
	for _, c := range copies {
		if c.Node == n {
			return c.State
		}
	}
	return 0
}

func (l *eventLog) add(e proto.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events[l.next%eventsKept] = e
	l.next++
	close(l.changed)
	l.changed = make(chan struct{})
}

// close ends every stream.
func (l *eventLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// since gives the events from number from on, the number that follows, how
// many were lost in between, and what to wait for; false once closed.
func (l *eventLog) since(from uint64) (events []proto.Event, next, lost uint64, changed <-chan struct{}, open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next > eventsKept && from < l.next-eventsKept {
		lost = l.next - eventsKept - from
		from += lost
	}
	for i := from; i < l.next; i++ {
		events = append(events, l.events[i%eventsKept])
	}
	return events, l.next, lost, l.changed, !l.closed
}

func (l *eventLog) end() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// feed is the group's Feed: the stream to proxies, and the events for people.
type feed struct {
	stream  *stream.Hub
	events  *eventLog
	changes *changes
	moves   *moveMeters
}

func (f *feed) Publish(prev fsm.Revision, events []fsm.Event, state *fsm.State) {
	f.stream.Publish(prev, events, stream.Own(state))
	f.changes.publish(f.events.before, events)
	f.moves.publish(f.events.before, state, prev, events)
	f.events.publish(prev, events, state)
}

func (f *feed) Reset(state *fsm.State) {
	f.stream.Reset(stream.Own(state))
	f.events.before = state
	f.changes.everything()
}

// serveEvents streams events as server-sent events, from now on.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	s.streams.Add(1)
	defer s.streams.Add(-1)
	from := s.events.end()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	idle := time.NewTicker(eventsIdle)
	defer idle.Stop()
	for {
		events, next, lost, changed, open := s.events.since(from)
		_ = control.SetWriteDeadline(time.Now().Add(eventsWait)) // a writer without deadlines has none to set
		if err := writeEvents(w, events, lost); err != nil {
			return nil // the client has gone
		}
		if err := control.Flush(); err != nil || !open {
			return nil
		}
		from = next
		select {
		case <-changed:
		case <-r.Context().Done():
			return nil
		case <-idle.C:
			if _, err := fmt.Fprint(w, ":\n\n"); err != nil {
				return nil
			}
		}
	}
}

func writeEvents(w http.ResponseWriter, events []proto.Event, lost uint64) error {
	if lost > 0 {
		if _, err := fmt.Fprintf(w, "event: missed\ndata: {\"events\":%d}\n\n", lost); err != nil {
			return err
		}
	}
	for _, e := range events {
		text, err := httpserve.EncodeJSON(e) // a newline ends it
		if err != nil {
			panic(fmt.Sprintf("BUG: encode %T: %v", e, err))
		}
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n", e.Event, text); err != nil {
			return err
		}
	}
	return nil
}

// watchLeader tells of each new leader that this server hears of, and of nodes
// that were lost or are back.
func (s *Server) watchLeader(ctx context.Context) error {
	tick := time.NewTicker(leaderEvery)
	defer tick.Stop()
	last := group.Leader{}
	lost := make(map[fsm.NodeName]bool)
	s.tellLost(lost, false)
	drains := make(map[fsm.NodeName]drainTold)
	s.tellDrains(drains, false)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		s.tellLost(lost, true)
		s.tellDrains(drains, true)
		now := s.group.Leader()
		if !now.Known || now.ID == last.ID && now.Term == last.Term {
			continue
		}
		last = now
		s.logger.Info("leader changed", "server", now.ID, "term", now.Term)
		s.events.add(proto.Event{Event: proto.EventLeaderChanged, Leader: now.ID, Term: now.Term,
			Revision: s.group.State().Revision()})
	}
}

// tellLost tells of nodes whose record says other than lost does, and brings
// that up to date.
func (s *Server) tellLost(lost map[fsm.NodeName]bool, tell bool) {
	state := s.group.State()
	for n := range state.Nodes() {
		if n.Lost == lost[n.Name] {
			continue
		}
		e := proto.Event{Event: proto.EventNodeBack, Node: n.Name, Revision: state.Revision()}
		if n.Lost {
			e.Event = proto.EventNodeFailedOver
		}
		lost[n.Name] = n.Lost
		if tell {
			s.events.add(e)
		}
	}
}
