package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"domicile/dataplane/proxy/http1"
)

// routeHold ends the headerRoute of what goes to another proxy: " hold=<milliseconds>",
// the rest of the time for which it may be held, on both proxies together.
const routeHold = " hold="

// relay sends a request to a region that keeps the unit in its own directory: to the
// router that answered last, or another one that can be reached.
func (h handler) relay(r *http1.Request, d *http1.Decision, f found, unit []byte) {
	routers := f.home.routers.Load()
	up := routers.reachable()
	if up != nil {
		d.Tried = 0
		h.relayBy(r, d, f, unit, up)
		return
	}
	h.relayFailed(r, f.home)
	switch {
	case r.Resent() && !safe(r.Method()):
		d.Respond(http.StatusBadGateway, codeUnknown, fmt.Sprintf("region %s could not be reached any more before it answered: the request may have been executed", f.home.name))
	case len(routers.ups) > 0:
		d.Respond(http.StatusBadGateway, codeRegion,
			fmt.Sprintf("region %s, where this is, cannot be reached from here and nothing was sent to it; try again, or ask a proxy of that region", f.home.name))
	default:
		d.Respond(http.StatusBadGateway, codeRegion,
			fmt.Sprintf("region %s keeps this in a directory of its own, and no proxy of it is recorded: PUT /_shard/regions/%s", f.home.name, f.home.name))
	}
}

// relayBy sends a request by a router. What it costs nobody to be told wrong is not
// repeated: a request that says that it was relayed, without a mark that proves it, goes no
// further.
func (h handler) relayBy(r *http1.Request, d *http1.Decision, f found, unit []byte, up *http1.Upstream) {
	if bytes.Contains(r.Header(headerRoute), []byte(routeHold)) {
		d.Respond(http.StatusLoopDetected, codeLoop,
			"the request was relayed by a proxy whose mark means nothing here, and would go to another region again: proxies need the same --shared-secret, and clocks that agree")
		return
	}
	d.Route = routeRelay
	if !h.nameClient(r, d) {
		return
	}
	d.Tried++
	d.Lines = appendRoute(d.Lines, unit, f.t.position.Revision)
	d.Lines = append(strconv.AppendInt(append(d.Lines, routeHold...), h.holdTime(r, d).Milliseconds(), 10), "\r\n"...)
	if up.Stats().Idle.Load() == 0 {
		f.home.routers.Load().doubt() // a connect follows: should it be in vain, what the others do is known by then
	}
	d.Forward(up)
}

// relayed tells whether another proxy of this deployment has sent a request to this one's
// region, and for how long it may be held altogether. Such a request is not relayed again
// (G4).
func (h handler) relayed(r *http1.Request) (rest time.Duration, ok bool) {
	if r.Header(headerClient) == nil || h.client(r, time.Now()).hops == 0 {
		return 0, false
	}
	if _, value, ok := bytes.Cut(r.Header(headerRoute), []byte(routeHold)); ok {
		if ms, err := strconv.ParseUint(string(value), 10, 32); err == nil {
			return time.Duration(ms) * time.Millisecond, true
		}
	}
	return math.MaxInt64, true
}

// notHere tells a proxy that has relayed a request that it belongs elsewhere, and that
// nothing was done.
func notHere(d *http1.Decision) {
	d.Respond(http.StatusMisdirectedRequest, codeMisdirected, "this region does not hold the tenant; nothing was done")
}

// nextRouter decides where a request goes that found no connection to a router: to the
// next one, or to where the tables lead by now. False: nobody in the region can be
// reached.
func (h handler) nextRouter(r *http1.Request, f http1.Refusal, d *http1.Decision) bool {
	p := placeOf(r, d)
	var name [maxUnit]byte
	unit := p.unit(name[:0])
	to := h.find(unit, p.tenant)
	if !to.is(f.Upstream) || errors.Is(f.Err, http1.ErrClosed) && d.Tried <= maxAttempts {
		h.routeTenant(r, d, p, routeAgain)
		return true
	}
	routers := to.home.routers.Load()
	if up := routers.after(f.Upstream); up != nil && int(d.Tried) < len(routers.ups) {
		h.relayBy(r, d, to, unit, up)
		return true
	}
	h.relayFailed(r, to.home)
	return false
}

// relayFailed takes in that a request finds nobody in a region: what waits for that with
// it is let go.
func (h handler) relayFailed(r *http1.Request, home *region) {
	home.count(relayUnreachable)
	if t, held := r.Watcher().(*ticket); held {
		h.holds.giveUp(t)
	}
}

// relayRefused counts an attempt at another region that had no effect, and tells whether
// that was because its router could not be reached.
func (h handler) relayRefused(f http1.Refusal) bool {
	home := h.regionNamed(f.Upstream.Region())
	switch {
	case home == nil:
		return false
	case f.Kind == http1.Unreachable:
		return true
	}
	home.count(relayRefused)
	return false
}

// relayAnswered takes in that a router has answered: it is asked first from now on.
func (h handler) relayAnswered(name string, a *http1.Answer) {
	home := h.regionNamed(name)
	home.count(relayAnswered)
	routers := home.routers.Load()
	if i := routers.index(a.Upstream); i >= 0 {
		routers.note(i, a.Status)
	}
}

// regionNamed gives a region that keeps its own directory, nil without one: such regions
// are recorded in the global directory alone.
func (p *Proxy) regionNamed(name string) *region {
	if name == "" {
		return nil
	}
	if r := p.global.regions.named(name); r != nil {
		return r
	}
	return p.dir.regions.named(name)
}

// relayLost decides about a request that a router keeps waiting: whether that, and its
// region's others, answer at all is found out, and where it does not the request is given
// up, and sent by another one if R2 allows that and that one is known to answer.
func (h handler) relayLost(r *http1.Request, u *http1.Upstream, d *http1.Decision) bool {
	routers := h.regionNamed(u.Region()).routers.Load()
	next := routers.after(u)
	if !u.Lost() || next != nil && !next.Well() {
		routers.doubt()
		return false // it is known in a moment
	}
	d.Defer() // it is routed anew
	return true
}
