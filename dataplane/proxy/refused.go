package proxy

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"time"

	"domicile/dataplane/proxy/http1"
	"domicile/fsm"
	"domicile/proto"
)

// headerBehind goes with the answer to a change that this proxy's table does
// not show yet, and tells the revision that it stands at.
const headerBehind = "Domicile-Behind"

// maxAttempts bounds how often a request is sent on without waiting: once to where
// the table led, once after asking, once more for an address that changed on the way.
const maxAttempts = 3

// Refused decides what follows on an attempt that had no effect, and on a request
// that Route could not decide about.
func (h handler) Refused(r *http1.Request, f http1.Refusal, d *http1.Decision) bool {
	switch {
	case d.Route == routeShard:
		if f.Kind != http1.Unreachable || errors.Is(f.Err, http1.ErrBusy) {
			return false
		}
		h.routeShard(r, d, f.Attempt)
		return true
	case f.Kind == http1.Undecided:
		return h.decide(r, d)
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
	case h.holdable(r, f, p):
		return h.hold(r, f, d, p)
	}
	return h.sendOn(r, f, d, p)
}

// Lost gives up a request that a lost node does not answer once the table places its
// unit elsewhere: no write of it can be acknowledged there any more, and a read would be
// of the past. A unit that stays with its node may be served there yet. A read that a
// copy does not answer goes to the primary.
func (h handler) Lost(r *http1.Request, u *http1.Upstream, d *http1.Decision) bool {
	if d.Route != routeTenant {
		return false
	}
	var name [maxUnit]byte
	unit := placeOf(r, d).unit(name[:0])
	t := h.dir.table()
	s := t.seat(unit)
	if s == nil || s.up == nil || s.up == u {
		return false
	}
	d.Spare = false
	h.forward(r, d, s.up, unit, t.position.Revision)
	return d.Action == http1.ActionForward
}

// placeOf reads again what a request on the data path names.
func placeOf(r *http1.Request, d *http1.Decision) place {
	path := r.Path()
	if d.Target != nil {
		path, _, _ = bytes.Cut(d.Target, []byte("?"))
	}
	return parsePlace(path[len(tenantPrefix):])
}

// askFor asks the control plane about a tenant that the table does not know,
// and waits for the table where it is known there.
func (h handler) askFor(r *http1.Request, d *http1.Decision) {
	p := placeOf(r, d)
	var before fsm.Revision
	if t := h.dir.table(); t != nil {
		before = t.position.Revision
	}
	k, err := h.asking.about(r.Gone(), string(p.tenant), before, string(r.ID()))
	switch {
	case errors.Is(err, errBusyAsking):
		d.Respond(http.StatusServiceUnavailable, string(proto.CodeOverloaded), "too many tenants that this proxy does not know are being asked for; try again")
	case err != nil:
		unavailable(d, p.tenant)
	case k.found && k.state == fsm.UnitCreating.String():
		d.Respond(http.StatusServiceUnavailable, string(proto.CodeCreatePending), "the tenant is being created; try again")
	case !k.found || k.state == fsm.UnitDeleting.String():
		h.routeAbsent(r, d, p, k)
	default:
		h.dir.await(r.Gone(), awaitTable, reached(k.revision))
		h.routeTenant(r, d, p, routeAsked)
	}
}

// routeAbsent answers for a tenant that the control plane does not have, unless
// the table is newer than what it said and has it.
func (h handler) routeAbsent(r *http1.Request, d *http1.Decision, p place, k known) {
	var name [maxUnit]byte
	if t := h.dir.table(); t != nil && t.position.Revision > k.revision && t.seat(p.unit(name[:0])) != nil {
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
	if h.moved(f, p)(h.dir.table()) {
		return h.forwardAgain(r, f, d, p)
	}
	if f.Kind == http1.Misdirected && f.Attempt < maxAttempts && len(h.control.servers) > 0 {
		k, err := h.asking.about(r.Gone(), string(p.tenant), h.dir.table().position.Revision, string(r.ID()))
		if err == nil && k.found {
			h.dir.await(r.Gone(), awaitTable, reached(k.revision))
		}
		if err == nil && h.moved(f, p)(h.dir.table()) {
			return h.forwardAgain(r, f, d, p)
		}
	}
	if f.Kind != http1.Unreachable {
		h.holds.count(outcomeRefused)
	}
	return false
}

// moved is the condition that a table places p elsewhere than where the refused
// attempt went.
func (h handler) moved(f http1.Refusal, p place) func(*table) bool {
	return func(t *table) bool {
		var name [maxUnit]byte
		s := t.seat(p.unit(name[:0]))
		return s == nil || s.up != f.Upstream
	}
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
		if a.Status != http.StatusUnauthorized && changes(r.Method()) {
			h.record(r, AuditChange, a.Status)
		}
	}
	if a.Status == http.StatusUnauthorized {
		return h.refuse(r, a.Upstream.Name())
	}
	if a.Status < 300 && r.Header("Authorization") != nil && h.refusals.held.Load() > 0 {
		h.refusals.accepted(h.client(r, time.Now()).addr, a.Upstream.Name())
	}
	return 0
}

// refuse counts a refused token and tells how long its answer waits. What came
// through another proxy waits there, by the client's address.
func (h handler) refuse(r *http1.Request, by string) time.Duration {
	h.record(r, AuditRefusedToken, http.StatusUnauthorized)
	now := time.Now()
	c := h.client(r, now)
	if c.hops > 0 {
		h.refusals.total.Add(1)
		return 0
	}
	return h.refusals.refused(c.addr, by, now)
}

// settle holds the answer to a change until the table shows it.
func (h handler) settle(r *http1.Request, a *http1.Answer) {
	rev, err := strconv.ParseUint(string(a.Header(proto.HeaderRevision)), 10, 64)
	if err != nil {
		return
	}
	if h.dir.await(r.Gone(), awaitChange, reached(fsm.Revision(rev))) {
		return
	}
	var have fsm.Revision
	if t := h.dir.table(); t != nil {
		have = t.position.Revision
	}
	a.Lines = strconv.AppendUint([]byte(headerBehind+": "), uint64(have), 10)
	a.Lines = append(a.Lines, '\r', '\n')
}
