package replica

import (
	"encoding/binary"
	"fmt"
	"time"

	"domicile/dataplane/node/store"
)

// An entry's payload: position, chain, the mark that it follows, page size,
// pages of the database after it, number of pages, and each page: its number
// and its content.
const entryHead = 16 + 8 + 24 + 4 + 4 + 4

// maxPageSize is SQLite's.
const maxPageSize = 64 << 10

// entrySize is the length of a commit's payload.
func entrySize(c *store.Commit) int64 {
	return entryHead + int64(len(c.Pages))*int64(4+c.PageSize)
}

// encodeEntry copies a commit's pages, once.
func encodeEntry(c *store.Commit, read func(i int, page []byte) error) (*entry, error) {
	b := make([]byte, 0, entrySize(c))
	b = appendMark(b, store.Mark{Position: c.Position, Chain: c.Chain})
	b = appendMark(b, c.Prev)
	b = binary.LittleEndian.AppendUint32(b, uint32(c.PageSize))
	b = binary.LittleEndian.AppendUint32(b, c.DBPages)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(c.Pages)))
	for i := range c.Pages {
		b = binary.LittleEndian.AppendUint32(b, c.Pages[i].Number)
		at := len(b)
		b = b[:at+c.PageSize]
		if err := read(i, b[at:]); err != nil {
			return nil, err
		}
	}
	return &entry{at: time.Now(), pos: c.Position, chain: c.Chain, previous: c.Prev, payload: b}, nil
}

// decodeEntry gives the entry in a payload, which it refers to. The store
// verifies the content.
func decodeEntry(p []byte) (e store.Entry, err error) {
	f := fields{b: p}
	m := f.mark()
	e = store.Entry{Position: m.Position, Chain: m.Chain, Prev: f.mark()}
	size, pages, n := f.u32(), f.u32(), f.u32()
	if f.bad || size == 0 || size > maxPageSize || int64(n)*int64(4+size) != int64(len(f.b)) {
		return e, fmt.Errorf("%w: an entry of %d bytes for %d pages of %d", errFrame, len(p), n, size)
	}
	e.PageSize, e.DBPages = int(size), pages
	e.Pages = make([]store.EntryPage, n)
	for i := range e.Pages {
		e.Pages[i] = store.EntryPage{Number: f.u32(), Data: f.take(int(size))}
	}
	return e, f.end(frameEntry)
}
