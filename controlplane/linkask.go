package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync/atomic"
	"time"

	"domicile/proto"
)

var (
	// errNotReached says that no server of a group answers: nothing that changes anything was
	// sent, or it was refused without effect.
	errNotReached = errors.New("none of its addresses answers")
	// errLostBehind is of a call that a router has sent on, and whose answer it did not get.
	errLostBehind = errors.New("a router that answers does not know what became of it")
	// errLeaderless says beside it that one is there, and knows no leader, or gets no answer
	// from its group: it is on this side of a cut.
	errLeaderless = errors.New("one that answers reaches no leader of its group")
)

// reached is an address of another group that has answered: a question itself, or, before a
// change, a greeting.
type reached struct {
	address string
	resp    *http.Response
	greeted *greeted
}

// drop lets go what nobody needs.
func (r *reached) drop() {
	if r.resp != nil {
		r.resp.Body.Close()
		return
	}
	r.greeted.transport.CloseIdleConnections()
}

// ask sends a request to another group: to the first of its addresses that is there. One
// that knows no leader has done nothing, and the next is asked (G9: it may be a server of
// the group on this side of a cut). errNotReached: a change has had no effect on any.
func (l *links) ask(ctx context.Context, to string, addresses []string, q *http.Request, body []byte) (*http.Response, error) {
	try := func(ctx context.Context, address string) (*reached, error) { return l.greet(ctx, address) }
	read := q.Method == http.MethodGet || q.Method == http.MethodHead
	if read {
		try = func(ctx context.Context, address string) (*reached, error) { return l.read(ctx, address, q) }
	}
	order := l.order(to, addresses)
	var leaderless *http.Response
	var failed []error
	for left := order; len(left) > 0; {
		got, failures := race(ctx, left, try)
		failed = append(failed, failures...)
		if got == nil {
			break
		}
		left = slices.DeleteFunc(slices.Clone(left), func(a string) bool { return a == got.address })
		if got.greeted != nil {
			sent, err := got.send(ctx, q, body)
			switch {
			case sent:
				return nil, err
			case err != nil:
				failed = append(failed, err)
				continue
			}
		}
		if isLeaderless(got.resp, read) {
			leaderless = got.resp
			continue
		}
		first := got.address
		if got.resp.StatusCode == http.StatusServiceUnavailable {
			first = after(order, first)
		}
		l.note(to, first)
		return got.resp, nil
	}
	return l.unanswered(ctx, to, order, leaderless, failed, false)
}

// unanswered gives what is answered where no address of a group took a request: the answer
// of one that knows no leader where all of them say so. sent: it may have arrived at one.
func (l *links) unanswered(ctx context.Context, to string, order []string, leaderless *http.Response, failed []error, sent bool) (*http.Response, error) {
	switch {
	case len(order) == 0:
		failed = append(failed, l.silence(to))
	case ctx.Err() != nil:
		failed = append(failed, context.Cause(ctx))
	case leaderless == nil && errors.Is(errors.Join(failed...), errLeaderless):
		l.noteSilent(to, after(order, order[0]), errLeaderless)
	case leaderless == nil:
		l.noteSilent(to, after(order, order[0]), nil)
	default:
		l.note(to, after(order, order[0]))
	}
	switch {
	case leaderless != nil && len(failed) == 0:
		return leaderless, nil
	case leaderless != nil:
		failed = append(failed, errLeaderless)
	}
	if !sent {
		failed = append(failed, errNotReached)
	}
	return nil, errors.Join(failed...)
}

// repeat is ask for what may be done twice, whatever became of it: it is sent at once, over a
// connection that is kept, to one address after the other until one answers.
func (l *links) repeat(ctx context.Context, to string, addresses []string, q *http.Request, body []byte) (*http.Response, error) {
	order := l.order(to, addresses)
	var leaderless *http.Response
	var failed []error
	sent := false
	for _, address := range order {
		resp, connected, err := l.call(ctx, address, q, body)
		sent = sent || connected && err != nil
		switch {
		case err != nil:
			failed = append(failed, err)
		case isLeaderless(resp, true) && resp.StatusCode == http.StatusBadGateway: // it may have been done, whatever the next one says
			resp.Body.Close()
			sent, failed = true, append(failed, errLostBehind)
		case isLeaderless(resp, true):
			leaderless = resp
		default:
			if resp.StatusCode == http.StatusServiceUnavailable {
				address = after(order, address)
			}
			l.note(to, address)
			return resp, nil
		}
	}
	return l.unanswered(ctx, to, order, leaderless, failed, sent)
}

// call sends something to one address. An answer may be long in coming; where it is, the
// other end is asked beside it whether it is there, and given up where it is not.
func (l *links) call(ctx context.Context, address string, q *http.Request, body []byte) (resp *http.Response, connected bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var got, answered atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { got.Store(true) }})
	req, err := aimed(traced, address, q, body)
	if err != nil {
		cancel()
		return nil, false, err
	}
	alarm := time.AfterFunc(hedgeAfter, func() {
		if isThere(ctx, &l.kept, address) != nil && !answered.Load() {
			cancel()
		}
	})
	resp, err = l.kept.Do(req)
	answered.Store(true)
	alarm.Stop()
	if err != nil {
		cancel()
		return nil, got.Load(), err
	}
	resp.Body = &closing{resp.Body, cancel}
	return resp, true, nil
}

// after gives what follows address in order.
func after(order []string, address string) string {
	return order[(slices.Index(order, address)+1)%len(order)]
}

// race tries addresses one beside the other, each once the one before it has failed or has
// kept it waiting for hedgeAfter, and gives the first that is there; nil where none is. Those
// that were not there fail; what else was tried is let go.
func race(ctx context.Context, addresses []string, try func(context.Context, string) (*reached, error)) (got *reached, failed []error) {
	type outcome struct {
		place int
		got   *reached
		err   error
	}
	outcomes := make(chan outcome, len(addresses))
	var stops []context.CancelFunc
	begin := func() {
		place := len(stops)
		if place == len(addresses) {
			return
		}
		ctx, stop := context.WithCancel(ctx)
		stops = append(stops, stop)
		go func() {
			got, err := try(ctx, addresses[place])
			outcomes <- outcome{place, got, err}
		}()
	}
	begin()
	hedge := time.NewTicker(hedgeAfter)
	defer hedge.Stop()
	for len(failed) < len(addresses) {
		select {
		case <-hedge.C:
			begin()
		case o := <-outcomes:
			if o.err != nil {
				stops[o.place]()
				failed = append(failed, o.err)
				hedge.Reset(hedgeAfter)
				begin()
				continue
			}
			late := len(stops) - len(failed) - 1
			for place, stop := range stops {
				if place != o.place {
					stop()
				}
			}
			go func() {
				for range late {
					if o := <-outcomes; o.err == nil {
						o.got.drop()
					}
				}
			}()
			o.got.until(stops[o.place])
			return o.got, failed
		}
	}
	return nil, failed
}

// until has stop called once the context is not needed any more under which it was reached.
func (r *reached) until(stop context.CancelFunc) {
	if r.resp == nil {
		stop()
		return
	}
	r.resp.Body = &closing{r.resp.Body, stop}
}

// isLeaderless tells an answer of one that knows no leader, or reaches no server of its
// group: nothing was done. What may be repeated can also have been lost behind a router.
func isLeaderless(resp *http.Response, repeated bool) bool {
	if resp.StatusCode != http.StatusServiceUnavailable && !(repeated && resp.StatusCode == http.StatusBadGateway) {
		return false
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRelayedError))
	if err != nil {
		return false
	}
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(text))
	var e struct{ Code proto.Code }
	return json.Unmarshal(text, &e) == nil &&
		(e.Code == proto.CodeNoLeader || e.Code == proto.CodeDirectoryUnavailable || repeated && e.Code == proto.CodeOutcomeUnknown)
}

// read asks one address for something. Where the answer is long in coming it is found out
// whether the other end is there: then its group is what does not answer.
func (l *links) read(ctx context.Context, address string, q *http.Request) (*reached, error) {
	ctx, cancel := context.WithCancel(ctx)
	var there atomic.Bool
	looks := time.AfterFunc(hedgeAfter, func() { there.Store(isThere(ctx, &l.reads, address) == nil) })
	defer looks.Stop()
	alarm := time.AfterFunc(greetWithin, cancel)
	req, err := aimed(ctx, address, q, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	resp, err := l.reads.Do(req)
	if !alarm.Stop() && err == nil {
		resp.Body.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel()
		if there.Load() {
			err = errors.Join(err, errLeaderless)
		}
		return nil, err
	}
	resp.Body = &closing{resp.Body, cancel}
	return &reached{address: address, resp: resp}, nil
}

// greeted is a connection of its own to one address, on which the other end has just
// answered. One that was opened before a link was cut takes a change all the same, and
// nothing would tell whether it arrived.
type greeted struct {
	transport *http.Transport
	client    *http.Client
}

func (l *links) greet(ctx context.Context, address string) (*reached, error) {
	transport := l.transport()
	g := &greeted{transport: transport, client: &http.Client{Transport: transport, CheckRedirect: stay}}
	if err := isThere(ctx, g.client, address); err != nil {
		transport.CloseIdleConnections()
		return nil, err
	}
	return &reached{address: address, greeted: g}, nil
}

// isThere asks one address whether somebody is there.
func isThere(ctx context.Context, client *http.Client, address string) error {
	ctx, cancel := context.WithTimeout(ctx, greetWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/_health", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxNodeAnswer)) // to its end, so that the connection is used again
	return err
}

// send sends a change over the connection that was greeted on. sent is set where an error
// leaves open whether it arrived.
func (r *reached) send(ctx context.Context, q *http.Request, body []byte) (sent bool, err error) {
	var connected atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := aimed(traced, r.address, q, body)
	if err != nil {
		return false, err
	}
	if r.resp, err = r.greeted.client.Do(req); err != nil {
		r.greeted.transport.CloseIdleConnections()
		return connected.Load(), err
	}
	r.resp.Body = &closing{r.resp.Body, r.greeted.transport.CloseIdleConnections}
	return false, nil
}

// aimed is q as it is sent to an address.
func aimed(ctx context.Context, address string, q *http.Request, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, q.Method, address+q.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = q.Header.Clone()
	return req, nil
}

// closing is a body that has something done once it is closed.
type closing struct {
	io.ReadCloser
	do func()
}

func (b *closing) Close() error {
	defer b.do()
	return b.ReadCloser.Close()
}
