package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"domicile/controlplane/group"
	"domicile/controlplane/loops"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// censusPage is how many tenants a region tells of in one answer.
const censusPage = 2000

// census tells a recovery of the global directory which tenants this region has. First the
// new history is recorded: from then on nothing of an older one is heeded, so that what is
// told changes by nobody's word but this group's own (I1).
func (s *Server) census(w http.ResponseWriter, c *change) error {
	var call proto.CensusCall
	if err := c.decode(&call); err != nil {
		return err
	}
	if _, err := parseQuery(c.Request); err != nil {
		return err
	}
	if call.To != s.config.Region || s.config.Region == "" {
		return refusal(&fsm.Refusal{Code: fsm.CodeScope, Text: fmt.Sprintf("this is %s, and another one is asked: the routers that are recorded for that region are not its own", s.own()),
			Fields: map[string]string{"region": string(s.config.Region)}})
	}
	ctx, cancel := context.WithTimeout(c.Context(), proposeTimeout)
	defer cancel()
	if err := s.fence(ctx, call.Authority, call.History); err != nil {
		return err
	}
	state := s.group.State()
	if state.Recovering() {
		return refusal(&fsm.Refusal{Code: fsm.CodeRecovering, Text: "the region's own directory is being recovered: it can tell only then"})
	}
	out := proto.Census{Tenants: []proto.CensusTenant{}}
	for claim := range state.Claims(call.After) {
		if len(out.Tenants) == censusPage {
			out.More = true
			break
		}
		out.Tenants = append(out.Tenants, proto.CensusTenant{Tenant: claim.Tenant, ID: claim.ID, How: string(claim.How), Epoch: claim.Epoch, Job: claim.Job, Other: claim.Other})
	}
	setRevision(w, state.Revision())
	httpserve.WriteJSON(w, http.StatusOK, out)
	return nil
}

// fence has this region heed nothing of an older history of the global directory, and
// makes this leader's directory as new as any answer was.
func (s *Server) fence(ctx context.Context, authority string, history uint64) error {
	if err := s.readIndex(ctx); err != nil {
		return err
	}
	if up, ok := s.group.State().Upstream(); ok && up.Authority == authority && up.History == history {
		return nil
	}
	result, _, err := s.group.Propose(ctx, group.Proposal{Cmd: &fsm.BindGlobal{Authority: authority, History: history}})
	switch {
	case err != nil:
		return s.groupError(err)
	case result.Refusal != nil:
		return refusal(result.Refusal)
	}
	return nil
}

// readRegion reads which tenants a region has.
func (s *Server) readRegion(ctx context.Context, c loops.RegionCall) loops.RegionAnswer {
	scope, _ := s.group.State().Scope()
	call := proto.CensusCall{To: c.Region, Authority: scope.Authority(), History: scope.History}
	all := loops.RegionAnswer{Outcome: loops.Done}
	for {
		page, failed := s.readCensus(ctx, c.Region, &call)
		if failed != nil {
			return *failed
		}
		for _, t := range page.Tenants {
			if t.Tenant <= call.After || !fsm.ValidName(string(t.Tenant)) || t.ID == 0 || !fsm.Claimed(t.How).Known() {
				return loops.RegionAnswer{Outcome: loops.Silent, Refusal: notReached(c.Region, "its answer is no list of tenants, each with an id and how it is had, that this version knows")}
			}
			call.After = t.Tenant
			all.Claims = append(all.Claims, fsm.Claim{Tenant: t.Tenant, ID: t.ID, How: fsm.Claimed(t.How), Epoch: t.Epoch, Job: t.Job, Other: t.Other})
		}
		if !page.More {
			return all
		}
	}
}

// readCensus reads a page; else it says what became of the reading.
func (s *Server) readCensus(ctx context.Context, region fsm.RegionName, call *proto.CensusCall) (*proto.Census, *loops.RegionAnswer) {
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout+taskSlack)
	defer cancel()
	fail := func(a loops.TaskAnswer) (*proto.Census, *loops.RegionAnswer) {
		failed := &loops.RegionAnswer{Outcome: a.Outcome, Refusal: a.Refusal}
		if a.Refusal.Code == fsm.CodeStale {
			failed.Heard, _ = strconv.ParseUint(a.Refusal.Fields["history"], 10, 64) // 0 where it does not say
		}
		return nil, failed
	}
	body, err := json.Marshal(call)
	if err != nil {
		panic("BUG: a call for a census is no JSON: " + err.Error())
	}
	o := owner{region: region}
	q := s.towards(&http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/_shard/tasks/census"}, Header: http.Header{"Content-Type": {"application/json"}}})
	resp, err := s.links.ask(ctx, o.name(), s.addresses(o), q, body)
	if err != nil {
		return fail(loops.TaskAnswer{Outcome: loops.Silent, Untouched: errors.Is(err, errNotReached), Refusal: notReached(region, whySilent(err))})
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPart))
	if err != nil {
		return fail(loops.TaskAnswer{Outcome: loops.Silent, Refusal: notReached(region, "its answer was cut off")})
	}
	if resp.StatusCode != http.StatusOK {
		return fail(taskRefused(region, resp.StatusCode, text))
	}
	var page proto.Census
	if json.Unmarshal(text, &page) != nil || page.Tenants == nil || page.More && len(page.Tenants) == 0 {
		return fail(loops.TaskAnswer{Outcome: loops.Silent, Refusal: notReached(region, "its answer is no list of tenants")})
	}
	return &page, nil
}
