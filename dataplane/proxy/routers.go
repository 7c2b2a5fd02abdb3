package proxy

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"domicile/dataplane/proxy/http1"
	"domicile/fsm"
)

// routerPrefix begins the names of routers' upstreams: "@us". No node can have such
// a name (G11), and a region's routers share one.
const routerPrefix = "@"

// relayOutcome is what became of a request on the way to another region.
type relayOutcome uint8

// The outcomes: each attempt counts once.
const (
	relayAnswered    relayOutcome = iota
	relayRefused                  // without effect: it is held, or sent to where it belongs by then
	relayUnreachable              // no router could be reached, and nothing was sent
	relayOutcomes
)

var relayOutcomeNames = [relayOutcomes]string{"answered", "refused", "unreachable"}

// region is a region that keeps its own directory, as a proxy elsewhere sees it: the
// proxies that are its routers (G3). There is one for each name, from when it is first
// heard of on.
type region struct {
	name    fsm.RegionName
	routers atomic.Pointer[ring] // empty where none is recorded
	counts  [relayOutcomes]atomic.Uint64
	failed  atomic.Uint64 // errors of routers that were closed
}

func (r *region) count(o relayOutcome) { r.counts[o].Add(1) }

// errors gives the requests that failed on the way to the region's routers.
func (r *region) errors() uint64 {
	n := r.failed.Load() + r.counts[relayUnreachable].Load()
	for _, up := range r.routers.Load().ups {
		n += up.Stats().Errors.Load()
	}
	return n
}

// regions keeps the connections to the routers of each region. Used by the follower
// alone, but for all, named and close.
type regions struct {
	dial func(addr string, region fsm.RegionName) (*http1.Upstream, error)
	log  hclog.Logger

	mu     sync.Mutex
	byName map[fsm.RegionName]*region
}

// attach gives each region that t names its routers, and returns those that t has no
// use for any more: to be closed once t is what requests read.
func (g *regions) attach(t *table) (unused []*http1.Upstream) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range t.homes {
		if h := &t.homes[i]; h.region == nil {
			h.region = g.regionLocked(h.name)
		}
	}
	for name := range t.regions {
		g.regionLocked(name)
	}
	for name, r := range g.byName {
		var routers []string
		if known := t.regions[name]; known != nil {
			routers = known.Routers
		}
		unused = append(unused, g.setRouters(r, routers)...)
	}
	return unused
}

func (g *regions) regionLocked(name fsm.RegionName) *region {
	r := g.byName[name]
	if r == nil {
		r = &region{name: name}
		r.routers.Store(newRing(nil))
		g.byName[name] = r
	}
	return r
}

// setRouters has a region asked at addrs, over the connections that there are already.
func (g *regions) setRouters(r *region, addrs []string) (unused []*http1.Upstream) {
	old := r.routers.Load()
	var ups []*http1.Upstream
	for _, addr := range addrs {
		at := slices.IndexFunc(old.ups, func(u *http1.Upstream) bool { return hostPort(addr) == u.Addr() })
		switch {
		case at >= 0 && !slices.Contains(ups, old.ups[at]):
			ups = append(ups, old.ups[at])
		case at < 0:
			up, err := g.dial(addr, r.name)
			if err != nil {
				g.log.Warn("the directory holds an address of a router that cannot be used", "region", r.name, "err", err)
				continue
			}
			ups = append(ups, up)
		}
	}
	if slices.Equal(old.ups, ups) {
		return nil
	}
	next := newRing(ups)
	for i, up := range old.ups {
		at := slices.Index(ups, up)
		if at < 0 {
			r.failed.Add(up.Stats().Errors.Load())
			unused = append(unused, up)
		} else if int(old.first.Load()) == i {
			next.first.Store(int32(at))
		}
	}
	r.routers.Store(next)
	return unused
}

// named gives a region by its name, nil without one.
func (g *regions) named(name string) *region {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.byName[fsm.RegionName(name)]
}

// all gives every region that was heard of.
func (g *regions) all() []*region {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.byName))
}

// close closes the connections to all routers.
func (g *regions) close() {
	for _, r := range g.all() {
		for _, up := range r.routers.Load().ups {
			up.Close()
		}
	}
}
