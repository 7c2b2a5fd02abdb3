package proto

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/klauspost/compress/zstd"

	"domicile/fsm"
	"domicile/proto/internal/pb"
)

// A snapshot is the magic, then blocks: a header, parts of the records
// (compressed with zstd), a trailer. A block is
//
//	kind   1 byte
//	length 4 bytes, little-endian: of the payload
//	sum    4 bytes, little-endian: CRC-32C of kind and payload
//	payload
//
// The block's sum finds garbled bytes where they are; the trailer's count and
// hash find what is missing.
const (
	snapshotMagic = "DOMICILE"

	// SnapshotFormat is the format that WriteSnapshot writes and the newest
	// that ReadSnapshot reads.
	SnapshotFormat = 1

	blockHeader  = 1
	blockRecords = 2
	blockTrailer = 3

	partSize = 512 << 10 // of records, before compression
	maxBlock = 8 << 20
)

var (
	errSnapshotCut   = errors.New("the snapshot ends before its trailer")
	errSnapshotOrder = errors.New("the snapshot's blocks are out of order")
	errSnapshotHash  = errors.New("the snapshot's records are not those that its trailer tells of")
)

// WriteSnapshot writes s, part by part. The same state gives the same bytes.
func WriteSnapshot(w io.Writer, s *fsm.State) error {
	if _, err := io.WriteString(w, snapshotMagic); err != nil {
		return err
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	defer enc.Close()
	sw := &snapshotWriter{w: w, enc: enc}
	if err := sw.write(s); err != nil {
		return fmt.Errorf("writing a snapshot of the directory: %w", err)
	}
	return nil
}

// StateHash is a digest of all of s: equal for equal states, on every server.
func StateHash(s *fsm.State) ([sha256.Size]byte, error) {
	sw := &snapshotWriter{}
	var sum [sha256.Size]byte
	err := sw.write(s)
	if err == nil {
		copy(sum[:], sw.hash.Sum(nil))
	}
	return sum, err
}

// snapshotWriter gathers records into parts. Without a w it only hashes.
type snapshotWriter struct {
	w    io.Writer
	enc  *zstd.Encoder
	hash hash.Hash

	part       pb.Records
	size       int
	count      uint64
	plain, out []byte
}

func (sw *snapshotWriter) write(s *fsm.State) error {
	sw.hash = sha256.New()
	m := s.Meta()
	header := &pb.SnapshotHeader{
		Format: SnapshotFormat, Level: m.Level, Revision: uint64(m.Revision), Now: int64(m.Now),
		Scope: fromScope(m.Scope), Settings: fromSettings(m.Settings), Records: uint64(s.CountRecords()),
		RecountAt: string(m.RecountAt), Recovery: fromRecovery(m.Recovery),
		Upstream: fromOrigin(m.Upstream), Abroad: uint64(m.Abroad),
	}
	b, err := header.MarshalVT()
	if err != nil {
		return err
	}
	sw.hash.Write(b)
	if err := sw.block(blockHeader, b); err != nil {
		return err
	}
	if err := sw.records(s); err != nil {
		return err
	}
	if b, err = (&pb.SnapshotTrailer{Records: sw.count, Hash: sw.hash.Sum(nil)}).MarshalVT(); err != nil {
		return err
	}
	return sw.block(blockTrailer, b)
}

// records writes everything in the order of pb.Records, so that the parts are
// one message when put together, wherever they are cut.
func (sw *snapshotWriter) records(s *fsm.State) error {
	p := &sw.part
	for m := range s.Members() {
		p.Members = append(p.Members, fromMember(m))
		if err := sw.added(p.Members[len(p.Members)-1].SizeVT()); err != nil {
			return err
		}
	}
	for r := range s.Regions() {
		p.Regions = append(p.Regions, fromRegion(r))
		if err := sw.added(p.Regions[len(p.Regions)-1].SizeVT()); err != nil {
			return err
		}
	}
	for n := range s.Nodes() {
		node := fromNode(n)
		node.List = uint64(s.ListRevision(n.Name))
		p.Nodes = append(p.Nodes, node)
		if err := sw.added(p.Nodes[len(p.Nodes)-1].SizeVT()); err != nil {
			return err
		}
	}
	if err := sw.tenants(s); err != nil {
		return err
	}
	for j := range s.Jobs() {
		p.Jobs = append(p.Jobs, fromJob(j))
		if err := sw.added(p.Jobs[len(p.Jobs)-1].SizeVT()); err != nil {
			return err
		}
	}
	for q := range s.Requests() {
		p.Requests = append(p.Requests, fromRequest(q))
		if err := sw.added(p.Requests[len(p.Requests)-1].SizeVT()); err != nil {
			return err
		}
	}
	for t := range s.Tasks() {
		p.Tasks = append(p.Tasks, fromTask(t))
		if err := sw.added(p.Tasks[len(p.Tasks)-1].SizeVT()); err != nil {
			return err
		}
	}
	if err := sw.intakes(s); err != nil {
		return err
	}
	return sw.flush()
}

func (sw *snapshotWriter) intakes(s *fsm.State) error {
	p := &sw.part
	for i := range s.Intakes() {
		p.Intakes = append(p.Intakes, fromIntake(i))
		if err := sw.added(p.Intakes[len(p.Intakes)-1].SizeVT()); err != nil {
			return err
		}
	}
	for n := range s.StagedNodes() {
		p.StagedNodes = append(p.StagedNodes, fromNode(n))
		if err := sw.added(p.StagedNodes[len(p.StagedNodes)-1].SizeVT()); err != nil {
			return err
		}
	}
	for t, unit := range s.StagedTenants() {
		p.StagedTenants = append(p.StagedTenants, fromTenant(t, unit))
		if err := sw.added(p.StagedTenants[len(p.StagedTenants)-1].SizeVT()); err != nil {
			return err
		}
	}
	return nil
}

func (sw *snapshotWriter) tenants(s *fsm.State) error {
	p := &sw.part
	for t, whole := range s.Placements() {
		m := next(&p.Tenants)
		unit := m.Unit
		putTenant(m, t)
		m.Unit = nil
		if whole != nil {
			if unit == nil {
				unit = new(pb.Placed)
			}
			putPlaced(unit, whole)
			unit.Unit = ""
			m.Unit = unit
		}
		if err := sw.added(m.SizeVT()); err != nil {
			return err
		}
	}
	for u := range s.BucketUnits() {
		m := next(&p.Units)
		putPlaced(m, u)
		if err := sw.added(m.SizeVT()); err != nil {
			return err
		}
	}
	return nil
}

// next lengthens a list by one message, which is one that was there before the
// list was cut to nothing, when there was one.
func next[T any](l *[]*T) *T {
	if n := len(*l); n < cap(*l) && (*l)[:n+1][n] != nil {
		*l = (*l)[:n+1]
		return (*l)[n]
	}
	m := new(T)
	*l = append(*l, m)
	return m
}

func (sw *snapshotWriter) added(size int) error {
	sw.count++
	if sw.size += size; sw.size < partSize {
		return nil
	}
	return sw.flush()
}

// flush writes the part that was gathered.
func (sw *snapshotWriter) flush() error {
	if sw.size == 0 {
		return nil
	}
	p := &sw.part
	size := p.SizeVT()
	if cap(sw.plain) < size {
		sw.plain = make([]byte, size+size/4)
	}
	sw.plain = sw.plain[:size]
	if _, err := p.MarshalToSizedBufferVT(sw.plain); err != nil {
		return err
	}
	sw.hash.Write(sw.plain)
	sw.size = 0
	*p = pb.Records{Tenants: p.Tenants[:0], Units: p.Units[:0]}
	if sw.w == nil {
		return nil
	}
	sw.out = sw.enc.EncodeAll(sw.plain, sw.out[:0])
	return sw.block(blockRecords, sw.out)
}

func (sw *snapshotWriter) block(kind byte, payload []byte) error {
	if sw.w == nil {
		return nil
	}
	return writeBlock(sw.w, kind, payload)
}
