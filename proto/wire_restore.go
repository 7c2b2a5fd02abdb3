package proto

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/klauspost/compress/zstd"

	"domicile/fsm"
	"domicile/proto/internal/pb"
)

// ReadSnapshot reads what WriteSnapshot wrote. It fails, and gives no state,
// for one that was cut or garbled, that is of a newer format or command
// version, or whose records break an invariant (fsm.Check).
func ReadSnapshot(r io.Reader) (*fsm.State, error) {
	magic := make([]byte, len(snapshotMagic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != snapshotMagic {
		return nil, errors.New("reading a snapshot of the directory: this is none")
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxBlock))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	sr := &snapshotReader{r: r, dec: dec, hash: sha256.New(), part: pb.RecordsFromVTPool()}
	s, err := sr.read()
	if err != nil {
		return nil, fmt.Errorf("reading a snapshot of the directory: %w", err)
	}
	sr.part.ReturnToVTPool()
	return s, nil
}

type snapshotReader struct {
	r    io.Reader
	dec  *zstd.Decoder
	hash hash.Hash

	b          *fsm.Builder
	in         interner
	part       *pb.Records
	count      uint64
	buf, plain []byte
}

func (sr *snapshotReader) read() (*fsm.State, error) {
	for {
		kind, payload, err := readBlock(sr.r, sr.buf)
		sr.buf = payload
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errSnapshotCut
		}
		if err != nil {
			return nil, err
		}
		switch {
		case kind == blockHeader && sr.b == nil:
			err = sr.header(payload)
		case kind == blockRecords && sr.b != nil:
			err = sr.records(payload)
		case kind == blockTrailer && sr.b != nil:
			return sr.trailer(payload)
		default:
			err = errSnapshotOrder
		}
		if err != nil {
			return nil, err
		}
	}
}

func (sr *snapshotReader) header(payload []byte) error {
	var h pb.SnapshotHeader
	if err := h.UnmarshalVT(payload); err != nil {
		return err
	}
	if h.Format != SnapshotFormat {
		return fmt.Errorf("it is of format %d and this binary reads %d: start a newer one", h.Format, SnapshotFormat)
	}
	sr.hash.Write(payload)
	b, err := fsm.NewBuilder(fsm.Meta{
		Revision: fsm.Revision(h.Revision), Now: fsm.Millis(h.Now), Level: h.Level,
		Scope: toScope(h.Scope), Settings: toSettings(h.Settings),
		RecountAt: fsm.TenantName(h.RecountAt), Recovery: toRecovery(h.Recovery),
		Upstream: toOrigin(h.Upstream), Abroad: fsm.Revision(h.Abroad),
	})
	sr.b = b
	return err
}

func (sr *snapshotReader) records(payload []byte) (err error) {
	if sr.plain, err = sr.dec.DecodeAll(payload, sr.plain[:0]); err != nil {
		return err
	}
	sr.hash.Write(sr.plain)
	p := sr.part
	p.ResetVT()
	// The strings of p are parts of sr.plain until the next part is read: what
	// is kept of them is copied. Records that are few are decoded on their own.
	if err := p.UnmarshalVTUnsafe(sr.plain); err != nil {
		return err
	}
	few := len(p.Members) + len(p.Regions) + len(p.Nodes) + len(p.Jobs) + len(p.Requests) + len(p.Tasks) +
		len(p.Intakes) + len(p.StagedNodes) + len(p.StagedTenants)
	if few > 0 {
		if err := sr.few(); err != nil {
			return err
		}
	}
	for _, m := range p.Tenants {
		if err := sr.tenant(m); err != nil {
			return err
		}
	}
	for _, m := range p.Units {
		if err := sr.b.AddUnit(toPlaced(m, fsm.UnitName(sr.in.own(m.Unit)), &sr.in)); err != nil {
			return err
		}
	}
	sr.count += uint64(few + len(p.Tenants) + len(p.Units))
	return nil
}

// few reads the kinds of which there are few from the part in sr.plain. The
// order of kinds lets them be added before the part's tenants: jobs and
// requests refer to nothing that a Builder looks for.
func (sr *snapshotReader) few() error {
	var p pb.Records
	if err := p.UnmarshalVT(sr.plain); err != nil {
		return err
	}
	return errors.Join(
		addAll(p.Members, func(m *pb.Member) error { return sr.b.AddMember(toMember(m)) }),
		addAll(p.Regions, func(m *pb.Region) error { return sr.b.AddRegion(toRegion(m)) }),
		addAll(p.Nodes, func(m *pb.Node) error { return sr.b.AddNode(toNode(m), fsm.Revision(m.List)) }),
		addAll(p.Jobs, func(m *pb.Job) error { return sr.b.AddJob(toJob(m)) }),
		addAll(p.Requests, func(m *pb.Request) error { return sr.b.AddRequest(toRequest(m, &sr.in)) }),
		addAll(p.Tasks, func(m *pb.Task) error { return sr.b.AddTask(toTask(m)) }),
		addAll(p.Intakes, func(m *pb.Intake) error { return sr.b.AddIntake(toIntake(m)) }),
		addAll(p.StagedNodes, func(m *pb.Node) error { return sr.b.AddStagedNode(toNode(m)) }),
		addAll(p.StagedTenants, func(m *pb.Tenant) error { return sr.b.AddStagedTenant(toGivenTenant(m, &sr.in)) }),
	)
}

func addAll[T any](records []T, add func(T) error) error {
	for _, r := range records {
		if err := add(r); err != nil {
			return err
		}
	}
	return nil
}

func (sr *snapshotReader) tenant(m *pb.Tenant) error {
	t := toTenant(m, &sr.in)
	var unit *fsm.Placed
	if m.Unit != nil {
		unit = toPlaced(m.Unit, fsm.UnitName(t.Name), &sr.in)
	}
	return sr.b.AddTenant(t, unit)
}

func (sr *snapshotReader) trailer(payload []byte) (*fsm.State, error) {
	var t pb.SnapshotTrailer
	if err := t.UnmarshalVT(payload); err != nil {
		return nil, err
	}
	if t.Records != sr.count || !bytes.Equal(t.Hash, sr.hash.Sum(nil)) {
		return nil, errSnapshotHash
	}
	return sr.b.State()
}
