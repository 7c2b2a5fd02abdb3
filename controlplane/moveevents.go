package controlplane

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"domicile/fsm"
	"domicile/proto"
)

// moveMeters count what became of moves (spec §2.6), where this server leads: so each is
// counted once in a group.
type moveMeters struct {
	outcomes *prometheus.CounterVec
	duration prometheus.Histogram
	pause    prometheus.Histogram
	leads    atomic.Pointer[func() bool] // nil until the group is open: it leads nobody then
}

func newMoveMeters() *moveMeters {
	m := &moveMeters{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "domicile_moves_total",
			Help: "Moves of tenants that have ended, by outcome: done, undone (a node failed before the flip), cancelled, failed (the tenant was deleted); only on the leader."},
			[]string{"outcome"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "domicile_move_duration_seconds",
			Help:    "Time from a move's beginning, its wait for a turn included, until its tenant was promoted on its new node; only on the leader.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600}}),
		pause: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "domicile_move_pause_seconds",
			Help:    "Time for which a move held writes up; only on the leader.",
			Buckets: []float64{.002, .005, .01, .015, .02, .03, .05, .1, .2, .5, 1, 2, 5, 10}}),
	}
	for _, o := range []proto.MoveOutcome{proto.MoveWasDone, proto.MoveWasUndone, proto.MoveWasCancelled, proto.MoveHasFailed} {
		m.outcomes.WithLabelValues(string(o))
	}
	return m
}

// publish counts the moves that a change of the directory ended, and those whose tenant
// it brought to its new node.
func (m *moveMeters) publish(before, state *fsm.State, prev fsm.Revision, events []fsm.Event) {
	if leads := m.leads.Load(); leads == nil || !(*leads)() {
		return
	}
	for j := range state.JobsEnded(prev) {
		if j.Kind == fsm.JobMove || j.Kind == fsm.JobRelocate {
			m.outcomes.WithLabelValues(string(outcomeOf(j))).Inc()
			if j.Pause != 0 {
				m.pause.Observe(float64(j.Pause) / 1000)
			}
		}
	}
	if before == nil {
		return
	}
	var counted fsm.JobID // the last one: a unit may be told of more than once
	for i := range events {
		u := events[i].Unit
		if u == nil || u.Promoting {
			continue
		}
		if j, ok := arrived(before, u); ok && j.ID != counted {
			counted = j.ID
			m.duration.Observe(float64(state.Now()-j.Started) / 1000)
		}
	}
}

// arrived gives the move that has brought a unit to where it is, and promoted, now; before
// is the state before that.
func arrived(before *fsm.State, now *fsm.UnitInfo) (*fsm.Job, bool) {
	j, ok := before.Move(now.Unit)
	if !ok || now.Promoting || j.Targets[0].ID != now.ID || j.Targets[0].Node != now.Node {
		return nil, false
	}
	was, ok := before.Placed(now.Unit)
	return j, ok && was.ID == now.ID && (was.Node != now.Node || !was.Promoted())
}

// toldOfJobs makes events of the moves and rebalances that began or ended after prev.
func toldOfJobs(prev fsm.Revision, state *fsm.State) []proto.Event {
	var out []proto.Event
	for j := range state.JobsBegun(prev) {
		switch j.Kind {
		case fsm.JobMove, fsm.JobRelocate:
			e := moveEvent(j)
			e.Event = proto.EventMoveBegun
			out = append(out, e)
		case fsm.JobRebalance:
			out = append(out, proto.Event{Event: proto.EventRebalanceBegun, Move: j.ID})
		}
	}
	for j := range state.JobsEnded(prev) {
		switch j.Kind {
		case fsm.JobMove, fsm.JobRelocate:
			e := moveEvent(j)
			e.PauseMS = uint64(j.Pause)
			e.Event = map[proto.MoveOutcome]proto.EventName{proto.MoveWasDone: proto.EventMoveDone, proto.MoveWasUndone: proto.EventMoveUndone,
				proto.MoveWasCancelled: proto.EventMoveCancelled, proto.MoveHasFailed: proto.EventMoveFailed}[outcomeOf(j)]
			if j.Refusal != nil {
				e.Problem = j.Refusal.Text
			}
			out = append(out, e)
		case fsm.JobRebalance:
			out = append(out, proto.Event{Event: proto.EventRebalanceEnded, Move: j.ID, Problem: j.Problem})
		}
	}
	return out
}

func moveEvent(j *fsm.Job) proto.Event {
	if j.Kind == fsm.JobRelocate {
		region := j.Home
		return proto.Event{Move: j.ID, Tenant: j.Tenant, From: j.Source, Node: j.Node, Region: &region, Cause: j.Cause.String()}
	}
	return proto.Event{Move: j.ID, Tenant: j.Tenant, From: j.Source, Node: j.Targets[0].Node, Cause: j.Cause.String()}
}

// drainTold is what people were told of a node's drain.
type drainTold struct {
	id   fsm.Revision // 0: none
	done bool         // nothing was left on it
}

// tellDrains tells of drains that differ from what was told, and brings that up to date.
func (s *Server) tellDrains(was map[fsm.NodeName]drainTold, tell bool) {
	state := s.group.State()
	for n := range state.Nodes() {
		now, then := drainTold{}, was[n.Name]
		if n.Drain != nil {
			now = drainTold{n.Drain.ID, true}
			for range state.HeldBy(n.Name) {
				now.done = false
				break
			}
		}
		if now == then {
			continue
		}
		was[n.Name] = now
		var names []proto.EventName
		if then.id != 0 && then.id != now.id {
			names = append(names, proto.EventDrainEnded)
		}
		if now.id != 0 && then.id != now.id {
			names = append(names, proto.EventDrainBegun)
		}
		if now.done && !(then.done && then.id == now.id) {
			names = append(names, proto.EventDrained)
		}
		for _, name := range names {
			if tell {
				s.events.add(proto.Event{Event: name, Node: n.Name, Revision: state.Revision()})
			}
		}
	}
}
