package node

import (
	"context"

	"domicile/dataplane/node/hrana"
	"domicile/dataplane/node/store"
	"domicile/internal/httpserve"
)

// batchStatement is one statement of a batch, decoded.
type batchStatement struct {
	sql   string
	args  []hrana.Value
	named []hrana.NamedValue
	kind  store.Kind
}

// batch is POST batch: all statements in one transaction, in order, or none.
func (r *request) batch(ctx context.Context, body []byte) error {
	q := &r.q
	q.limit, q.out = r.s.cfg.MaxResponse, r.out[:0]
	statements, err := q.parseBatch(body)
	if err != nil {
		return err
	}
	reading := true
	for i := range statements {
		q.take(&statements[i])
		if err := q.check(); err != nil {
			return atStatement(i, err)
		}
		statements[i].kind = q.stmt.kind
		if q.stmt.needsManual() {
			return atStatement(i, badRequest("VACUUM and setting PRAGMAs cannot be part of a transaction: send them by query"))
		}
		reading = reading && q.stmt.onReader()
	}
	run := func(c *store.Conn) ([]byte, error) { return q.runAll(c, statements) }
	var p store.Position
	if reading {
		if len(r.idempotencyKey) > 0 {
			if err := r.keyedRead(ctx, "batch", body); err != nil {
				return err
			}
		}
		p = r.data.unit.Position()
		err = r.data.read(ctx, func(c *store.Conn) error { _, err := run(c); return err })
		reading = !isReadOnly(err) // otherwise it writes after all
	}
	switch {
	case reading:
	case len(r.idempotencyKey) > 0:
		q.out, p, err = r.keyed(ctx, "batch", body, run)
	default:
		p, err = r.data.write(ctx, func(c *store.Conn) error { _, err := run(c); return err })
	}
	if err != nil {
		return err
	}
	return r.sendResult(p)
}

// parseBatch reads {"statements":[…]}.
func (q *query) parseBatch(body []byte) ([]batchStatement, error) {
	s := &q.scan
	s.Reset(body)
	var statements []batchStatement
	seen := 0
	s.Open('{')
	for s.More('}') {
		if string(s.Key()) != "statements" {
			s.Fail(`a batch has the field "statements" and no other`)
			break
		}
		seen++
		s.Open('[')
		for s.More(']') {
			q.stmt.args, q.stmt.named = nil, nil
			q.parseStatement(s, nil)
			statements = append(statements, batchStatement{sql: q.stmt.sql, args: q.stmt.args, named: q.stmt.named})
		}
	}
	s.End()
	if seen != 1 {
		s.Fail(`"statements" is needed, once`)
	}
	if err := s.Err(); err != nil {
		return nil, badRequest("%v", err)
	}
	if len(statements) == 0 {
		return nil, badRequest("a batch needs at least one statement")
	}
	return statements, nil
}

func (q *query) take(b *batchStatement) {
	q.stmt.sql, q.stmt.args, q.stmt.named, q.stmt.kind = b.sql, b.args, b.named, b.kind
}

// runAll runs the statements on a connection and gives the answer, open at its end.
func (q *query) runAll(c *store.Conn, statements []batchStatement) ([]byte, error) {
	q.out = append(q.out[:0], `{"results":[`...)
	for i := range statements {
		if i > 0 {
			q.out = append(q.out, ',')
		}
		q.take(&statements[i])
		if err := q.runOn(c, false); err != nil {
			return nil, atStatement(i, err)
		}
		q.out = append(q.out, '}')
	}
	q.out = append(q.out, ']')
	return q.out, nil
}

// atStatement says which statement of a batch was at fault.
func atStatement(i int, err error) error {
	e := failure(err)
	if e.Status != 400 && e.Status != 413 {
		return err // not this statement's
	}
	return &httpserve.Error{Status: e.Status, Code: e.Code, Text: e.Text, Cause: err,
		Fields: map[string]any{"statement": i}}
}
