package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"domicile/internal/durable"

	bolt "go.etcd.io/bbolt"
)

// Making and deleting units. Each leaves, after a crash at any point, either
// the old situation or the new one: the intent is recorded first, then the
// files are changed, then the record is made final.

// Create makes an empty unit in state Active, with epoch 1. The same name and
// id (not 0) again gives the unit that is there; otherwise ErrExists or
// ErrWrongID.
func (s *Store) Create(ctx context.Context, name string, id uint64) (Record, error) {
	if err := checkName(name); err != nil {
		return Record{}, err
	}
	sl, err := s.lockSlot(ctx, name)
	if err != nil {
		return Record{}, err
	}
	defer s.unlockSlot(sl)
	old, err := s.load(name)
	if err != nil {
		return Record{}, err
	}
	if old != nil && old.Intent != "" {
		if err := s.finish(old); err != nil {
			return Record{}, err
		}
		if old, err = s.load(name); err != nil {
			return Record{}, err
		}
	}
	if old != nil {
		return sameUnit(&old.Record, id)
	}
	return s.create(stored{Record: Record{Name: name, ID: id, State: Active, Epoch: 1}})
}

// create makes a unit of which nothing is there; the caller has its slot.
func (s *Store) create(rec stored) (Record, error) {
	name := rec.Name
	// Its files would be removed as what an earlier attempt has left; but that
	// has a record.
	if _, err := os.Stat(s.unitPath(name)); err == nil {
		return Record{}, &UnitError{Unit: name, Op: "create", Err: fmt.Errorf("%w: %s is there, without a record", ErrDamaged, s.unitPath(name)),
			Hint: "move it away, or put it in place (PUT …/file)"}
	}
	rec.Intent = creating
	if err := s.putRecord(&rec); err != nil {
		return Record{}, err
	}
	err := s.createFile(name)
	if err == nil {
		rec.Intent = ""
		err = s.putRecord(&rec)
	}
	if err != nil {
		undo := &stored{Record: rec.Record, Intent: creating}
		if uerr := s.finish(undo); uerr != nil {
			s.log.Warn("unit half made, removed at the next start", "unit", name, "err", uerr)
		}
		return Record{}, err
	}
	return rec.Record, nil
}

// sameUnit answers a create whose name is taken.
func sameUnit(old *Record, id uint64) (Record, error) {
	switch {
	case old.ID != id:
		return Record{}, &UnitError{Unit: old.Name, Op: "create", Err: ErrWrongID, Hint: fmt.Sprintf("the one here has id %d", old.ID)}
	case id == 0:
		return Record{}, &UnitError{Unit: old.Name, Op: "create", Err: ErrExists}
	}
	return *old, nil
}

func (s *Store) createFile(name string) error {
	path := s.unitPath(name)
	err := s.fault(OpCreate, name)
	if err == nil {
		err = s.makeShard(filepath.Dir(path))
	}
	if err == nil {
		err = removeFiles(path)
	}
	var file []byte
	if err == nil {
		file, err = s.empty.get(s.tmpDir())
	}
	if err == nil {
		err = durable.ReplaceText(path, file)
	}
	if err != nil {
		return &UnitError{Unit: name, Op: "create", Err: diskError(err), Hint: "check the node's disk"}
	}
	return nil
}

// makeShard makes a shard's folder, and its name durable, where it is not there.
func (s *Store) makeShard(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	units := filepath.Dir(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return errors.Join(durable.SyncDir(units), durable.SyncDir(s.cfg.Dir))
}

// Delete removes a unit: running calls are interrupted, subscriptions end with
// ErrGone. id 0 is not compared. ErrUnknownUnit, ErrWrongID. Where it fails
// after it has begun the unit is gone for users all the same, and the rest is
// done by a repeat or at the next start.
func (s *Store) Delete(ctx context.Context, name string, id uint64) error {
	return s.remove(ctx, name, id, false)
}

// Leave is Delete for a unit that lives on elsewhere: Gave tells of it from then on.
func (s *Store) Leave(ctx context.Context, name string, id uint64) error {
	return s.remove(ctx, name, id, true)
}

func (s *Store) remove(ctx context.Context, name string, id uint64, lives bool) error {
	if err := checkName(name); err != nil {
		return err
	}
	sl, err := s.lockSlot(ctx, name)
	if err != nil {
		return err
	}
	defer s.unlockSlot(sl)
	rec, err := s.load(name)
	if err != nil {
		return err
	}
	if rec == nil || rec.Intent == creating {
		return &UnitError{Unit: name, Op: "delete", Err: ErrUnknownUnit}
	}
	if id != 0 && rec.ID != id {
		return &UnitError{Unit: name, Op: "delete", Err: ErrWrongID, Hint: fmt.Sprintf("the one here has id %d", rec.ID)}
	}
	rec.Intent, rec.Lives = deleting, lives
	if err := s.putRecord(rec); err != nil {
		return err
	}
	s.detach(sl, fmt.Errorf("%w: it was deleted", ErrGone))
	return s.finish(rec)
}

// finish completes or undoes what a record intends. It may be done again.
func (s *Store) finish(rec *stored) error {
	path := s.unitPath(rec.Name)
	switch rec.Intent {
	case creating, deleting:
		err := s.fault(OpRemove, rec.Name)
		if err == nil {
			err = removeFiles(path)
		}
		if err != nil {
			return &UnitError{Unit: rec.Name, Op: "remove its files", Err: diskError(err), Hint: "it is tried again at the next start"}
		}
		s.forget(rec.Name)
		return s.dropRecord(rec)
	case installing:
		if err := s.placeImage(rec); err != nil {
			return err
		}
	}
	return nil
}

// forget drops what is remembered of a unit's files.
func (s *Store) forget(name string) {
	s.sizes.drop(name)
	s.closed.drop(name)
	s.slots.mu.Lock()
	delete(s.slots.damaged, name)
	s.slots.mu.Unlock()
}

// removeFiles removes a unit's files, the database last.
func removeFiles(path string) error {
	var err error
	for _, f := range ownFiles(path) {
		if e := os.Remove(f); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return err
	}
	err = durable.SyncDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the shard was never made
	}
	return err
}

// intents gives the records of work that is not done.
func (s *Store) intents(f func(*stored) error) error {
	return s.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(unitsBucket).ForEach(func(k, v []byte) error {
			var r stored
			if err := json.Unmarshal(v, &r); err != nil {
				return fmt.Errorf("read the record of unit %s: %w", k, err)
			}
			if r.Intent == "" {
				return nil
			}
			return f(&r)
		})
	})
}

// finishIntents does at start what a crash has left. A unit for which that
// fails stays out of sight; it is tried again when it is asked for.
func (s *Store) finishIntents() error {
	var todo []*stored
	if err := s.intents(func(r *stored) error { todo = append(todo, r); return nil }); err != nil {
		return err
	}
	for _, r := range todo {
		s.log.Info("finishing what was interrupted", "unit", r.Name, "intent", string(r.Intent))
		if err := s.finish(r); err != nil {
			s.log.Error("what was interrupted cannot be finished", "unit", r.Name, "err", err)
		}
	}
	return nil
}
