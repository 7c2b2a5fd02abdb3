package store

import (
	"context"
	"time"
)

// Idempotency keys are kept in the unit, in the write's own transaction, so
// that key, answer and effect are there together or not at all; they move with
// the unit.

// keyLife is how long an answer is kept.
const keyLife = 10 * time.Minute

const (
	keysTable = `CREATE TABLE IF NOT EXISTS _domicile_keys(
		key TEXT PRIMARY KEY, fingerprint BLOB NOT NULL, answer BLOB NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID`
	keysIndex = `CREATE INDEX IF NOT EXISTS _domicile_keys_at ON _domicile_keys(at)`
	keysThere = `SELECT 1 FROM sqlite_schema WHERE type='table' AND name='_domicile_keys'`
	keysGet   = `SELECT fingerprint, answer FROM _domicile_keys WHERE key=? AND at>?`
	keysPut   = `INSERT OR REPLACE INTO _domicile_keys(key, fingerprint, answer, at) VALUES(?,?,?,?)`
	keysPrune = `DELETE FROM _domicile_keys WHERE key IN (SELECT key FROM _domicile_keys WHERE at<=? ORDER BY at LIMIT 64)`
)

func (c *Conn) haveKeys() (bool, error) {
	have := false
	err := c.own(keysThere, nil, func(*Row) error { have = true; return nil })
	return have, err
}

// LookupKey gives what StoreKey kept under an idempotency key less than ten
// minutes before now.
func (c *Conn) LookupKey(key string, now time.Time) (fingerprint, answer []byte, found bool, err error) {
	have, err := c.haveKeys()
	if err != nil || !have {
		return nil, nil, false, err
	}
	args := []Value{TextValue(key), IntValue(now.Add(-keyLife).UnixMilli())}
	err = c.own(keysGet, args, func(r *Row) error {
		fingerprint, answer, found = r.Value(0).Blob, r.Value(1).Blob, true
		return nil
	})
	return fingerprint, answer, found, err
}

// StoreKey keeps an answer under a key, in the transaction that is open (call
// it within Unit.Write, or in a WriteTx). Keys that have expired go in passing.
// It changes neither LastInsertID nor what is visible to the tenant.
func (c *Conn) StoreKey(key string, fingerprint, answer []byte, now time.Time) error {
	have, err := c.haveKeys()
	if err != nil {
		return err
	}
	if !have {
		for _, sql := range []string{keysTable, keysIndex} {
			if err := c.own(sql, nil, nil); err != nil {
				return err
			}
		}
	}
	if err := c.own(keysPrune, []Value{IntValue(now.Add(-keyLife).UnixMilli())}, nil); err != nil {
		return err
	}
	return c.own(keysPut, []Value{TextValue(key), BlobValue(fingerprint), BlobValue(answer), IntValue(now.UnixMilli())}, nil)
}

// LookupKey is Conn.LookupKey outside a transaction, on a reader.
func (u *Unit) LookupKey(ctx context.Context, key string, now time.Time) (fingerprint, answer []byte, found bool, err error) {
	err = u.Read(ctx, func(c *Conn) error {
		fingerprint, answer, found, err = c.LookupKey(key, now)
		return err
	})
	return fingerprint, answer, found, err
}
