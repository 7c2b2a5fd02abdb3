package node

import (
	"context"
	"strconv"

	"domicile/dataplane/node/hrana"
	"domicile/dataplane/node/store"
	"domicile/internal/httpserve"
)

// streamKey is what a unit's streams and batons are bound to: its name and its id, so
// that a baton never meets a later tenant of the same name.
func streamKey(rec *store.Record) string {
	return rec.Name + "#" + strconv.FormatUint(rec.ID, 10)
}

// Session makes the request a hrana.DB.
func (r *request) Session() hrana.Session {
	return &session{access: r.data, store: r.s.store}
}

func versionOf(a action) hrana.Version {
	if a == actPipelineV2 {
		return hrana.V2
	}
	return hrana.V3
}

// pipeline is POST v2/pipeline and v3/pipeline.
func (r *request) pipeline(ctx context.Context, p *dataPath, body []byte) error {
	rec := r.data.record()
	req, err := hrana.ParsePipeline(versionOf(p.action), body)
	if err != nil {
		return err
	}
	defer req.Release()
	if len(r.idempotencyKey) > 0 {
		return r.keyedPipeline(ctx, &rec, req, body)
	}
	r.out, err = r.s.streams.Pipeline(ctx, streamKey(&rec), r, req, r.out[:0])
	if err != nil {
		return err
	}
	r.position(r.data.unit.Position())
	r.answer(200, r.out)
	return nil
}

// errInteractive refuses a key that could not be kept with its answer. It is not
// ignored: a proxy would send such a request a second time.
func errInteractive() error {
	return httpserve.Errorf(400, "interactive", "an Idempotency-Key is for a pipeline that is a whole: no baton, and close as its last request")
}

// keyedPipeline runs a whole pipeline in one transaction under an idempotency key. A
// statement that fails undoes itself alone, as it would without the key; what the
// client calls a transaction is a savepoint inside.
func (r *request) keyedPipeline(ctx context.Context, rec *store.Record, req *hrana.Request, body []byte) error {
	if req.Interactive() {
		return errInteractive()
	}
	answer, p, err := r.keyed(ctx, "pipeline", body, func(c *store.Conn) ([]byte, error) {
		db := &keyedSession{conn: c}
		out, err := r.s.streams.Pipeline(ctx, streamKey(rec), db, req, nil)
		if err == nil && c.Autocommit() {
			// SQLite has given the whole transaction up (ON CONFLICT ROLLBACK, a full disk).
			err = httpserve.Errorf(400, "transaction_lost", "a statement rolled everything back: nothing was done; send the request without an Idempotency-Key to let the statements stand alone")
		}
		return out, err
	})
	if err != nil {
		return err
	}
	r.position(p)
	r.answer(200, answer)
	return nil
}

// keyedSession runs statements inside a transaction that is not the client's. The
// client's own is a savepoint.
type keyedSession struct {
	conn *store.Conn
	open bool
	stmt statement
}

const (
	keyedBegin    = "SAVEPOINT domicile_stream"
	keyedCommit   = "RELEASE domicile_stream"
	keyedRollback = "ROLLBACK TO domicile_stream"
)

func (s *keyedSession) Session() hrana.Session { return s }
func (s *keyedSession) Autocommit() bool       { return !s.open }

// Close rolls back what the client left open. An error shows when the transaction
// around it ends.
func (s *keyedSession) Close() {
	if s.open {
		s.open = false
		_ = s.exec(keyedRollback, keyedCommit)
	}
}

func (s *keyedSession) exec(texts ...string) error {
	for _, sql := range texts {
		if _, _, err := s.conn.Exec(sql, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

func (s *keyedSession) Execute(_ context.Context, st *hrana.Stmt, w hrana.RowWriter) (hrana.Outcome, error) {
	s.stmt.sql, s.stmt.args, s.stmt.named, s.stmt.w = st.SQL, st.Args, st.Named, w
	s.stmt.result = store.Result{}
	if err := s.stmt.classify(); err != nil {
		return hrana.Outcome{}, err
	}
	if err := s.execute(); err != nil {
		return hrana.Outcome{}, hranaError(err)
	}
	r := &s.stmt.result
	return hrana.Outcome{Affected: r.Changes, LastRowID: r.LastInsertID,
		Inserted: s.stmt.kind == store.KindWrite && r.LastInsertID != 0}, nil
}

func (s *keyedSession) execute() error {
	switch kind := s.stmt.kind; {
	case (kind == store.KindBegin || kind == store.KindBeginRead) && s.open:
		return &hrana.Error{Message: "cannot start a transaction within a transaction", Code: "SQLITE_ERROR"}
	case kind == store.KindBegin || kind == store.KindBeginRead:
		err := s.exec(keyedBegin)
		s.open = err == nil
		return err
	case (kind == store.KindCommit || kind == store.KindRollback) && !s.open:
		return &hrana.Error{Message: "no transaction is active", Code: "SQLITE_ERROR"}
	case kind == store.KindCommit:
		err := s.exec(keyedCommit)
		s.open = err != nil
		return err
	case kind == store.KindRollback:
		s.open = false
		return s.exec(keyedRollback, keyedCommit)
	case s.stmt.needsManual():
		return &hrana.Error{Message: "VACUUM and setting PRAGMAs cannot be executed under an Idempotency-Key", Code: "SQLITE_ERROR"}
	}
	return s.stmt.run(s.conn, false)
}

func (s *keyedSession) Sequence(ctx context.Context, sql string) (hrana.Outcome, error) {
	for sql != "" {
		st, tail, err := s.conn.Prepare(sql)
		if isNoStatement(err) {
			break
		}
		if err != nil {
			return hrana.Outcome{}, hranaError(err)
		}
		st.Close()
		one := sql[:len(sql)-len(tail)]
		if _, err := s.Execute(ctx, &hrana.Stmt{SQL: one}, discard{}); err != nil {
			return hrana.Outcome{}, err
		}
		sql = tail
	}
	return hrana.Outcome{}, nil
}

func (s *keyedSession) Describe(_ context.Context, sql string) (hrana.Description, error) {
	d, err := describe(s.conn, sql)
	return d, hranaError(err)
}

// discard drops rows.
type discard struct{}

func (discard) Begin(hrana.Rows, bool) {}
func (discard) Row(hrana.Rows) error   { return nil }
