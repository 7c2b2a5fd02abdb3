package hrana

import (
	"context"
	"errors"
	"io"
	"strconv"
)

// spillSize is how much of a cursor's answer is gathered before it is written.
const spillSize = 32 << 10

// cursor is what a run needs beside, to write its rows as they come.
type cursor struct {
	w      io.Writer
	stream bool // the rows of the statement that runs may be written before it ends
	sent   bool // something was written: the answer has begun
}

// writeError is w's: nobody reads the answer any more.
type writeError struct{ error }

// Cursor executes the batch of a cursor request and writes its entries to w, one JSON
// object to a line. Rows of a statement that may stream are written as they come; those
// of one that holds the writer are held until it is done, so that no reader's slowness
// holds the unit up, and count against Config.MaxResponse.
//
// An error is returned as Pipeline's while nothing was written to w; a later one ends
// the answer with an error entry. An error of w ends the batch and is returned.
func (s *Streams) Cursor(ctx context.Context, unit string, db DB, req *Request, w io.Writer) error {
	r := &req.run
	if err := s.begin(ctx, unit, db, req, make([]byte, 0, 4096)); err != nil {
		return err
	}
	done := false
	defer func() {
		if !done {
			s.drop(r.st)
		}
	}()
	steps := req.items[0].steps
	r.cursor = &cursor{w: w}
	kept := r.st.id != 0 || len(r.st.stored) > 0 || r.begins(steps)
	b, open := s.announce(r, kept)
	r.out = append(r.out, `{"baton":`...)
	r.out = s.appendBatonField(r.out, b, open, unit)
	r.out = append(r.out, `,"base_url":null}`+"\n"...)

	err := r.entries(steps)
	if err == nil && !kept && !r.sess.Autocommit() {
		err = errors.New("a transaction was left open that the baton does not name: it was rolled back")
	}
	if err != nil {
		if _, unread := errors.AsType[writeError](err); unread || !r.cursor.sent {
			return err
		}
		r.out = append(r.out, `{"type":"error","error":`...)
		r.out = appendError(r.out, statementError(err))
		r.out = append(r.out, "}\n"...)
		return r.flush()
	}
	// The stream must be ready for its next request before the client can have seen
	// the end of this one.
	done = true
	if open && kept {
		s.finish(r.st, true)
	} else {
		s.drop(r.st)
	}
	return r.flush()
}

// begins tells whether a step could leave a transaction open.
func (r *run) begins(steps []step) bool {
	for i := range steps {
		sql, err := r.text(&steps[i].stmt.sql)
		if err == nil && beginsTransaction(sql) {
			return true
		}
	}
	return false
}

// announce makes the baton that is sent ahead.
func (s *Streams) announce(r *run, kept bool) (baton, bool) {
	if !kept {
		return stateless(), true
	}
	if r.st.id == 0 {
		st := r.blank
		r.st = &st
		if !s.keep(r.st) {
			return baton{}, false
		}
	}
	return baton{kind: batonKept, a: r.st.id, b: r.st.seq}, true
}

// entries executes the steps.
func (r *run) entries(steps []step) error {
	r.states = append(r.states[:0], make([]stepState, len(steps))...)
	for i := range steps {
		if steps[i].cond >= 0 && !r.holds(steps[i].cond) {
			continue
		}
		mark := len(r.out)
		err := r.entry(i, &steps[i].stmt)
		if err == nil {
			r.states[i] = stepOK
			continue
		}
		if fatal := r.fatal(err); fatal != nil {
			return fatal
		}
		if _, unread := errors.AsType[writeError](err); unread {
			return err
		}
		r.states[i] = stepFailed
		if !r.begun || !r.cursor.stream {
			r.out = r.out[:mark] // what a statement returned that was undone
		}
		r.out = append(r.out, `{"type":"step_error","step":`...)
		r.out = strconv.AppendInt(r.out, int64(i), 10)
		r.out = append(r.out, `,"error":`...)
		r.out = appendError(r.out, statementError(err))
		r.out = append(r.out, "}\n"...)
	}
	return nil
}

// entry executes one step. With an error it may have left a part of an entry behind.
func (r *run) entry(i int, req *stmtReq) error {
	r.cursor.stream = false
	if err := r.prepare(req); err != nil {
		return err
	}
	r.out = append(r.out, `{"type":"step_begin","step":`...)
	r.out = strconv.AppendInt(r.out, int64(i), 10)
	outcome, err := r.sess.Execute(r.ctx, &r.stmt, r)
	r.committed = r.committed || outcome.Committed
	if err != nil {
		return err
	}
	if !r.begun {
		r.out = append(r.out, `,"cols":[]}`+"\n"...)
	}
	r.out = append(r.out, `{"type":"step_end"`...)
	r.appendOutcome(&outcome)
	r.out = append(r.out, "}\n"...)
	r.cursor.stream = true // it is done, and stays
	return r.spill()
}

// spill writes what was gathered, if it is enough and may go.
func (r *run) spill() error {
	if !r.cursor.stream {
		if len(r.out) > r.limit {
			return errTooLarge
		}
		return nil
	}
	if len(r.out) < spillSize {
		return nil
	}
	return r.flush()
}

func (r *run) flush() error {
	r.cursor.sent = true
	_, err := r.cursor.w.Write(r.out)
	r.out = r.out[:0]
	if err != nil {
		return writeError{err}
	}
	return nil
}
