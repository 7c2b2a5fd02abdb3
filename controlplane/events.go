package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"domicile/controlplane/group"
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
}

func newEventLog() *eventLog {
	return &eventLog{events: make([]proto.Event, eventsKept), changed: make(chan struct{})}
}

// publish adds what a change of the directory tells.
func (l *eventLog) publish(revision fsm.Revision, events []fsm.Event) {
	for i := range events {
		if e, ok := told(revision, &events[i]); ok {
			l.add(e)
		}
	}
}

// told makes an event for people of a change of the directory.
func told(revision fsm.Revision, e *fsm.Event) (proto.Event, bool) {
	out := proto.Event{Revision: revision}
	switch {
	case e.Node != nil:
		out.Event, out.Node, out.Region, out.Zone = proto.EventNodeRecorded, e.Node.Name, &e.Node.Region, &e.Node.Zone
	case e.NodeGone != "":
		out.Event, out.Node = proto.EventNodeDeleted, e.NodeGone
	case e.Unit != nil && e.Unit.State == fsm.UnitActive:
		tenant, _, _ := e.Unit.Unit.Split()
		out.Event, out.Tenant, out.Node = proto.EventTenantCreated, tenant, e.Unit.Node
	case e.UnitGone != "":
		tenant, _, _ := e.UnitGone.Split()
		out.Event, out.Tenant = proto.EventTenantDeleted, tenant
	case e.Region != nil:
		out.Event, out.Region = proto.EventRegionRecorded, &e.Region.Name
	case e.RegionGone != "":
		out.Event, out.Region = proto.EventRegionDeleted, &e.RegionGone
	default:
		return out, false
	}
	return out, true
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
	stream group.Feed
	events *eventLog
}

func (f *feed) Publish(prev fsm.Revision, events []fsm.Event, state *fsm.State) {
	f.stream.Publish(prev, events, state)
	f.events.publish(state.Revision(), events)
}

func (f *feed) Reset(state *fsm.State) { f.stream.Reset(state) }

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

// watchLeader tells of each new leader that this server hears of.
func (s *Server) watchLeader(ctx context.Context) error {
	tick := time.NewTicker(leaderEvery)
	defer tick.Stop()
	last := group.Leader{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
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
