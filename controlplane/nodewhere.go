package controlplane

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// A node's name is one of its directory's alone, and a group knows no other's. A request
// that names a node, and is refused as none is called so where the tenant is to be, is
// answered with the region that has it (M1, T2): the other groups are asked.

// wanted is where a tenant was to go, as the request says.
type wanted struct {
	tenant fsm.TenantName
	node   *fsm.NodeName
	region *fsm.RegionName // as the request names it
	lives  fsm.RegionName  // where the tenant is, of a move
}

// ofAnotherRegion makes of a refusal of an unknown node one that names the region of the
// node (409). Where no group that was asked has such a node the refusal stays, and says
// which groups could not be asked.
func (s *Server) ofAnotherRegion(w http.ResponseWriter, c *change, to wanted, err error) error {
	var refused *httpserve.Error
	if to.node == nil || !errors.As(err, &refused) || refused.Code != fsm.CodeNodeUnknown {
		return err
	}
	regions, silent := s.regionsWith(c, *to.node)
	if to.region != nil && slices.Contains(regions, *to.region) {
		return err // it is there by now
	}
	if len(regions) > 0 {
		return to.elsewhere(regions)
	}
	if len(silent) > 0 {
		w.Header().Set(proto.HeaderUnreachable, strings.Join(silent, ", "))
		refused.Text += "; whether another region has such a node is not known of all: not reached is " + strings.Join(silent, ", ")
		refused.Fields["unreachable"] = silent
	}
	return refused
}

// elsewhere refuses a node of other regions than the one that is meant.
func (to *wanted) elsewhere(regions []fsm.RegionName) error {
	in := strconv.Quote(string(regions[0]))
	for _, r := range regions[1:] {
		in += " and one in " + strconv.Quote(string(r))
	}
	text := "node " + string(*to.node) + " is in region " + in
	if to.region != nil {
		text += ", not in " + strconv.Quote(string(*to.region)) + "; leave one of the two out, or make them agree"
	} else {
		text += ", and tenant " + string(to.tenant) + " lives in " + strconv.Quote(string(to.lives)) +
			": name the region in the request if the tenant is to leave its own"
	}
	e := httpserve.Errorf(proto.Status(fsm.CodeRegionMismatch), fsm.CodeRegionMismatch, "%s", text)
	e.Fields = map[string]any{"tenant": to.tenant, "node": *to.node, "region": regions[0]}
	if len(regions) > 1 {
		e.Fields["regions"] = regions
	}
	return e
}

// standbyElsewhere makes of a refusal of an unknown standby one that names its region, where
// another directory has it: a standby is in its node's region (C5).
func (s *Server) standbyElsewhere(c *change, cmd *fsm.PutNode, err error) error {
	var refused *httpserve.Error
	if cmd.Standby == nil || !errors.As(err, &refused) || refused.Code != fsm.CodeStandbyUnknown {
		return err
	}
	regions, _ := s.regionsWith(c, *cmd.Standby)
	if len(regions) == 0 {
		return err
	}
	e := httpserve.Errorf(proto.Status(fsm.CodeRegionMismatch), fsm.CodeRegionMismatch,
		"standby %s is in region %q, which has another directory; the standby of %s must be in its own region", *cmd.Standby, regions[0], cmd.Name)
	e.Fields = map[string]any{"node": cmd.Name, "standby": *cmd.Standby, "region": regions[0]}
	return e
}

// regionsWith gives the regions that have a node of a name, as each directory's group
// tells, in order; and the groups that were not reached.
func (s *Server) regionsWith(c *change, name fsm.NodeName) (regions []fsm.RegionName, silent []string) {
	state := s.group.State()
	if n, ok := state.Node(name); ok {
		regions = append(regions, n.Region)
	}
	parts, err := s.parties(state, tenantQuery{})
	if err != nil {
		return regions, []string{proto.GlobalScope}
	}
	var asked sync.WaitGroup
	var mu sync.Mutex
	copied := s.globalCopy() // knows of the global group's nodes where that one is not reached
	for _, p := range parts {
		if p.of == s.own() {
			continue
		}
		asked.Go(func() {
			region, there, err := s.askForNode(c.Request, p.of, name)
			if err != nil && p.of.global && copied != nil {
				if n, known := copied.Node(name); known {
					region, there, err = n.Region, true, nil
				}
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				silent = append(silent, p.of.name())
			case there:
				regions = append(regions, region)
			}
		})
	}
	asked.Wait()
	slices.Sort(regions)
	slices.Sort(silent)
	return slices.Compact(regions), silent
}

// askForNode asks another group for a node of its directory.
func (s *Server) askForNode(r *http.Request, of owner, name fsm.NodeName) (region fsm.RegionName, there bool, err error) {
	resp, body, err := s.question(r.Context(), of, r, "/_shard/nodes/"+url.PathEscape(string(name)))
	if err != nil {
		return "", false, err
	}
	var said struct {
		Region fsm.RegionName
		Code   proto.Code
	}
	err = json.Unmarshal(body, &said)
	switch {
	case err == nil && resp.StatusCode == http.StatusOK:
		return said.Region, true, nil
	case err == nil && said.Code == fsm.CodeNodeUnknown:
		return "", false, nil
	}
	return "", false, errors.New(of.String() + " answered " + resp.Status)
}

// changesDirectory refuses to make a node of this directory one of a region that has
// another: names, tokens and what nodes obey are of one directory each.
func (s *Server) changesDirectory(name fsm.NodeName, region *fsm.RegionName) error {
	state := s.group.State()
	n, known := state.Node(name)
	if !known || region == nil || *region == n.Region || s.config.Region == "" && !state.KeepsOwn(*region) {
		return nil
	}
	e := httpserve.Errorf(proto.Status(fsm.CodeRegionElsewhere), fsm.CodeRegionElsewhere,
		"node %s is recorded in the directory of %s, and region %q is in another: no node changes directories by a change of its region. "+
			"Delete it here once it is empty, and record it there with its addr and token; a whole region is handed over (regions adopt, return)",
		name, s.own(), *region)
	e.Fields = map[string]any{"node": name, "region": *region, "owner": s.own().name()}
	return e
}
