package controlplane

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"domicile/controlplane/loops"
	"domicile/fsm"
	"domicile/proto"
)

// failoverMeters count what became of failovers (spec §2.6).
type failoverMeters struct {
	outcomes   *prometheus.CounterVec
	duration   prometheus.Histogram
	unpromoted prometheus.Counter
}

func newFailoverMeters() *failoverMeters {
	m := &failoverMeters{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "domicile_failovers_total",
			Help: "Failovers and handovers of nodes, by outcome: done (every unit was promoted), partial (some units had no copy in sync and stayed), nothing (no unit was promoted)."},
			[]string{"outcome"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "domicile_failover_duration_seconds",
			Help:    "Time from the decision on a failover until its last unit was promoted.",
			Buckets: []float64{.005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60}}),
		unpromoted: prometheus.NewCounter(prometheus.CounterOpts{Name: "domicile_promotions_failed_total",
			Help: "Units that the node that was to take them over did not promote, once for each time that they were given to one."}),
	}
	for _, o := range []string{"done", "partial", "nothing"} {
		m.outcomes.WithLabelValues(o)
	}
	return m
}

// flips follows failovers from their decision to the last promotion.
type flips struct {
	meters *failoverMeters
	begun  map[loops.Matter]time.Time
	open   map[fsm.UnitRef]*flipping
	// unpromoted are units that their node does not promote, with the epoch for which
	// that was told.
	unpromoted map[fsm.UnitRef]uint64
}

// flipping is a failover whose units are being promoted.
type flipping struct {
	begun time.Time
	left  bool // units stayed, for want of a copy
	units int  // that are not promoted yet
}

func (f *flips) decided(m loops.Matter) {
	if f.begun == nil {
		f.begun, f.open = make(map[loops.Matter]time.Time), make(map[fsm.UnitRef]*flipping)
	}
	if _, again := f.begun[m]; !again {
		f.begun[m] = time.Now()
	}
}

func (f *flips) flipped(m loops.Matter, result fsm.Result) {
	begun, ok := f.begun[m]
	if !ok {
		begun = time.Now()
	}
	delete(f.begun, m)
	if len(result.Flips) == 0 {
		if len(result.Left) > 0 {
			f.meters.outcomes.WithLabelValues("nothing").Inc()
		}
		return
	}
	one := &flipping{begun: begun, left: len(result.Left) > 0, units: len(result.Flips)}
	for _, flip := range result.Flips {
		f.promoted([]fsm.UnitRef{flip.UnitRef}) // one that was on its way elsewhere ends there
		f.open[flip.UnitRef] = one
	}
}

func (f *flips) promoted(units []fsm.UnitRef) {
	for _, u := range units {
		delete(f.unpromoted, u)
		one, ok := f.open[u]
		if !ok {
			continue
		}
		delete(f.open, u)
		if one.units--; one.units > 0 {
			continue
		}
		outcome := "done"
		if one.left {
			outcome = "partial"
		}
		f.meters.outcomes.WithLabelValues(outcome).Inc()
		f.meters.duration.Observe(time.Since(one.begun).Seconds())
	}
}

// refused counts the units that a node did not promote, and that were not counted for
// this epoch, and gives the reason of the first by name.
func (f *flips) refused(a loops.Action, answer loops.Answer) (failed int, why string) {
	for _, i := range a.Units {
		failure, ok := answer.Failed[i.Unit]
		if !ok || failure.Left > 0 || f.unpromoted[i.UnitRef] == a.Epoch {
			continue
		}
		if f.unpromoted == nil {
			f.unpromoted = make(map[fsm.UnitRef]uint64)
		}
		f.unpromoted[i.UnitRef] = a.Epoch
		if failed++; failed == 1 {
			why = failure.Why
		}
	}
	return failed, why
}

// proposing notes and tells what is about to be decided.
func (s *shift) proposing(state *fsm.State, p loops.Proposal) {
	switch cmd := p.Cmd.(type) {
	case *fsm.FailOver:
		s.flips.decided(p.Matter)
		if cmd.Cause != fsm.CauseLapsed {
			break
		}
		s.events.add(proto.Event{Event: proto.EventNodeLapsed, Node: cmd.Node, Term: s.term, Revision: state.Revision()})
	case *fsm.EndRelease:
		s.flips.decided(p.Matter)
	}
}

// recorded notes what became of a proposal, and tells people of transitions: a
// line for each batch.
func (s *shift) recorded(p proposed) {
	s.memory.Proposed(p.Proposal, p.err == nil, s.clock())
	if p.err != nil {
		if !errors.Is(p.err, context.Canceled) {
			s.logger.Debug("a step was not recorded; it is planned again", "node", p.Node, "err", p.err)
		}
		return
	}
	if p.Raise != 0 {
		s.logger.Warn("the history was raised: a node had heard of a newer one", "history", p.Raise)
	}
	switch cmd := p.Cmd.(type) {
	case *fsm.EndRecovery:
		s.recovered()
	case *fsm.FailOver:
		s.flips.flipped(p.Matter, p.result)
		if cmd.Cause == fsm.CauseUnpromoted {
			s.logger.Warn("units that their node does not promote go to another", "node", cmd.Node, "units", len(p.result.Flips))
			break
		}
		if len(p.result.Flips)+len(p.result.Left) == 0 { // as after a clean stop
			s.logger.Info("a node is gone that was the primary of no unit", "node", cmd.Node)
			break
		}
		s.logger.Warn("a node was failed over", "node", cmd.Node, "units", len(p.result.Flips), "left", len(p.result.Left))
	case *fsm.EndRelease:
		s.flips.flipped(p.Matter, p.result)
		s.logger.Info("a node has released units", "units", len(p.result.Flips))
	case *fsm.BeginHandover:
		s.logger.Info("a node hands units over", "node", cmd.Node, "cause", cmd.Cause.String(), "units", len(cmd.Units))
	case *fsm.ConfirmPromotion:
		s.flips.promoted(cmd.Units)
		s.logger.Info("units were promoted", "node", cmd.Node, "epoch", cmd.Epoch, "units", len(cmd.Units))
	case *fsm.NodeBack:
		s.logger.Info("a lost node is back", "node", cmd.Node)
	case *fsm.SetNodeLease:
		s.logger.Info("a node told whether it takes leases", "node", cmd.Node, "takes", cmd.Lease == fsm.LeaseTaken)
	case *fsm.SettleLease:
		s.logger.Info("leases have their new length", "ms", uint64(cmd.LongestLease))
	case *fsm.AdvanceJob:
		s.advanced(cmd)
	case *fsm.NoteJob:
		if cmd.Problem == "" {
			break
		}
		job, _ := s.group.State().Job(cmd.ID)
		s.logger.Warn("a job is held up", "tenant", job.Tenant, "job", job.Kind.String(), "err", cmd.Problem)
	default:
		s.copiesChanged(p)
	}
}

// notPromoted tells, once for each time that units were given to a node, that it does
// not promote them, and counts them. A promise that runs is none of that.
func (s *shift) notPromoted(a loops.Action, answer loops.Answer) {
	failed, why := s.flips.refused(a, answer)
	if failed == 0 {
		return
	}
	s.meters.unpromoted.Add(float64(failed))
	s.logger.Error("a node does not promote units that were given to it; it is asked again, until another that may have them answers",
		"node", a.Target.Node, "epoch", a.Epoch, "units", failed, "err", why)
}

func (s *shift) advanced(cmd *fsm.AdvanceJob) {
	job, ok := s.group.State().Job(cmd.ID)
	if !ok {
		return
	}
	switch job.Kind {
	case fsm.JobMove:
		s.advancedMove(job, cmd)
		return
	case fsm.JobRelocate:
		s.advancedRelocation(job, cmd)
		return
	case fsm.JobDepart, fsm.JobReceive:
		return // the global group tells of them
	}
	switch {
	case cmd.To == fsm.StepUndo:
		s.logger.Warn("a create is undone", "tenant", job.Tenant, "err", cmd.Refusal.Text)
	case cmd.To == fsm.StepDone && job.Kind == fsm.JobHandover:
		s.logger.Info("a handover has ended", "node", job.Source)
	case cmd.To == fsm.StepDone:
		s.logger.Info("a job is done", "tenant", job.Tenant, "job", job.Kind.String())
	}
}

func (s *shift) copiesChanged(p proposed) {
	state := s.group.State()
	switch cmd := p.Cmd.(type) {
	case *fsm.AddCopies:
		same := 0
		for _, c := range p.result.Added {
			if sameZone(state, c.Unit, c.Node) {
				same++
			}
		}
		if len(p.result.Added) > 0 {
			s.logger.Info("copies were placed", "units", len(p.result.Added))
		}
		if same > 0 { // accepted, and told (C3)
			s.logger.Warn("copies are in their primaries' own zone, as no node in another is free", "units", same)
		}
	case *fsm.ChangeCopies:
		to := make(map[fsm.CopyState]int)
		for _, c := range cmd.Changes {
			to[c.To]++
		}
		if n := to[fsm.CopyInSync]; n > 0 {
			s.logger.Info("copies are in sync", "units", n)
		}
		if n := to[fsm.CopySyncing]; n > 0 {
			s.logger.Warn("copies fell behind or are silent", "node", p.Node, "units", n)
		}
		if n := to[fsm.CopyLeaving]; n > 0 {
			s.logger.Info("copies are not needed any more", "units", n)
		}
	case *fsm.DropCopies:
		s.logger.Info("copies were removed", "units", len(cmd.Copies))
	}
}

// sameZone reports whether a copy of a unit is in its primary's zone.
func sameZone(state *fsm.State, unit fsm.UnitName, copyOn fsm.NodeName) bool {
	p, ok := state.Placed(unit)
	if !ok {
		return false
	}
	home, _ := state.Node(p.Node)
	other, _ := state.Node(copyOn)
	return home != nil && other != nil && home.Zone != "" && home.Zone == other.Zone
}

// tell tells people of what planners found, and keeps what was lost for answers.
func (s *shift) tell(state *fsm.State, findings []loops.Finding) {
	for _, f := range findings {
		switch f.Kind {
		case loops.FoundUnplaced:
			s.logger.Warn("a node holds units that the directory does not place there; they are removed", "node", f.Node, "units", f.Count)
		case loops.FoundLost:
			tenant, _, _ := f.Unit.Unit.Split()
			event := proto.Event{Event: proto.EventWritesLost, Node: f.Node, Tenant: tenant, Files: f.Files, Revision: state.Revision()}
			if f.From != "" {
				event.Lost = &proto.PositionRange{From: f.From, To: f.To}
				s.known.found(f.Unit.Unit, *event.Lost)
			}
			if !s.known.first(&f) {
				continue
			}
			what := "a failover lost writes that a node had acknowledged alone; it keeps them aside"
			switch {
			case f.From != "":
			case slices.ContainsFunc(f.Files, isDamaged):
				what = "a node keeps a damaged file aside, as it was: it may hold writes that the tenant lacks"
			default:
				what = "a node keeps aside a branch that a failover gave up: it may hold writes that the tenant lacks"
			}
			s.logger.Warn(what, "node", f.Node, "unit", f.Unit.Unit, "from", f.From, "to", f.To, "files", f.Files)
			s.events.add(event)
		}
	}
}

// isDamaged tells the name of a file that a node keeps aside because it was damaged.
func isDamaged(file string) bool { return strings.HasSuffix(file, ".damaged.db") }
