package proto

import (
	"hash/crc32"
	"iter"

	"github.com/klauspost/compress/zstd"

	"domicile/fsm"
	"domicile/proto/internal/pb"
)

// chunkSize is how many bytes of events go into a Chunk, before compression.
const chunkSize = 256 << 10

// StreamSnapshot gives the frames of a whole directory to yield; see StreamEvents.
func StreamSnapshot(s *fsm.State, yield func(frame []byte) error) error {
	return StreamEvents(s.Revision(), fsm.Project(s), yield)
}

// StreamEvents gives the frames of the directory that events build, at a revision, to
// yield, one after the other: Begin, Chunks, End. It holds one Chunk at a time. The
// bytes are yield's to keep. It stops at yield's first error and returns it.
func StreamEvents(revision fsm.Revision, events iter.Seq[fsm.Event], yield func(frame []byte) error) error {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	defer enc.Close()
	sw := &streamWriter{enc: enc, yield: yield, events: pb.EventsFromVTPool()}
	if err := sw.frame(&Begin{Revision: revision}); err != nil {
		return err
	}
	for e := range events {
		if err := sw.add(&e); err != nil {
			return err
		}
	}
	if err := sw.flush(); err != nil {
		return err
	}
	if err := sw.frame(&End{Revision: revision, Count: sw.count, Checksum: sw.sum}); err != nil {
		return err
	}
	sw.events.ReturnToVTPool()
	return nil
}

type streamWriter struct {
	enc    *zstd.Encoder
	yield  func([]byte) error
	events *pb.Events
	size   int
	count  uint64
	sum    uint32
	plain  []byte
}

func (sw *streamWriter) frame(f Frame) error {
	b, err := EncodeFrame(f)
	if err != nil {
		return err
	}
	return sw.yield(b)
}

func (sw *streamWriter) add(e *fsm.Event) error {
	sw.count++
	if sw.size += putEvent(next(&sw.events.Events), e).SizeVT(); sw.size < chunkSize {
		return nil
	}
	return sw.flush()
}

func (sw *streamWriter) flush() error {
	if len(sw.events.Events) == 0 {
		return nil
	}
	size := sw.events.SizeVT()
	if cap(sw.plain) < size {
		sw.plain = make([]byte, size+size/4)
	}
	sw.plain = sw.plain[:size]
	if _, err := sw.events.MarshalToSizedBufferVT(sw.plain); err != nil {
		return err
	}
	sw.events.ResetVT()
	sw.size = 0
	sw.sum = crc32.Update(sw.sum, crc32.MakeTable(crc32.Castagnoli), sw.plain)
	b, err := encodeFrame(&pb.Frame{Frame: &pb.Frame_Chunk{Chunk: &pb.Chunk{Events: sw.enc.EncodeAll(sw.plain, nil)}}})
	if err != nil {
		return err
	}
	return sw.yield(b)
}
