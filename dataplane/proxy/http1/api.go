package http1

import (
	"crypto/tls"
	"io"
	"net/netip"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Handler decides what becomes of requests. Its methods are called on the
// goroutine of the client's connection, for one request at a time per
// connection and for many connections at once. A panic answers 500, closes the
// connection and is counted.
type Handler interface {
	// Route is called once the head is there and valid, and fills d, which
	// arrives empty (Lines keeps its capacity). It must not block and, to
	// forward, need not allocate.
	Route(r *Request, d *Decision)

	// Refused is called when an attempt ended with certainty without effect
	// (see RefusalKind). It may block, to hold the request, for as long as it
	// bounds itself, and should give up when r.Gone() is closed. To have the
	// request sent on it changes d (usually d.Forward of a newer upstream and
	// new Lines; d still holds the decision that was refused) and returns true; d
	// may also ask for an answer (d.Respond). False gives the client the answer
	// that the specification has for the refusal. Unless the refusal is Final
	// the whole request can still be sent.
	Refused(r *Request, f Refusal, d *Decision) bool

	// Lost is called while a request that may have reached u waits for its answer
	// and u is lost (Upstream.SetLost), every 200 ms and by Server.LookAtLost; where u asks for that, once
	// it waits for UpstreamConfig.AskAfter; and, for a Decision that has a
	// Spare, once u has kept it waiting for Config.SpareWait or has broken the connection. True gives
	// u up: d says then, by d.Forward of another upstream and new Lines or by d.Defer, where the
	// request is sent again if R2 allows that, as it does for a Spare's; else it is answered 502
	// outcome_unknown. It must not block.
	Lost(r *Request, u *Upstream, d *Decision) bool

	// Answered sees every final answer of an upstream before any of it is
	// relayed; the answer waits for the duration returned (0: not at all),
	// without an upstream connection being held where the answer is short. It
	// must not block.
	Answered(r *Request, a *Answer) time.Duration
}

// Action says what a Decision asks for.
type Action uint8

// The actions. The zero Decision answers 404.
const (
	ActionRespond Action = iota
	ActionForward
	ActionServe
	ActionDefer
)

// Decision is what a Handler wants done with a request. Byte slices that it
// holds are read until the request has ended.
type Decision struct {
	Action Action
	// Route is the label (0 to MaxRoutes-1) that the request is counted under in Stats.
	Route uint8

	// Upstream, for ActionForward.
	Upstream *Upstream
	// Lines are head lines to add towards the node, each ended by CRLF, with no
	// byte that could end a line early. Append to Lines[:0].
	Lines []byte
	// Target is what the node gets in place of the client's request target; nil:
	// the client's, byte for byte. It must be a valid target.
	Target []byte
	// Spare, for ActionForward, says that another place can answer as well and that
	// executing the request at Upstream has no effect: any answer 421, 503 or 504 is a
	// refusal, and so, where the whole request can be sent again, is none (Handler.Lost).
	Spare bool
	// MaxBody overrides Config.MaxBody when it is above 0.
	MaxBody int64
	// Tried is the Handler's own: how many places it has tried. The engine sets it to 0
	// for each request.
	Tried uint8
	// Settle, if set, is called with the final answer before it is relayed and
	// may block, within a bound of its own and until r.Gone() is closed.
	Settle func(r *Request, a *Answer)

	// Status, Code and Message make the JSON answer of ActionRespond:
	// {"error":Message,"code":Code}. Status 503 carries Retry-After: 1.
	Status        int
	Code, Message string
	// Headers are further lines of that answer, in the form of Lines.
	Headers []byte

	// Serve answers the request itself, for ActionServe.
	Serve ServeFunc
}

// Forward asks to send the request to u. Lines stay as they are.
func (d *Decision) Forward(u *Upstream) { d.Action, d.Upstream = ActionForward, u }

// Defer asks to be asked again by Refused, where the Handler may block, with
// kind Undecided: before anything is sent, and before more is read of the body
// than came with the head.
func (d *Decision) Defer() { d.Action = ActionDefer }

// Respond asks for a JSON answer.
func (d *Decision) Respond(status int, code, message string) {
	d.Action, d.Status, d.Code, d.Message = ActionRespond, status, code, message
}

// ServeWith asks to answer the request with fn.
func (d *Decision) ServeWith(fn ServeFunc) { d.Action, d.Serve = ActionServe, fn }

// ServeFunc answers a request on the proxy itself. body yields the decoded
// body, at most MaxBody bytes of it (then an error), and sends 100 Continue on
// the first read where the client waits for one. Neither w nor body nor r may be
// used after it returns. It should end when r.Gone() is closed.
type ServeFunc func(w ResponseWriter, r *Request, body io.Reader)

// ResponseWriter writes the answer of a ServeFunc. X-Request-Id, the framing
// and Date are the engine's. Not safe for use by two goroutines.
type ResponseWriter interface {
	// SetHeader sets or adds a header line; Content-Length makes the answer
	// one of that length, otherwise it is chunked, or has the length of what was
	// written when it never had to be flushed. Names and values with bytes that
	// a head may not hold are an error.
	SetHeader(name, value string) error
	// WriteHeader sets the status (200 where it is not called).
	WriteHeader(status int)
	io.Writer
	// Flush sends what was written; an error means that the client is gone.
	Flush() error
}

// RefusalKind says why an attempt certainly had no effect.
type RefusalKind uint8

const (
	// Misdirected: the node answered 421.
	Misdirected RefusalKind = iota + 1
	// Unavailable: the node answered 503 with one of the codes no_lease,
	// lease_lapsed, not_named, transfer_in_progress; for a Decision that has a
	// Spare, 503 or 504 with whatever code.
	Unavailable
	// Unreachable: no connection could be had and nothing was sent.
	Unreachable
	// Undecided: nothing was tried, the Decision was to Defer.
	Undecided
)

// Refusal tells a Handler about an attempt that had no effect.
type Refusal struct {
	Kind     RefusalKind
	Attempt  int       // 1 for the first; 0 for Undecided
	Upstream *Upstream // where it was sent; nil for Undecided
	Code     string    // of the node's JSON body, if it had one
	Body     []byte    // of the node's answer, at most 4 KiB, valid during the call
	Err      error     // for Unreachable
	// Final tells that the request cannot be sent again, as more of its body was
	// sent than is kept: the client gets the refusal's own answer, and the Handler
	// is told for the sake of others. It leaves the Decision as it is.
	Final bool
}

// Answer is the head of a node's final answer, valid during the call.
type Answer struct {
	Status   int
	Upstream *Upstream
	// Lines are head lines that Settle adds to the answer, in the form of
	// Decision.Lines.
	Lines []byte
	msg   *message
}

// Header gives the first value of a header, nil without one. Any case.
func (a *Answer) Header(name string) []byte { return a.msg.value(name) }

// BodyKind is how a request's body is delimited.
type BodyKind uint8

// The kinds of bodies.
const (
	BodyNone BodyKind = iota
	BodyLength
	BodyChunked
	bodyClose // answers alone
)

// Request is the head of a request. All that it gives points into the
// connection's buffer: it is valid until Route, Refused, Answered or Settle
// returns, and must be copied to be kept.
type Request struct {
	msg     message
	conn    *conn
	id      []byte
	own     bool // id was made here
	buf     [maxGeneratedID]byte
	watcher Watcher
}

// Watcher is told how a request goes on. Its methods are called on the goroutine of
// the client's connection and must not block.
type Watcher interface {
	// Answered is called when the head of a final answer has come from a node,
	// before Handler.Answered; not for an answer that became a Refusal.
	Answered()
	// Ended is called once, when the request has ended in whatever way.
	Ended()
}

// Watch has w told how the request goes on; one watcher a request.
func (r *Request) Watch(w Watcher) { r.watcher = w }

// Watcher gives what Watch was given, nil without it.
func (r *Request) Watcher() Watcher { return r.watcher }

// Resendable tells whether the request can certainly be sent again after a
// refusal: not where its body is, or may be, longer than what is kept of one.
func (r *Request) Resendable() bool {
	b := &r.conn.x.body
	return b.done && !b.long || r.msg.body == BodyLength && r.msg.length <= maxReplay
}

// Held gives the bytes of memory that the request keeps while it waits.
func (r *Request) Held() int {
	c := r.conn
	return len(c.in.data) + len(c.node.data) + len(c.x.body.buf.data) + cap(c.x.body.later)
}

// Method gives the method, as sent.
func (r *Request) Method() []byte { return r.msg.method }

// Target gives the request target, as sent.
func (r *Request) Target() []byte { return r.msg.target }

// Path gives the path of the target without its query, as sent (nothing is
// decoded): "/a" for "/a?b" and for "http://host/a?b"; "*" for "*".
func (r *Request) Path() []byte { return r.msg.path }

// Query gives what follows the first "?" of the target, nil without one.
func (r *Request) Query() []byte { return r.msg.query }

// Host gives the value of the Host header, as sent.
func (r *Request) Host() []byte { return r.msg.host }

// HTTP10 tells whether the request's version is HTTP/1.0.
func (r *Request) HTTP10() bool { return r.msg.minor == 0 }

// Header gives the first value of a header, nil without one. Any case. It
// sees all that the client sent, also what is dropped on the way to a node.
func (r *Request) Header(name string) []byte { return r.msg.value(name) }

// Headers calls yield with each header as sent, in order, until it returns false.
func (r *Request) Headers(yield func(name, value []byte) bool) { r.msg.each(yield) }

// Body tells how the body is delimited, and its length for BodyLength.
func (r *Request) Body() (BodyKind, int64) { return r.msg.body, r.msg.length }

// Expects100 tells whether the client waits for 100 Continue.
func (r *Request) Expects100() bool { return r.msg.expect100 }

// ID gives the request's id: the client's X-Request-Id if it was valid (1 to
// 128 printable ASCII characters), else one made here.
func (r *Request) ID() []byte { return r.id }

// ClientSentID tells whether ID is the client's.
func (r *Request) ClientSentID() bool { return !r.own }

// Age gives the time since its head was there.
func (r *Request) Age() time.Duration { return r.conn.srv.nanos() - r.conn.x.start }

// Resent tells whether the request was sent a second time under R2: what its first sending
// came to is not known.
func (r *Request) Resent() bool { return r.conn.x.resent }

// RemoteAddr gives the address that the connection came from.
func (r *Request) RemoteAddr() netip.AddrPort { return r.conn.remote }

// RemoteIP gives that address without its port, as a string made once per connection.
func (r *Request) RemoteIP() string { return r.conn.remoteIP }

// TLS tells whether the client's connection is encrypted.
func (r *Request) TLS() bool { return r.conn.secure }

// Gone gives a channel that is closed when the client went away or the server
// must stop, while Refused, Settle or a ServeFunc is running.
func (r *Request) Gone() <-chan struct{} { return r.conn.goneChan() }

// Config configures a Server. Zero durations and sizes get the defaults in brackets.
type Config struct {
	Handler Handler      // required
	Logger  hclog.Logger // required
	TLS     *tls.Config  // serve TLS with it; nil: plain

	HeadTimeout     time.Duration // for a head, from its first byte [10s]
	IdleTimeout     time.Duration // between requests [75s]
	DrainIdle       time.Duration // that a connection must have been unused to be ended by Shutdown [500ms]
	UpstreamTimeout time.Duration // for the head of the node's answer, from when the request was last making progress: 504 [60s]
	SpareWait       time.Duration // for the same where the Decision has a Spare, to be asked about (Handler.Lost) [2s, at most a quarter of UpstreamTimeout]
	WriteTimeout    time.Duration // that a write to a client may make no progress [60s]
	MinBodyRate     int           // bytes a second that a request body must make on average, after 10 s: 408 [1024]; -1 none
	TunnelIdle      time.Duration // that an upgraded connection may be silent in both directions [1h]; -1 for ever
	MaxBody         int64         // bytes of a request body: 413; 0 no limit
	MaxConns        int           // client connections; beyond it 503 [65536]
}

// UpstreamConfig configures an Upstream.
type UpstreamConfig struct {
	Name   string       // in logs; the node's name
	Region string       // of whose routers this is one; "" for a node: what a client is told where no connection can be had
	Addr   string       // host:port
	TLS    *tls.Config  // nil: plain
	Logger hclog.Logger // required

	ConnectTimeout time.Duration // for a connection, TLS handshake included [1s]
	IdleTimeout    time.Duration // that a connection may be unused [30s]; keep it under the node's
	MaxConns       int           // connections in use and idle together [1024]
	MaxIdle        int           // unused ones kept [256]
	Wait           time.Duration // for a connection when MaxConns are in use: 503 upstream_busy [50ms]
	ProbeEvery     time.Duration // background probes while it is down [500ms]

	// AskAfter is how long a request waits for an answer's head before the Handler is
	// asked whether to give u up (Handler.Lost), and then each 200 ms; 0: only once u is
	// lost.
	AskAfter time.Duration
	// AskWell is the target of a GET that whoever is at u answers with 200 as long as it
	// works (Doubt); "" is none.
	AskWell string
	// OnLost, if set, is called when it does not answer that any more. It must not block.
	OnLost func(*Upstream)

	// OnUp, if set, is called when a connect has succeeded after the node was
	// down. It must not block.
	OnUp func(*Upstream)
}
