package controlplane

import (
	"net/http"
	"strings"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// byRegionItself is for what the group of the region in the path does.
func (s *Server) byRegionItself(r *http.Request, _ []byte) (owner, error) {
	name := fsm.RegionName(r.PathValue("region"))
	if name == "" || !fsm.ValidName(string(name)) {
		return owner{}, badName("region", string(name))
	}
	o := owner{region: name}
	if o != s.own() && len(s.addresses(o)) == 0 {
		return owner{}, regionNotKept(name)
	}
	return o, nil
}

// byWhoReturns is for what is asked of a region's return: the region's group, or, once the
// region is recorded no more, the global one, which has taken it.
func (s *Server) byWhoReturns(r *http.Request, body []byte) (owner, error) {
	name := fsm.RegionName(r.PathValue("region"))
	if o := (owner{region: name}); fsm.ValidName(string(name)) && o != s.own() && len(s.addresses(o)) == 0 {
		return owner{global: true}, nil
	}
	return s.byRegionItself(r, body)
}

func regionNotKept(name fsm.RegionName) error {
	return refusal(&fsm.Refusal{Code: fsm.CodeRegionUnknown, Text: "region " + string(name) + " is not recorded as one that keeps its own directory",
		Fields: map[string]string{"region": string(name)}})
}

// handRegion begins to give a region to the other group: the global group gives it to the
// region's own (adopt), that one gives it back (return). That one is asked first, so that
// nothing is recorded where it is not reached.
func (s *Server) handRegion(w http.ResponseWriter, c *change) error {
	name := fsm.RegionName(c.PathValue("region"))
	if err := c.none(); err != nil {
		return err
	}
	if _, err := parseQuery(c.Request); err != nil {
		return err
	}
	if !fsm.ValidName(string(name)) {
		return badName("region", string(name))
	}
	to := s.givenTo(name)
	if !c.replayed && len(s.addresses(to)) > 0 {
		if _, r, _ := s.askIntake(c.Context(), to, 1, nil); r != nil {
			return refusal(r)
		}
	}
	result, err := s.propose(w, c, &fsm.BeginGive{Region: name})
	if err != nil {
		return err
	}
	j, ok := s.group.State().Job(result.Job)
	if !ok { // long ago, under the same Idempotency-Key
		j = &fsm.Job{ID: result.Job, Kind: fsm.JobGive, Home: name, Step: fsm.StepDone}
	}
	s.logger.Info("a region is to be handed over", "region", string(name), "to", to.String(), "job", j.ID)
	httpserve.WriteJSON(w, http.StatusAccepted, s.handOverOf(s.group.State(), j))
	return nil
}

// cancelHandOver ends a hand-over by this group that has not given the region yet.
func (s *Server) cancelHandOver(w http.ResponseWriter, c *change) error {
	name := fsm.RegionName(c.PathValue("region"))
	if err := c.none(); err != nil {
		return err
	}
	if _, err := parseQuery(c.Request); err != nil {
		return err
	}
	if !fsm.ValidName(string(name)) {
		return badName("region", string(name))
	}
	j := s.lastGiven(s.group.State(), name)
	fields := map[string]string{"region": string(name)}
	switch {
	case j == nil:
		return notGivenOfLate(name)
	case c.replayed: // Apply has the first answer
	case j.Ended != 0:
		return refusal(&fsm.Refusal{Code: fsm.CodeMoveEnded, Text: "the hand-over of region " + string(name) + " has ended already", Fields: fields})
	case j.Step != fsm.StepCopy && j.Step != fsm.StepUndo:
		return refusal(&fsm.Refusal{Code: fsm.CodeMoveReleased, Text: "region " + string(name) + " was given already, and the hand-over goes on: it is handed back once that is done", Fields: fields})
	}
	if j.Step == fsm.StepCopy || c.replayed {
		why := &fsm.Refusal{Code: fsm.CodeCancelled, Text: "an operator cancelled it", Fields: fields}
		if _, err := s.propose(w, c, &fsm.AdvanceJob{ID: j.ID, From: fsm.StepCopy, To: fsm.StepUndo, Refusal: why}); err != nil {
			return err
		}
		s.logger.Info("the hand-over of a region was cancelled", "region", string(name), "job", j.ID)
	}
	state := s.group.State()
	if now, ok := state.Job(j.ID); ok {
		j = now
	}
	httpserve.WriteJSON(w, http.StatusOK, s.handOverOf(state, j))
	return nil
}

// lastGiven is the last job of this group that gives a region away, or nil.
func (s *Server) lastGiven(state *fsm.State, name fsm.RegionName) *fsm.Job {
	for j := range state.JobsNewest(1 << 62) {
		if j.Kind == fsm.JobGive && j.Home == name {
			return j
		}
	}
	return nil
}

func notGivenOfLate(name fsm.RegionName) error {
	return refusal(&fsm.Refusal{Code: fsm.CodeRegionUnknown, Text: "region " + string(name) + " was not handed over by this group of late",
		Fields: map[string]string{"region": string(name)}})
}

// getHandOver tells of the last hand-over of a region by this group.
func (s *Server) getHandOver(w http.ResponseWriter, r *http.Request, state *fsm.State) error {
	name := fsm.RegionName(r.PathValue("region"))
	if !fsm.ValidName(string(name)) {
		return badName("region", string(name))
	}
	adopt := strings.HasSuffix(r.URL.Path, "/"+proto.HandOverAdopt)
	if j := s.lastGiven(state, name); j != nil && adopt == (s.config.Region == "") {
		httpserve.WriteJSON(w, http.StatusOK, s.handOverOf(state, j))
		return nil
	}
	for i := range state.Intakes() {
		if i.Region == name && !adopt && s.config.Region == "" && i.Arrived != 0 {
			httpserve.WriteJSON(w, http.StatusOK, handOverFrom(i, proto.HandOverReturn))
			return nil
		}
	}
	return notGivenOfLate(name)
}

var giveSteps = map[fsm.JobStep]string{fsm.StepCopy: "telling", fsm.StepPromote: "arriving", fsm.StepClean: "nodes", fsm.StepUndo: "undoing", fsm.StepDone: "done"}

// handOverOf shows a job that gives a region away.
func (s *Server) handOverOf(state *fsm.State, j *fsm.Job) *proto.RegionHandOver {
	out := &proto.RegionHandOver{ID: j.ID, Region: j.Home, Direction: proto.HandOverAdopt, Step: giveSteps[j.Step], Problem: j.Problem, Started: j.Started}
	if s.config.Region != "" {
		out.Direction = proto.HandOverReturn
	}
	switch j.Step {
	case fsm.StepCopy:
		nodes, _ := state.Given(j.Home)
		out.Nodes = len(nodes)
	case fsm.StepPromote, fsm.StepClean:
		for range state.StagedNodes() {
			out.Nodes++
		}
	}
	switch {
	case j.Ended != 0 && j.Refusal == nil:
		out.Outcome = "done"
	case j.Ended != 0:
		out.Outcome = "undone"
	}
	if j.Refusal != nil {
		out.Code, out.Error = j.Refusal.Code, j.Refusal.Text
	}
	return out
}

// handOverUnderWay shows the hand-over of a region that is under way, from here or to here.
func (s *Server) handOverUnderWay(state *fsm.State, name fsm.RegionName) *proto.RegionHandOver {
	if j := state.Giving(); j != nil && j.Home == name {
		return s.handOverOf(state, j)
	}
	i := state.OpenIntake()
	if i == nil || i.Region != name {
		return nil
	}
	if s.config.Region != "" {
		return handOverFrom(i, proto.HandOverAdopt)
	}
	return handOverFrom(i, proto.HandOverReturn)
}

// handOverFrom shows a hand-over by what the group knows of it that takes the region.
func handOverFrom(i *fsm.Intake, direction string) *proto.RegionHandOver {
	out := &proto.RegionHandOver{ID: i.Job, Region: i.Region, Direction: direction, Step: giveSteps[fsm.StepCopy], Started: i.Began, Nodes: len(i.Nodes)}
	switch {
	case i.Over:
		out.Step, out.Outcome = giveSteps[fsm.StepDone], "done"
	case i.Arrived != 0:
		out.Step = giveSteps[fsm.StepClean]
	}
	return out
}
