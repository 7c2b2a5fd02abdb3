package store

import (
	"fmt"
	"slices"
)

// patch is a page of a transaction on a copy: page index of the entry, or
// zeros where entry is nil.
type patch struct {
	number uint32
	entry  *Entry
	index  int
}

// maxHoles bounds the pages of a database that has grown that no entry gives:
// SQLite leaves none but the lock page.
const maxHoles = 1024

// lockPage is the page that SQLite locks bytes of and never writes
// (sqlite.org/fileformat2.html#the_lock_byte_page).
func lockPage(pageSize int) uint32 { return uint32(0x40000000/pageSize) + 1 }

// merge gives, for entries in order on a database of size pages, the last
// version of each page, by number, and the size after them.
func merge(entries []Entry, size uint32) ([]patch, uint32, error) {
	pages := make(map[uint32]patch, len(entries[0].Pages))
	for i := range entries {
		e := &entries[i]
		if e.DBPages < size {
			for n := range pages {
				if n > e.DBPages {
					delete(pages, n)
				}
			}
		}
		for k, p := range e.Pages {
			pages[p.Number] = patch{p.Number, e, k}
		}
		if err := fillHoles(pages, e, size); err != nil {
			return nil, 0, err
		}
		size = e.DBPages
	}
	out := make([]patch, 0, len(pages))
	for _, p := range pages {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b patch) int { return int(int64(a.number) - int64(b.number)) })
	return out, size, nil
}

// fillHoles makes pages by which e lets the database grow, without giving them,
// zero: what was there before a cut must not come back.
func fillHoles(pages map[uint32]patch, e *Entry, size uint32) error {
	if e.DBPages <= size {
		return nil
	}
	first, _ := slices.BinarySearchFunc(e.Pages, size+1, func(p EntryPage, n uint32) int { return int(int64(p.Number) - int64(n)) })
	given := e.Pages[first:]
	holes := int64(e.DBPages-size) - int64(len(given))
	if holes == 0 {
		return nil
	}
	if holes > maxHoles {
		return fmt.Errorf("%w: %s lets the database grow from %d to %d pages and gives %d", ErrBadEntry, e.Position, size, e.DBPages, len(given))
	}
	lock := lockPage(e.PageSize)
	for n := uint64(size) + 1; n <= uint64(e.DBPages); n++ {
		if len(given) > 0 && uint64(given[0].Number) == n {
			given = given[1:]
		} else if uint32(n) != lock {
			pages[uint32(n)] = patch{number: uint32(n)}
		}
	}
	return nil
}
