package store

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// Reading a WAL, whose format is described at sqlite.org/fileformat2.html#walformat.
// A frame counts only if its salts are the header's and its checksum goes on
// from the frame before: what a rolled-back transaction or an earlier
// generation of the file left behind never passes.

const (
	walHeaderSize   = 32
	frameHeaderSize = 24
	walMagic        = 0x377f0682 // the lowest bit set: checksums over big-endian words
	walVersion      = 3007000
	walChunk        = 64 << 10 // read at once, at least one frame
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errWALBroken: the frames that SQLite says are there do not verify.
var errWALBroken = errors.New("the WAL does not verify")

type walHeader struct {
	bigEndian    bool
	pageSize     int
	generation   uint32 // SQLite's checkpoint sequence number, 0 in a new file
	salt1, salt2 uint32
	sum          walSum
}

// walSum is SQLite's running checksum.
type walSum struct{ s1, s2 uint32 }

func (s walSum) add(b []byte, bigEndian bool) walSum {
	s1, s2 := s.s1, s.s2
	if bigEndian {
		for ; len(b) >= 8; b = b[8:] {
			x := binary.BigEndian.Uint64(b)
			s1 += uint32(x>>32) + s2
			s2 += uint32(x) + s1
		}
		return walSum{s1, s2}
	}
	for ; len(b) >= 16; b = b[16:] {
		x, y := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		s1 += uint32(x) + s2
		s2 += uint32(x>>32) + s1
		s1 += uint32(y) + s2
		s2 += uint32(y>>32) + s1
	}
	if len(b) >= 8 {
		x := binary.LittleEndian.Uint64(b)
		s1 += uint32(x) + s2
		s2 += uint32(x>>32) + s1
	}
	return walSum{s1, s2}
}

// readWALHeader reports false where there is no valid header: SQLite then
// takes the WAL for empty.
func readWALHeader(f io.ReaderAt) (h walHeader, ok bool, err error) {
	var b [walHeaderSize]byte
	if n, err := f.ReadAt(b[:], 0); n < len(b) {
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = nil
		}
		return h, false, err
	}
	h, ok = parseWALHeader(b[:])
	return h, ok, nil
}

func parseWALHeader(b []byte) (h walHeader, ok bool) {
	be := binary.BigEndian
	magic := be.Uint32(b)
	h = walHeader{
		bigEndian:  magic&1 == 1,
		pageSize:   int(be.Uint32(b[8:])),
		generation: be.Uint32(b[12:]),
		salt1:      be.Uint32(b[16:]),
		salt2:      be.Uint32(b[20:]),
	}
	if magic&^1 != walMagic || be.Uint32(b[4:]) != walVersion || !validPageSize(h.pageSize) {
		return h, false
	}
	h.sum = walSum{}.add(b[:24], h.bigEndian)
	return h, h.sum == walSum{be.Uint32(b[24:]), be.Uint32(b[28:])}
}

func validPageSize(n int) bool { return n >= 512 && n <= 65536 && n&(n-1) == 0 }

// Page is a page that a commit has changed: where its content is, and the
// CRC-32C of that.
type Page struct {
	Number uint32
	Frame  uint32 // in the WAL, from 1
	CRC    uint32
}

// Commit is one captured commit.
type Commit struct {
	Position Position
	Prev     Mark   // what it follows
	Chain    uint64 // digest of the unit's history up to this commit
	PageSize int
	DBPages  uint32 // pages of the database after it
	Pages    []Page // the last version of each changed page, by number
	frames   int    // frames in the WAL up to its end
}

// Bytes of the changed pages.
func (c *Commit) Bytes() int64 { return int64(len(c.Pages)) * int64(c.PageSize) }

// walTail is how far a WAL has been read: up to the end of a commit.
type walTail struct {
	header walHeader
	known  bool // header was read
	frames int
	sum    walSum
	pages  []Page // scratch
}

func (w *walTail) frameSize() int64 { return frameHeaderSize + int64(w.header.pageSize) }

// offset of frame n, counted from 1.
func (w *walTail) offset(n int) int64 { return walHeaderSize + int64(n-1)*w.frameSize() }

// restart reads the header anew and goes to before the first frame.
func (w *walTail) restart(f io.ReaderAt) (ok bool, err error) {
	h, ok, err := readWALHeader(f)
	if err != nil || !ok {
		return false, err
	}
	w.header, w.known, w.frames, w.sum = h, true, 0, h.sum
	return true, nil
}

// read gives the commits after the tail to emit, and moves the tail past each.
// With upTo >= 0 there must be valid frames up to that number and the last one
// must end a commit (errWALBroken otherwise). With upTo < 0 it reads as far as
// frames verify. The commit that emit gets is reused.
func (w *walTail) read(f io.ReaderAt, upTo int, buf []byte, emit func(*Commit) error) error {
	fs := int(w.frameSize())
	if len(buf) < fs {
		buf = make([]byte, fs)
	}
	pages, sum, n := w.pages[:0], w.sum, w.frames
	var c Commit
	for upTo < 0 || n < upTo {
		want := len(buf) / fs
		if upTo >= 0 {
			want = min(want, upTo-n)
		}
		got, err := f.ReadAt(buf[:want*fs], w.offset(n+1))
		if err != nil && err != io.EOF {
			return err
		}
		full := got / fs
		for i := range full {
			frame := buf[i*fs : (i+1)*fs]
			p, dbPages, next, ok := w.header.verify(frame, sum)
			if !ok {
				return w.end(upTo, n, pages)
			}
			sum, n = next, n+1
			pages = append(pages, Page{Number: p, Frame: uint32(n), CRC: crc32.Checksum(frame[frameHeaderSize:], castagnoli)})
			if dbPages == 0 {
				continue
			}
			c = Commit{PageSize: w.header.pageSize, DBPages: dbPages, Pages: lastVersions(pages, dbPages), frames: n}
			if err := emit(&c); err != nil {
				return err
			}
			w.frames, w.sum, pages = n, sum, pages[:0]
		}
		if full < want {
			return w.end(upTo, n, pages)
		}
	}
	return w.end(upTo, n, pages)
}

// end tells whether reading may stop at frame n.
func (w *walTail) end(upTo, n int, scratch []Page) error {
	if cap(scratch) <= 1024 {
		w.pages = scratch[:0]
	}
	if upTo >= 0 && w.frames != upTo {
		return fmt.Errorf("%w: %d frames expected, commits end at %d, valid frames at %d", errWALBroken, upTo, w.frames, n)
	}
	return nil
}

// verify checks a frame against the checksum of the one before.
func (h *walHeader) verify(frame []byte, sum walSum) (page, dbPages uint32, next walSum, ok bool) {
	be := binary.BigEndian
	page, dbPages = be.Uint32(frame), be.Uint32(frame[4:])
	if page == 0 || be.Uint32(frame[8:]) != h.salt1 || be.Uint32(frame[12:]) != h.salt2 {
		return 0, 0, sum, false
	}
	next = sum.add(frame[:8], h.bigEndian).add(frame[frameHeaderSize:], h.bigEndian)
	return page, dbPages, next, next == walSum{be.Uint32(frame[16:]), be.Uint32(frame[20:])}
}

// lastVersions keeps, of each page, the version written last, without pages
// beyond the database's end, ordered by number. It works in place.
func lastVersions(pages []Page, dbPages uint32) []Page {
	if len(pages) > 1 {
		slices.SortFunc(pages, func(a, b Page) int {
			return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Frame, b.Frame))
		})
	}
	out := pages[:0]
	for i, p := range pages {
		if p.Number > dbPages || (i+1 < len(pages) && pages[i+1].Number == p.Number) {
			continue
		}
		out = append(out, p)
	}
	return out
}

// chainAfter is the digest of a history that c continues: the first 64 bits of
// a SHA-256. It depends on what was committed, not on when or where.
func chainAfter(prev uint64, c *Commit) uint64 {
	var b [44]byte
	le := binary.LittleEndian
	var body uint32
	for _, p := range c.Pages {
		le.PutUint32(b[0:], p.Number)
		le.PutUint32(b[4:], p.CRC)
		body = crc32.Update(body, castagnoli, b[:8])
	}
	le.PutUint64(b[0:], prev)
	le.PutUint64(b[8:], c.Position.Epoch)
	le.PutUint64(b[16:], c.Position.Seq)
	le.PutUint32(b[24:], uint32(c.PageSize))
	le.PutUint32(b[28:], c.DBPages)
	le.PutUint64(b[32:], uint64(len(c.Pages)))
	le.PutUint32(b[40:], body)
	sum := sha256.Sum256(b[:])
	return le.Uint64(sum[:])
}
