package proto

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/klauspost/compress/zstd"

	"domicile/proto/internal/pb"
)

// OpenSnapshot gives the header's and the records' encodings of a snapshot, and
// SealSnapshot makes a snapshot of such, with sums, count and hash that fit: so
// the fuzz target changes what is inside of them.
func OpenSnapshot(b []byte) (header, records []byte) {
	dec, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	defer dec.Close()
	for b = b[len(snapshotMagic):]; len(b) >= blockHead; {
		kind, n := b[0], int(binary.LittleEndian.Uint32(b[1:]))
		payload := b[blockHead : blockHead+n]
		b = b[blockHead+n:]
		switch kind {
		case blockHeader:
			header = payload
		case blockRecords:
			records, _ = dec.DecodeAll(payload, records)
		}
	}
	return header, records
}

func SealSnapshot(header, records []byte) []byte {
	var p pb.Records
	_ = p.UnmarshalVT(records)
	count := len(p.Members) + len(p.Regions) + len(p.Nodes) + len(p.Tenants) + len(p.Units) + len(p.Jobs) + len(p.Requests)
	sum := sha256.Sum256(append(bytes.Clone(header), records...))
	trailer, _ := (&pb.SnapshotTrailer{Records: uint64(count), Hash: sum[:]}).MarshalVT()
	enc, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(64<<10))
	defer enc.Close()
	out := bytes.NewBufferString(snapshotMagic)
	_ = writeBlock(out, blockHeader, header)
	_ = writeBlock(out, blockRecords, enc.EncodeAll(records, nil))
	_ = writeBlock(out, blockTrailer, trailer)
	return out.Bytes()
}
