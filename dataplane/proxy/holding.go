package proxy

import (
	"errors"
	"strconv"
	"time"

	"domicile/dataplane/proxy/http1"
)

// headerHold bounds the time, in milliseconds, that a request may be held; it can
// only shorten what the proxy allows.
const headerHold = "Domicile-Hold"

// holdTime tells for how long a request may be held, from now on where it goes, or came,
// through another proxy: the first one's time is for both. A header that is no number
// means nothing: it is no reason to fail a request.
func (h handler) holdTime(r *http1.Request, d *http1.Decision) time.Duration {
	most := holdTime(h.cfg.Hold, r.Header(headerHold))
	if most == 0 {
		return 0
	}
	rest, relayed := h.relayed(r)
	if relayed {
		most = min(most, rest)
	}
	if relayed || d.Route == routeRelay {
		most = max(0, most-r.Age())
	}
	return most
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

// awaitTime tells for how long a request may wait until the proxy's own tables show what
// the control plane has said: as for being held, what the client asks for and what is left
// of the first proxy's time bound it.
func (h handler) awaitTime(r *http1.Request) time.Duration {
	most := holdTime(awaitTable, r.Header(headerHold))
	if rest, relayed := h.relayed(r); relayed {
		most = max(0, min(most, rest-r.Age()))
	}
	return most
}

// hasToWait tells whether a request has to wait before it is sent, as others of its
// unit do: not for a node that is down of which no news can come.
func (h handler) hasToWait(r *http1.Request, d *http1.Decision, f found, unit []byte) bool {
	if !h.holds.gates(unit, r.Resendable()) || h.holdTime(r, d) == 0 {
		return false
	}
	down := f.seat != nil && f.seat.up != nil && !f.seat.up.Up()
	return !down || !h.outOfTouch(f.t)
}

// holdable tells whether a request that was refused may wait: not where all
// connections to its node are in use, nor where that is down and either nothing else can
// serve its unit or the table would not hear of it. One that was held before may in any case.
func (h handler) holdable(r *http1.Request, f http1.Refusal, d *http1.Decision, p place) bool {
	if t, ok := r.Watcher().(*ticket); ok {
		return !t.over
	}
	if h.holdTime(r, d) == 0 {
		return false
	}
	if f.Kind != http1.Unreachable {
		return true
	}
	var name [maxUnit]byte
	unit := p.unit(name[:0])
	to := h.find(unit, p.tenant)
	return !errors.Is(f.Err, http1.ErrBusy) && h.spot(unit).mayMove && (to.t == nil || !h.outOfTouch(to.t))
}

// hold has a request wait that was refused, until it can be sent, and routes it
// then. False: the client gets the refusal's own answer.
func (h handler) hold(r *http1.Request, f http1.Refusal, d *http1.Decision, p place) bool {
	t, held := r.Watcher().(*ticket)
	if !held {
		t = h.ticket(r, d, p)
	}
	switch h.holds.enter(t, refusalOf(f), held || f.Attempt >= maxAttempts) {
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
		h.holds.warn(string(p.unit(nil)), t, refusalOf(f))
	}
}

// refusalOf tells a queue of a refusal.
func refusalOf(f http1.Refusal) refusal {
	return refusal{
		kind: f.Kind, up: f.Upstream, region: f.Upstream.Region(),
		why: reason{kind: f.Kind, node: f.Upstream.Name(), region: f.Upstream.Region(), code: f.Code},
	}
}

// decide routes a request about which Route could not decide: it waits with the
// others of its unit, or until the unit has a home again, or its tenant is asked about.
func (h handler) decide(r *http1.Request, d *http1.Decision) bool {
	p := placeOf(r, d)
	var name [maxUnit]byte
	f := h.find(p.unit(name[:0]), p.tenant)
	if !f.answers() && !f.between {
		h.askFor(r, d)
		return true
	}
	t, held := r.Watcher().(*ticket)
	held = held && !t.over
	if held && f.answers() { // it was sent and given up: it is not to wait again
		h.routeTenant(r, d, p, routeAgain)
		return true
	}
	if !held {
		t = h.ticket(r, d, p)
	}
	enter := h.holds.join
	if f.between {
		enter = h.holds.between
	}
	switch enter(t) {
	case needless:
		h.routeTenant(r, d, p, routeAgain)
		return true
	case full:
		h.holds.count(outcomeFull)
		h.heldInVain(r, d, t.why)
		return true
	}
	r.Watch(t)
	switch h.holds.wait(t, r.Gone()) {
	case outcomeExpired, outcomeGone:
		h.heldInVain(r, d, t.why)
		return true
	}
	h.routeTenant(r, d, p, routeAgain)
	return true
}

// heldInVain answers a request that was never sent. What another proxy relayed goes back
// to that where it belongs elsewhere.
func (h handler) heldInVain(r *http1.Request, d *http1.Decision, why reason) {
	if _, relayed := h.relayed(r); relayed && why.between {
		notHere(d)
		return
	}
	why.respond(d)
}

func (h handler) ticket(r *http1.Request, d *http1.Decision, p place) *ticket {
	return h.holds.newTicket(string(p.unit(nil)), r.Resendable(), r.Held(), h.holdTime(r, d))
}
