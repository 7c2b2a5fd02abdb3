package hrana

import (
	"context"
	"errors"
	"strconv"
	"time"

	"domicile/dataplane/node/jsonscan"
)

// DB makes sessions on the unit that a request is for.
type DB interface{ Session() Session }

// run is a request being executed. It is the RowWriter of its statements.
type run struct {
	req   *Request
	ctx   context.Context
	sess  Session
	st    *stream
	blank stream
	limit int

	out       []byte
	base      int // where this answer begins in out
	closed    bool
	resumed   bool // the stream was kept from an earlier request
	committed bool
	states    []stepState
	errs      []byte

	// Of the statement that runs.
	stmt     Stmt
	began    time.Time
	wantRows bool
	begun    bool
	rows     int64
	cursor   *cursor
}

// Pipeline executes a request and appends the answer to dst. unit is what its batons
// are bound to: the unit's id. The error is a *ProtocolError, or what a *Refused of
// the session wraps; dst comes back as it was.
func (s *Streams) Pipeline(ctx context.Context, unit string, db DB, req *Request, dst []byte) ([]byte, error) {
	r := &req.run
	if err := s.begin(ctx, unit, db, req, dst); err != nil {
		return dst, err
	}
	done := false
	defer func() {
		if !done {
			s.drop(r.st) // an error, or a panic on its way out: let no transaction stay
		}
	}()
	r.out = append(r.out, `{"results":[`...)
	for i := range req.items {
		if i > 0 {
			r.out = append(r.out, ',')
		}
		if err := r.item(&req.items[i]); err != nil {
			return dst, err
		}
	}
	r.out = append(r.out, `],"baton":`...)
	next, open := baton{}, false
	if r.closed {
		s.drop(r.st)
	} else {
		next, open = s.finish(r.detach(), false)
	}
	done = true
	r.out = s.appendBatonField(r.out, next, open, unit)
	return append(r.out, `,"base_url":null}`...), nil
}

// begin takes the request's stream and checks what could not be checked without it.
func (s *Streams) begin(ctx context.Context, unit string, db DB, req *Request, dst []byte) error {
	r := &req.run
	st, err := s.take(unit, req.baton, &r.blank)
	if err != nil {
		return err
	}
	if err := req.check(st.stored); err != nil {
		s.drop(st)
		return err
	}
	r.req, r.ctx, r.st, r.limit = req, ctx, st, s.cfg.MaxResponse
	r.resumed = st.id != 0
	if st.sess == nil {
		st.sess = db.Session()
	}
	r.sess = st.sess
	r.out, r.base = dst, len(dst)
	return nil
}

// detach returns the stream in memory of its own where it may outlive the request.
func (r *run) detach() *stream {
	if r.st == &r.blank && (len(r.st.stored) > 0 || !r.sess.Autocommit()) {
		st := r.blank
		r.st = &st
	}
	return r.st
}

func (s *Streams) appendBatonField(dst []byte, b baton, open bool, unit string) []byte {
	if !open {
		return append(dst, "null"...)
	}
	dst = append(dst, '"')
	dst = s.signer.appendBaton(dst, b, unit)
	return append(dst, '"')
}

// item executes one request of the pipeline and appends its result. An error ends
// the whole pipeline.
func (r *run) item(it *item) error {
	mark := len(r.out)
	r.out = append(r.out, `{"type":"ok","response":{"type":"`...)
	r.out = append(r.out, opNames[it.op]...)
	r.out = append(r.out, '"')
	err := r.perform(it)
	if err == nil {
		r.out = append(r.out, "}}"...)
		return nil
	}
	if fatal := r.fatal(err); fatal != nil {
		return fatal
	}
	r.out = append(r.out[:mark], `{"type":"error","error":`...)
	r.out = appendError(r.out, statementError(err))
	r.out = append(r.out, '}')
	return nil
}

// fatal is what the whole request is answered with, where the error is a refusal
// that can still be given as one: nothing was committed, and no transaction of an
// earlier request depends on this answer.
func (r *run) fatal(err error) error {
	refused, ok := errors.AsType[*Refused](err)
	if ok && (refused.Final || !r.committed && !r.resumed) {
		return refused.Err
	}
	return nil
}

func (r *run) perform(it *item) error {
	if r.closed {
		return errStreamClosed
	}
	switch it.op {
	case opExecute:
		r.out = append(r.out, `,"result":`...)
		return r.statement(&it.stmt)
	case opBatch:
		r.out = append(r.out, `,"result":`...)
		return r.batch(it.steps)
	case opSequence:
		sql, err := r.text(&it.sql)
		if err != nil {
			return err
		}
		outcome, err := r.sess.Sequence(r.ctx, sql)
		r.committed = r.committed || outcome.Committed
		return err
	case opDescribe:
		return r.describe(&it.sql)
	case opStoreSQL:
		return r.store(&it.sql)
	case opCloseSQL:
		delete(r.st.stored, it.sql.id)
	case opClose:
		r.closed = true
	case opGetAutocommit:
		r.out = append(r.out, `,"is_autocommit":`...)
		r.out = strconv.AppendBool(r.out, r.sess.Autocommit())
	case opNone:
		panic("BUG: a request of no type was let through")
	}
	return nil
}

// text is the statement's text, stored or given.
func (r *run) text(ref *sqlRef) (string, error) {
	if ref.hasSQL {
		return ref.text, nil
	}
	sql, ok := r.st.stored[ref.id]
	if !ok {
		return "", errStoreMissing
	}
	return sql, nil
}

func (r *run) store(ref *sqlRef) error {
	if len(ref.text) > maxStoredText {
		return &Error{Message: "The statement is too long to be stored", Code: CodeStoreTooLarge}
	}
	if len(r.st.stored) >= maxStored {
		return &Error{Message: "Too many statements are stored in this stream: close some", Code: CodeStoreTooMany}
	}
	if r.st.stored == nil {
		r.st.stored = make(map[int32]string)
	}
	r.st.stored[ref.id] = ref.text
	return nil
}

// statement executes one statement and appends its StmtResult, or leaves out as it
// was and returns an error.
func (r *run) statement(req *stmtReq) error {
	if err := r.prepare(req); err != nil {
		return err
	}
	mark := len(r.out)
	r.out = append(r.out, `{"cols":[`...)
	outcome, err := r.sess.Execute(r.ctx, &r.stmt, r)
	r.committed = r.committed || outcome.Committed
	if err != nil {
		r.out = r.out[:mark]
		return err
	}
	if !r.begun {
		r.out = append(r.out, `],"rows":[`...)
	}
	r.out = append(r.out, ']')
	r.appendOutcome(&outcome)
	r.out = append(r.out, '}')
	return nil
}

// prepare makes the statement that is to run next.
func (r *run) prepare(req *stmtReq) error {
	r.begun, r.rows, r.wantRows = false, 0, req.wantRows
	sql, err := r.text(&req.sql)
	if err != nil {
		return err
	}
	if len(req.args) > 0 && len(req.named) > 0 {
		return errArgsBoth
	}
	r.stmt = Stmt{SQL: sql, Args: req.args, Named: req.named}
	r.began = time.Now()
	return nil
}

// appendOutcome appends what follows the rows. rows_read and rows_written count the
// rows that the statement returned and changed: SQLite does not tell how many it
// visited.
func (r *run) appendOutcome(o *Outcome) {
	r.out = append(r.out, `,"affected_row_count":`...)
	r.out = strconv.AppendInt(r.out, o.Affected, 10)
	r.out = append(r.out, `,"last_insert_rowid":`...)
	if o.Inserted {
		r.out = append(r.out, '"')
		r.out = strconv.AppendInt(r.out, o.LastRowID, 10)
		r.out = append(r.out, '"')
	} else {
		r.out = append(r.out, "null"...)
	}
	r.out = append(r.out, `,"replication_index":null,"rows_read":`...)
	r.out = strconv.AppendInt(r.out, r.rows, 10)
	r.out = append(r.out, `,"rows_written":`...)
	r.out = strconv.AppendInt(r.out, o.Affected, 10)
	r.out = append(r.out, `,"query_duration_ms":`...)
	r.out = strconv.AppendFloat(r.out, float64(time.Since(r.began).Microseconds())/1000, 'f', 3, 64)
}

// batch executes the steps and appends the BatchResult.
func (r *run) batch(steps []step) error {
	r.states = append(r.states[:0], make([]stepState, len(steps))...)
	r.out = append(r.out, `{"step_results":[`...)
	r.errs = append(r.errs[:0], `],"step_errors":[`...)
	for i := range steps {
		if i > 0 {
			r.out, r.errs = append(r.out, ','), append(r.errs, ',')
		}
		if steps[i].cond >= 0 && !r.holds(steps[i].cond) {
			r.out, r.errs = append(r.out, "null"...), append(r.errs, "null"...)
			continue
		}
		err := r.statement(&steps[i].stmt)
		if err == nil {
			r.states[i] = stepOK
			r.errs = append(r.errs, "null"...)
			continue
		}
		if r.fatal(err) != nil {
			return err
		}
		r.states[i] = stepFailed
		r.out = append(r.out, "null"...)
		r.errs = appendError(r.errs, statementError(err))
	}
	r.out = append(r.out, r.errs...)
	r.out = append(r.out, `],"replication_index":null}`...)
	return nil
}

func (r *run) describe(ref *sqlRef) error {
	sql, err := r.text(ref)
	if err != nil {
		return err
	}
	d, err := r.sess.Describe(r.ctx, sql)
	if err != nil {
		return err
	}
	r.out = append(r.out, `,"result":{"params":[`...)
	for i, p := range d.Params {
		if i > 0 {
			r.out = append(r.out, ',')
		}
		r.out = append(r.out, `{"name":`...)
		r.out = appendNullable(r.out, p.Name)
		r.out = append(r.out, '}')
	}
	r.out = append(r.out, `],"cols":[`...)
	for i, c := range d.Columns {
		if i > 0 {
			r.out = append(r.out, ',')
		}
		r.out = appendColumn(r.out, c.Name, c.DeclType)
	}
	r.out = append(r.out, `],"is_explain":`...)
	r.out = strconv.AppendBool(r.out, d.Explain)
	r.out = append(r.out, `,"is_readonly":`...)
	r.out = strconv.AppendBool(r.out, d.Readonly)
	r.out = append(r.out, '}')
	return nil
}

func appendColumn(dst []byte, name, decltype string) []byte {
	dst = append(dst, `{"name":`...)
	dst = jsonscan.AppendString(dst, name)
	dst = append(dst, `,"decltype":`...)
	dst = appendNullable(dst, decltype)
	return append(dst, '}')
}

func appendNullable(dst []byte, text string) []byte {
	if text == "" {
		return append(dst, "null"...)
	}
	return jsonscan.AppendString(dst, text)
}
