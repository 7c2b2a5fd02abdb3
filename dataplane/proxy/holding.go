package proxy

import (
	"errors"
	"strconv"
	"time"

	"domicile/dataplane/proxy/http1"
	"domicile/fsm"
)

// headerHold bounds the time, in milliseconds, that a request may be held; it can
// only shorten what the proxy allows.
const headerHold = "Domicile-Hold"

// holdTime tells for how long a request may be held. A header that is no number
// means nothing: it is no reason to fail a request.
func (h handler) holdTime(r *http1.Request) time.Duration {
	return holdTime(h.cfg.Hold, r.Header(headerHold))
}

func holdTime(most time.Duration, asked []byte) time.Duration {
	if most <= 0 {
		return 0
	}
	if len(asked) == 0 || asked[0] == '+' {
		return most
	}
	ms, err := strconv.ParseUint(string(asked), 10, 32)
	if err != nil {
		return most
	}
	return min(most, time.Duration(ms)*time.Millisecond)
}

// spot looks up where the table places a unit.
func (p *Proxy) spot(unit []byte) spot {
	t := p.dir.table()
	if t == nil {
		return spot{}
	}
	u, ok := t.unit(unit)
	if !ok {
		return spot{}
	}
	s := spot{placed: true, up: t.nodes[u.node].up, epoch: u.epoch, promoting: u.promoting, mayMove: u.state == fsm.UnitMoving || u.promoting}
	leased := !t.nodes[u.node].info.Unleased
	for _, state := range u.each {
		s.mayMove = s.mayMove || leased && state == fsm.CopyInSync
	}
	return s
}

// hasToWait tells whether a request has to wait before it is sent, as others of its
// unit do.
func (h handler) hasToWait(r *http1.Request, unit []byte) bool {
	return h.holds.gates(unit, r.Resendable()) && h.holdTime(r) > 0
}

// holdable tells whether a request that was refused may wait: not where all
// connections to its node are in use, nor where nothing but its node can serve its
// unit and that is down. One that was held before may in any case.
func (h handler) holdable(r *http1.Request, f http1.Refusal, p place) bool {
	if t, ok := r.Watcher().(*ticket); ok {
		return !t.over
	}
	if h.holdTime(r) == 0 {
		return false
	}
	if f.Kind != http1.Unreachable {
		return true
	}
	var name [maxUnit]byte
	return !errors.Is(f.Err, http1.ErrBusy) && h.spot(p.unit(name[:0])).mayMove
}

// hold has a request wait that was refused, until it can be sent, and routes it
// then. False: the client gets the refusal's own answer.
func (h handler) hold(r *http1.Request, f http1.Refusal, d *http1.Decision, p place) bool {
	t, held := r.Watcher().(*ticket)
	if !held {
		t = h.ticket(r, p)
	}
	why := reason{kind: f.Kind, node: f.Upstream.Name(), code: f.Code}
	switch h.holds.enter(t, refusal{kind: f.Kind, up: f.Upstream, why: why}, held || f.Attempt >= maxAttempts) {
	case needless:
		if !held { // else it was counted as unplaced
			h.holds.count(outcomeSentOn)
		}
		h.routeTenant(r, d, p, routeAgain)
		return true
	case full:
		h.holds.count(outcomeFull)
		return false
	}
	r.Watch(t)
	switch h.holds.wait(t, r.Gone()) {
	case outcomeExpired, outcomeGone:
		return false
	}
	h.routeTenant(r, d, p, routeAgain)
	return true
}

// tooLong takes in a refusal of a request that cannot be sent again: those behind it
// need not meet the same.
func (h handler) tooLong(r *http1.Request, f http1.Refusal, p place) {
	t, held := r.Watcher().(*ticket)
	if !held {
		h.holds.count(outcomeRefused)
	}
	if h.cfg.Hold > 0 {
		h.holds.warn(string(p.unit(nil)), t, refusal{kind: f.Kind, up: f.Upstream, why: reason{kind: f.Kind, node: f.Upstream.Name(), code: f.Code}})
	}
}

// decide routes a request about which Route could not decide: it waits with the
// others of its unit, or its tenant is asked about.
func (h handler) decide(r *http1.Request, d *http1.Decision) bool {
	p := placeOf(r, d)
	var name [maxUnit]byte
	if h.dir.table().seat(p.unit(name[:0])) == nil {
		h.askFor(r, d)
		return true
	}
	t := h.ticket(r, p)
	switch h.holds.join(t) {
	case needless:
		h.routeTenant(r, d, p, routeAgain)
		return true
	case full:
		h.holds.count(outcomeFull)
		t.why.respond(d)
		return true
	}
	r.Watch(t)
	switch h.holds.wait(t, r.Gone()) {
	case outcomeExpired, outcomeGone:
		t.why.respond(d)
		return true
	}
	h.routeTenant(r, d, p, routeAgain)
	return true
}

func (h handler) ticket(r *http1.Request, p place) *ticket {
	return h.holds.newTicket(string(p.unit(nil)), r.Resendable(), r.Held(), h.holdTime(r))
}
