package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"domicile/dataplane/node/store"
	"domicile/internal/httpserve"
)

// keepAlive is how often a quiet stream of changes shows that it is there, and finds
// out that its reader is not.
const keepAlive = 15 * time.Second

// changes is GET changes?after=<position>: server-sent events, one per committed
// transaction, from the given position, or Last-Event-ID's, or now.
func (r *request) changes() error {
	text := string(r.ctx.QueryArgs().Peek("after"))
	if text == "" {
		text = string(r.lastEventID)
	}
	var after store.Position
	if text != "" {
		var err error
		if after, err = store.ParsePosition(text); err != nil {
			return badRequest("after: %v", err)
		}
	}
	unit, release, err := r.s.store.Acquire(r.s.base, r.data.unit.Name())
	if err != nil {
		return err
	}
	ctx, done := r.s.watchers.add(r.s.ending, unit.Name())
	leave := release
	release = func() { done(); leave() }
	// Asked again: one that was given up before it was added is not ended.
	err = r.data.admit(reads)
	if err == nil {
		err = r.notLost(after)
	}
	if err != nil {
		release()
		return err
	}
	if now := unit.Position(); after.Compare(now) > 0 {
		release()
		e := httpserve.Errorf(409, "position_ahead", "position %s has not been reached here; the present one is %s", after, now)
		e.Fields = map[string]any{"position": now.String()}
		return e
	} else if after.IsZero() {
		after = now // nothing between this answer and the first event is missed
	}
	r.position(after)
	r.ctx.Response.SetStatusCode(200)
	r.ctx.Response.Header.SetContentType("text/event-stream")
	r.ctx.Response.Header.Set("Cache-Control", "no-store")
	s := r.s
	s.bodies.Add(1)
	r.ctx.SetBodyStreamWriter(func(w *bufio.Writer) {
		defer s.bodies.Done()
		defer release()
		s.streamChanges(ctx, w, unit, after)
	})
	return nil
}

// errBeat ends a wait for changes that has lasted keepAlive.
var errBeat = errors.New("nothing has changed")

// streamChanges writes until the unit, the reader or the node goes. It runs in a
// goroutine of fasthttp's, which ends with it.
func (s *Server) streamChanges(ctx context.Context, w *bufio.Writer, unit *store.Unit, at store.Position) {
	line := []byte(": changes\n\n")
	for {
		if _, err := w.Write(line); err != nil || w.Flush() != nil {
			return
		}
		err := s.changesUntilQuiet(ctx, w, unit, &at)
		if err == nil {
			return // the reader has gone
		}
		if !errors.Is(err, errBeat) {
			// Whether it arrives makes no difference: the stream ends either way.
			_, _ = w.Write(eventError(err))
			_ = w.Flush()
			return
		}
		line = append(line[:0], ":\n\n"...)
	}
}

// changesUntilQuiet writes changes until none has come for keepAlive (errBeat), or
// there will be no more. nil: the reader has gone.
func (s *Server) changesUntilQuiet(parent context.Context, w *bufio.Writer, unit *store.Unit, at *store.Position) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	beat := time.AfterFunc(keepAlive, func() { cancel(errBeat) })
	defer beat.Stop()
	var line []byte
	for change, err := range unit.Changes(ctx, *at) {
		if err != nil {
			return err
		}
		*at = change.Position
		line = appendEvent(line[:0], change)
		if _, err := w.Write(line); err != nil || w.Flush() != nil {
			return nil
		}
		if !beat.Reset(keepAlive) {
			return errBeat // it was just going off
		}
	}
	return errBeat
}

// appendEvent appends a change as an event whose id is its position, by which a reader
// that comes back goes on.
func appendEvent(dst []byte, c store.Change) []byte {
	dst = append(dst, "id: "...)
	dst = appendPosition(dst, c.Position)
	dst = append(dst, "\ndata: {\"position\":\""...)
	dst = appendPosition(dst, c.Position)
	dst = append(dst, "\",\"bytes\":"...)
	dst = strconv.AppendInt(dst, c.Bytes, 10)
	return append(dst, "}\n\n"...)
}

// eventError is the last event of a stream that the reader did not end.
func eventError(err error) []byte {
	e := failure(err)
	e = &httpserve.Error{Text: e.Text, Code: e.Code}
	if behind, ok := errors.AsType[*store.BehindError](err); ok {
		e = &httpserve.Error{Text: behind.Error(), Code: "behind", Fields: map[string]any{"position": behind.Current.String()}}
	}
	return fmt.Appendf(nil, "event: error\ndata: %s\n", e.Body()) // which ends with a newline
}
