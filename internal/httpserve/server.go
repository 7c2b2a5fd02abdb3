package httpserve

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"domicile/proto"
)

// Config of a Handler. Routes and Logger are needed.
type Config struct {
	Routes []Route
	// Token is asked for by every route that is not Open, and by unknown paths
	// below Guarded, so that they tell nothing; "" for none.
	Token   string
	Guarded string
	// Nothing is the answer at an unknown path: what serves here, and which
	// paths it has.
	Nothing string
	Logger  hclog.Logger
	// Before runs before anything is answered, on every request: it sets the
	// headers that each answer carries. May be nil.
	Before func(w http.ResponseWriter, r *http.Request)
	// Done hears of each request once it was answered. May be nil.
	Done func(Served)
}

// Served says what became of a request.
type Served struct {
	At     time.Time
	Took   time.Duration
	Route  string // its name; "" for an unknown path
	Method string
	Path   string
	Status int
	Peer   string // address of the other end of the connection, without port
	// Origin is who asked the server that relayed this here, as that server tells; "" for
	// what was not relayed.
	Origin    string
	RequestID string
}

// Handler serves routes. Its methods may be called concurrently.
type Handler struct {
	config Config
	routes *routes
	token  atomic.Pointer[string]
	// bodyWait and writeWait are the times of the constants; tests shorten them.
	bodyWait, writeWait time.Duration
}

// New makes a Handler.
func New(config Config) *Handler {
	h := &Handler{config: config, routes: newRoutes(config.Routes), bodyWait: bodyWait, writeWait: writeWait}
	h.SetToken(config.Token)
	return h
}

// SetToken replaces the token that is asked for.
func (h *Handler) SetToken(token string) { h.token.Store(&token) }

// open reports whether a request needs no token.
func (h *Handler) open(route *Route, r *http.Request) bool {
	if route != nil {
		return route.Open
	}
	return h.config.Guarded == "" || !strings.HasPrefix(r.URL.Path, h.config.Guarded)
}

// ServeHTTP serves one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	id := requestID(r)
	r = r.WithContext(WithRequestID(r.Context(), id))
	w.Header().Set(proto.HeaderRequestID, id)
	rec := &recorder{ResponseWriter: w, control: http.NewResponseController(w), wait: h.writeWait}
	h.limit(rec, r)
	route, allowed := h.routes.match(r)
	defer func() { h.finish(rec, r, route, begun, recover()) }()
	if h.config.Before != nil {
		h.config.Before(rec, r)
	}
	if !h.open(route, r) && !Authorized(r, *h.token.Load()) {
		WriteError(rec, Errorf(http.StatusUnauthorized, proto.CodeUnauthorized, "%s", refusedToken(r)))
		return
	}
	switch {
	case route != nil:
		if err := route.Handler(rec, r); err != nil {
			h.answerError(rec, r, err)
		}
	case len(allowed) > 0:
		rec.Header().Set("Allow", strings.Join(allowed, ", "))
		WriteError(rec, Errorf(http.StatusMethodNotAllowed, proto.CodeMethodNotAllowed,
			"this path takes %s", strings.Join(allowed, ", ")))
	default:
		WriteError(rec, Errorf(http.StatusNotFound, proto.CodeUnknownRoute,
			"%s", cmp.Or(h.config.Nothing, "there is no such path")))
	}
}

func (h *Handler) answerError(rec *recorder, r *http.Request, err error) {
	var e *Error
	if !errors.As(err, &e) {
		h.config.Logger.Error("request failed", "request_id", RequestID(r.Context()), "err", err)
		e = Errorf(http.StatusInternalServerError, proto.CodeInternal, "the server failed; its log has the reason under this request id")
	}
	if rec.status != 0 {
		// Something was sent already: only a broken connection tells the client.
		panic(http.ErrAbortHandler)
	}
	WriteError(rec, e)
}

// finish answers a panic and reports the request.
func (h *Handler) finish(rec *recorder, r *http.Request, route *Route, begun time.Time, failure any) {
	if failure != nil && failure != http.ErrAbortHandler {
		h.config.Logger.Error("request panicked", "request_id", RequestID(r.Context()),
			"err", fmt.Sprint(failure), "stack", string(debug.Stack()))
		if rec.status == 0 {
			WriteError(rec, Errorf(http.StatusInternalServerError, proto.CodeInternal,
				"the server failed; its log has the reason under this request id"))
			failure = nil
		}
	}
	if h.config.Done != nil {
		h.config.Done(served(rec, r, route, begun))
	}
	if failure != nil {
		panic(http.ErrAbortHandler) // net/http breaks the connection and stays quiet
	}
}

func served(rec *recorder, r *http.Request, route *Route, begun time.Time) Served {
	s := Served{At: begun, Took: time.Since(begun), Method: r.Method, Path: r.URL.Path,
		Status: rec.status, Peer: peer(r), Origin: origin(r), RequestID: RequestID(r.Context())}
	if s.Status == 0 {
		s.Status = http.StatusOK // net/http's own, when a handler writes nothing
	}
	if route != nil {
		s.Route = route.Name
	}
	return s
}
