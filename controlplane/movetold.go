package controlplane

import "domicile/fsm"

// advancedMove tells people of a move's beginning and its end.
func (s *shift) advancedMove(j *fsm.Job, cmd *fsm.AdvanceJob) {
	t := j.Targets[0]
	switch {
	case cmd.To == fsm.StepCopy:
		s.logger.Info("a move is under way", "move", j.ID, "unit", t.Unit, "from", j.Source, "to", t.Node, "cause", j.Cause.String())
	case cmd.Refusal != nil:
		s.known.moveEnded(j.ID)
		s.logger.Warn("a move is undone", "move", j.ID, "unit", t.Unit, "from", j.Source, "to", t.Node, "err", cmd.Refusal.Text)
	case cmd.To == fsm.StepDone:
		s.known.moveEnded(j.ID)
		s.logger.Info("a move is done", "move", j.ID, "unit", t.Unit, "from", j.Source, "to", t.Node, "pause_ms", int64(j.Pause), "bytes", j.Bytes)
	}
}

// advancedRelocation tells people of a move between directories.
func (s *shift) advancedRelocation(j *fsm.Job, cmd *fsm.AdvanceJob) {
	switch {
	case cmd.Refusal != nil:
		s.logger.Warn("a move to another region is undone", "move", j.ID, "tenant", j.Tenant, "from", j.From, "to", j.Home, "err", cmd.Refusal.Text)
	case cmd.To == fsm.StepPromote:
		s.logger.Info("a tenant lives in another region now", "move", j.ID, "tenant", j.Tenant, "from", j.From, "to", j.Home)
	case cmd.To == fsm.StepDone && j.Refusal == nil:
		s.logger.Info("a move to another region is done", "move", j.ID, "tenant", j.Tenant, "from", j.From, "to", j.Home, "pause_ms", int64(j.Pause), "bytes", j.Bytes)
	}
}
