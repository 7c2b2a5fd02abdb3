package node

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"domicile/dataplane/node/store"
	"domicile/internal/httpserve"
)

// An idempotency key and the answer that was given under it are kept in the unit, in
// the transaction of the write itself, for ten minutes: both are there, or neither.
// A request that failed without effect keeps nothing, and is executed again.
//
// The position is not kept, since it is known only after the commit: a repeated
// request is answered with the unit's present one, which is at least as far.

// maxKey is the greatest length of an idempotency key in bytes.
const maxKey = 255

// replay ends a write transaction that has found its answer kept.
type replay struct{ answer []byte }

func (replay) Error() string { return "answered already" }

// keyed runs on in a write transaction under the request's key and gives what it
// appended, or what was kept the first time.
func (r *request) keyed(ctx context.Context, what string, body []byte, on func(*store.Conn) ([]byte, error)) (answer []byte, p store.Position, err error) {
	key := string(r.idempotencyKey)
	if len(key) > maxKey {
		return nil, p, badRequest("an Idempotency-Key has at most %d bytes", maxKey)
	}
	print := r.fingerprint(what, body)
	p, err = r.data.write(ctx, func(c *store.Conn) error {
		kept, err := lookUp(c, key, print)
		if err != nil {
			return err
		}
		if kept != nil {
			return replay{kept}
		}
		if answer, err = on(c); err != nil {
			return err
		}
		return c.StoreKey(key, print, answer, time.Now())
	})
	if again, ok := errors.AsType[replay](err); ok {
		return r.replayed(ctx, again.answer)
	}
	return answer, p, err
}

// replayed answers with what was kept. The first write may still be on its way to the
// disk; the second answer must not be ahead of it.
func (r *request) replayed(ctx context.Context, answer []byte) ([]byte, store.Position, error) {
	p, err := r.data.unit.Write(ctx, func(*store.Conn) error { return nil })
	if err == nil {
		err = r.data.unit.WaitPosition(ctx, p)
	}
	if err != nil {
		return nil, p, err
	}
	r.ctx.Response.Header.Set("Idempotent-Replayed", "true")
	return answer, p, nil
}

// keyedRead lets a request that only reads be executed again and again, but not under
// a key that another request has used.
func (r *request) keyedRead(ctx context.Context, what string, body []byte) error {
	print := r.fingerprint(what, body)
	return r.data.read(ctx, func(c *store.Conn) error {
		_, err := lookUp(c, string(r.idempotencyKey), print)
		return err
	})
}

// lookUp gives the answer kept under a key, nil where there is none.
func lookUp(c *store.Conn, key string, print []byte) ([]byte, error) {
	of, answer, found, err := c.LookupKey(key, time.Now())
	switch {
	case err != nil || !found:
		return nil, err
	case string(of) != string(print):
		return nil, httpserve.Errorf(422, "key_reused", "this Idempotency-Key was used for another request; take a new one")
	case answer == nil:
		answer = []byte{}
	}
	return answer, nil
}

// fingerprint tells one request from another: what it is and its body.
func (r *request) fingerprint(what string, body []byte) []byte {
	h := sha256.New()
	h.Write([]byte(what))
	h.Write([]byte{0})
	h.Write(body)
	return h.Sum(nil)
}

// keyedQuery is query under an idempotency key.
func (r *request) keyedQuery(ctx context.Context, body []byte) error {
	q := &r.q
	if q.stmt.onReader() {
		if err := r.keyedRead(ctx, "query", body); err != nil {
			return err
		}
		p := r.data.unit.Position()
		err := r.data.read(ctx, func(c *store.Conn) error { return q.runOn(c, true) })
		if err == nil {
			return r.sendResult(p)
		}
		if !isReadOnly(err) {
			return err
		}
		// It writes after all, and is kept as what it is.
	}
	if q.stmt.needsManual() {
		return badRequest("VACUUM and setting PRAGMAs cannot be executed under an Idempotency-Key: they cannot be part of a transaction")
	}
	answer, p, err := r.keyed(ctx, "query", body, func(c *store.Conn) ([]byte, error) {
		err := q.runOn(c, false)
		return q.out, err
	})
	if err != nil {
		return err
	}
	q.out = answer
	return r.sendResult(p)
}
