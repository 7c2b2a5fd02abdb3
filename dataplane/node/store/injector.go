package store

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// copyState is what a unit has more while it is a copy.
type copyState struct {
	inj     *injector
	applied *applyFile
	empty   bool // holds nothing yet
	newFile bool // the side record's name is not durable yet
}

// restored notes what recovery found.
func (k *copyState) restored(rec *stored, r *recovered) {
	k.empty = rec.Empty
	k.close() // its number may be another one now
}

func (k *copyState) close() {
	if k.applied != nil {
		k.applied.f.Close()
		k.applied = nil
	}
}

// openApplied opens the side record; under the writer.
func (u *Unit) openApplied() (err error) {
	if u.copy.applied == nil {
		u.copy.applied, err = openApplyFile(applyPath(u.path), Mark{u.commits.pos, u.commits.chain})
		u.copy.newFile = true
	}
	return err
}

// injector is the connection that puts pages into a copy, through SQLite's
// sqlite_dbpage table. It is not defensive, which that table asks for, and it
// keeps the schema that it has once read: it is used for nothing else, and
// closed when the unit is promoted.
type injector struct {
	r                               *raw
	begin, insert, commit, rollback *rawStmt
	page                            uintptr // memory for one page, SQLite's side
	pageSize                        int
	pages                           uint32 // of the database
	autoVacuum                      bool
	frames                          int // in the WAL after the last commit
}

// openInjector opens it if need be; under the writer.
func (u *Unit) openInjector() error {
	if u.copy.inj != nil {
		return nil
	}
	r, err := openRaw(u.path, false)
	if err != nil {
		return u.openError(err)
	}
	j := &injector{r: r}
	if err := j.setUp(); err != nil {
		j.close(false)
		return u.openError(err)
	}
	u.copy.inj = j
	return nil
}

func (j *injector) setUp() error {
	for _, set := range [...][2]int32{{cfgNoCkptOnClose, 1}, {cfgDefensive, 0}, {cfgTrustedSchema, 0}, {cfgLoadExtension, 0}} {
		if err := j.r.config(set[0], set[1]); err != nil {
			return err
		}
	}
	if err := j.r.exec("PRAGMA synchronous=NORMAL; PRAGMA journal_size_limit=16777216"); err != nil {
		return err
	}
	j.r.committed = func(frames int) { j.frames = frames }
	j.r.installCommitHook()
	var num [3]int64
	for i, pragma := range []string{"page_size", "page_count", "auto_vacuum"} {
		text, err := j.r.queryText("PRAGMA " + pragma)
		if err == nil {
			num[i], err = strconv.ParseInt(text, 10, 64)
		}
		if err != nil {
			return err
		}
	}
	j.pageSize, j.pages, j.autoVacuum = int(num[0]), uint32(num[1]), num[2] != 0
	for _, s := range []struct {
		to  **rawStmt
		sql string
	}{
		{&j.begin, "BEGIN IMMEDIATE"}, {&j.commit, "COMMIT"}, {&j.rollback, "ROLLBACK"},
		{&j.insert, "INSERT INTO sqlite_dbpage(pgno, data) VALUES(?, ?)"},
	} {
		h, _, err := j.r.prepare(s.sql, true)
		if err != nil {
			return err
		}
		*s.to = h
	}
	var err error
	j.page, err = j.r.copyIn(j.pageSize)
	return err
}

// close closes the connection; with cleanUp SQLite removes the WAL if this is
// the last one.
func (j *injector) close(cleanUp bool) {
	for _, s := range []*rawStmt{j.begin, j.insert, j.commit, j.rollback} {
		if s != nil {
			s.finalize()
		}
	}
	if j.page != 0 {
		j.r.free(j.page)
	}
	if cleanUp {
		j.r.config(cfgNoCkptOnClose, 0)
	}
	j.r.close()
}

// put changes the database to what patches say, of the given size, in one
// transaction. beforeCommit may refuse. It gives the frames in the WAL after
// it. made reports whether the commit may have been made although it failed.
func (j *injector) put(patches []patch, size uint32, beforeCommit func() error) (frames int, made bool, err error) {
	if err := j.begin.drain(); err != nil {
		return 0, false, err
	}
	j.frames = 0
	err = j.write(patches)
	if err == nil && size < j.pages {
		err = j.row(size+1, 0)
	}
	if err == nil {
		err = beforeCommit()
	}
	if err == nil {
		made = true
		err = j.commit.drain()
	}
	if err != nil {
		if !j.r.autocommit() {
			j.rollback.drain()
		}
		return 0, made, err
	}
	if j.frames == 0 {
		return 0, true, fmt.Errorf("%w: SQLite committed nothing", ErrIO)
	}
	j.pages = size
	return j.frames, true, nil
}

func (j *injector) write(patches []patch) error {
	mem := memory(j.page, j.pageSize)
	for i := range patches {
		p := &patches[i]
		if p.entry == nil {
			clear(mem)
		} else if err := p.entry.content(p.index, mem); err != nil {
			return err
		}
		if err := j.row(p.number, j.page); err != nil {
			return err
		}
	}
	return nil
}

// row inserts one row: a page, or without one the cut of the file before it.
func (j *injector) row(number uint32, page uintptr) error {
	err := j.insert.bind(1, IntValue(int64(number)))
	if err == nil && page != 0 {
		err = j.insert.bindPage(2, page, j.pageSize)
	} else if err == nil {
		err = j.insert.bind(2, Value{})
	}
	if err != nil {
		return err
	}
	return j.insert.drain()
}

// syncApplied makes the side record durable.
func (u *Unit) syncApplied() error {
	if err := u.s.fault(OpSync, u.name); err != nil {
		return err
	}
	if u.copy.newFile {
		if err := syncDir(filepath.Dir(u.path)); err != nil {
			return err
		}
		u.copy.newFile = false
	}
	return u.copy.applied.sync()
}
