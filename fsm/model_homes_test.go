package fsm_test

import (
	"fmt"

	"domicile/fsm"
)

// modelHome is a tenant of a region that keeps its own directory.
type modelHome struct {
	home     fsm.RegionName
	claim    fsm.UnitID
	job      fsm.JobID
	step     fsm.JobStep // 0 when no job is under way
	why      fsm.Code    // the job is undone
	reserved bool        // nobody is told of it yet
}

// own reports whether a region keeps its own directory: one that has nodes here has not
// been handed over yet.
func (m *model) own(r fsm.RegionName) bool {
	for _, n := range m.nodes {
		if m.level >= 4 && n.region == r {
			return false
		}
	}
	return m.regions[r]
}

// homeFor gives the region that keeps its own directory and is to have a tenant, or "".
func (m *model) homeFor(c *fsm.CreateTenant) fsm.RegionName {
	region := c.Region
	if m.level < 4 || c.Node != nil && region == nil {
		return ""
	}
	if region == nil {
		region = m.fallback
	}
	if region != nil && m.own(*region) {
		return *region
	}
	return ""
}

// claim takes a name for a tenant of such a region; false where there is no such region.
func (m *model) claim(c *fsm.CreateTenant, at fsm.Revision) bool {
	home := m.homeFor(c)
	if home == "" {
		return false
	}
	m.homes[c.Name] = &modelHome{home: home, claim: fsm.UnitID(at), job: fsm.JobID(at), step: fsm.StepMake, reserved: true}
	return true
}

// takenHome says why a name that such a tenant has is not free.
func (h *modelHome) takenHome() fsm.Code {
	switch {
	case h.reserved:
		return fsm.CodeRegionUnreachable
	case h.step == fsm.StepRemove || h.step == fsm.StepUndo:
		return fsm.CodeBusy
	}
	return fsm.CodeTenantExists
}

func (h *modelHome) remove(at fsm.Revision) {
	switch h.step {
	case 0:
		h.job, h.step = fsm.JobID(at), fsm.StepRemove
	case fsm.StepMake:
		h.step, h.why = fsm.StepUndo, fsm.CodeDeleted
	}
}

// advanceHome is AdvanceJob where a region has answered; false where the job is not of
// such a tenant.
func (m *model) advanceHome(c *fsm.AdvanceJob) (fsm.Code, bool) {
	for name, h := range m.homes {
		if h.step == 0 || h.job != c.ID {
			continue
		}
		switch {
		case h.step != c.From:
			return fsm.CodeStale, true
		case (c.To == fsm.StepUndo) != (c.Refusal != nil) || c.Refusal != nil && c.Refusal.Code == "":
			return fsm.CodeBadRequest, true
		case c.To == fsm.StepUndo && h.step != fsm.StepUndo:
			h.step, h.why = fsm.StepUndo, c.Refusal.Code
			return "", true
		case c.To != fsm.StepDone:
			return fsm.CodeBadRequest, true
		}
		for _, a := range m.answers {
			if a.job == h.job {
				a.code = h.why
			}
		}
		if made := h.step == fsm.StepMake; !made && (h.step == fsm.StepRemove || c.Keep == 0) {
			delete(m.homes, name)
		} else if !made {
			h.claim = c.Keep
		}
		h.step, h.why, h.reserved = 0, "", false
		return "", true
	}
	return "", false
}

func (m *model) compareHomes(s *fsm.State) error {
	for name, h := range m.homes {
		t, ok := s.Tenant(name)
		if !ok || !t.HasHome || t.Home != h.home || t.Claim != h.claim || t.Reserved != h.reserved || (t.Job != 0) != (h.step != 0) || h.step != 0 && t.Job != h.job {
			return fmt.Errorf("tenant %s: %+v, the model has %+v", name, t, *h)
		}
	}
	return nil
}

func (m *model) homeJob(id fsm.JobID) bool {
	for _, h := range m.homes {
		if h.step != 0 && h.job == id {
			return true
		}
	}
	return false
}
