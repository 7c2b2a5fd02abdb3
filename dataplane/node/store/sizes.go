package store

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"sync"
)

// sizes remembers the bytes of units that are closed: they cannot change.
type sizes struct {
	mu sync.Mutex
	m  map[string]int64
}

func (z *sizes) set(name string, bytes int64) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.m == nil {
		z.m = map[string]int64{}
	}
	z.m[name] = bytes
}

func (z *sizes) get(name string) (int64, bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	n, ok := z.m[name]
	return n, ok
}

func (z *sizes) drop(name string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.m, name)
}

// Bytes gives the bytes on disk of one unit, database and WAL; 0 for one that
// is not there.
func (s *Store) Bytes(name string) (int64, error) {
	s.slots.mu.Lock()
	if sl := s.slots.m[name]; sl != nil && sl.unit != nil {
		defer s.slots.mu.Unlock()
		return sl.unit.Bytes(), nil
	}
	s.slots.mu.Unlock()
	if n, ok := s.sizes.get(name); ok {
		return n, nil
	}
	var total int64
	path := s.unitPath(name)
	for _, f := range []string{path, path + "-wal"} {
		st, err := os.Stat(f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, &UnitError{Unit: name, Op: "measure", Err: diskError(err)}
		}
		total += st.Size()
	}
	s.sizes.set(name, total)
	return total, nil
}

// Sizes gives the bytes of every unit, by name. The first call looks at each
// unit's files once; later ones at none.
func (s *Store) Sizes() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for after := ""; ; {
			recs, err := s.List(after, 1000)
			if err != nil || len(recs) == 0 {
				return
			}
			for _, r := range recs {
				n, err := s.Bytes(r.Name)
				if err == nil && !yield(r.Name, n) {
					return
				}
			}
			after = recs[len(recs)-1].Name
		}
	}
}

// Position gives a unit's position, without opening it: as Unit.Position where
// something is acknowledged, else that of its mark.
func (s *Store) Position(ctx context.Context, name string) (Position, error) {
	if _, err := s.Get(name); err != nil {
		return Position{}, err
	}
	s.slots.mu.Lock()
	if sl := s.slots.m[name]; sl != nil && sl.unit != nil {
		defer s.slots.mu.Unlock()
		if p := sl.unit.Position(); !p.IsZero() {
			return p, nil
		}
		return sl.unit.Mark().Position, nil
	}
	s.slots.mu.Unlock()
	m, err := s.Mark(ctx, name)
	return m.Position, err
}

// Changes gives the commits after the given position (zero: from now on) as
// they are acknowledged. The sequence ends with an error: ErrGone, a
// *BehindError, or ctx's cause. Keep the unit acquired meanwhile.
func (u *Unit) Changes(ctx context.Context, after Position) iter.Seq2[Change, error] {
	return u.feed.changes(ctx, after)
}
