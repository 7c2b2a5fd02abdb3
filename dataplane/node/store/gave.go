package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// What is left of a unit that was removed because it lives on elsewhere: bucket "gave" of
// units.bolt has a JSON gave by unit name, bucket "gave_order" the names by number, for
// the newest maxGave.

var (
	gaveBucket      = []byte("gave")
	gaveOrderBucket = []byte("gave_order")
)

const maxGave = 100_000

type gave struct {
	Number      uint64 `json:"number"`
	Destination string `json:"destination,omitempty"` // as in Record, or an address alone
}

// keepGave notes that the unit was given away, in the transaction that forgets it.
func keepGave(tx *bolt.Tx, r *stored) error {
	units, err := tx.CreateBucketIfNotExists(gaveBucket)
	if err != nil {
		return err
	}
	order, err := tx.CreateBucketIfNotExists(gaveOrderBucket)
	if err != nil {
		return err
	}
	if err := dropGave(tx, r.Name); err != nil {
		return err
	}
	number, err := order.NextSequence()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(gave{number, cmp.Or(r.Destination, r.From)})
	if err != nil {
		return err
	}
	if err := units.Put([]byte(r.Name), raw); err != nil {
		return err
	}
	if err := order.Put(binary.BigEndian.AppendUint64(nil, number), []byte(r.Name)); err != nil {
		return err
	}
	for c := order.Cursor(); ; { // numbers without a gap would do with one
		k, name := c.First()
		if k == nil || binary.BigEndian.Uint64(k)+maxGave > number {
			return nil
		}
		if err := units.Delete(name); err != nil {
			return err
		}
		if err := order.Delete(k); err != nil {
			return err
		}
	}
}

// dropGave forgets it: the unit was deleted, not given away.
func dropGave(tx *bolt.Tx, unit string) error {
	units, order := tx.Bucket(gaveBucket), tx.Bucket(gaveOrderBucket)
	if units == nil || order == nil {
		return nil
	}
	raw := units.Get([]byte(unit))
	if raw == nil {
		return nil
	}
	var g gave
	if err := json.Unmarshal(raw, &g); err != nil {
		return fmt.Errorf("read where unit %s went: %w", unit, err)
	}
	if err := units.Delete([]byte(unit)); err != nil {
		return err
	}
	return order.Delete(binary.BigEndian.AppendUint64(nil, g.Number))
}

// Gave reports whether a unit that is not held was removed because it lives on elsewhere,
// and where, as far as that was known: "<node> <addr>", an address alone, or "".
func (s *Store) Gave(unit string) (destination string, ok bool) {
	// What cannot be read is not known.
	_ = s.db.View(func(tx *bolt.Tx) error {
		var g gave
		if b := tx.Bucket(gaveBucket); b != nil {
			if raw := b.Get([]byte(unit)); raw != nil && json.Unmarshal(raw, &g) == nil {
				destination, ok = g.Destination, true
			}
		}
		return nil
	})
	return destination, ok
}

// AwaitUnused returns when nothing is read or written in the unit; with ctx's cause if it
// ends first.
func (s *Store) AwaitUnused(ctx context.Context, unit string) error {
	s.slots.mu.Lock()
	var u *Unit
	if sl := s.slots.m[unit]; sl != nil {
		u = sl.unit
	}
	s.slots.mu.Unlock()
	for u != nil {
		u.mu.Lock()
		if len(u.active) == 0 || u.gone != nil {
			u.mu.Unlock()
			return nil
		}
		if u.unused == nil {
			u.unused = make(chan struct{})
		}
		unused := u.unused
		u.mu.Unlock()
		select {
		case <-unused:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
