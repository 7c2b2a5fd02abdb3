package controlplane

import (
	"net/http"

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

// getHandOver tells of the last hand-over of a region by this group.
func (s *Server) getHandOver(w http.ResponseWriter, r *http.Request, state *fsm.State) error {
	name := fsm.RegionName(r.PathValue("region"))
	if !fsm.ValidName(string(name)) {
		return badName("region", string(name))
	}
	for j := range state.JobsNewest(1 << 62) {
		if j.Kind == fsm.JobGive && j.Home == name {
			httpserve.WriteJSON(w, http.StatusOK, s.handOverOf(state, j))
			return nil
		}
	}
	return refusal(&fsm.Refusal{Code: fsm.CodeRegionUnknown, Text: "region " + string(name) + " was not handed over by this group of late",
		Fields: map[string]string{"region": string(name)}})
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
	out := &proto.RegionHandOver{ID: i.Job, Region: name, Direction: proto.HandOverReturn, Step: "telling", Started: i.Began, Nodes: len(i.Nodes)}
	if s.config.Region != "" {
		out.Direction = proto.HandOverAdopt
	}
	if i.Arrived != 0 {
		out.Step = "nodes"
	}
	return out
}
