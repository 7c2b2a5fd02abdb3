package store

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// units.bolt: bucket "units" has a JSON record by unit name, bucket "node" the
// newest holder, bucket "told" what it has said of the units. Each change is synced;
// those of units that come at once share a bbolt transaction.

var (
	unitsBucket = []byte("units")
	nodeBucket  = []byte("node")
	holderKey   = []byte("holder")
)

// intent is work on a unit's files that a crash may have cut short; it is
// recorded before the first file is touched and finished at start.
type intent string

const (
	creating   intent = "create"  // at start: removed, nobody was told of it
	deleting   intent = "delete"  // at start: finished
	installing intent = "install" // at start: finished, the image is whole in tmp/
)

// stored is what the file holds of a unit.
type stored struct {
	Record
	Intent intent `json:"intent,omitempty"`
	Image  string `json:"image,omitempty"` // of installing: the file's name in tmp/
	Lives  bool   `json:"lives,omitempty"` // of deleting: it lives on elsewhere

	Lineage Lineage `json:"lineage,omitempty"` // see lineage
	// Base is where the unit was when its present branch was begun here: it
	// counts like a .pos file, and before one of a lower position.
	Base *posRecord `json:"base,omitempty"`
}

// lineage of the unit; records from before there were copies have one branch.
func (r *stored) lineage() Lineage {
	if len(r.Lineage) > 0 || r.Empty {
		return r.Lineage
	}
	return Lineage{{Epoch: r.Epoch}}
}

// visible reports whether users see the unit: one being made is not there yet,
// one being deleted no longer. One whose image is being put in its place is there:
// that is certain from its record on, and who was told otherwise in that moment
// would take a removal for done.
func (r *stored) visible() bool { return r.Intent == "" || r.Intent == installing }

// recordsThere refuses a folder that has units and no record of them: begun
// anew, the record would make them unknown and forget the newest holder.
func recordsThere(dir string) error {
	if st, err := os.Stat(filepath.Join(dir, "units.bolt")); err == nil && st.Size() > 0 {
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look at the record of the units: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "units", "*", "*.db"))
	if err != nil || len(files) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s is missing or empty, but there are units (%s); put it back from a copy of the folder",
		ErrFormat, filepath.Join(dir, "units.bolt"), files[0])
}

func openRegistry(dir string, wait time.Duration) (*bolt.DB, error) {
	db, err := bolt.Open(filepath.Join(dir, "units.bolt"), 0o600, &bolt.Options{Timeout: wait, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%w: another process has %s open; stop it, or use another --data", ErrLocked, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", filepath.Join(dir, "units.bolt"), err)
	}
	made := false
	err = db.View(func(tx *bolt.Tx) error {
		made = tx.Bucket(unitsBucket) != nil && tx.Bucket(nodeBucket) != nil
		return nil
	})
	if made { // nothing is written: a node must start on a full disk too
		return db, err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		_, err1 := tx.CreateBucketIfNotExists(unitsBucket)
		_, err2 := tx.CreateBucketIfNotExists(nodeBucket)
		return errors.Join(err1, err2)
	})
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("open %s: %w", filepath.Join(dir, "units.bolt"), err)
	}
	return db, nil
}

// load gives a unit's record, nil if there is none.
func (s *Store) load(name string) (r *stored, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		b := tx.Bucket(unitsBucket).Get([]byte(name))
		if b == nil {
			return nil
		}
		r = new(stored)
		return json.Unmarshal(b, r)
	})
	if err != nil {
		return nil, fmt.Errorf("read the record of unit %s: %w", name, err)
	}
	return r, nil
}

// change changes a record that is there; f may refuse by an error, and be called more
// than once.
func (s *Store) change(name string, f func(*stored) error) (stored, error) {
	var r stored
	err := s.update(name, func(b *bolt.Bucket) error {
		raw := b.Get([]byte(name))
		if raw == nil {
			return ErrUnknownUnit
		}
		r = stored{}
		if err := json.Unmarshal(raw, &r); err != nil {
			return err
		}
		if err := f(&r); err != nil {
			return err
		}
		return put(b, &r)
	})
	return r, err
}

func (s *Store) putRecord(r *stored) error {
	return s.update(r.Name, func(b *bolt.Bucket) error { return put(b, r) })
}

// dropRecord forgets a unit, and what was told of it.
func (s *Store) dropRecord(r *stored) error {
	name := r.Name
	return s.update(name, func(b *bolt.Bucket) error {
		keep := func() error { return dropGave(b.Tx(), name) }
		if r.Intent == deleting && r.Lives {
			keep = func() error { return keepGave(b.Tx(), r) }
		}
		if err := keep(); err != nil {
			return err
		}
		if told := b.Tx().Bucket(toldBucket); told != nil {
			if err := told.Delete([]byte(name)); err != nil {
				return err
			}
		}
		return b.Delete([]byte(name))
	})
}

func put(b *bolt.Bucket, r *stored) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return b.Put([]byte(r.Name), raw)
}

// update commits a change of the bucket of units; f may be called more than once.
func (s *Store) update(name string, f func(*bolt.Bucket) error) error {
	err := s.fault(OpRecord, name)
	if err == nil {
		err = s.records.commit(s.db, func(tx *bolt.Tx) error { return f(tx.Bucket(unitsBucket)) })
	}
	if err != nil {
		return &UnitError{Unit: name, Op: "record", Err: diskError(err)}
	}
	return nil
}

// Get gives a unit's record, ErrUnknownUnit if there is none.
func (s *Store) Get(name string) (Record, error) {
	r, err := s.load(name)
	if err != nil {
		return Record{}, err
	}
	if r == nil || !r.visible() {
		return Record{}, &UnitError{Unit: name, Op: "find", Err: ErrUnknownUnit}
	}
	return r.Record, nil
}

// List gives up to limit records by name, those after the given name. limit <= 0: all.
func (s *Store) List(after string, limit int) ([]Record, error) {
	var out []Record
	err := s.db.View(func(tx *bolt.Tx) error {
		c := tx.Bucket(unitsBucket).Cursor()
		k, v := c.Seek([]byte(after))
		if after != "" && string(k) == after {
			k, v = c.Next()
		}
		for ; k != nil && (limit <= 0 || len(out) < limit); k, v = c.Next() {
			var r stored
			if err := json.Unmarshal(v, &r); err != nil {
				return fmt.Errorf("read the record of unit %s: %w", k, err)
			}
			if r.visible() {
				out = append(out, r.Record)
			}
		}
		return nil
	})
	return out, err
}

// Update changes a unit's record durably; f may refuse by an error, which is
// returned (wrapped), and may be called more than once. Name, ID, Epoch and Empty stay
// as they are. ErrWrongState: a unit becomes a copy, or stops being one, by Follow and
// Promote alone.
func (s *Store) Update(ctx context.Context, name string, f func(*Record) error) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	r, err := s.change(name, func(r *stored) error {
		if !r.visible() {
			return ErrUnknownUnit
		}
		if r.Intent == installing {
			return fmt.Errorf("%w: an image of it is being put in its place; try again", ErrWrongState)
		}
		old := r.Record
		if err := f(&r.Record); err != nil {
			return err
		}
		if old.State.IsCopy() != r.State.IsCopy() {
			return fmt.Errorf("%w: from %s to %s", ErrWrongState, old.State, r.State)
		}
		r.Name, r.ID, r.Epoch, r.Empty = old.Name, old.ID, old.Epoch, old.Empty
		return nil
	})
	return r.Record, err
}

// Holder gives the newest holder, the zero Holder before the first.
func (s *Store) Holder() Holder { return *s.holder.Load() }

// SetHolder replaces the holder durably if it is still old; ErrConflict if not.
func (s *Store) SetHolder(old, next Holder) error { return s.setHolder(old, next, nil) }

func (s *Store) setHolder(old, next Holder, handed *Handed) error {
	if err := s.fault(OpRecord, ""); err != nil {
		return err
	}
	return s.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(nodeBucket)
		var cur Holder
		if raw := b.Get(holderKey); raw != nil {
			if err := json.Unmarshal(raw, &cur); err != nil {
				return err
			}
		}
		if cur != old {
			return fmt.Errorf("holder: %w: it is %s %d %d", ErrConflict, cur.Authority, cur.History, cur.Term)
		}
		raw, err := json.Marshal(next)
		if err != nil {
			return err
		}
		tx.OnCommit(func() { s.holder.Store(&next) })
		if handed != nil {
			if err := s.putHanded(tx, handed); err != nil {
				return err
			}
		}
		return b.Put(holderKey, raw)
	})
}

func (s *Store) loadHolder() error {
	var h Holder
	err := s.db.View(func(tx *bolt.Tx) error {
		if raw := tx.Bucket(nodeBucket).Get(holderKey); raw != nil {
			return json.Unmarshal(raw, &h)
		}
		return nil
	})
	s.holder.Store(&h)
	return err
}

// shardOf spreads units over 256 folders.
func shardOf(name string) string {
	const digits = "0123456789abcdef"
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], h^h>>32)
	return string([]byte{digits[b[0]>>4], digits[b[0]&15]})
}
