package proxy

import (
	"bytes"
	"errors"
	"net/http"
	"time"

	"domicile/dataplane/proxy/http1"
	"domicile/fsm"
	"domicile/proto"
)

// maxAttempts bounds how often a request is sent on without waiting: once to where
// the table led, once after asking, once more for an address that changed on the way.
const maxAttempts = 3

// Refused decides what follows on an attempt that had no effect, and on a request
// that Route could not decide about.
func (h handler) Refused(r *http1.Request, f http1.Refusal, d *http1.Decision) bool {
	switch {
	case d.Route == routeShard && f.Kind == http1.Undecided: // its server was lost
		h.routeShard(r, d, 0)
		return true
	case d.Route == routeShard:
		if f.Kind != http1.Unreachable || errors.Is(f.Err, http1.ErrBusy) {
			return false
		}
		h.routeShard(r, d, int(d.Tried))
		return true
	case f.Kind == http1.Undecided:
		return h.decide(r, d)
	}
	if h.relayRefused(f) {
		return h.nextRouter(r, f, d)
	}
	if f.Kind == http1.Unreachable && !errors.Is(f.Err, http1.ErrClosed) {
		h.dir.nodes.unreachable(f.Upstream.Name())
	}
	p := placeOf(r, d)
	switch {
	case f.Final:
		h.tooLong(r, f, p)
		return false
	case d.Spare: // a copy did not answer a read: the primary may
		h.routeTenant(r, d, p, routeAgain)
		return true
	case h.holdable(r, f, d, p):
		return h.hold(r, f, d, p)
	}
	return h.sendOn(r, f, d, p)
}

// Lost gives up a request that a lost node does not answer once the table places its
// unit elsewhere: no write of it can be acknowledged there any more, and a read would be
// of the past. A unit that stays with its node may be served there yet. A read that a
// copy does not answer goes to the primary.
func (h handler) Lost(r *http1.Request, u *http1.Upstream, d *http1.Decision) bool {
	if u.Region() != "" {
		return h.relayLost(r, u, d)
	}
	if d.Route == routeShard {
		return shardLost(u, d)
	}
	if d.Route != routeTenant {
		return false
	}
	var name [maxUnit]byte
	p := placeOf(r, d)
	unit := p.unit(name[:0])
	to := h.find(unit, p.tenant)
	if to.seat == nil || to.seat.up == nil || to.seat.up == u {
		return false
	}
	d.Spare = false
	h.forward(r, d, to.seat.up, unit, to.t.position.Revision)
	return d.Action == http1.ActionForward
}

// shardLost decides about a request that a control server keeps waiting: whether that
// answers at all is found out, and where it does not another one is asked, if R2 allows it.
func shardLost(u *http1.Upstream, d *http1.Decision) bool {
	if !u.Lost() {
		u.Doubt()
		return false
	}
	d.Defer()
	return true
}

// placeOf reads again what a request on the data path names.
func placeOf(r *http1.Request, d *http1.Decision) place {
	path := r.Path()
	if d.Target != nil {
		path, _, _ = bytes.Cut(d.Target, []byte("?"))
	}
	return parsePlace(path[len(tenantPrefix):])
}

// askFor asks the control plane about a tenant that the tables do not know, and waits for
// one of them where it is known there.
func (h handler) askFor(r *http1.Request, d *http1.Decision) {
	p := placeOf(r, d)
	k, err := h.asking.about(r.Gone(), string(p.tenant), h.revisions(), string(r.ID()))
	switch {
	case errors.Is(err, errBusyAsking):
		d.Respond(http.StatusServiceUnavailable, string(proto.CodeOverloaded), "too many tenants that this proxy does not know are being asked for; try again")
	case err != nil:
		unavailable(d, p.tenant)
	case k.found && k.state == fsm.UnitCreating.String():
		d.Respond(http.StatusServiceUnavailable, string(proto.CodeCreatePending), "the tenant is being created; try again")
	case !k.found || k.state == fsm.UnitDeleting.String():
		h.routeAbsent(r, d, p)
	default:
		h.awaitFound(r.Gone(), h.awaitTime(r), p, k)
		h.routeTenant(r, d, p, routeAsked)
	}
}

// routeAbsent answers for a tenant that the control plane does not have, unless a table
// is newer than what it said and has it.
func (h handler) routeAbsent(r *http1.Request, d *http1.Decision, p place) {
	var name [maxUnit]byte
	if f := h.find(p.unit(name[:0]), p.tenant); f.answers() || f.between {
		h.routeTenant(r, d, p, routeAsked)
		return
	}
	d.Respond(http.StatusNotFound, codeUnknownTenant, "there is no tenant "+string(p.tenant)+"; create it with PUT /_shard/tenants/"+string(p.tenant))
}

// sendOn sends a request that a node refused, or that found no node, to where a
// newer table places its unit, where it is not to be held. A node that refuses knows better than the
// table; so where the table still leads to it the control plane is asked how
// far the directory is. False: the client gets the refusal's own answer, which
// is never 421.
func (h handler) sendOn(r *http1.Request, f http1.Refusal, d *http1.Decision, p place) bool {
	if h.moved(f, p) {
		return h.forwardAgain(r, f, d, p)
	}
	limit := h.awaitTime(r)
	if f.Kind == http1.Misdirected && f.Attempt < maxAttempts && len(h.control.ups) > 0 && limit > 0 {
		k, err := h.asking.about(r.Gone(), string(p.tenant), h.revisions(), string(r.ID()))
		if err == nil && k.found {
			h.await(r.Gone(), limit, func() bool { return h.moved(f, p) || h.has(k) })
		}
		if err == nil && h.moved(f, p) {
			return h.forwardAgain(r, f, d, p)
		}
	}
	if f.Kind != http1.Unreachable {
		h.holds.count(outcomeRefused)
	}
	return false
}

// moved tells whether the tables place p elsewhere than where the refused attempt went.
func (h handler) moved(f http1.Refusal, p place) bool {
	var name [maxUnit]byte
	return !h.find(p.unit(name[:0]), p.tenant).is(f.Upstream)
}

func (h handler) forwardAgain(r *http1.Request, f http1.Refusal, d *http1.Decision, p place) bool {
	if f.Attempt >= maxAttempts {
		return false
	}
	h.holds.count(outcomeSentOn)
	h.routeTenant(r, d, p, routeAgain)
	return true
}

// Answered sees the answers of nodes and control servers: it slows refused
// tokens and writes the audit log.
func (h handler) Answered(r *http1.Request, a *http1.Answer) time.Duration {
	if i := h.control.index(a.Upstream); i >= 0 {
		h.control.note(i, a.Status)
		if a.Status != http.StatusUnauthorized && !safe(r.Method()) {
			h.record(r, h.client(r, time.Now()), AuditChange, a.Status)
		}
	}
	if name := a.Upstream.Region(); name != "" {
		h.relayAnswered(name, a)
	}
	if a.Status == http.StatusUnauthorized {
		return h.refuse(r, h.judge(r, a.Upstream))
	}
	if a.Status < 300 && r.Header("Authorization") != nil && h.refusals.held.Load() > 0 {
		h.refusals.accepted(h.client(r, time.Now()).addr, h.judge(r, a.Upstream))
	}
	return 0
}

// judge names who judges a token: a node, or a tenant in another region, of whose nodes
// one may ask for no token.
func (h handler) judge(r *http1.Request, up *http1.Upstream) string {
	if up.Region() == "" {
		return up.Name()
	}
	tenant := tenantOfPath(r.Path())
	if tenant == nil {
		tenant = r.Host()
	}
	return up.Name() + " " + string(tenant)
}

// refuse counts a refused token and tells how long its answer waits. What came
// through another proxy waits there, by the client's address; what comes again under the
// same mark did not come through that proxy.
func (h handler) refuse(r *http1.Request, by string) time.Duration {
	now := time.Now()
	c := h.client(r, now)
	if c.hops > 0 && h.marks.spent.spend(r.Header(headerClient)) {
		c = client{addr: r.RemoteIP()}
	}
	h.record(r, c, AuditRefusedToken, http.StatusUnauthorized)
	if c.hops > 0 {
		h.refusals.total.Add(1)
		return 0
	}
	return h.refusals.refused(c.addr, by, now)
}
