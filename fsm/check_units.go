package fsm

import (
	"cmp"
	"fmt"
	"slices"
)

func checkUnit(s *State, tenant TenantName, p *Placed) error {
	e, ok := s.nodes.Get(p.Node)
	// Ids are of the global directory, epochs of the one where the unit is, or was.
	own, foreign := s.scope.Region == "", p.State == UnitReceiving || p.State == UnitDeleting
	switch {
	case !ok && (p.Node != "" || !s.removed(p)), p.ID == 0 || own && Revision(p.ID) > s.revision:
		return fmt.Errorf("bad placement on %q", p.Node)
	case p.Epoch < firstEpoch || !foreign && (flippedIn(p.Epoch) > max(s.revision, s.abroad) ||
		own && s.abroad == 0 && p.Epoch != firstEpoch && UnitID(p.Epoch) <= p.ID):
		return fmt.Errorf("epoch %d", p.Epoch)
	}
	t, _ := s.Tenant(tenant)
	region, any := RegionName(""), false
	if ok {
		region, any = e.node.Region, true
	}
	move := s.moveOf(p)
	for i := range p.Copies {
		c := &p.Copies[i]
		other, ok := s.nodes.Get(c.Node)
		if !ok || c.Node == p.Node || i > 0 && p.Copies[i-1].Node >= c.Node || c.State < CopySyncing || c.State > CopyReader ||
			c.Since > s.now || c.Entry > s.revision {
			return fmt.Errorf("bad copy on %s", c.Node)
		}
		switch {
		case c.State == CopyTarget:
			if err := s.checkTarget(p, move, other.node); err != nil {
				return err
			}
		case c.State == CopyReader:
			if at, _ := s.readerIn(p, other.node.Region); at != c.Node || any && !s.readIn(t, region, c.Node) {
				return fmt.Errorf("a read replica on %s, where none was asked for", c.Node)
			}
		case !c.State.Replica(): // gets nothing any more
		case any && other.node.Region != region:
			return fmt.Errorf("copy on %s is outside of the region (I2)", c.Node)
		default:
			region, any = other.node.Region, true
		}
	}
	if err := checkPromotion(s, p); err != nil {
		return err
	}
	lacks := s.level >= levelCopies && p.kept() && s.lacks(p)
	if s.counted(p) && (p.Lacks != 0) != lacks || p.Lacks > max(s.now, 1) || p.Lacks < 0 {
		return fmt.Errorf("it lacks copies since %d, %v", p.Lacks, lacks)
	}
	return checkWork(s, tenant, p)
}

// moveOf gives the move that may still bring p itself to its target, or nil.
func (s *State) moveOf(p *Placed) *Job {
	if j, ok := s.moves.Get(p.Unit); ok && (j.Targets[0].ID == p.ID) {
		return j
	}
	return nil
}

// checkTarget: a copy is a target exactly for a move that fills it, of that node or, in
// the region that the move leads to, of a replica to be (I2).
func (s *State) checkTarget(p *Placed, j *Job, on *Node) error {
	if j == nil || j.Refusal != nil || j.Step != StepCopy && j.Step != StepRelease && j.Step != StepThaw {
		return fmt.Errorf("copy on %s is the target of no move", on.Name)
	}
	to := j.Targets[0].Node
	if p.State == UnitReceiving {
		return must(j.Kind == JobReceive && s.besides(p, on.Name), "copy on %s is the replica to be of nothing that is received (I2)", on.Name)
	}
	if to == on.Name && j.Kind == JobMove {
		return nil
	}
	target, ok := s.nodes.Get(to)
	return must(ok && target.node.Region == on.Region && !s.besides(p, to), "copy on %s is the replica to be of a move to %s", on.Name, to)
}

// checkPromotion: a unit that waits for its promotion has a last primary, whose
// data is not forgotten, and nobody hands it over (I1, architecture §3.7.6).
func checkPromotion(s *State, p *Placed) error {
	if p.Promoted() {
		return nil
	}
	return must(p.State == UnitActive && p.Epoch > firstEpoch && (p.Previous == p.Node || p.copyOn(p.Previous) == CopyFormer),
		"%s, not promoted at epoch %d, after %s", p.State, p.Epoch, p.Previous)
}

// checkWork checks that a unit is at the work that its state says, and at none
// else.
func checkWork(s *State, tenant TenantName, p *Placed) error {
	if p.State == UnitActive {
		return must(p.Job == 0, "an active unit is at job %d", p.Job)
	}
	j, ok := s.running.Get(p.Job)
	if !ok {
		return fmt.Errorf("%s, at job %d that does not run", p.State, p.Job)
	}
	switch p.State {
	case UnitCreating:
		ok = j.Kind == JobCreate && j.Tenant == tenant && (j.Step != StepUndo || len(p.Copies) == 0)
		for i := range p.Copies {
			ok = ok && p.Copies[i].State == CopySyncing
		}
	case UnitDeleting:
		ok = (j.Kind == JobDelete || j.Kind == JobDepart && j.Step == StepRemove || j.Kind == JobReceive && j.Step == StepUndo) && j.Tenant == tenant
	case UnitReceiving:
		ok = j.Kind == JobReceive && j.Step == StepCopy && j.Unit == p.ID && j.Targets[0].Node == p.Node && j.Other != nil
	case UnitSent:
		ok = j.Kind == JobDepart && j.Step == StepSent && j.Unit == p.ID && j.Source == p.Node
	case UnitMoving:
		i, found := j.target(p.Unit)
		ok = (j.Kind == JobHandover || j.Kind == JobMove || j.Kind == JobDepart) && j.Step == StepRelease && j.Source == p.Node && found && j.Targets[i].ID == p.ID
	default:
		ok = false
	}
	return must(ok, "%s, at job %d to %s %q", p.State, j.ID, j.Kind, j.Tenant)
}

// tally is what nodes hold, counted from the units.
type tally struct{ primaries, copies, all int }

// checkSeats compares what nodes are said to hold with what is placed there.
func checkSeats(s *State) error {
	held := make(map[NodeName]*tally)
	shared, copied := make(map[[2]NodeName]int), make(map[NodeName]int) // by primary's and copy's node; by primary's
	of := func(n NodeName, p *Placed) (*tally, error) {
		if held[n] == nil {
			held[n] = new(tally)
		}
		held[n].all++
		e, _ := s.nodes.Get(n)
		known, _ := e.units.Get(seatKeyOf(p))
		return held[n], must(known == p, "node %s does not know that it holds %s", n, p.Unit)
	}
	counts := func(p *Placed) (err error) {
		if p.Node != "" {
			t, e := of(p.Node, p)
			t.primaries++
			err = e
		}
		for _, c := range p.Copies {
			t, e := of(c.Node, p)
			err = cmp.Or(err, e)
			if !c.State.Follows() {
				continue
			}
			t.copies++
			if p.Node != "" {
				shared[[2]NodeName{p.Node, c.Node}]++
				copied[p.Node]++
			}
		}
		return err
	}
	for p := range s.allUnits() {
		if err := counts(p); err != nil {
			return err
		}
	}
	return each(s.nodes.Scan, func(name NodeName, e *seat) error {
		h := cmp.Or(held[name], new(tally))
		if e.primaries != h.primaries || e.copies != h.copies || e.units.Len() != h.all {
			return fmt.Errorf("said to hold %d primaries and %d copies of %d units; holds %d and %d of %d",
				e.primaries, e.copies, e.units.Len(), h.primaries, h.copies, h.all)
		}
		n := 0
		err := each(e.copiesOn.Scan, func(on NodeName, count int) error {
			n += count
			return must(count > 0 && shared[[2]NodeName{name, on}] == count, "%d copies of its units there", count)
		})
		return cmp.Or(err, must(n == copied[name], "%d copies of its units, counted as %d", copied[name], n))
	})
}

// checkLists: a list that names a unit is at least as new as what it says of it.
func checkLists(s *State) error {
	return each(s.nodes.Scan, func(name NodeName, e *seat) error {
		if e.list > s.revision || s.level >= levelCopies && e.list < Revision(e.node.ID) {
			return fmt.Errorf("a list of revision %d of a node of %d", e.list, e.node.ID)
		}
		if s.level < levelCopies {
			return nil
		}
		for p := range s.Grantable(name) {
			if s.scope.Region == "" && Revision(p.ID) > e.list || flippedIn(p.Epoch) > max(e.list, s.abroad) {
				return fmt.Errorf("a list of revision %d names %s, of epoch %d", e.list, p.Unit, p.Epoch)
			}
			for i := range p.Copies {
				if c := &p.Copies[i]; c.State.Listed() && c.State != CopyInSync && c.Entry > e.list {
					return fmt.Errorf("a list of revision %d is older than the copy of %s on %s", e.list, p.Unit, c.Node)
				}
			}
		}
		return nil
	})
}

// checkRunning checks that a job is one that units are at, and works on all of
// them.
func checkRunning(s *State, j *Job) error {
	steps := map[JobKind][]JobStep{
		JobCreate: {StepMake, StepSchema, StepUndo}, JobDelete: {StepRemove}, JobHandover: {StepRelease, StepThaw},
		JobMove: {StepQueue, StepCopy, StepRelease, StepThaw, StepPromote, StepClean}, JobRebalance: {StepBegin},
		JobRelocate: {StepCopy, StepRelease, StepPromote, StepClean, StepUndo}, JobDepart: {StepCopy, StepRelease, StepThaw, StepSent, StepRemove},
		JobReceive: {StepCopy, StepPromote, StepUndo}, JobGive: {StepCopy, StepPromote, StepClean, StepUndo},
	}[j.Kind]
	if j.Home != "" && j.Kind == JobDelete {
		steps = append(steps, StepUndo)
	}
	givenUp := j.Step == StepUndo || (j.Kind == JobMove || j.Kind == JobDepart) && j.mayBeGivenUp() && j.Refusal != nil
	if !slices.Contains(steps, j.Step) || j.EndedIn != 0 || j.Ended != 0 || givenUp != (j.Refusal != nil) {
		return fmt.Errorf("a job to %s stands at %s", j.Kind, j.Step)
	}
	switch j.Kind {
	case JobHandover:
		return checkHandover(s, j)
	case JobMove:
		return checkMove(s, j)
	case JobRebalance:
		return must(j.Tenant == "" && len(j.Targets) > 0 && s.Rebalance() == j, "a rebalance of %d moves", len(j.Targets))
	case JobGive:
		return must(j.Tenant == "" && len(j.Targets) == 0 && s.giving == j, "a hand-over of %q that is not known", j.Home)
	}
	if j.Kind == JobRelocate || j.Home != "" {
		t, ok := s.Tenant(j.Tenant)
		at := j.Kind == JobRelocate && j.Step == StepClean || ok && t.Job == j.ID
		return must(at && s.scope.Region == "" && len(j.Targets) == 0 && (j.Kind == JobRelocate || t.HasHome), "a job to %s %q, which is not at it", j.Kind, j.Tenant)
	}
	if err := checkTaskOf(s, j); err != nil {
		return err
	}
	if (j.Kind == JobDepart || j.Kind == JobReceive) && j.Step != StepRemove && j.Step != StepUndo {
		return checkBetween(s, j)
	}
	var want []Target
	units := 0
	for p := range s.TenantUnits(j.Tenant) {
		if p.Job != j.ID {
			return fmt.Errorf("unit %s is at job %d", p.Unit, p.Job)
		}
		units++
		if p.Node != "" {
			want = append(want, Target{p.Unit, p.ID, p.Node})
		}
		if j.Kind == JobCreate {
			continue // copies begin once the units are active
		}
		for _, c := range p.Copies {
			want = append(want, Target{p.Unit, p.ID, c.Node})
		}
	}
	sortTargets(want)
	return must(units > 0 && slices.Equal(want, j.Targets), "targets %v, units %v", j.Targets, want)
}

func checkHandover(s *State, j *Job) error {
	source, ok := s.nodes.Get(j.Source)
	if !ok || j.Tenant != "" || j.Cause < CauseHand || j.Cause > CauseBehind && j.Cause != CauseDrain || len(j.Targets) == 0 || s.handoverOf(j.Source) != j {
		return fmt.Errorf("a handover of node %q, tenant %q, cause %d, with %d targets", j.Source, j.Tenant, j.Cause, len(j.Targets))
	}
	for i, t := range j.Targets {
		if i > 0 && j.Targets[i-1].Unit >= t.Unit {
			return fmt.Errorf("a handover of %s comes after %s", t.Unit, j.Targets[i-1].Unit)
		}
		if j.Step == StepThaw {
			continue // these may have been deleted or failed over meanwhile
		}
		p, ok := s.Placed(t.Unit)
		if !ok || p.ID != t.ID || p.State != UnitMoving || p.Job != j.ID || p.Node != source.node.Name {
			return fmt.Errorf("a handover of %s, which is not at it", t.Unit)
		}
		if to, ok := s.nodes.Get(t.Node); !ok || to.node.Region != source.node.Region {
			return fmt.Errorf("a handover of %s to %s (I2)", t.Unit, t.Node)
		}
	}
	return nil
}

// checkMove: a move has one target, and while it may still bring its unit there the
// unit is known by it; copies are made for it from StepCopy on.
func checkMove(s *State, j *Job) error {
	if len(j.Targets) != 1 || j.Cause != CauseMove && j.Cause != CauseDrain && j.Cause != CauseRebalance || j.Source == "" {
		return fmt.Errorf("a move of %d units by %s", len(j.Targets), j.Cause)
	}
	t := j.Targets[0]
	known, ok := s.Move(t.Unit)
	if (ok && known == j) != (j.Step != StepClean) {
		return fmt.Errorf("a move at %s, known by its unit %v", j.Step, ok)
	}
	p, ok := s.Placed(t.Unit)
	if ok = ok && p.ID == t.ID && p.kept(); ok && j.mayBeGivenUp() && j.Refusal == nil {
		if _, recorded := s.nodes.Get(t.Node); !recorded {
			return fmt.Errorf("a move of %s to %q, which is not recorded", t.Unit, t.Node)
		}
	}
	if j.Step != StepRelease {
		return must(j.Release == 0 || j.Step != StepQueue, "a move at %s was released in entry %d", j.Step, j.Release)
	}
	return must(ok && p.State == UnitMoving && p.Job == j.ID && p.Node == j.Source && p.copyOn(t.Node).Listed() && j.Release > Revision(j.ID) &&
		j.Release <= s.revision, "the move of %s, which is not at it", t.Unit)
}
