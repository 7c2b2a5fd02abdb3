package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
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
	if call.To != s.config.Region || s.config.Region == "" && len(call.Only) == 0 {
		return refusal(&fsm.Refusal{Code: fsm.CodeScope, Text: fmt.Sprintf("this is %s, and another one is asked: the routers that are recorded for that region are not its own", s.own()),
			Fields: map[string]string{"region": string(s.config.Region)}})
	}
	if len(call.Only) > censusPage {
		return badRequest("%d tenants at most are asked for by name", censusPage)
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
	scope, _ := state.Scope()
	out := proto.Census{History: scope.History, Tenants: []proto.CensusTenant{}}
	for claim := range claimed(state, &call) {
		if len(out.Tenants) == censusPage {
			out.More = true
			break
		}
		out.Tenants = append(out.Tenants, proto.CensusTenant{Tenant: claim.Tenant, ID: claim.ID, How: string(claim.How), Epoch: claim.Epoch, Job: claim.Job, Other: claim.Other, Promoted: claim.Promoted})
	}
	setRevision(w, state.Revision())
	httpserve.WriteJSON(w, http.StatusOK, out)
	return nil
}

// claimed yields how the directory has the tenants that are asked for, by name.
func claimed(state *fsm.State, call *proto.CensusCall) iter.Seq[fsm.Claim] {
	if len(call.Only) == 0 {
		return state.Claims(call.After)
	}
	return func(yield func(fsm.Claim) bool) {
		for _, name := range slices.Compact(slices.Sorted(slices.Values(call.Only))) {
			if c, ok := state.ClaimOf(name); ok && name > call.After && !yield(c) {
				return
			}
		}
	}
}

// fence has this group heed nothing of an older history of the global directory, and
// makes this leader's directory as new as any answer was.
func (s *Server) fence(ctx context.Context, authority string, history uint64) error {
	if err := s.readIndex(ctx); err != nil {
		return err
	}
	if s.config.Region == "" {
		return s.fencedBy(authority, history)
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

// fencedBy refuses, in the global group, what is said of another history of its directory.
func (s *Server) fencedBy(authority string, history uint64) error {
	own, _ := s.ownName()
	switch {
	case authority != own.Authority:
		return refusal(&fsm.Refusal{Code: fsm.CodeScope, Text: "this is the global directory " + own.Authority, Fields: map[string]string{"authority": own.Authority}})
	case history != own.History:
		return refusal(&fsm.Refusal{Code: fsm.CodeStale, Text: fmt.Sprintf("the global directory is of history %d", own.History), Fields: map[string]string{"history": strconv.FormatUint(own.History, 10)}})
	}
	return nil
}

// readRegion reads which tenants a region has, or only of which history its directory is.
func (s *Server) readRegion(ctx context.Context, c loops.RegionCall) loops.RegionAnswer {
	scope, _ := s.group.State().Scope()
	call := proto.CensusCall{To: c.Region, Authority: scope.Authority(), History: scope.History}
	if c.Again {
		call.After = afterAll
	}
	all := loops.RegionAnswer{Outcome: loops.Done}
	for {
		page, failed := s.readCensus(ctx, owner{region: c.Region}, &call)
		switch {
		case failed != nil:
			return *failed
		case all.History != 0 && page.History != all.History: // what the pages before tell is of another directory
			return loops.RegionAnswer{Outcome: loops.Silent, Refusal: notReached(c.Region, "its own directory was recovered while it was read")}
		}
		all.History = page.History
		for _, t := range page.Tenants {
			call.After = t.Tenant
			all.Claims = append(all.Claims, claimOf(t))
		}
		if !page.More {
			return all
		}
	}
}

// afterAll comes after every name.
const afterAll = fsm.TenantName("~")

func claimOf(t proto.CensusTenant) fsm.Claim {
	return fsm.Claim{Tenant: t.Tenant, ID: t.ID, How: fsm.Claimed(t.How), Epoch: t.Epoch, Job: t.Job, Other: t.Other, Promoted: t.Promoted}
}

// validCensus reports whether a page is one that this version knows.
func validCensus(page *proto.Census, after fsm.TenantName) bool {
	for _, t := range page.Tenants {
		if t.Tenant <= after || !fsm.ValidName(string(t.Tenant)) || t.ID == 0 || !fsm.Claimed(t.How).Known() {
			return false
		}
		after = t.Tenant
	}
	return page.Tenants != nil && page.History != 0 && !(page.More && len(page.Tenants) == 0)
}

// readCensus reads a page; else it says what became of the reading.
func (s *Server) readCensus(ctx context.Context, o owner, call *proto.CensusCall) (*proto.Census, *loops.RegionAnswer) {
	region := fsm.RegionName(o.name())
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
	if json.Unmarshal(text, &page) != nil || !validCensus(&page, call.After) {
		return fail(loops.TaskAnswer{Outcome: loops.Silent, Refusal: notReached(region, "its answer is no list of tenants, each with an id and how it is had, that this version knows")})
	}
	return &page, nil
}
