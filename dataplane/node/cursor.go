package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"domicile/dataplane/node/hrana"
)

// cursorTimeout bounds a cursor's whole life, its reader's slowness included.
const cursorTimeout = 10 * time.Minute

// errStalled ends a cursor whose client does not read: it holds a connection of its
// unit, of which there are few.
var errStalled = errors.New("the client of the cursor does not read")

// cursor is POST v3/cursor. Most answers are short and are sent as a whole; one that
// grows beyond its first piece goes on as a stream, whose producer keeps the unit open
// and ends with its batch or its reader.
func (r *request) cursor(ctx context.Context, body []byte) error {
	if len(r.idempotencyKey) > 0 {
		return errInteractive()
	}
	rec := r.data.record()
	req, err := hrana.ParseCursor(bytes.Clone(body)) // the request's buffer may be gone before the cursor is
	if err != nil {
		return err
	}
	_, release, err := r.s.store.Acquire(ctx, rec.Name)
	if err != nil {
		req.Release()
		return err
	}
	db := &sessions{access: r.data, s: r.s}
	reader, writer := io.Pipe()
	p := &producer{pipe: writer, ready: make(chan struct{}), patience: r.s.cfg.TransactionTimeout}
	s, key := r.s, streamKey(&rec)
	s.bodies.Go(func() {
		defer release()
		long, cancel := context.WithTimeout(s.base, cursorTimeout)
		defer cancel()
		p.finish(p.guarded(s, func() error { return s.streams.Cursor(long, key, db, req, p) }))
	})
	<-p.ready
	if p.err != nil {
		return p.err
	}
	r.position(r.data.unit.Position())
	r.ctx.Response.SetStatusCode(200)
	r.ctx.Response.Header.SetContentTypeBytes(typeCursor)
	if p.whole {
		r.ctx.Response.SetBody(p.first)
		return nil
	}
	r.ctx.Response.SetBodyStream(&piped{first: p.first, pipe: reader}, -1)
	return nil
}

var typeCursor = []byte("text/plain; charset=utf-8") // sqld's; clients do not look

// sessions is a hrana.DB that outlives the request.
type sessions struct {
	access
	s *Server
}

func (d *sessions) Session() hrana.Session {
	return &session{access: d.access, store: d.s.store, streams: true}
}

// producer is the io.Writer of a cursor. The first piece is held until there is a
// second one or the end, so that an answer of one piece can be sent as a whole, and an
// error before it as one.
type producer struct {
	pipe     *io.PipeWriter
	patience time.Duration // with a client that does not take a piece

	ready   chan struct{} // closed by the producer once the fields below are set
	started bool          // ready is closed
	first   []byte
	whole   bool
	err     error
}

func (p *producer) Write(b []byte) (int, error) {
	if p.first == nil {
		p.first = bytes.Clone(b)
		return len(b), nil
	}
	if !p.started {
		p.started = true
		close(p.ready)
	}
	stalled := time.AfterFunc(p.patience, func() { p.pipe.CloseWithError(errStalled) })
	defer stalled.Stop()
	return p.pipe.Write(b)
}

func (p *producer) finish(err error) {
	if p.started {
		p.pipe.CloseWithError(err)
		return
	}
	p.whole, p.err = err == nil, err
	close(p.ready)
}

// guarded makes an error of a panic, which would otherwise end the process.
func (p *producer) guarded(s *Server, f func() error) (err error) {
	defer func() {
		if what := recover(); what != nil {
			s.metrics.panics.Inc()
			s.log.Error("cursor panicked", "err", fmt.Sprint(what), "stack", string(debug.Stack()))
			err = fmt.Errorf("cursor panicked: %v", what)
		}
	}()
	return f()
}

// piped is the first piece and what the pipe brings after it.
type piped struct {
	first []byte
	pipe  *io.PipeReader
}

func (p *piped) Read(b []byte) (int, error) {
	if len(p.first) > 0 {
		n := copy(b, p.first)
		p.first = p.first[n:]
		return n, nil
	}
	return p.pipe.Read(b)
}

// Close ends the producer, whose next write fails.
func (p *piped) Close() error { return p.pipe.Close() }
