package controlplane

import (
	"iter"
	"net/http"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// putRegion records a region that keeps its own directory (G3), once its routers were
// asked whether they are that.
func (s *Server) putRegion(w http.ResponseWriter, c *change) error {
	name := fsm.RegionName(c.PathValue("region"))
	var put proto.PutRegion
	if err := c.decode(&put); err != nil {
		return err
	}
	if _, err := parseQuery(c.Request); err != nil {
		return err
	}
	if !fsm.ValidName(string(name)) {
		return badName("region", string(name))
	}
	if name == proto.GlobalScope {
		return badRequest("no region is called %s: that is the global group's name", name)
	}
	if err := checkRouters(put.Routers); err != nil {
		return err
	}
	region, silent := fsm.Region{Name: name, Routers: put.Routers}, []string(nil)
	if !c.replayed {
		var err error
		if region.Authority, silent, err = s.askRouters(c.Context(), name, put.Routers); err != nil {
			return err
		}
	}
	result, err := s.propose(w, c, &fsm.PutRegion{Region: region})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if result.Created {
		status = http.StatusCreated
	}
	if recorded, ok := s.group.State().Region(name); ok && c.replayed { // its routers were not asked again
		region.Authority = recorded.Authority
	}
	s.logger.Info("region recorded", "region", string(name), "unreachable", silent)
	httpserve.WriteJSON(w, status, proto.Region{Name: name, Routers: put.Routers, Authority: region.Authority, Unreachable: silent})
	return nil
}

func (s *Server) deleteRegion(w http.ResponseWriter, c *change) error {
	if err := c.none(); err != nil {
		return err
	}
	if _, err := parseQuery(c.Request); err != nil {
		return err
	}
	name := fsm.RegionName(c.PathValue("region"))
	if !fsm.ValidName(string(name)) {
		return badName("region", string(name))
	}
	if !c.replayed {
		if err := s.checkEmpty(c, name); err != nil {
			return err
		}
	}
	if _, err := s.propose(w, c, &fsm.DeleteRegion{Name: name}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// regionsOf yields the regions that keep their own directory, as the global directory
// tells of them.
func (s *Server) regionsOf(state *fsm.State) (iter.Seq[*fsm.Region], error) {
	if s.global == nil {
		return state.Regions(), nil
	}
	d := s.globalCopy()
	if d == nil {
		return nil, errNoGlobal()
	}
	return d.Regions(), nil
}

func (s *Server) describeRegion(state *fsm.State, region *fsm.Region) proto.Region {
	return proto.Region{Name: region.Name, Routers: region.Routers, Authority: region.Authority, HandOver: s.handOverUnderWay(state, region.Name)}
}

func (s *Server) listRegions(w http.ResponseWriter, r *http.Request, state *fsm.State) error {
	all, err := s.regionsOf(state)
	if err != nil {
		return err
	}
	regions := []proto.Region{}
	for region := range all {
		regions = append(regions, s.describeRegion(state, region))
	}
	httpserve.WriteJSON(w, http.StatusOK, regions)
	return nil
}

func (s *Server) getRegion(w http.ResponseWriter, r *http.Request, state *fsm.State) error {
	name := fsm.RegionName(r.PathValue("region"))
	if !fsm.ValidName(string(name)) {
		return badName("region", string(name))
	}
	all, err := s.regionsOf(state)
	if err != nil {
		return err
	}
	for region := range all {
		if region.Name == name {
			httpserve.WriteJSON(w, http.StatusOK, s.describeRegion(state, region))
			return nil
		}
	}
	return refusal(&fsm.Refusal{Code: fsm.CodeRegionUnknown,
		Text:   "region " + string(name) + " is not recorded as one that keeps its own directory",
		Fields: map[string]string{"region": string(name)}})
}
