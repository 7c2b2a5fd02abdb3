package store

import (
	"encoding/json"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// units.bolt, bucket "told": a JSON Told by unit name, of units that are held; it
// is made with the first. What was told of those that are not held is one Told in
// bucket "node".

var (
	toldBucket = []byte("told")
	absentKey  = []byte("told_absent")
)

// Told is the newest that the directory's leaders said of a unit in changing
// calls. It outlives a restart, so that a late call is known for one (I5).
type Told struct {
	// Authority and History are whose word it is; what another says begins anew.
	Authority string `json:"authority,omitempty"`
	History   uint64 `json:"history,omitempty"`
	// Call is the highest number of a call that was taken from the leader of
	// Term, which numbers them; 0: none that had a number.
	Term uint64 `json:"term,omitempty"`
	Call uint64 `json:"call,omitempty"`
	// Epoch is the newest of a branch that the unit was to follow or to begin.
	Epoch uint64 `json:"epoch,omitempty"`
	// Thawed is the newest job whose freeze or release was undone.
	Thawed string `json:"thawed,omitempty"`
}

// by makes t the word of h, who was taken for the newest holder: of another
// authority or history nothing is known, and another term counts its calls anew.
func (t *Told) by(h Holder) {
	if t.Authority != h.Authority || t.History != h.History {
		*t = Told{Authority: h.Authority, History: h.History}
	}
	if t.Term != h.Term {
		t.Term, t.Call = h.Term, 0
	}
}

// Tell asks f what each of the units was told becomes, now that h, who was taken
// for the newest holder, says something of it: f changes it, or refuses by an
// error, which is given for that unit. What changed is durable, in one write for
// all, when Tell returns without an error of its own. Names must be distinct, and
// nobody else may tell of these units meanwhile.
func (s *Store) Tell(h Holder, units []string, f func(unit string, t *Told) error) (refused map[string]error, err error) {
	refused = make(map[string]error)
	changed := make(map[string]Told)
	err = s.db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket(toldBucket)
		for _, unit := range units {
			was, err := toldIn(b, []byte(unit))
			if err != nil {
				return err
			}
			now := was
			now.by(h)
			if err := f(unit, &now); err != nil {
				refused[unit] = err
			} else if now != was {
				changed[unit] = now
			}
		}
		return nil
	})
	if err != nil || len(changed) == 0 {
		return refused, err
	}
	return refused, s.putTold(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(toldBucket)
		if err != nil {
			return err
		}
		for unit, t := range changed {
			if err := putTold(b, []byte(unit), t); err != nil {
				return err
			}
		}
		return nil
	})
}

// ToldEpochs gives the newest epoch that the present holder's history told of each
// unit.
func (s *Store) ToldEpochs() (map[string]uint64, error) {
	h, epochs := s.Holder(), make(map[string]uint64)
	err := s.db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket(toldBucket)
		if b == nil {
			return nil
		}
		return b.ForEach(func(unit, _ []byte) error {
			t, err := toldIn(b, unit)
			if t.by(h); t.Epoch != 0 {
				epochs[string(unit)] = t.Epoch
			}
			return err
		})
	})
	return epochs, err
}

// TellAbsent notes that h had a unit removed, or heard that it is not held, by the
// call of this number.
func (s *Store) TellAbsent(h Holder, call uint64) error {
	if t, err := s.ToldAbsent(h); err != nil || call <= t.Call {
		return err
	}
	return s.putTold(func(tx *bolt.Tx) error {
		b := tx.Bucket(nodeBucket)
		t, err := toldIn(b, absentKey)
		if err != nil {
			return err
		}
		if t.Authority == h.Authority && (t.History > h.History || t.History == h.History && t.Term > h.Term) {
			return nil // a newer holder has said so since h was taken for the newest
		}
		if t.by(h); call <= t.Call {
			return nil
		}
		t.Call = call
		return putTold(b, absentKey, t)
	})
}

// ToldAbsent gives what h has told of units that are not held: the number of the
// newest call by which one was removed, or was not there.
func (s *Store) ToldAbsent(h Holder) (t Told, err error) {
	err = s.db.View(func(tx *bolt.Tx) (err error) {
		t, err = toldIn(tx.Bucket(nodeBucket), absentKey)
		return err
	})
	t.by(h)
	return t, err
}

func (s *Store) putTold(f func(*bolt.Tx) error) error {
	err := s.fault(OpRecord, "")
	if err == nil {
		err = s.db.Update(f)
	}
	if err != nil {
		return fmt.Errorf("record what was told of units: %w", diskError(err))
	}
	return nil
}

func toldIn(b *bolt.Bucket, key []byte) (t Told, err error) {
	if b == nil {
		return t, nil
	}
	if raw := b.Get(key); raw != nil {
		if err = json.Unmarshal(raw, &t); err != nil {
			return t, fmt.Errorf("read what was told of %s: %w", key, err)
		}
	}
	return t, nil
}

func putTold(b *bolt.Bucket, key []byte, t Told) error {
	raw, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return b.Put(key, raw)
}
