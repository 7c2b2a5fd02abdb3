package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
)

// A frame is
//
//	length  u32   of the payload
//	type    u8
//	unit    u32   the unit's number on this connection, chosen by the follower; 0: none
//	payload
//	CRC-32C u32   of everything before it
//
// little-endian throughout. Who receives a frame that is too long for its type,
// of an unknown type, or whose sum differs, closes the connection.

type frameType uint8

// From the follower.
const (
	frameFollow   frameType = 1 // a unit, and where the follower stands
	frameUnfollow frameType = 2
	frameAck      frameType = 3 // the position that is on disk
	frameTook     frameType = 4 // bytes of the image that were written
	framePromised frameType = 5
	// frameWrote: the position up to which entries are written beside an image; they
	// count for nothing yet.
	frameWrote frameType = 6
)

// From the source.
const (
	frameStart   frameType = 17 // how the unit goes on: from where it stands, by an image, or not yet
	frameEntry   frameType = 18 // a commit
	frameImage   frameType = 19 // an image begins
	frameChunk   frameType = 20
	frameImaged  frameType = 21 // an image has ended: its SHA-256, and the position that makes it whole
	frameEnd     frameType = 22 // the unit is fed no longer, and why
	framePromise frameType = 23
)

// From either.
const frameBeat frameType = 32

const (
	frameHead = 9
	frameTail = 4
	// maxEntry bounds an entry's payload. A larger commit is not shipped: the
	// followers take an image.
	maxEntry  = 8 << 20
	chunkSize = 256 << 10
	smallest  = 64 << 10 // read at once, before a length is believed
	maxNames  = 4 << 20
	maxSmall  = 1 << 10
	// maxBranches bounds a unit's lineage on the wire: the newest are sent.
	maxBranches = 256
)

// maxPayload bounds what is received; 0: no such type.
func maxPayload(t frameType) int {
	switch t {
	case frameEntry:
		return maxEntry
	case frameChunk:
		return chunkSize
	case framePromise, framePromised:
		return maxNames
	case frameStart, frameImage:
		return maxSmall + maxBranches*16
	case frameFollow, frameUnfollow, frameAck, frameTook, frameWrote, frameImaged, frameEnd, frameBeat:
		return maxSmall
	}
	return 0
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errFrame: what came is not a frame. The connection is of no use any more.
var errFrame = errors.New("bad frame")

type frame struct {
	kind    frameType
	unit    uint32
	payload []byte  // the receiver's own
	chunk   *[]byte // that holds it; nil: none that is to be given back
}

// appendFrame adds a frame to b.
func appendFrame(b []byte, t frameType, unit uint32, payload ...[]byte) []byte {
	at, n := len(b), 0
	for _, p := range payload {
		n += len(p)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	b = append(b, byte(t))
	b = binary.LittleEndian.AppendUint32(b, unit)
	for _, p := range payload {
		b = append(b, p...)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[at:], castagnoli))
}

// readFrame reads the next frame; io.EOF only where nothing of it was there.
func readFrame(r io.Reader) (frame, error) {
	var h [frameHead]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return frame{}, err
	}
	n := int(binary.LittleEndian.Uint32(h[:]))
	f := frame{kind: frameType(h[4]), unit: binary.LittleEndian.Uint32(h[5:])}
	if limit := maxPayload(f.kind); limit == 0 {
		return frame{}, fmt.Errorf("%w: unknown type %d", errFrame, f.kind)
	} else if n > limit {
		return frame{}, fmt.Errorf("%w: %d bytes in one of type %d", errFrame, n, f.kind)
	}
	body, err := f.body(r, n+frameTail)
	if err != nil {
		return frame{}, err
	}
	sum := crc32.Update(crc32.Checksum(h[:], castagnoli), castagnoli, body[:n])
	if binary.LittleEndian.Uint32(body[n:]) != sum {
		return frame{}, fmt.Errorf("%w: the sum of one of type %d differs", errFrame, f.kind)
	}
	f.payload = body[:n:n]
	return f, nil
}

// chunks are buffers of image chunks, of which many come one after another.
var chunks = sync.Pool{New: func() any { b := make([]byte, chunkSize+frameTail); return &b }}

// body reads the n bytes of a frame: of an image's into a buffer of its own, which done
// gives back.
func (f *frame) body(r io.Reader, n int) ([]byte, error) {
	if f.kind != frameChunk {
		return readSized(r, n)
	}
	f.chunk = chunks.Get().(*[]byte)
	b := (*f.chunk)[:n]
	if _, err := io.ReadFull(r, b); err != nil {
		f.done()
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return b, nil
}

// done gives the frame's buffer back: nobody reads the payload any more.
func (f *frame) done() {
	if f.chunk != nil {
		chunks.Put(f.chunk)
	}
	*f = frame{}
}

// readSized reads n bytes; memory grows with what has arrived, so that a length
// that lies costs nothing.
func readSized(r io.Reader, n int) ([]byte, error) {
	b := make([]byte, 0, min(n, smallest))
	for len(b) < n {
		at := len(b)
		if at == cap(b) {
			b = append(make([]byte, 0, min(n, 4*cap(b))), b...)
		}
		b = b[:min(n, cap(b))]
		if _, err := io.ReadFull(r, b[at:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return b, nil
}

// fields reads a payload; the first that is missing makes it bad for good.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) take(n int) []byte {
	if f.bad || n < 0 || n > len(f.b) {
		f.bad, f.b = true, nil
		return nil
	}
	p := f.b[:n]
	f.b = f.b[n:]
	return p
}

func (f *fields) u8() byte {
	if p := f.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (f *fields) u32() uint32 {
	if p := f.take(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

func (f *fields) u64() uint64 {
	if p := f.take(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

// end checks that nothing is missing and nothing is left.
func (f *fields) end(t frameType) error {
	if f.bad || len(f.b) != 0 {
		return fmt.Errorf("%w: the content of one of type %d", errFrame, t)
	}
	return nil
}
