package store

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

var testTime = time.UnixMilli(1_700_000_000_000)

func TestIdempotencyKeys(t *testing.T) {
	s := open(t, Config{})
	u := unit(t, s)
	if _, _, found, err := u.LookupKey(ctx, "a", testTime); found || err != nil {
		t.Fatal(found, err)
	}
	write(t, u, "CREATE TABLE t(a INTEGER PRIMARY KEY)")
	put := func(key string, at time.Time, fail error) error {
		_, err := u.Write(ctx, func(c *Conn) error {
			r, _, err := c.Exec("INSERT INTO t DEFAULT VALUES", nil, nil)
			if err != nil {
				return err
			}
			if err := c.StoreKey(key, []byte("fp"), fmt.Append(nil, "answer ", key), at); err != nil {
				return err
			}
			if c.LastInsertID() != r.LastInsertID {
				return errors.New("the node's own insert changed last_insert_rowid")
			}
			return fail
		})
		return err
	}
	boom := errors.New("boom")
	if err := put("lost", testTime, boom); err != boom {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := put(fmt.Sprint("k", i), testTime, nil); err != nil {
			t.Fatal(err)
		}
	}
	fp, answer, found, err := u.LookupKey(ctx, "k7", testTime.Add(keyLife-time.Millisecond))
	if string(fp) != "fp" || string(answer) != "answer k7" || !found || err != nil {
		t.Fatalf("%q %q %v %v", fp, answer, found, err)
	}
	for key, at := range map[string]time.Time{"lost": testTime, "k7": testTime.Add(keyLife)} {
		if _, _, found, err := u.LookupKey(ctx, key, at); found || err != nil {
			t.Fatal(key, found, err)
		}
	}
	for i := range 3 {
		if err := put(fmt.Sprint("later", i), testTime.Add(keyLife), nil); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	err = u.Read(ctx, func(c *Conn) error {
		return c.own("SELECT count(*) FROM _domicile_keys", nil, func(r *Row) error { n = int(r.Int64(0)); return nil })
	})
	if err != nil || n != 3 {
		t.Fatalf("%d keys are kept (%v): the expired ones must go in passing", n, err)
	}
}
