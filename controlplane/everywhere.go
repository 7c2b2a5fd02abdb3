package controlplane

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"domicile/controlplane/global"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// What is told of tenants is the same whichever server of whichever group is asked (T3):
// the global directory has every name with its home, and each directory tells of those
// that it places. A group that cannot be asked has its tenants listed all the same, by
// name and region.

// alone reports whether there is no other directory than this one.
func (s *Server) alone(state *fsm.State) bool {
	if s.config.Region != "" {
		return false
	}
	for range state.Regions() {
		return false
	}
	return true
}

// homes yields the tenants that the global directory tells of and where each lives, by
// name, as this server has it.
func (s *Server) homes(state *fsm.State, prefix string, after fsm.TenantName) iter.Seq2[fsm.TenantName, global.Where] {
	if d := s.globalCopy(); d != nil {
		return d.Tenants(prefix, after)
	}
	return func(yield func(fsm.TenantName, global.Where) bool) {
		for t := range state.Tenants(prefix, after) {
			if t.Reserved {
				continue
			}
			where := global.Where{Region: t.Home, Home: t.HasHome}
			if !t.HasHome {
				where.Region, _ = state.TenantRegion(t.Name)
			}
			if !yield(t.Name, where) {
				return
			}
		}
	}
}

// home says where the global directory has a tenant, as this server has it.
func (s *Server) home(state *fsm.State, name fsm.TenantName) (global.Where, bool) {
	if d := s.globalCopy(); d != nil {
		return d.Tenant(name)
	}
	t, ok := state.Tenant(name)
	if !ok || t.Reserved || s.config.Region != "" {
		return global.Where{}, false
	}
	where := global.Where{Region: t.Home, Home: t.HasHome}
	if !t.HasHome {
		where.Region, _ = state.TenantRegion(name)
	}
	return where, true
}

// placer is the group that places what lives somewhere.
func placer(where global.Where) owner {
	if where.Home {
		return owner{region: where.Region}
	}
	return owner{global: true}
}

// part is what one group tells of its tenants; page is nil where it could not be asked.
type part struct {
	of   owner
	page *page
}

// parties are the groups to be asked for a list.
func (s *Server) parties(state *fsm.State, q tenantQuery) ([]part, error) {
	if q.region != nil {
		o, err := s.keeperOf(*q.region)
		return []part{{of: o}}, err
	}
	all := []part{{of: owner{global: true}}}
	if s.config.Region == "" {
		for region := range state.Regions() {
			all = append(all, part{of: owner{region: region.Name}})
		}
		return all, nil
	}
	d := s.globalCopy()
	if d == nil {
		return nil, errNoGlobal()
	}
	for region := range d.Regions() {
		all = append(all, part{of: owner{region: region.Name}})
	}
	if _, recorded := d.Region(s.config.Region); !recorded {
		all = append(all, part{of: s.own()})
	}
	return all, nil
}

// listEverywhere gives a page of the tenants of all directories.
func (s *Server) listEverywhere(w http.ResponseWriter, r *http.Request, state *fsm.State, q tenantQuery) error {
	parts, err := s.parties(state, q)
	if err != nil {
		return err
	}
	s.askParts(r, state, q, parts)
	out, last := s.merge(state, q, parts)
	var silent []string
	for _, p := range parts {
		if p.page == nil {
			silent = append(silent, p.of.name())
		}
	}
	if len(silent) > 0 {
		slices.Sort(silent)
		w.Header().Set(proto.HeaderUnreachable, strings.Join(silent, ", "))
	}
	if last != "" {
		w.Header().Set("Link", q.next(last))
	}
	httpserve.WriteJSON(w, http.StatusOK, out)
	return nil
}

// askParts asks each group for its page, all at once.
func (s *Server) askParts(r *http.Request, state *fsm.State, q tenantQuery, parts []part) {
	query := q.values(q.after)
	if r.URL.Query().Has("consistent") {
		query.Set("consistent", "1")
	}
	uri := "/_shard/tenants?" + query.Encode()
	var asked sync.WaitGroup
	for i := range parts {
		p := &parts[i]
		asked.Go(func() {
			if p.of == s.own() {
				own := s.ownPage(r.Context(), state, q)
				p.page = &own
				return
			}
			got, err := s.askPage(r, p.of, uri)
			if err != nil {
				s.logger.Debug("a group was not reached for its part of a list", "group", p.of.name(), "err", err)
				return
			}
			p.page = &got
		})
	}
	asked.Wait()
}

func (s *Server) askPage(r *http.Request, o owner, uri string) (page, error) {
	resp, body, err := s.question(r.Context(), o, r, uri)
	if err != nil {
		return page{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return page{}, fmt.Errorf("%s answered %s: %.500s", o, resp.Status, body)
	}
	var got page
	if err := json.Unmarshal(body, &got.tenants); err != nil {
		return page{}, err
	}
	got.more = resp.Header.Get("Link") != "" && len(got.tenants) > 0
	return got, nil
}

// merge makes one page of the groups' pages. Of a tenant that two of them tell of, as it
// is on its way from one to the other, its home's word counts; that of the other where the
// home tells nothing of it: it has left, and this server knows that later. last is where the next page
// begins, "" for none.
func (s *Server) merge(state *fsm.State, q tenantQuery, parts []part) (out []proto.Tenant, last fsm.TenantName) {
	out = []proto.Tenant{}
	found := make(map[fsm.TenantName]bool)
	other := make(map[fsm.TenantName]proto.Tenant) // as a group tells of one whose home is another
	var horizon fsm.TenantName                     // beyond it a group has tenants that its page does not hold
	by := make(map[owner]*page, len(parts))
	for _, p := range parts {
		by[p.of] = p.page
		if p.page == nil {
			continue
		}
		if p.page.more && (horizon == "" || p.page.last() < horizon) {
			horizon = p.page.last()
		}
		for _, t := range p.page.tenants {
			where, known := s.home(state, t.Name)
			switch {
			case known && placer(where) != p.of:
				other[t.Name] = t
			case !found[t.Name]:
				found[t.Name] = true
				out = append(out, t)
			}
		}
	}
	names := 0
	for name, where := range s.homes(state, q.prefix, q.after) {
		answered, asked := by[placer(where)]
		if !asked || q.region != nil && where.Region != *q.region {
			continue
		}
		if names++; names > q.limit+1 || horizon != "" && name > horizon {
			break
		}
		if found[name] {
			continue
		}
		one, elsewhere := other[name]
		if !elsewhere || answered == nil {
			one = unplaced(name, where, answered == nil)
		}
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b proto.Tenant) int { return cmp.Compare(a.Name, b.Name) })
	if i := slices.IndexFunc(out, func(t proto.Tenant) bool { return horizon != "" && t.Name > horizon }); i >= 0 {
		out = out[:i]
	}
	if len(out) > q.limit {
		out = out[:q.limit]
		return out, out[q.limit-1].Name
	}
	return out, horizon
}

// unplaced is what is told of a tenant of which its home tells nothing: it could not be
// asked, or the tenant is on its way to it.
func unplaced(name fsm.TenantName, where global.Where, silent bool) proto.Tenant {
	t := proto.Tenant{Name: name, Region: where.Region, State: fsm.UnitMoving.String(), Unreachable: silent}
	if silent {
		t.State = proto.TenantUnknown
	}
	return t
}

// wentTo says where a tenant went that has left this directory, as it was told when it was
// released: a copy of the global directory that is behind has it here still.
func (s *Server) wentTo(left *fsm.Job) (where global.Where, known bool) {
	if left.Other == nil {
		return where, false // a recovery found that it had left
	}
	o, err := s.keeperOf(left.Other.Region)
	return global.Where{Region: left.Other.Region, Home: err == nil && !o.global}, true
}

// findTenant tells of a tenant that another directory places, or that is between two.
func (s *Server) findTenant(w http.ResponseWriter, r *http.Request, state *fsm.State, name fsm.TenantName) error {
	f := &finding{Server: s, w: w, r: r, state: state, name: name, certain: s.config.Region == ""}
	f.where, f.known = s.home(state, name)
	if t, ok := state.Tenant(name); ok && t.Reserved {
		f.where, f.reserved = global.Where{Region: t.Home, Home: true}, true
	}
	if left := departed(state, name); left != nil && (!f.known || placer(f.where) == s.own()) {
		if where, known := s.wentTo(left); known {
			f.where, f.known = where, true
		}
	}
	for range maxFound {
		if again, err := f.ask(); !again {
			return err
		}
	}
	return errUnknownHere(nil)
}

// maxFound bounds the groups that are asked for a tenant, one after the other: where it has
// been of late, the global group, and where that has it.
const maxFound = 5

// finding is the search for a tenant.
type finding struct {
	*Server
	w        http.ResponseWriter
	r        *http.Request
	state    *fsm.State
	name     fsm.TenantName
	where    global.Where
	known    bool // a directory tells of it, at where
	reserved bool // its name is taken, and its region asked to make it
	certain  bool // the global group has said so
	missing  bool // the group of where does not have it
}

// ask asks the group that where names; the global one for a tenant that is not known, or
// that is not where it should be. again: that one names another.
func (f *finding) ask() (again bool, err error) {
	o, consistent := placer(f.where), f.r.URL.Query().Has("consistent")
	if o == f.own() {
		if t, ok := f.state.Tenant(f.name); ok && placedHere(f.state, t) {
			httpserve.WriteJSON(f.w, http.StatusOK, f.describeTenant(f.state, t))
			return false, nil
		}
		if !f.known {
			return false, unknownTenant(f.name)
		}
		f.missing = true
	}
	if f.missing {
		if f.certain || o.global { // it is on its way there, or has just gone
			return false, f.unplaced(false)
		}
		o, consistent = owner{global: true}, true
	}
	uri := "/_shard/tenants/" + url.PathEscape(string(f.name))
	if consistent {
		uri += "?consistent=1"
	}
	resp, body, err := f.question(f.r.Context(), o, f.r, uri)
	if err != nil {
		return false, f.silent(o, err)
	}
	switch resp.StatusCode {
	case http.StatusOK:
		pass(f.w, resp, body)
		return false, nil
	case http.StatusNotFound:
		if f.known && !f.missing {
			f.missing = true
			return true, nil
		}
		f.alsoOf(resp)
		return false, unknownTenant(f.name)
	case http.StatusConflict:
		if f.sentOn(o, body) {
			return true, nil
		}
	}
	return false, f.silent(o, fmt.Errorf("%s answered %s", o, resp.Status))
}

// sentOn takes in that a group names another one as that of the tenant.
func (f *finding) sentOn(by owner, body []byte) bool {
	var said struct {
		Code     proto.Code
		Owner    fsm.RegionName
		Region   fsm.RegionName // where that is the global group's
		Reserved bool
	}
	if json.Unmarshal(body, &said) != nil || said.Code != fsm.CodeNotOwner || by.global && said.Owner == proto.GlobalScope {
		return false
	}
	f.where = global.Where{Region: said.Owner, Home: true}
	if said.Owner == proto.GlobalScope {
		f.where = global.Where{Region: said.Region}
	}
	f.known, f.reserved = !said.Reserved, said.Reserved
	f.certain, f.missing = f.certain || by.global, false
	return true
}

// silent tells of a tenant whose group was not reached.
func (f *finding) silent(o owner, cause error) error {
	consistent := f.r.URL.Query().Has("consistent")
	switch {
	case f.known:
		f.w.Header().Set(proto.HeaderUnreachable, o.name())
		return f.unplaced(o == placer(f.where))
	case f.reserved: // 404 until its region has made it (architecture §3.9.1)
		return unknownTenant(f.name)
	case !consistent && f.globalCopy() != nil && f.global.Age() <= freshFor:
		f.w.Header().Set(proto.HeaderAlso, proto.Also{Authority: f.globalCopy().Position().Authority, Revision: f.globalCopy().Revision()}.String())
		return unknownTenant(f.name)
	}
	return errUnknownHere(cause)
}

func (f *finding) unplaced(silent bool) error {
	httpserve.WriteJSON(f.w, http.StatusOK, unplaced(f.name, f.where, silent))
	return nil
}

// alsoOf says as of which revision of the global directory there is no such tenant.
func (f *finding) alsoOf(resp *http.Response) {
	of, named := proto.ParseDirectoryName(resp.Header.Get(proto.HeaderDirectory))
	if revision := resp.Header.Get(proto.HeaderRevision); named && revision != "" {
		f.w.Header().Set(proto.HeaderAlso, of.Authority+" "+revision)
	}
}

// errUnknownHere says that what a region does not know may be there all the same (T4).
func errUnknownHere(cause error) error {
	e := httpserve.Errorf(http.StatusServiceUnavailable, proto.CodeDirectoryUnavailable,
		"this region's directory does not have that, and the global group, which has every name, is not reached: it may be there; try again shortly")
	e.Cause = cause
	return e
}

// pass gives another group's answer about a tenant.
func pass(w http.ResponseWriter, resp *http.Response, body []byte) {
	for _, name := range answeredHeaders {
		if values := resp.Header.Values(name); len(values) > 0 {
			w.Header()[http.CanonicalHeaderKey(name)] = values
		}
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(body) // a client that has gone away is no concern
}
