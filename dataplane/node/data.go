package node

import (
	"context"
	"errors"
	"strings"

	"domicile/dataplane/node/store"
	"domicile/internal/httpserve"

	"github.com/valyala/fasthttp"
)

var actionRoutes = [...]routeLabel{
	actUnknown: routeOther, actInfo: routeInfo, actQuery: routeQuery, actBatch: routeBatch, actChanges: routeChanges,
	actVersion: routeInfo, actPipelineV2: routePipeline, actPipelineV3: routePipeline, actCursor: routeCursor,
}

// admitted is a data request's path once it was found, its token good, its method right.
func (r *request) admitted(rest []byte) (dataPath, error) {
	p := parseDataPath(rest)
	r.route = actionRoutes[p.action]
	if p.bad != "" {
		return p, badRequest("%s", p.bad)
	}
	if r.webSocket { // before the token, which such a client would send later
		r.ctx.Response.Header.Set("Upgrade", "HTTP/1.1")
		r.ctx.Response.Header.Set("Connection", "Upgrade")
		return p, httpserve.Errorf(426, "upgrade_unsupported", "no WebSocket here: give the client an http:// or https:// address")
	}
	if err := r.s.guard.Load().admitData(r.authorization, p.tenant); err != nil {
		return p, err
	}
	if p.action == actUnknown {
		return p, errUnknownRoute()
	}
	if allowed, method := methods[p.action], r.ctx.Method(); !allows(allowed, string(method)) {
		return p, r.methodNotAllowed(allowed)
	}
	return p, nil
}

func allows(allowed, method string) bool {
	for len(allowed) > 0 {
		one, rest, _ := strings.Cut(allowed, ", ")
		if one == method {
			return true
		}
		allowed = rest
	}
	return false
}

// serveData answers what is under /t/.
func (r *request) serveData(rest []byte) error {
	p, err := r.admitted(rest)
	if err != nil {
		return err
	}
	var body []byte
	if methods[p.action] == "POST" {
		if body, err = r.readBody(r.s.cfg.MaxBody); err != nil {
			return err
		}
	}
	// The unit is let go of when the answer is built, before it is written.
	ctx := r.s.context(r.began)
	release, err := r.acquire(ctx, p.unit())
	if err != nil {
		return err
	}
	defer release()
	if err := r.data.admit(reads); err != nil {
		return err
	}
	rec := r.data.record()
	if rec.State == store.Following && r.data.unit.Position().IsZero() {
		return httpserve.Errorf(503, codeTransfer, "the copy of %s here holds nothing yet; its primary answers", unitText(p.unit()))
	}
	r.data.stale = r.s.fence.stale(&rec)
	if err := r.waitAfter(ctx); err != nil {
		return err
	}
	switch p.action {
	case actInfo:
		return r.info(&p)
	case actVersion:
		return r.json(200, map[string]string{"protocol": "hrana over HTTP, JSON"})
	case actQuery:
		return r.query(ctx, body)
	case actBatch:
		return r.batch(ctx, body)
	case actPipelineV2, actPipelineV3:
		return r.pipeline(ctx, &p, body)
	case actCursor:
		return r.cursor(ctx, body)
	case actChanges:
		return r.changes()
	case actUnknown:
	}
	return errUnknownRoute()
}

// acquire opens the unit for the request.
func (r *request) acquire(ctx context.Context, unit string) (release func(), err error) {
	u, release, err := r.s.store.Acquire(ctx, unit)
	switch {
	case errors.Is(err, store.ErrUnknownUnit):
		return nil, r.notHeld(unit)
	case errors.Is(err, store.ErrDamaged):
		return nil, r.s.cannotOpen(unit, err)
	case err != nil:
		return nil, err
	}
	r.data = access{fence: &r.s.fence, unit: u, copy: r.readMode, readOnly: r.asCopy}
	return release, nil
}

// notHeld answers for a unit that the node does not hold. Where a proxy's table places
// it here the directory has the tenant, and nobody may be told that there is none (T4):
// the node lost its folder, or has not got the unit yet. It is refused as any unit that
// is elsewhere, so that the proxy holds the request until the directory says where.
func (r *request) notHeld(unit string) error {
	if to, gave := r.s.store.Gave(unit); gave {
		return misdirected(&store.Record{Name: unit}, to, "it was given to another node")
	}
	if r.routed {
		return misdirected(&store.Record{Name: unit}, "", "this node does not hold it, though the directory places it here")
	}
	return httpserve.Errorf(404, codeUnknownTenant, "this node has no %s; a request never makes one", unitText(unit))
}

// cannotOpen answers for a unit whose file is damaged. Where somebody else has it, or
// will have it in a moment, nothing was done and the request may wait for that.
func (s *Server) cannotOpen(unit string, damage error) error {
	rec, err := s.store.Get(unit)
	if err != nil {
		return damage
	}
	switch rec.State {
	case store.Following:
		return misdirected(&rec, rec.From, "its copy here is damaged and is being replaced")
	case store.Sent:
		return s.fence.admit(&rec, reads)
	case store.Active, store.Pinned, store.Sending:
		if l := s.fence.lease; l != nil {
			if u, named := l.Unit(unit); named && u.ID == rec.ID && len(u.InSync) > 0 {
				return &httpserve.Error{Status: 503, Code: codeTransfer, Cause: damage,
					Text: "unit " + unit + " is damaged here and is being given to its copy; try again"}
			}
		}
	case store.Receiving:
		return s.fence.admit(&rec, reads)
	case store.Garbage:
	}
	return damage
}

// waitAfter is Domicile-After: the answer shall have seen that position.
func (r *request) waitAfter(ctx context.Context) error {
	if len(r.after) == 0 {
		return nil
	}
	p, err := store.ParsePosition(string(r.after))
	if err != nil {
		return badRequest("Domicile-After: %v", err)
	}
	if err := r.notLost(p); err != nil || r.data.unit.Position().Compare(p) >= 0 {
		return err
	}
	limit := afterTimeout
	switch {
	case r.asCopy:
		limit = afterAtCopy
	case r.readMode && r.preferCopy:
		limit = afterAfterOne
	}
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = r.data.unit.WaitPosition(wait, p)
	if errors.Is(err, context.DeadlineExceeded) {
		e := httpserve.Errorf(504, "position_timeout", "this copy has not reached position %s within %v", p, limit)
		e.Fields = map[string]any{"position": r.data.unit.Position().String()}
		return e
	}
	if err == nil {
		err = r.notLost(p) // the copy may have learned of a failover meanwhile
	}
	return err
}

// notLost refuses a position on a branch that was given up: what it stands for never
// comes (architecture §3.7.5). One of a branch that is not known here may come.
func (r *request) notLost(p store.Position) error {
	lineage := r.data.unit.Lineage()
	if len(lineage) == 0 || p.IsZero() || p.Epoch > lineage[len(lineage)-1].Epoch || lineage.Has(p) {
		return nil
	}
	now := r.data.unit.Position()
	e := httpserve.Errorf(409, "position_lost", "position %s is on a branch that a failover has given up: what was written there and not replicated is lost; the present position is %s", p, now)
	e.Fields = map[string]any{"position": now.String()}
	return e
}

// info is GET /t/<t>/.
func (r *request) info(p *dataPath) error {
	rec := r.data.record()
	role := "primary"
	if rec.State == store.Following {
		role = "replica"
	}
	body := map[string]any{"name": string(p.tenant), "position": r.data.unit.Position().String(), "role": role}
	if p.bucket > 0 {
		body["bucket"] = p.bucket
	}
	r.position(r.data.unit.Position())
	return r.json(200, body)
}

// expect decides whether a client that waits for 100 Continue may send its body, so
// that what is refused anyway is refused before it was sent.
func (s *Server) expect(ctx *fasthttp.RequestCtx) int {
	r := s.requests.Get().(*request)
	r.reset(ctx)
	r.readHeaders()
	err := r.mayContinue()
	if err == nil {
		s.requests.Put(r)
		return fasthttp.StatusContinue
	}
	r.fail(err)
	status := ctx.Response.StatusCode()
	r.finish()
	return status
}

func (r *request) mayContinue() error {
	if r.doubled {
		return badRequest("a header that may stand once stands twice")
	}
	s := segments{r.path}
	switch string(s.next()) {
	case "t":
		p, err := r.admitted(s.rest)
		if err != nil {
			return err
		}
		if length := r.ctx.Request.Header.ContentLength(); length > r.s.cfg.MaxBody {
			return tooLarge(r.s.cfg.MaxBody)
		}
		release, err := r.acquire(r.s.context(r.began), p.unit())
		if err != nil {
			return err
		}
		defer release()
		return r.data.admit(reads)
	case "_admin":
		r.route, r.admin = routeAdmin, true
		if err := r.s.guard.Load().admitAdmin(r.authorization); err != nil {
			return err
		}
		return r.mayImport(s.rest)
	}
	return nil
}
