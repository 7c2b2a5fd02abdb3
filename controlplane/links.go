package controlplane

import (
	"context"
	"errors"
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

const (
	// greetWithin bounds how long one server of another group may take to show that it is
	// there: a few ways there and back between continents. After hedgeAfter the next one is
	// tried beside it.
	greetWithin = 1500 * time.Millisecond
	hedgeAfter  = 250 * time.Millisecond
	// silentFor is how long it counts as that afterwards: each request would wait for the
	// same. It is the longest that a link may be back before it is noticed.
	silentFor = time.Second
	// askWithin bounds a question to another group whose answer is a part of one of ours.
	askWithin = 2 * time.Second
)

// links are the ways to the other groups. Each group has servers, or routers that relay
// to its servers, any of which will do: the one that answered last is asked first.
type links struct {
	transport func() *http.Transport
	reads     http.Client
	kept      http.Client // for what is repeated

	mu sync.Mutex
	to map[string]*link // by region, or proto.GlobalScope
}

// link is the way to one group.
type link struct {
	first  string    // address to be asked first
	silent time.Time // until when it is taken for unreachable
	why    error     // errLeaderless where one of its addresses was there all the same
}

func newLinks(config *Config) *links {
	kept := func() http.Client { return http.Client{Transport: config.transport(), CheckRedirect: stay} }
	return &links{transport: config.transport, reads: kept(), kept: kept(), to: make(map[string]*link)}
}

// stay follows no redirect: tokens are for the other end alone.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (l *links) close() {
	l.reads.CloseIdleConnections()
	l.kept.CloseIdleConnections()
}

// order gives the addresses in the order in which to try them; none while the group is
// taken for unreachable.
func (l *links) order(to string, addresses []string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.to[to]
	switch {
	case k == nil:
		return addresses
	case time.Now().Before(k.silent):
		return nil
	}
	i := max(0, slices.Index(addresses, k.first))
	return slices.Concat(addresses[i:], addresses[:i])
}

// note notes which address of a group that was reached is to be asked first from now on.
func (l *links) note(to, first string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to[to] = &link{first: first}
}

// noteSilent does so of a group that was not reached.
func (l *links) noteSilent(to, first string, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to[to] = &link{first: first, silent: time.Now().Add(silentFor), why: why}
}

// silence says why a group is taken for unreachable.
func (l *links) silence(to string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.to[to]; k != nil {
		return k.why
	}
	return nil
}

// addresses says how another group is reached.
func (s *Server) addresses(o owner) []string {
	if o.global {
		return s.config.Global
	}
	if d := s.globalCopy(); d != nil {
		if region, ok := d.Region(o.region); ok {
			return region.Routers
		}
		return nil
	}
	if region, ok := s.group.State().Region(o.region); ok {
		return region.Routers
	}
	return nil
}

// authorityOf names another group as it is recorded, so that it can be told for whom a call
// is; "" where that is not known.
func (s *Server) authorityOf(o owner) string {
	if o.global {
		name, _ := s.belongsTo()
		return name.Authority
	}
	if region, ok := s.group.State().Region(o.region); ok {
		return region.Authority
	}
	return ""
}

// calledFor refuses what another group asks of a region, or of a group, that is not this one.
// authority is "" where the caller does not know it.
func (s *Server) calledFor(region fsm.RegionName, authority string) error {
	own, _ := s.ownName()
	text := ""
	switch {
	case region != s.config.Region:
		text = fmt.Sprintf("this is %s, and another was to be asked: the routers that are recorded for that region are not its own", s.own())
	case authority != "" && authority != own.Authority:
		text = fmt.Sprintf("this is %s, and %s was to be asked: the routers that are recorded for that region lead to another group of the same region's name", own.Authority, authority)
	default:
		return nil
	}
	return refusal(&fsm.Refusal{Code: fsm.CodeScope, Text: text, Fields: map[string]string{"region": string(s.config.Region), "authority": own.Authority}})
}

// towards makes the request that another group is sent for r: with this server's own
// token, marked so that it goes to no third group.
func (s *Server) towards(r *http.Request) *http.Request {
	q := &http.Request{Method: r.Method, URL: r.URL, Header: make(http.Header)}
	for _, name := range []string{"Content-Type", proto.HeaderIdempotencyKey} {
		if values := r.Header.Values(name); len(values) > 0 {
			q.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	if token := *s.token.Load(); token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	name, _ := s.ownName()
	q.Header.Set(proto.HeaderRelayedBetween, name.Authority)
	q.Header.Set(proto.HeaderRequestID, httpserve.RequestID(r.Context()))
	q.Header.Set(proto.HeaderOriginPeer, httpserve.OriginPeer(r))
	if s.config.Region != "" {
		q.Header.Set(proto.HeaderOriginRegion, string(s.config.Region))
	}
	return q
}

// relayBetween passes a request on to the group whose it is, once.
func (s *Server) relayBetween(w http.ResponseWriter, r *http.Request, o owner, body []byte) error {
	if r.Header.Get(proto.HeaderRelayedBetween) != "" {
		return notOwner(r, o)
	}
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	within := relayTimeout
	if read {
		within = readTimeout
	}
	ctx, cancel := context.WithTimeout(r.Context(), within)
	defer cancel()
	resp, err := s.links.ask(ctx, o.name(), s.addresses(o), s.towards(r), body)
	switch {
	case errors.Is(err, errNotReached), err != nil && read:
		return unreachable(o, err)
	case err != nil:
		return outcomeUnknown(err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		return tokenElsewhere(o)
	case isLeaderless(resp, read):
		return unreachable(o, errLeaderless)
	}
	return s.answerRelayed(w, r, resp)
}

// notOwner refuses what was relayed to a group whose it is not.
func notOwner(r *http.Request, o owner) *httpserve.Error {
	e := httpserve.Errorf(proto.Status(fsm.CodeNotOwner), fsm.CodeNotOwner,
		"this was relayed here by %s, and is %s's; nothing was done: that group's copy of the global directory is behind, "+
			"or what it was given as --global or routers is wrong; ask again shortly", r.Header.Get(proto.HeaderRelayedBetween), o)
	e.Fields = map[string]any{"owner": o.name()}
	return e
}

// unreachable says that a group could not be asked, and that nothing has changed.
func unreachable(o owner, cause error) *httpserve.Error {
	code := fsm.CodeRegionUnreachable
	if o.global {
		code = proto.CodeGlobalUnreachable
	}
	e := httpserve.Errorf(proto.Status(code), code, "%s", whyUnreachable(o, cause))
	e.Cause = cause
	if !o.global {
		e.Fields = map[string]any{"region": o.region}
	}
	return e
}

// whyUnreachable tells a group of which nobody is reached from one of which somebody is, who
// does not reach its leader.
func whyUnreachable(o owner, cause error) string {
	who := "router"
	if o.global {
		who = "server"
	}
	if errors.Is(cause, errLeaderless) {
		return "a " + who + " of " + o.String() + " is reached, and reaches no leader of its group; nothing was done, ask again once that group answers"
	}
	return "no " + who + " of " + o.String() + " is reached; nothing was done, ask again once the link is back"
}

func tokenElsewhere(o owner) error {
	e := unreachable(o, nil)
	e.Text = fmt.Sprintf("%s refuses this group's token: all groups of a deployment have the same --token; nothing was done", o)
	return e
}

// question asks another group for its part of an answer of this one.
func (s *Server) question(ctx context.Context, o owner, r *http.Request, uri string) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	url, err := r.URL.Parse(uri)
	if err != nil {
		return nil, nil, err
	}
	q := s.towards(r)
	q.Method, q.URL = http.MethodGet, url
	q.Header.Del(proto.HeaderIdempotencyKey)
	q.Header.Del("Content-Type")
	resp, err := s.links.ask(ctx, o.name(), s.addresses(o), q, nil)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPart))
	return resp, body, err
}

// maxPart bounds what is read of another group's part of an answer: a page of tenants.
const maxPart = 64 << 20

// owner is the group whose a change is.
type owner struct {
	global bool
	region fsm.RegionName // where it is not the global group
}

// name is by which the group is called in texts, fields and headers.
func (o owner) name() string {
	if o.global {
		return proto.GlobalScope
	}
	return string(o.region)
}

func (o owner) String() string {
	if o.global {
		return "the global group"
	}
	return "region " + string(o.region)
}
