package proxy

import (
	"context"
	"errors"
	"sync"
	"time"

	"domicile/fsm"
)

const (
	// maxAsking is how many tenants are asked about at the same time: what
	// unknown names cost the control plane is bounded by it.
	maxAsking = 64
	// crowded is the number of questions under way from which on what was
	// absent just now is not asked about again. With fewer, each request is
	// worth a question: a tenant may have been created a moment ago.
	crowded = 8
	// absentFor is how long an absent tenant is remembered; no longer than until
	// a table is past the revision at which it was absent.
	absentFor = time.Second
	maxAbsent = 10_000
)

var errBusyAsking = errors.New("too many unknown tenants are being asked about")

// asking asks the control plane about tenants that the table does not know:
// once per tenant at a time, whatever the number of requests that want to know.
type asking struct {
	ask func(ctx context.Context, tenant, requestID string) (known, error)
	ctx context.Context // of all questions: each serves more than one request

	mu     sync.Mutex
	calls  map[string]*question
	absent map[string]absence
	wg     sync.WaitGroup
}

type question struct {
	done  chan struct{} // closed when the answer is there
	known known
	err   error
}

// revisions are those of a proxy's two tables, 0 without one.
type revisions struct{ own, global fsm.Revision }

type absence struct {
	known known
	at    revisions // of the directories where the tenant was not
	until time.Time
}

func newAsking(ctx context.Context, ask func(context.Context, string, string) (known, error)) *asking {
	return &asking{ask: ask, ctx: ctx, calls: map[string]*question{}, absent: map[string]absence{}}
}

// about tells what the control plane says of a tenant that the tables at these
// revisions do not know. The answer was read after the call began, or,
// where many questions are under way, is an absence remembered.
func (a *asking) about(gone <-chan struct{}, tenant string, at revisions, requestID string) (known, error) {
	for again := false; ; again = true {
		q, ours, err := a.question(tenant, at, requestID)
		if err != nil {
			return known{}, err
		}
		select {
		case <-q.done:
		case <-gone:
			return known{}, context.Canceled
		}
		// A question that was put before this request came may have been
		// answered before the tenant was made; the one after it was not.
		if ours || again || q.err != nil || q.known.found {
			return q.known, q.err
		}
	}
}

// question gives the question about a tenant that is under way, or puts it.
func (a *asking) question(tenant string, at revisions, requestID string) (q *question, ours bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if q, ok := a.calls[tenant]; ok {
		return q, false, nil
	}
	if len(a.calls) >= crowded {
		if abs, ok := a.absent[tenant]; ok && abs.at.own >= at.own && abs.at.global >= at.global && time.Now().Before(abs.until) {
			q := &question{done: make(chan struct{}), known: abs.known}
			close(q.done)
			return q, true, nil
		}
	}
	if len(a.calls) >= maxAsking {
		return nil, false, errBusyAsking
	}
	q = &question{done: make(chan struct{})}
	a.calls[tenant] = q
	a.wg.Go(func() { a.answer(q, tenant, at, requestID) })
	return q, true, nil
}

func (a *asking) answer(q *question, tenant string, at revisions, requestID string) {
	q.known, q.err = a.ask(a.ctx, tenant, requestID)
	a.mu.Lock()
	delete(a.calls, tenant)
	if q.err == nil && !q.known.found {
		if len(a.absent) >= maxAbsent {
			clear(a.absent) // they are asked about again
		}
		if q.known.of != "" && regionOf(q.known.of) == "" {
			at.global = max(at.global, q.known.revision)
		} else {
			at.own = max(at.own, q.known.revision)
		}
		a.absent[tenant] = absence{known: q.known, at: at, until: time.Now().Add(absentFor)}
	}
	a.mu.Unlock()
	close(q.done)
}

// wait waits for the questions under way; the context that they have must have
// ended, and no new one may be put.
func (a *asking) wait() { a.wg.Wait() }
