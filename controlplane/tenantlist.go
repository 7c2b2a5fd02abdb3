package controlplane

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// Sizes of a page of tenants.
const (
	defaultPage = 1000
	maxPage     = 10_000
)

// tenantParams are the query parameters of the list.
var tenantParams = []string{"region", "prefix", "after", "limit", "bytes"}

// tenantQuery says which tenants are asked for.
type tenantQuery struct {
	region *fsm.RegionName
	prefix string
	after  fsm.TenantName
	limit  int
	bytes  bool
}

func parseTenantQuery(r *http.Request) (tenantQuery, error) {
	values := r.URL.Query()
	q := tenantQuery{prefix: values.Get("prefix"), after: fsm.TenantName(values.Get("after")), limit: defaultPage}
	if values.Has("region") {
		region := fsm.RegionName(values.Get("region"))
		if region != "" && !fsm.ValidName(string(region)) {
			return q, badName("region", string(region))
		}
		q.region = &region
	}
	if q.prefix != "" && !fsm.ValidName(q.prefix) {
		return q, badRequest("no tenant's name begins with %q: names are of a-z, 0-9, _ and -", q.prefix)
	}
	if q.after != "" && !fsm.ValidName(string(q.after)) {
		return q, badName("tenant", string(q.after))
	}
	if values.Has("limit") {
		n, err := strconv.ParseUint(values.Get("limit"), 10, 31)
		if err != nil || n == 0 || n > maxPage {
			return q, badRequest("limit is a number from 1 to %d", maxPage)
		}
		q.limit = int(n)
	}
	var err error
	q.bytes, err = flag(values, "bytes")
	return q, err
}

// next is the query of the page after the tenant last, as a relative
// reference: it holds through a proxy as well.
func (q tenantQuery) next(last fsm.TenantName) string {
	return "</_shard/tenants?" + q.values(last).Encode() + `>; rel="next"`
}

// values is the query for what comes after a tenant.
func (q tenantQuery) values(after fsm.TenantName) url.Values {
	values := url.Values{"limit": {strconv.Itoa(q.limit)}}
	if after != "" {
		values.Set("after", string(after))
	}
	if q.region != nil {
		values.Set("region", string(*q.region))
	}
	if q.prefix != "" {
		values.Set("prefix", q.prefix)
	}
	if q.bytes {
		values.Set("bytes", "1")
	}
	return values
}

// listTenants gives a page of tenants by name (T3), of every directory.
func (s *Server) listTenants(w http.ResponseWriter, r *http.Request, state *fsm.State) error {
	q, err := parseTenantQuery(r)
	if err != nil {
		return err
	}
	if asked := r.Header.Get(proto.HeaderRelayedBetween) != ""; asked || s.alone(state) {
		page := s.ownPage(r.Context(), state, q)
		if page.more {
			w.Header().Set("Link", q.next(page.last()))
		}
		httpserve.WriteJSON(w, http.StatusOK, page.tenants)
		return nil
	}
	return s.listEverywhere(w, r, state, q)
}

// page is a page of one directory's tenants, and whether there are more.
type page struct {
	tenants []proto.Tenant
	more    bool
}

func (p *page) last() fsm.TenantName { return p.tenants[len(p.tenants)-1].Name }

// ownPage gives a page of the tenants that this directory places.
func (s *Server) ownPage(ctx context.Context, state *fsm.State, q tenantQuery) page {
	out := page{tenants: []proto.Tenant{}}
	for t := range state.Tenants(q.prefix, q.after) {
		if !placedHere(state, t) {
			continue
		}
		if q.region != nil {
			if region, ok := state.TenantRegion(t.Name); !ok || region != *q.region {
				continue
			}
		}
		if len(out.tenants) == q.limit {
			out.more = true
			break
		}
		out.tenants = append(out.tenants, s.describeTenant(state, t))
	}
	if q.bytes {
		s.addSizes(ctx, state, out.tenants)
	}
	return out
}

// placedHere reports whether a tenant is this directory's to place: not another one's, nor
// on its way here from there, nor gone there.
func placedHere(state *fsm.State, t *fsm.Tenant) bool {
	if t.HasHome {
		return false
	}
	for p := range state.TenantUnits(t.Name) {
		if p.State == fsm.UnitReceiving {
			return false
		}
	}
	return departed(state, t.Name) == nil
}

// departed gives the job by which a tenant has left for another directory, while something
// of it is still on this one's nodes; nil for any other tenant.
func departed(state *fsm.State, name fsm.TenantName) *fsm.Job {
	for p := range state.TenantUnits(name) {
		if j, ok := state.Job(p.Job); ok && j.Kind == fsm.JobDepart && j.Step == fsm.StepRemove {
			return j
		}
	}
	return nil
}

// getTenant tells of one tenant (T3, T4), wherever it lives.
func (s *Server) getTenant(w http.ResponseWriter, r *http.Request, state *fsm.State) error {
	name := fsm.TenantName(r.PathValue("tenant"))
	if !fsm.ValidName(string(name)) {
		return badName("tenant", string(name))
	}
	t, ok := state.Tenant(name)
	asked := r.Header.Get(proto.HeaderRelayedBetween) != ""
	switch {
	case ok && placedHere(state, t) && (asked || s.homeOf(name) == s.own()):
		httpserve.WriteJSON(w, http.StatusOK, s.describeTenant(state, t))
		return nil
	case asked && ok && t.HasHome:
		e := notOwner(r, owner{region: t.Home})
		e.Fields["reserved"] = t.Reserved
		return e
	case asked && ok && departed(state, name) != nil:
		return s.hasLeft(r, name, departed(state, name))
	case asked || s.alone(state):
		return unknownTenant(name)
	}
	return s.findTenant(w, r, state, name)
}

// hasLeft tells another group where a tenant went.
func (s *Server) hasLeft(r *http.Request, name fsm.TenantName, left *fsm.Job) error {
	where, known := s.wentTo(left)
	if !known {
		return unknownTenant(name)
	}
	e := notOwner(r, placer(where))
	e.Fields["region"] = where.Region
	return e
}

func unknownTenant(name fsm.TenantName) error {
	return refusal(&fsm.Refusal{Code: fsm.CodeTenantUnknown, Text: "no tenant is called " + string(name),
		Fields: map[string]string{"tenant": string(name)}})
}

// describeTenant tells where a tenant is: its region is its node's (T1).
func (s *Server) describeTenant(state *fsm.State, t *fsm.Tenant) proto.Tenant {
	out := proto.Tenant{Name: t.Name, State: fsm.UnitActive.String(), Pinned: t.Pinned, Buckets: t.Buckets, Quota: quotaOf(t.Quota)}
	out.Region, _ = state.TenantRegion(t.Name)
	for p := range state.TenantUnits(t.Name) {
		if p.State != fsm.UnitActive {
			out.State = unitState(state, p)
		}
		if move, ok := state.Move(p.Unit); ok {
			out.Move = move.ID
			if p.State == fsm.UnitActive && move.Step != fsm.StepQueue {
				out.State = fsm.UnitMoving.String()
			}
		}
		if t.Buckets > 0 {
			continue // its buckets have nodes; it has none
		}
		out.Node = p.Node
		home, _ := state.Node(p.Node)
		if home != nil {
			out.Zone = home.Zone
		}
		if out.Replica = replicaOf(p); out.Replica != "" {
			out.SameZone = sameZone(state, p.Unit, out.Replica)
		}
		out.Replicas = replicasOf(state, p)
		out.ReadReplicas = readersOf(state, p)
		out.Unreplicated = s.unreplicated(state, p)
	}
	return out
}

// replicasOf tells of the copies of a unit.
func replicasOf(state *fsm.State, p *fsm.Placed) []proto.Replica {
	var all []proto.Replica
	for _, c := range p.Copies {
		if !c.State.Listed() {
			continue
		}
		one := proto.Replica{Node: c.Node, State: c.State.String(), Since: time.UnixMilli(int64(c.Since)).UTC(), SameZone: sameZone(state, p.Unit, c.Node)}
		if n, ok := state.Node(c.Node); ok {
			one.Zone = n.Zone
		}
		all = append(all, one)
	}
	return all
}

// unreplicated says why a unit has no copy in sync, as far as this server knows
// (architecture §3.7.1); "" if it has one.
func (s *Server) unreplicated(state *fsm.State, p *fsm.Placed) string {
	if hasInSync(p) {
		return ""
	}
	if why := state.Unreplicated(p); why != "" {
		return why
	}
	why := "its copy on node " + string(replicaOf(p)) + " is not in sync yet"
	if trouble := s.trouble(state, p); trouble != "" {
		why += ": " + trouble
	}
	return why
}

// trouble says what keeps a unit's copies from being in sync, as far as this server
// knows: the leader, which nodes tell.
func (s *Server) trouble(state *fsm.State, p *fsm.Placed) string {
	for _, c := range p.Copies {
		if c.State.Listed() && c.State != fsm.CopyInSync {
			if why := s.refusedTo(state, p, c.Node); why != "" {
				return "node " + string(p.Node) + " refuses to be followed by " + string(c.Node) + ": " + why
			}
		}
	}
	return s.known.why(p.Unit)
}

// refusedTo says why a unit's primary refuses to be followed by a node, or "".
func (s *Server) refusedTo(state *fsm.State, p *fsm.Placed, by fsm.NodeName) string {
	home, ok := state.Node(p.Node)
	if !ok {
		return ""
	}
	status, _ := s.keeper.Node(by)
	return status.Refused[nodeURL(home.Addr)]
}

// hasInSync reports whether a unit has a copy that may be promoted by itself.
func hasInSync(p *fsm.Placed) bool {
	return slices.ContainsFunc(p.Copies, func(c fsm.Copy) bool { return c.State == fsm.CopyInSync })
}

// unitState is a unit's state; one whose create is being undone is on its way
// out like one that is deleted.
func unitState(state *fsm.State, p *fsm.Placed) string {
	if job, ok := state.Job(p.Job); ok && job.Step == fsm.StepUndo {
		return fsm.UnitDeleting.String()
	}
	if p.State == fsm.UnitReceiving || p.State == fsm.UnitSent {
		return fsm.UnitMoving.String() // between two directories
	}
	return p.State.String()
}

// addSizes asks the nodes of a page for the sizes of their units. A node that
// does not answer in time leaves them out.
func (s *Server) addSizes(ctx context.Context, state *fsm.State, page []proto.Tenant) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var mu sync.Mutex
	var asked sync.WaitGroup
	told := make(map[fsm.NodeName]map[fsm.UnitName]uint64)
	begun := make(map[fsm.NodeName]bool)
	for _, t := range page {
		node, ok := state.Node(t.Node)
		if !ok || begun[t.Node] {
			continue
		}
		begun[t.Node] = true
		asked.Go(func() {
			sizes, err := s.nodes.sizes(ctx, at(node))
			if err != nil {
				return // left out
			}
			mu.Lock()
			defer mu.Unlock()
			told[node.Name] = sizes
		})
	}
	asked.Wait()
	for i := range page {
		if bytes, ok := told[page[i].Node][fsm.UnitName(page[i].Name)]; ok {
			page[i].Bytes = &bytes
		}
	}
}
