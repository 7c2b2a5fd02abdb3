package node

import (
	"context"

	"domicile/dataplane/node/jsonscan"
	"domicile/dataplane/node/store"
	"domicile/internal/httpserve"
	"domicile/proto"
)

// schema is POST schema {"sql"}: the statements of a text, all or nothing.
func (r *request) schema(ctx context.Context, unit string) error {
	var body proto.RunSchema
	text, err := r.readBody(maxAdminBody)
	if err != nil {
		return err
	}
	if err := httpserve.DecodeObject(text, &body); err != nil {
		return err
	}
	id, err := r.unitIDHeader()
	if err != nil {
		return err
	}
	defer r.s.changes.lock(unit)()
	if err := r.hold(body.Holder); err != nil {
		return err
	}
	if rec, err := r.s.store.Get(unit); err == nil && id != 0 && rec.ID != id {
		return r.wrongID(unit)
	}
	if err := r.hearOne(word{}, unit, id); err != nil {
		return err
	}
	release, err := r.acquire(ctx, unit)
	if err != nil {
		return err
	}
	defer release()
	run := func(c *store.Conn) ([]byte, error) { return []byte{}, runScript(c, body.SQL) }
	var p store.Position
	if len(r.idempotencyKey) > 0 {
		_, p, err = r.keyed(ctx, "schema", text, run)
	} else {
		p, err = r.data.write(ctx, func(c *store.Conn) error { _, err := run(c); return err })
	}
	if err != nil {
		return err
	}
	r.position(p)
	return r.json(200, proto.SchemaRun{Position: p.String()})
}

// runScript runs the statements of a text in the transaction that is open.
func runScript(c *store.Conn, sql string) error {
	for n := 0; ; n++ {
		switch store.Classify(sql) {
		case store.KindEmpty:
			return nil
		case store.KindBegin, store.KindBeginRead, store.KindCommit, store.KindRollback:
			return atStatement(n, badRequest("a schema is one transaction by itself: leave BEGIN, COMMIT and ROLLBACK out"))
		case store.KindRead, store.KindWrite, store.KindPragma, store.KindSavepoint:
		}
		_, tail, err := c.Exec(sql, nil, nil)
		if err != nil {
			return atStatement(n, err)
		}
		sql = tail
	}
}

// adminQuery is POST query {"sql","args"?}: as the data API's, under the admin token.
// A statement that writes names its holder.
func (r *request) adminQuery(ctx context.Context, unit string) error {
	body, err := r.readBody(maxAdminBody)
	if err != nil {
		return err
	}
	q := &r.q
	q.limit, q.out = r.s.cfg.MaxResponse, r.out[:0]
	var holder proto.Holder
	q.scan.Reset(body)
	q.parseStatement(&q.scan, func(name string) bool { return holderField(&q.scan, &holder, name) })
	q.scan.End()
	if err := q.scan.Err(); err != nil {
		return badRequest("%v", err)
	}
	if err := q.check(); err != nil {
		return err
	}
	if q.stmt.onReader() {
		// A read names no holder, but one that is named counts.
		if h, named, err := r.holderOf(holder); err != nil {
			return err
		} else if named {
			if err := r.s.takeHolder(h); err != nil {
				return err
			}
		}
	} else {
		defer r.s.changes.lock(unit)()
		if err := r.hold(holder); err != nil {
			return err
		}
	}
	release, err := r.acquire(ctx, unit)
	if err != nil {
		return err
	}
	defer release()
	p, err := q.executeOnce(ctx, &r.data)
	if r.out = q.out; err != nil {
		return err
	}
	return r.sendResult(p)
}

// executeOnce is execute but for a statement that was taken for a read and writes
// after all: without a holder that is refused.
func (q *query) executeOnce(ctx context.Context, a *access) (store.Position, error) {
	if !q.stmt.onReader() {
		return q.execute(ctx, a)
	}
	p := a.unit.Position()
	return p, a.read(ctx, func(c *store.Conn) error { return q.runOn(c, true) })
}

// holderField reads a field of a holder, if it is one.
func holderField(s *jsonscan.Scanner, h *proto.Holder, name string) bool {
	switch name {
	case "authority":
		h.Authority = string(s.String())
	case "history":
		h.History = uint64(max(s.Int(), 0))
	case "term":
		h.Term = uint64(max(s.Int(), 0))
	default:
		return false
	}
	return true
}
