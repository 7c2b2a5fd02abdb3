package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// routersWithin bounds the wait for routers before a region is recorded: longer than one
// may take to be reached, and its group to have met the global one after its start.
const routersWithin = 5 * time.Second

// checkRouters brings the addresses of routers into the form that is recorded.
func checkRouters(routers []string) error {
	if len(routers) == 0 {
		return badRequest("a region is recorded with its routers: the addresses of one or more of its proxies")
	}
	for i, router := range routers {
		addr, err := routerAddress(router)
		if err != nil {
			return badRequest("router %v", err)
		}
		if slices.Contains(routers[:i], addr) {
			return badRequest("router %s is named twice", addr)
		}
		routers[i] = addr
	}
	return nil
}

// askRouters asks a region's routers whose they are, before the region is recorded. Each
// that answers must be of that region's own group, which follows this global directory; at
// least one must answer. It gives that group's name, and those that did not answer.
func (s *Server) askRouters(ctx context.Context, region fsm.RegionName, routers []string) (authority string, silent []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, routersWithin)
	defer cancel()
	told := make([]proto.Group, len(routers))
	failed := make([]error, len(routers))
	control := make([]bool, len(routers))
	var asked sync.WaitGroup
	for i, router := range routers {
		asked.Go(func() {
			if told[i], failed[i] = s.askRouter(ctx, router); failed[i] == nil {
				control[i] = s.isControlServer(ctx, router)
			}
		})
	}
	asked.Wait()
	own, _ := s.ownName()
	for i, router := range routers {
		why := ""
		switch about := &told[i]; {
		case failed[i] != nil:
			silent = append(silent, router)
			continue
		case control[i]:
			why = "is a control server, which forwards no requests to tenants"
		case about.Region == "":
			why = "leads to the global group"
		case about.Region != region:
			why = "is of region " + string(about.Region)
		case about.Global == nil || about.Global.Authority == "":
			why = "leads to a group that has not met the global directory yet: start its servers with --global"
		case about.Global.Authority != own.Authority:
			why = "leads to a group that belongs to another global one, " + about.Global.Authority
		case authority != "" && about.Authority != authority:
			why = "leads to " + about.Authority + ", and another one to " + authority + ": a region has one group"
		default:
			authority = about.Authority
			continue
		}
		return "", nil, mismatch(region, router, why, told[i].Authority)
	}
	if len(silent) == len(routers) {
		e := unreachable(owner{region: region}, failed[0])
		e.Text = fmt.Sprintf("none of the routers of region %s answers under this group's token (%v); nothing was recorded", region, failed[0])
		return "", nil, e
	}
	return authority, silent, nil
}

func mismatch(region fsm.RegionName, router, why, authority string) error {
	e := httpserve.Errorf(proto.Status(fsm.CodeRegionMismatch), fsm.CodeRegionMismatch,
		"router %s %s; nothing was recorded: name proxies of region %s's own group", router, why, region)
	e.Fields = map[string]any{"region": region, "router": router}
	if authority != "" {
		e.Fields["authority"] = authority
	}
	return e
}

// askRouter asks a router for its group. One whose group has just started, and has not
// met the global group yet, is asked again.
func (s *Server) askRouter(ctx context.Context, router string) (proto.Group, error) {
	for {
		about, err := s.askGroup(ctx, router)
		if err != nil || about.Region == "" || about.Global != nil && about.Global.Authority != "" {
			return about, err
		}
		select {
		case <-ctx.Done():
			return about, nil
		case <-time.After(leaderEvery):
		}
	}
}

// isControlServer tells a control server, which has nothing for tenants, from a proxy.
func (s *Server) isControlServer(ctx context.Context, router string) bool {
	resp, err := s.getFrom(ctx, router+"/t/")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxNodeAnswer))
	var e struct{ Code proto.Code }
	return err == nil && json.Unmarshal(text, &e) == nil && e.Code == proto.CodeUnknownRoute
}

// getFrom asks one address for something, with this server's token.
func (s *Server) getFrom(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if token := *s.token.Load(); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return s.links.reads.Do(req)
}

func (s *Server) askGroup(ctx context.Context, router string) (about proto.Group, err error) {
	ctx, cancel := context.WithTimeout(ctx, greetWithin)
	defer cancel()
	resp, err := s.getFrom(ctx, router+"/_shard/group")
	if err != nil {
		return about, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxNodeAnswer))
	switch {
	case err != nil:
		return about, err
	case resp.StatusCode == http.StatusServiceUnavailable:
		return about, fmt.Errorf("%s answers, and reaches no control server of its group", router)
	case resp.StatusCode != http.StatusOK:
		return about, fmt.Errorf("%s answers %s", router, resp.Status)
	}
	return about, json.Unmarshal(text, &about)
}

// checkEmpty refuses to forget a region whose directory has nodes: nobody would find what
// is on them. A region that is not reached, and is nobody's home, may be forgotten.
func (s *Server) checkEmpty(c *change, region fsm.RegionName) error {
	if _, known := s.group.State().Region(region); !known {
		return nil // Apply says so
	}
	resp, body, err := s.question(c.Context(), owner{region: region}, c.Request, "/_shard/nodes")
	var nodes []proto.Node
	if err != nil || resp.StatusCode != http.StatusOK || json.Unmarshal(body, &nodes) != nil || len(nodes) == 0 {
		return nil
	}
	return refusal(&fsm.Refusal{Code: fsm.CodeRegionInUse,
		Text:   fmt.Sprintf("region %s keeps %d nodes, %s for one; take them back, or delete them, first", region, len(nodes), nodes[0].Name),
		Fields: map[string]string{"region": string(region), "node": string(nodes[0].Name)}})
}
