package proxy

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"domicile/dataplane/proxy/http1"
	"domicile/fsm"
	"domicile/proto"
)

// headerRoute tells a node which unit a request was routed for and by which
// revision of the directory: "<unit> <revision>", and " copy" where it was sent to a copy
// of the unit, which the node then must not write, whatever became of the copy since.
const (
	headerRoute = "Domicile-Route"
	routeCopy   = " copy"
)

// Labels of domicile_requests_total{route}, as http1 counts them.
const (
	routeOther uint8 = iota
	routeTenant
	routeShard
	routeHealth
	routeMetrics
	routeRelay // to the region of a tenant
	routes
)

var routeNames = [routes]string{"other", "tenant", "shard", "health", "metrics", "relay"}

// Codes of answers that a proxy gives by itself, beside proto's.
const (
	codeUnavailable    = string(proto.CodeDirectoryUnavailable)
	codeUnknownTenant  = string(fsm.CodeTenantUnknown)
	codeBadRequest     = string(fsm.CodeBadRequest)
	codeUnknownRoute   = string(proto.CodeUnknownRoute)
	codeUnknownBucket  = "unknown_bucket"
	codeBucketRequired = "bucket_required"
	codeRegion         = "region_unreachable"
	codeLoop           = "loop_detected"
	codeMisdirected    = "misdirected"
	codeUnreachable    = "node_unreachable"
	codeUnknown        = string(proto.CodeOutcomeUnknown)
	codeTransfer       = "transfer_in_progress"
)

const (
	// awaitTable bounds how long a request waits for the proxy's own table to
	// show what the control plane has said.
	awaitTable = 2 * time.Second
	// awaitChange bounds how long the answer to a change waits for it (spec
	// §2.2: a change is answered once the proxy's own table has it).
	awaitChange = 5 * time.Second
)

// handler decides where requests go. It holds no state of its own.
type handler struct{ *Proxy }

// Route is the hot path: for a tenant that the table knows it neither blocks,
// locks nor allocates.
func (h handler) Route(r *http1.Request, d *http1.Decision) {
	d.Route = routeTenant
	if h.cfg.Domain != "" {
		var scratch [fsm.MaxName]byte
		if tenant := tenantOfHost(r.Host(), h.cfg.Domain, scratch[:]); tenant != nil {
			if _, relayed := h.relayed(r); !relayed { // else the first proxy has made a path of it
				h.routeHost(r, d, tenant)
				return
			}
		}
	}
	path := r.Path()
	if rest, ok := bytes.CutPrefix(path, tenantPrefix); ok {
		h.routeTenant(r, d, parsePlace(rest), routeFirst)
		return
	}
	h.routeRest(r, d, path)
}

var (
	tenantPrefix  = []byte("/t/")
	shardPrefix   = []byte("/_shard/")
	consolePrefix = []byte("/_console/")
)

// routeHost serves a tenant under its own host name (--domain): the whole path
// is its data API, which a node has under /t/<tenant>. This is the one case in
// which a node gets another target than the client sent.
func (h handler) routeHost(r *http1.Request, d *http1.Decision, tenant []byte) {
	path := r.Path()
	if len(path) == 0 || path[0] != '/' {
		d.Respond(http.StatusBadRequest, codeBadRequest, "the request target is not a path")
		return
	}
	target := make([]byte, 0, len(tenantPrefix)+len(tenant)+len(r.Target()))
	target = append(append(append(target, tenantPrefix...), tenant...), path...)
	if q := r.Query(); q != nil {
		target = append(append(target, '?'), q...)
	}
	d.Target = target
	h.routeTenant(r, d, parsePlace(target[len(tenantPrefix):len(tenantPrefix)+len(tenant)+len(path)]), routeFirst)
}

// round says when a request is routed.
type round uint8

const (
	routeFirst round = iota
	routeAgain       // after an attempt without effect, or after waiting
	routeAsked       // after the control plane was asked about the tenant
)

// routeTenant sends a request to the node of what it names, or to its region.
func (h handler) routeTenant(r *http1.Request, d *http1.Decision, p place, n round) {
	if p.bad != nameOK {
		badPlace(d, p)
		return
	}
	own := h.dir.table()
	if own == nil {
		d.Respond(http.StatusServiceUnavailable, codeUnavailable, "the directory has not arrived at this proxy yet; try again")
		return
	}
	var name [maxUnit]byte
	unit := p.unit(name[:0])
	f := h.find(unit, p.tenant)
	d.Spare, d.Route = false, routeTenant
	if f.t != own || f.seat == nil {
		if _, relayed := h.relayed(r); relayed && (f.home != nil || own.own != "" && f.t != own) {
			h.routeRelayed(r, d, f)
			return
		}
	}
	if f.answers() && n == routeFirst {
		if up := h.readCopy(r, f, unit); up != nil {
			d.Spare = true
			h.forward(r, d, up, unit, f.t.position.Revision)
			return
		}
		if h.holds.any(unit) && h.hasToWait(r, d, f, unit) {
			d.Defer()
			return
		}
	}
	switch {
	case f.home != nil:
		h.relay(r, d, f, unit)
	case f.between:
		h.routeBetween(r, d)
	case f.seat == nil:
		h.unplaced(d, f, p, n == routeAsked)
	case f.seat.up == nil:
		d.Respond(http.StatusServiceUnavailable, codeUnavailable,
			fmt.Sprintf("the directory has no usable address for node %s, which holds %s; try again", f.seat.info.Name, unit))
	default:
		h.forward(r, d, f.seat.up, unit, f.t.position.Revision)
	}
}

// routeRelayed decides about a request that another proxy has sent to this region and that
// this region's directory does not place: it goes back, at once or, where it is about to be
// placed here, once that has not come about.
func (h handler) routeRelayed(r *http1.Request, d *http1.Decision, f found) {
	if f.between && h.holdTime(r, d) > 0 {
		d.Defer()
		return
	}
	notHere(d)
}

// routeBetween has a request wait whose tenant is between two homes.
func (h handler) routeBetween(r *http1.Request, d *http1.Decision) {
	if h.holdTime(r, d) > 0 {
		d.Defer()
		return
	}
	h.holds.count(outcomeRefused)
	reason{between: true}.respond(d)
}

func badPlace(d *http1.Decision, p place) {
	switch p.bad {
	case nameEmpty:
		d.Respond(http.StatusNotFound, codeUnknownTenant, "no tenant is named; the data API is under /t/<tenant>/")
	case nameTenant:
		d.Respond(http.StatusBadRequest, codeBadRequest, "a tenant's name is 1 to 64 characters of [a-z0-9_-], unescaped")
	case nameBucket:
		d.Respond(http.StatusBadRequest, codeBadRequest, "a bucket is a number from 1 on, without leading zeros: /t/<tenant>/b/<n>/")
	}
}

// forward decides for a node and adds the lines that it gets.
func (h handler) forward(r *http1.Request, d *http1.Decision, up *http1.Upstream, unit []byte, rev fsm.Revision) {
	if !h.nameClient(r, d) {
		return
	}
	lines := appendRoute(d.Lines, unit, rev)
	if d.Spare {
		lines = append(lines, routeCopy...)
	}
	d.Lines = append(lines, '\r', '\n')
	d.Forward(up)
}

// appendRoute begins the line of headerRoute.
func appendRoute(lines, unit []byte, rev fsm.Revision) []byte {
	lines = append(append(lines, headerRoute...), ": "...)
	return strconv.AppendUint(append(append(lines, unit...), ' '), uint64(rev), 10)
}

// nameClient begins the lines with the client's address and mark; false where
// the request has come through too many proxies, and is answered.
func (h handler) nameClient(r *http1.Request, d *http1.Decision) bool {
	now := time.Now()
	c := h.client(r, now)
	if c.hops > maxHops {
		d.Respond(http.StatusLoopDetected, codeLoop,
			"the request has come through more proxies than a deployment has; look for regions whose routers name each other")
		return false
	}
	path := r.Path()
	if d.Target != nil {
		path = d.Target
	}
	d.Lines = h.marks.append(d.Lines[:0], c, markedRequest{id: r.ID(), tenant: tenantOfPath(path)}, now)
	return true
}

// client tells who a request comes from: whom a mark names, else whoever
// connected. A mark that is not right means nothing.
func (h handler) client(r *http1.Request, now time.Time) client {
	if value := r.Header(headerClient); value != nil {
		if c, err := h.marks.verify(value, markedRequest{id: r.ID(), tenant: tenantOfPath(r.Path())}, now); err == nil {
			return c
		}
	}
	return client{addr: r.RemoteIP()}
}

// unplaced answers for a unit that no table places.
func (h handler) unplaced(d *http1.Decision, f found, p place, asked bool) {
	var info fsm.TenantInfo
	known := false
	if f.t != nil {
		info, known = f.t.tenant(p.tenant)
	}
	switch {
	case known && p.bucket == 0:
		d.Respond(http.StatusBadRequest, codeBucketRequired,
			fmt.Sprintf("tenant %s has %d buckets: name one, as in /t/%s/b/<n>/", p.tenant, info.Buckets, p.tenant))
	case known && p.bucket > info.Buckets:
		d.Respond(http.StatusNotFound, codeUnknownBucket, fmt.Sprintf("tenant %s has buckets 1 to %d", p.tenant, info.Buckets))
	case f.t != nil && p.bucket != 0 && f.t.seat(p.tenant) != nil:
		d.Respond(http.StatusNotFound, codeUnknownBucket, fmt.Sprintf("tenant %s has no buckets; its data API is under /t/%s/", p.tenant, p.tenant))
	case asked:
		d.Respond(http.StatusServiceUnavailable, codeUnavailable,
			fmt.Sprintf("the directory places %s, and this proxy's copy does not yet; try again", p.unit(nil)))
	case len(h.control.ups) == 0:
		unavailable(d, p.tenant)
	default:
		d.Defer() // asking takes a while, which Route may not
	}
}

func unavailable(d *http1.Decision, tenant []byte) {
	d.Respond(http.StatusServiceUnavailable, codeUnavailable,
		fmt.Sprintf("this proxy's copy of the directory has no tenant %s, and no control server answers to say whether there is one; try again", tenant))
}

// routeRest serves everything but tenants.
func (h handler) routeRest(r *http1.Request, d *http1.Decision, path []byte) {
	d.Route = routeOther
	switch {
	case bytes.HasPrefix(path, shardPrefix), bytes.HasPrefix(path, consolePrefix):
		d.Route = routeShard
		h.routeShard(r, d, 0)
	case string(path) == "/_health":
		d.Route = routeHealth
		d.ServeWith(h.serveHealth)
	case string(path) == "/_ready":
		d.Route = routeHealth
		d.ServeWith(h.serveReady)
	case string(path) == "/_metrics":
		d.Route = routeMetrics
		d.ServeWith(h.serveMetrics)
	default:
		d.Respond(http.StatusNotFound, codeUnknownRoute,
			"there is nothing at this path; this is a proxy and serves tenants under /t/<tenant>/, the admin API under /_shard/, /_health, /_ready and /_metrics")
	}
}

// routeShard relays to the n-th control server to be tried, or the next one behind it that
// is not known to be silent.
func (h handler) routeShard(r *http1.Request, d *http1.Decision, n int) {
	up := h.control.nth(n)
	for ; up != nil && up.Lost(); up = h.control.nth(n) {
		n++
	}
	switch {
	case up != nil:
	case r.Resent() && !safe(r.Method()):
		d.Respond(http.StatusBadGateway, codeUnknown, "no control server can be reached any more: the change may have been made; ask again with the same Idempotency-Key")
		return
	default:
		d.Respond(http.StatusServiceUnavailable, codeUnavailable, "no control server can be reached and nothing was sent to one; try again")
		return
	}
	d.Tried = uint8(n + 1)
	if !h.nameClient(r, d) {
		return
	}
	d.MaxBody = 1<<63 - 1 // a control server bounds its own
	if !safe(r.Method()) {
		d.Settle = h.settle
	}
	d.Forward(up)
}

// safe tells methods that may be executed twice (R2); the others may change the directory
// where they ask for the admin API.
func safe(method []byte) bool {
	switch string(method) {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	return false
}
