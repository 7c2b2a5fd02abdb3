package proto

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"time"

	"github.com/klauspost/compress/zstd"

	"domicile/fsm"
	"domicile/proto/internal/pb"
)

// The stream from a server of the directory to its followers is frames: Hello,
// then either Begin, Chunks and End (the whole directory) or nothing, then
// Deltas and Heartbeats. A frame is its length, 4 bytes little-endian, and a
// pb.Frame.
const (
	// StreamVersion is the version of the stream that this binary writes and
	// the newest that it reads. 1: the first.
	StreamVersion = 1
	// MaxFrame is the greatest size of a frame, and of a Chunk's events before
	// compression, in bytes.
	MaxFrame = 16 << 20
)

// ErrFrame is returned for bytes that are no frame of this version.
var ErrFrame = errors.New("the stream of the directory is garbled")

// Frame is a frame of the stream: one of the types below.
type Frame interface{ frame() }

// Hello is the first frame: whose directory this is. A follower that holds a
// copy of another authority, or of a later history, does not go on.
type Hello struct {
	Version   uint32
	Authority string
	History   uint64
	// Age is how old the server's own copy may be: the time since its leader's last
	// word. In whole milliseconds; 0 on the leader, and from servers that do not tell.
	Age time.Duration
}

// Begin starts the whole directory at Revision: what the follower holds is
// replaced once End has come.
type Begin struct{ Revision fsm.Revision }

// Chunk is a part of the whole directory.
type Chunk struct{ Events []fsm.Event }

// End ends the whole directory. The reader has compared Count and Checksum
// with what came since Begin.
type End struct {
	Revision fsm.Revision
	Count    uint64
	Checksum uint32
}

// Delta takes a follower from Prev to Revision.
type Delta struct {
	Prev     fsm.Revision
	Revision fsm.Revision
	Events   []fsm.Event
}

// Heartbeat tells the revision that the server has sent up to, once a second.
type Heartbeat struct {
	Revision fsm.Revision
	Age      time.Duration // as in Hello, now
}

func (*Hello) frame()     {}
func (*Begin) frame()     {}
func (*Chunk) frame()     {}
func (*End) frame()       {}
func (*Delta) frame()     {}
func (*Heartbeat) frame() {}

// EncodeFrame gives the bytes of a frame with its length in front, which may
// be written to any number of followers. It encodes no Chunk: those come from
// StreamSnapshot.
func EncodeFrame(f Frame) ([]byte, error) {
	var m pb.Frame
	switch f := f.(type) {
	case *Hello:
		m.Frame = &pb.Frame_Hello{Hello: &pb.Hello{Version: f.Version, Authority: f.Authority, History: f.History, AgeMs: millis(f.Age)}}
	case *Begin:
		m.Frame = &pb.Frame_Begin{Begin: &pb.Begin{Revision: uint64(f.Revision)}}
	case *End:
		m.Frame = &pb.Frame_End{End: &pb.End{Revision: uint64(f.Revision), Count: f.Count, Checksum: f.Checksum}}
	case *Delta:
		m.Frame = &pb.Frame_Delta{Delta: &pb.Delta{
			Prev: uint64(f.Prev), Revision: uint64(f.Revision),
			Events: list(f.Events, func(e fsm.Event) *pb.Event { return putEvent(new(pb.Event), &e) }),
		}}
	case *Heartbeat:
		m.Frame = &pb.Frame_Heartbeat{Heartbeat: &pb.Heartbeat{Revision: uint64(f.Revision), AgeMs: millis(f.Age)}}
	default:
		return nil, fmt.Errorf("a %T is not encoded on its own", f)
	}
	return encodeFrame(&m)
}

func encodeFrame(m *pb.Frame) ([]byte, error) {
	size := m.SizeVT()
	if size > MaxFrame {
		return nil, fmt.Errorf("a frame of %d bytes, more than %d", size, MaxFrame)
	}
	b := make([]byte, 4+size)
	binary.LittleEndian.PutUint32(b, uint32(size))
	_, err := m.MarshalToSizedBufferVT(b[4:])
	return b, err
}

// FrameReader reads a stream. It is used by one goroutine.
type FrameReader struct {
	r   *bufio.Reader
	buf []byte
	dec *zstd.Decoder

	in       interner
	events   *pb.Events
	plain    []byte
	whole    bool // between Begin and End
	revision uint64
	count    uint64
	sum      uint32
}

// NewFrameReader reads a stream from r. Close frees what it holds.
func NewFrameReader(r io.Reader) (*FrameReader, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxFrame))
	if err != nil {
		return nil, err
	}
	return &FrameReader{r: bufio.NewReaderSize(r, 64<<10), dec: dec, events: pb.EventsFromVTPool()}, nil
}

// Close frees what the reader holds; it does not close the stream.
func (fr *FrameReader) Close() { fr.dec.Close() }

// ReadFrame gives the next frame. It returns io.EOF where the stream ends
// between two frames, and an error that wraps ErrFrame for what is no frame,
// stands where it may not, or does not add up: then the stream is of no more
// use.
func (fr *FrameReader) ReadFrame() (Frame, error) {
	var head [4]byte
	if _, err := io.ReadFull(fr.r, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.LittleEndian.Uint32(head[:]))
	if n > MaxFrame {
		return nil, fmt.Errorf("%w: a frame of %d bytes", ErrFrame, n)
	}
	var err error
	if fr.buf, err = readN(fr.r, fr.buf, n); err != nil {
		return nil, err
	}
	var m pb.Frame
	if err := m.UnmarshalVTUnsafe(fr.buf); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	f, err := fr.frame(&m)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	if cap(fr.buf) > 4<<20 {
		fr.buf = nil
	}
	return f, nil
}

func (fr *FrameReader) frame(m *pb.Frame) (Frame, error) {
	if _, chunk := m.Frame.(*pb.Frame_Chunk); fr.whole && !chunk {
		if _, end := m.Frame.(*pb.Frame_End); !end {
			return nil, errors.New("another frame inside of a whole directory")
		}
	}
	switch x := m.Frame.(type) {
	case *pb.Frame_Hello:
		return fr.hello(x.Hello)
	case *pb.Frame_Begin:
		fr.whole, fr.revision, fr.count, fr.sum = true, x.Begin.Revision, 0, 0
		return &Begin{Revision: fsm.Revision(x.Begin.Revision)}, nil
	case *pb.Frame_Chunk:
		return fr.chunk(x.Chunk.Events)
	case *pb.Frame_End:
		e := x.End
		if !fr.whole || e.Revision != fr.revision || e.Count != fr.count || e.Checksum != fr.sum {
			return nil, errors.New("the end of a whole directory does not fit what came before it")
		}
		fr.whole = false
		return &End{Revision: fsm.Revision(e.Revision), Count: e.Count, Checksum: e.Checksum}, nil
	case *pb.Frame_Delta:
		d := x.Delta
		events, err := toEvents(d.Events, &fr.in)
		return &Delta{Prev: fsm.Revision(d.Prev), Revision: fsm.Revision(d.Revision), Events: events}, err
	case *pb.Frame_Heartbeat:
		return &Heartbeat{Revision: fsm.Revision(x.Heartbeat.Revision), Age: duration(x.Heartbeat.AgeMs)}, nil
	}
	return nil, errors.New("a frame of a kind that this version does not know")
}

func (fr *FrameReader) hello(h *pb.Hello) (Frame, error) {
	if h.Version != StreamVersion {
		return nil, fmt.Errorf("the stream is of version %d and this binary reads %d", h.Version, StreamVersion)
	}
	return &Hello{Version: h.Version, Authority: fr.in.own(h.Authority), History: h.History, Age: duration(h.AgeMs)}, nil
}

// millis gives a duration in milliseconds, none below 0.
func millis(d time.Duration) uint64 { return uint64(max(0, d).Milliseconds()) }

// duration is the other way; what is too long becomes the longest.
func duration(ms uint64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
}

func (fr *FrameReader) chunk(compressed []byte) (Frame, error) {
	if !fr.whole {
		return nil, errors.New("a part of a whole directory without its begin")
	}
	var err error
	if fr.plain, err = fr.dec.DecodeAll(compressed, fr.plain[:0]); err != nil {
		return nil, err
	}
	fr.events.ResetVT()
	if err := fr.events.UnmarshalVTUnsafe(fr.plain); err != nil {
		return nil, err
	}
	events, err := toEvents(fr.events.Events, &fr.in)
	if err != nil {
		return nil, err
	}
	fr.count += uint64(len(events))
	fr.sum = crc32.Update(fr.sum, crc32.MakeTable(crc32.Castagnoli), fr.plain)
	return &Chunk{Events: events}, nil
}
