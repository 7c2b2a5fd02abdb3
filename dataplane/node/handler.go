package node

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"domicile/dataplane/node/jsonscan"
	"domicile/dataplane/node/store"
	"domicile/internal/httpserve"
)

// request is one request on its way. It is pooled: nothing of it is used after finish.
// Its slices alias fasthttp's, which last until the handler returns.
type request struct {
	s *Server
	heads
	data access
	q    query
	id   []byte // X-Request-Id, the client's or a new one
	buf  []byte // the body
	out  []byte // the answer
	pos  []byte // scratch for a position
}

// heads is what differs from request to request.
type heads struct {
	ctx   *fasthttp.RequestCtx
	began time.Time
	route routeLabel
	admin bool
	path  []byte // as it came, without the query

	authorization  []byte
	idempotencyKey []byte
	after          []byte       // Domicile-After
	holder         []byte       // Domicile-Holder
	unitID         []byte       // Domicile-Unit-Id
	by             store.Holder // whom hold has admitted
	byHand         bool         // it was an operator, who named nobody
	client         []byte       // the address in Domicile-Client
	lastEventID    []byte
	readMode       bool // Domicile-Mode: read
	preferCopy     bool // Domicile-Prefer: replica
	routed         bool // Domicile-Route: a proxy's table places the unit here
	asCopy         bool // and as a copy, which is not to be written
	encoded        bool // Content-Encoding
	webSocket      bool // Upgrade: websocket
	doubled        bool // a header that may stand once stands twice
}

// maxPooled is the greatest buffer that a pooled request keeps.
const maxPooled = 64 << 10

func (r *request) reset(ctx *fasthttp.RequestCtx) {
	r.heads = heads{ctx: ctx, began: time.Now(), path: ctx.URI().PathOriginal()}
	r.data = access{}
	r.id = r.id[:0]
	r.q.reset()
	if cap(r.buf) > maxPooled {
		r.buf = nil
	}
	if cap(r.out) > maxPooled {
		r.out = nil
	}
}

// serve is fasthttp's handler.
func (s *Server) serve(ctx *fasthttp.RequestCtx) {
	r := s.requests.Get().(*request)
	r.reset(ctx)
	defer r.recovered()
	r.readHeaders()
	if err := r.dispatch(); err != nil {
		r.fail(err)
	}
	r.finish()
}

// recovered keeps a fault in one request from ending the process. The connection is
// closed: how far its request was read is not known.
func (r *request) recovered() {
	what := recover()
	if what == nil {
		return
	}
	r.s.metrics.panics.Inc()
	r.s.log.Error("request panicked", "request_id", string(r.id), "err", fmt.Sprint(what), "stack", string(debug.Stack()))
	r.ctx.SetConnectionClose()
	r.fail(httpserve.Errorf(500, codeInternal, "the node failed; its log has the reason under this request id"))
	r.finish()
}

// readHeaders looks at each header once. Names are compared without regard to case.
func (r *request) readHeaders() {
	var id []byte
	for name, value := range r.ctx.Request.Header.All() {
		switch len(name) {
		case len("Upgrade"):
			if is(name, "Upgrade") {
				r.webSocket = is(value, "websocket")
			}
		case len("X-Request-Id"):
			if is(name, "X-Request-Id") {
				id = value
			}
		case len("Authorization"):
			if is(name, "Authorization") {
				r.once(&r.authorization, value)
			} else if is(name, "Domicile-Mode") {
				r.readMode = string(value) == "read"
			} else if is(name, "Last-Event-Id") {
				r.lastEventID = value
			}
		case len("Idempotency-Key"):
			if is(name, "Idempotency-Key") {
				r.once(&r.idempotencyKey, value)
			} else if is(name, "Domicile-Holder") {
				r.once(&r.holder, value)
			} else if is(name, "Domicile-Prefer") {
				r.preferCopy = is(value, "replica")
			} else if is(name, "Domicile-Client") {
				r.client, _, _ = bytes.Cut(value, []byte{' '})
			}
		case len("Domicile-After"):
			if is(name, "Domicile-After") {
				r.once(&r.after, value)
			} else if is(name, "Domicile-Route") {
				r.routed, r.asCopy = true, bytes.HasSuffix(value, []byte(" copy"))
			}
		case len("Domicile-Unit-Id"):
			if is(name, "Domicile-Unit-Id") {
				r.once(&r.unitID, value)
			} else if is(name, "Content-Encoding") {
				r.encoded = !is(value, "identity")
			}
		}
	}
	r.id = appendRequestID(r.id, id)
}

// is compares without regard to case. want is spelled in any.
func is(name []byte, want string) bool {
	if len(name) != len(want) {
		return false
	}
	for i := range name {
		if a, b := name[i], want[i]; a != b && (a|0x20 != b|0x20 || a|0x20 < 'a' || a|0x20 > 'z') {
			return false
		}
	}
	return true
}

func (r *request) once(field *[]byte, value []byte) {
	if *field != nil {
		r.doubled = true
	}
	if value == nil {
		value = []byte{}
	}
	*field = value
}

// appendRequestID appends the client's id if it is 1 to 128 printable ASCII
// characters, else a new one of 16 hex digits (spec §2.2).
func appendRequestID(dst, id []byte) []byte {
	ok := len(id) > 0 && len(id) <= 128
	for _, c := range id {
		ok = ok && c >= 0x20 && c <= 0x7e
	}
	if ok {
		return append(dst, id...)
	}
	return append(dst, httpserve.NewRequestID()...)
}

var dataPrefix = []byte("/t/")

// dispatch finds what the path is for.
func (r *request) dispatch() error {
	if r.doubled {
		return badRequest("a header that may stand once stands twice")
	}
	if rest, ok := bytes.CutPrefix(r.path, dataPrefix); ok {
		return r.serveData(rest)
	}
	s := segments{r.path}
	switch first := s.next(); {
	case string(first) == "t":
		return r.serveData(s.rest)
	case string(first) == "_admin":
		r.route, r.admin = routeAdmin, true
		if err := r.s.guard.Load().admitAdmin(r.authorization); err != nil {
			return err
		}
		return r.serveAdmin(s.rest)
	case s.next() != nil:
	case string(first) == "_replication":
		r.route = routeAdmin
		return r.replication()
	case string(first) == "_health":
		r.route = routeHealth
		return r.get(func() error { return r.json(200, map[string]bool{"ok": true}) })
	case string(first) == "_ready":
		r.route = routeReady
		return r.get(r.ready)
	case string(first) == "_metrics":
		r.route = routeMetrics
		return r.get(r.scrape)
	}
	return errUnknownRoute()
}

func (r *request) get(f func() error) error {
	if !r.ctx.IsGet() && !r.ctx.IsHead() {
		return r.methodNotAllowed("GET, HEAD")
	}
	return f()
}

func (r *request) methodNotAllowed(allowed string) error {
	r.ctx.Response.Header.Set("Allow", allowed)
	return httpserve.Errorf(405, "method_not_allowed", "this path takes %s", allowed)
}

func (r *request) ready() error {
	if r.s.draining.Load() {
		return httpserve.Errorf(503, "shutting_down", "the node is being stopped")
	}
	return r.json(200, map[string]bool{"ready": true})
}

func (r *request) scrape() error {
	if g := r.s.guard.Load(); g.admin != nil {
		if err := g.admitAdmin(r.authorization); err != nil {
			return err
		}
	}
	r.s.metrics.handler(r.ctx)
	return nil
}

// fail answers an error.
func (r *request) fail(err error) {
	e := failure(err)
	if e.Status == 500 {
		r.s.log.Error("request failed", "request_id", string(r.id), "err", errors.Join(e.Cause, e))
	}
	resp := &r.ctx.Response
	resp.ResetBody()
	if e.Status == 401 {
		resp.Header.Set("WWW-Authenticate", "Bearer")
	}
	if e.RetryAfter > 0 || e.Status == 503 {
		resp.Header.Set("Retry-After", strconv.Itoa(max(e.RetryAfter, 1)))
	}
	r.answer(e.Status, e.Body())
	// What the client still sends is not taken for a next request by fasthttp; it must
	// not lose this answer over it either.
	if c, ok := r.ctx.Conn().(*conn); ok && r.ctx.Request.IsBodyStream() {
		c.linger.Store(true)
	}
}

// finish puts on what every answer has, counts it, and gives the request back.
func (r *request) finish() {
	r.ctx.Response.Header.SetBytesV("X-Request-Id", r.id)
	if r.s.draining.Load() {
		if bytes.HasPrefix(r.path, dataPrefix) { // not the renewals of its lease
			r.s.served.Store(time.Now().UnixNano())
		}
		r.ctx.SetConnectionClose()
	}
	r.s.metrics.done(r.route, r.ctx.Response.StatusCode(), time.Since(r.began))
	r.audit()
	r.s.requests.Put(r)
}

// position puts a position on the answer, and says where what was read may be old.
func (r *request) position(p store.Position) {
	if r.data.stale {
		r.ctx.Response.Header.SetBytesV("Domicile-Stale", yes)
	}
	r.pos = appendPosition(r.pos[:0], p)
	r.ctx.Response.Header.SetBytesV("Domicile-Position", r.pos)
}

var yes = []byte("true")

func appendPosition(dst []byte, p store.Position) []byte {
	dst = strconv.AppendUint(dst, p.Epoch, 10)
	dst = append(dst, ':')
	return strconv.AppendUint(dst, p.Seq, 10)
}

func appendPositionField(dst []byte, p store.Position) []byte {
	dst = append(dst, `,"position":"`...)
	dst = appendPosition(dst, p)
	return append(dst, '"', '}', '\n')
}

func appendStrings(dst []byte, names []store.Column) []byte {
	for i := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonscan.AppendString(dst, names[i].Name)
	}
	return dst
}
