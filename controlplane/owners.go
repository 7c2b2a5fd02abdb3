package controlplane

import (
	"encoding/json"
	"net/http"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// Who changes what (G4): each change has one group whose it is. The routes say by which
// of the functions below it is found out; a server of another group relays.

// ownerFunc says whose a request is. What it cannot make out is this group's: its handler
// says what is wrong.
type ownerFunc func(r *http.Request, body []byte) (owner, error)

// own is this server's own group.
func (s *Server) own() owner {
	return owner{global: s.config.Region == "", region: s.config.Region}
}

// byGroup is for what is of the group that is asked, whichever it is: its servers, its
// settings.
func (s *Server) byGroup(*http.Request, []byte) (owner, error) { return s.own(), nil }

// byGlobal is for names, homes and regions.
func (s *Server) byGlobal(*http.Request, []byte) (owner, error) { return owner{global: true}, nil }

// byRegion is for what is named within one directory: a node, a move. ?region= says whose,
// or a region in the body.
func (s *Server) byRegion(r *http.Request, body []byte) (owner, error) {
	if query := r.URL.Query(); query.Has("region") {
		return s.keeperOf(fsm.RegionName(query.Get("region")))
	}
	if region, ok := regionIn(body); ok {
		return s.keeperOf(region)
	}
	return s.own(), nil
}

// ofNowhere reports whether ?region= names a region that no directory knows: nothing is of
// it. The global group is asked for such a one.
func ofNowhere(r *http.Request, state *fsm.State) bool {
	query := r.URL.Query()
	region := fsm.RegionName(query.Get("region"))
	scope, _ := state.Scope()
	if !query.Has("region") || region == scope.Region {
		return false
	}
	for n := range state.Nodes() {
		if n.Region == region {
			return false
		}
	}
	_, recorded := state.Region(region)
	return !recorded
}

// byNode is for a node that is recorded or changed: byRegion, where the region's directory
// has the node, or is to. One that this directory alone has is not taken to another by
// naming a region of that one: its own group says so.
func (s *Server) byNode(r *http.Request, body []byte) (owner, error) {
	o, err := s.byRegion(r, body)
	if err != nil || o == s.own() || r.URL.Query().Has("region") || r.Header.Get(proto.HeaderRelayedBetween) != "" {
		return o, err
	}
	var put proto.PutNode
	name := fsm.NodeName(r.PathValue("node"))
	if json.Unmarshal(body, &put) != nil || put.Addr != nil && put.Token != nil {
		return o, nil // a new node, for all that is known here
	}
	if _, here := s.group.State().Node(name); !here {
		return o, nil
	}
	if _, there, err := s.askForNode(r, o, name); there || err != nil {
		return o, nil
	}
	return s.own(), nil
}

// byTenant is for what is of a tenant, in its home.
func (s *Server) byTenant(r *http.Request, _ []byte) (owner, error) {
	return s.homeOf(fsm.TenantName(r.PathValue("tenant"))), nil
}

// byMove is for moves: within its home they are the home's, and the global group's where
// another region is named.
func (s *Server) byMove(r *http.Request, body []byte) (owner, error) {
	home := s.homeOf(fsm.TenantName(r.PathValue("tenant")))
	region, named := regionIn(body)
	if !named || home.global || region == home.region {
		return home, nil
	}
	return owner{global: true}, nil
}

// regionIn gives the region that a body names, if it does.
func regionIn(body []byte) (fsm.RegionName, bool) {
	var named struct {
		Region *fsm.RegionName `json:"region"`
	}
	if json.Unmarshal(body, &named) != nil || named.Region == nil {
		return "", false
	}
	return *named.Region, true
}

// keeperOf gives the group that keeps the nodes of a region.
func (s *Server) keeperOf(region fsm.RegionName) (owner, error) {
	if region != "" && !fsm.ValidName(string(region)) {
		return owner{}, badName("region", string(region))
	}
	if s.config.Region == "" {
		if s.group.State().KeepsOwn(region) {
			return owner{region: region}, nil
		}
		return owner{global: true}, nil
	}
	if region == s.config.Region {
		return s.own(), nil
	}
	d := s.globalCopy()
	if d == nil {
		return owner{}, errNoGlobal()
	}
	if _, own := d.Region(region); own {
		return owner{region: region}, nil
	}
	return owner{global: true}, nil
}

// homeOf gives the group that places a tenant. One that nobody knows is the global
// group's, which has every name.
func (s *Server) homeOf(name fsm.TenantName) owner {
	state := s.group.State()
	if s.config.Region == "" {
		if t, ok := state.Tenant(name); ok && t.HasHome {
			return owner{region: t.Home}
		}
		return owner{global: true}
	}
	if d := s.globalCopy(); d != nil {
		if where, ok := d.Tenant(name); ok {
			if where.Home {
				return owner{region: where.Region}
			}
			return owner{global: true}
		}
	}
	if _, ok := state.Tenant(name); ok {
		return s.own() // being made, or this server's copy of the global directory is behind
	}
	return owner{global: true}
}

func errNoGlobal() error {
	return httpserve.Errorf(http.StatusServiceUnavailable, proto.CodeDirectoryUnavailable,
		"this server does not have the global directory yet; try again shortly")
}
