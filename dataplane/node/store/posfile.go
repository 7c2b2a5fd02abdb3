package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
)

// posRecord is a unit's .pos file: its position at a frame of its WAL. It is
// made durable before SQLite may start the WAL over, because the commits in
// the old generation can no longer be counted then.
type posRecord struct {
	Position     Position
	Chain        uint64
	Salt1, Salt2 uint32 // of the WAL's generation
	Frames       uint32 // of it that Position covers
	// Clean: all of the WAL was in the database file and the WAL may be gone;
	// a new one begins with random salts.
	Clean bool
}

const (
	posMagic = "DMPOS\x00\x00\x01"
	posSize  = 52
)

func (p *posRecord) encode() []byte {
	b := make([]byte, posSize)
	le := binary.LittleEndian
	copy(b, posMagic)
	le.PutUint64(b[8:], p.Position.Epoch)
	le.PutUint64(b[16:], p.Position.Seq)
	le.PutUint64(b[24:], p.Chain)
	le.PutUint32(b[32:], p.Salt1)
	le.PutUint32(b[36:], p.Salt2)
	le.PutUint32(b[40:], p.Frames)
	if p.Clean {
		b[44] = 1
	}
	le.PutUint32(b[48:], crc32.Checksum(b[:48], castagnoli))
	return b
}

func decodePos(b []byte) (*posRecord, error) {
	le := binary.LittleEndian
	if len(b) != posSize || string(b[:8]) != posMagic || le.Uint32(b[48:]) != crc32.Checksum(b[:48], castagnoli) {
		return nil, errors.New("position record does not verify")
	}
	return &posRecord{
		Position: Position{Epoch: le.Uint64(b[8:]), Seq: le.Uint64(b[16:])},
		Chain:    le.Uint64(b[24:]),
		Salt1:    le.Uint32(b[32:]), Salt2: le.Uint32(b[36:]), Frames: le.Uint32(b[40:]),
		Clean: b[44] == 1,
	}, nil
}

// readPos gives nil where there is no record yet.
func readPos(path string) (*posRecord, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decodePos(b)
}

// foreignJump is added to a position when commits cannot be counted because
// another program has checkpointed the unit's WAL: a position must never go
// back to one that was acknowledged for other content.
const foreignJump = 1 << 32

// recovered is what a unit's files say after a stop of any kind.
type recovered struct {
	pos     Position
	chain   uint64
	tail    walTail
	foreign bool // another program wrote to the files
	rewrite bool // the record must be written anew before the next write

	counted int // commits in the WAL that the record does not cover
	begin   int // frames before the last of them
}

// recoverPosition counts the commits in the WAL on from the record. wal is
// nil where there is no file; rec nil where no record was written yet.
func recoverPosition(rec *posRecord, epoch uint64, wal io.ReaderAt) (r recovered, err error) {
	r.pos = Position{Epoch: epoch}
	if rec != nil {
		r.pos, r.chain = rec.Position, rec.Chain
	}
	valid := false
	if wal != nil {
		if valid, err = r.tail.restart(wal); err != nil {
			return r, fmt.Errorf("read the WAL: %w", err)
		}
	}
	skip, end := 0, 0
	switch h := r.tail.header; {
	case !valid:
		r.foreign = rec != nil && !rec.Clean
	case rec != nil && rec.Salt1 == h.salt1 && rec.Salt2 == h.salt2:
		skip = int(rec.Frames)
	case rec != nil && !rec.Clean:
		r.foreign = h.salt1 != rec.Salt1+1
	default:
		r.foreign = h.generation != 0
	}
	if r.foreign {
		r.pos.Seq += foreignJump
	}
	if valid {
		err = r.tail.read(wal, -1, make([]byte, walChunk), func(c *Commit) error {
			r.begin, end = end, c.frames
			if c.frames <= skip {
				return nil
			}
			r.counted++
			r.pos.Seq++
			c.Position = r.pos
			r.chain = chainAfter(r.chain, c)
			return nil
		})
	}
	// A WAL without commits may be begun again under any salts.
	r.rewrite = r.foreign || (r.tail.frames == 0 && rec != nil && !rec.Clean)
	return r, err
}
