package store

import (
	"fmt"
	"path/filepath"
	"strconv"

	"domicile/internal/durable"
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
// does not notice that it changes the schema: it is used for nothing else, and
// closed when the unit is promoted. All pages are put by one statement, which
// is the transaction: SQLite looks at the schema when a statement begins, which
// must not be while only some of the pages are in their place; and at the end
// of one within a transaction it takes the file's length from its first page,
// and cuts nothing off then.
type injector struct {
	r          *raw
	insert     *rawStmt
	page       uintptr // memory for one page, SQLite's side
	pageSize   int
	pages      uint32 // of the database
	autoVacuum bool
	frames     int // in the WAL after the last commit

	patches []patch // what insert puts; the cut of the file comes after them
	cut     uint32  // first page to go, 0: none
	last    func() error
	given   bool   // last was asked and did not refuse
	schema  uint32 // SQLite's number of the schema, as of the last first page
	err     error  // why a patch could not be had
}

// insertPages puts the patches ?1 of them, in order.
const insertPages = `WITH RECURSIVE n(i) AS (VALUES(0) UNION ALL SELECT i+1 FROM n WHERE i+1<?)
	INSERT INTO sqlite_dbpage(pgno, data) SELECT feed_number(i), feed_page(i) FROM n`

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
	if err := j.r.installFeed(j.number, j.content); err != nil {
		return err
	}
	var err error
	if j.insert, _, err = j.r.prepare(insertPages, true); err != nil {
		return err
	}
	j.page, err = j.r.copyIn(j.pageSize)
	return err
}

// close closes the connection; with cleanUp SQLite removes the WAL if this is
// the last one.
func (j *injector) close(cleanUp bool) {
	if j.insert != nil {
		j.insert.finalize()
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
// transaction. Before the last page is given beforeCommit is asked, and may
// refuse. It gives the frames in the WAL after it. made reports whether the
// commit may have been made although it failed.
func (j *injector) put(patches []patch, size uint32, beforeCommit func() error) (frames int, made bool, err error) {
	j.frames, j.patches, j.cut, j.last, j.given, j.err = 0, patches, 0, beforeCommit, false, nil
	schema := j.schema
	if size < j.pages {
		j.cut = size + 1
	}
	if err = j.insert.bind(1, IntValue(j.rows())); err == nil {
		err = j.insert.drain()
	}
	if j.err != nil {
		err = j.err
	}
	j.patches, j.last = nil, nil
	if err == nil && j.frames == 0 {
		err = fmt.Errorf("%w: SQLite committed nothing", ErrIO)
	}
	if err != nil {
		return 0, j.given, err
	}
	j.pages = size
	if j.schema != schema {
		// SQLite will read the schema anew, and still has pages of it as they
		// were parsed before they were changed.
		j.r.releaseMemory()
	}
	return j.frames, true, nil
}

// rows that the statement puts.
func (j *injector) rows() int64 {
	n := int64(len(j.patches))
	if j.cut != 0 {
		n++
	}
	return n
}

// number of the page of row i.
func (j *injector) number(i int64) int64 {
	if i >= int64(len(j.patches)) {
		return int64(j.cut)
	}
	return int64(j.patches[i].number)
}

// content of the page of row i; none: the file ends before it.
func (j *injector) content(i int64) (mem uintptr, n int, err error) {
	if i == j.rows()-1 {
		if j.err = j.last(); j.err != nil {
			return 0, 0, j.err
		}
		j.given = true
	}
	if i >= int64(len(j.patches)) {
		return 0, 0, nil
	}
	b := memory(j.page, j.pageSize)
	if p := &j.patches[i]; p.entry == nil {
		clear(b)
	} else if err := p.entry.content(p.index, b); err != nil {
		j.err = err
		return 0, 0, err
	}
	if j.patches[i].number == 1 {
		j.schema = be32(b[40:])
	}
	return j.page, j.pageSize, nil
}

// syncApplied makes the side record durable.
func (u *Unit) syncApplied() error {
	if err := u.s.fault(OpSync, u.name); err != nil {
		return err
	}
	if u.copy.newFile {
		if err := durable.SyncDir(filepath.Dir(u.path)); err != nil {
			return err
		}
		u.copy.newFile = false
	}
	return u.copy.applied.sync()
}
