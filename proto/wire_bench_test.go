package proto_test

import (
	"bytes"
	"io"
	"runtime"
	"testing"

	"domicile/fsm"
	"domicile/fsm/fsmtest"
	"domicile/proto"
)

const million = 1_000_000

func BenchmarkWriteSnapshot(b *testing.B) {
	s := fsmtest.Large(100, million)
	var n counter
	b.ResetTimer()
	for range b.N {
		n = 0
		if err := proto.WriteSnapshot(&n, s); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)/million, "B/tenant")
}

type counter int

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

func BenchmarkReadSnapshot(b *testing.B) {
	snapshot := snapshotBytes(b, fsmtest.Large(100, million))
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	b.ResetTimer()
	var s *fsm.State
	for range b.N {
		s = readSnapshot(b, snapshot)
	}
	b.StopTimer()
	b.ReportMetric(float64(heap()-before)/million, "B/tenant")
	runtime.KeepAlive(s)
}

func streamOf(b *testing.B, s *fsm.State) []byte {
	var out bytes.Buffer
	if err := proto.StreamSnapshot(s, func(f []byte) error { out.Write(f); return nil }); err != nil {
		b.Fatal(err)
	}
	return out.Bytes()
}

func BenchmarkStreamSnapshot(b *testing.B) {
	s := fsmtest.Large(100, million)
	b.ResetTimer()
	for range b.N {
		if err := proto.StreamSnapshot(s, func([]byte) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadStream(b *testing.B) {
	stream := streamOf(b, fsmtest.Large(100, million))
	runtime.GC()
	b.ResetTimer()
	for range b.N {
		fr, err := proto.NewFrameReader(bytes.NewReader(stream))
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for {
			f, err := fr.ReadFrame()
			if err == io.EOF {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			if c, ok := f.(*proto.Chunk); ok {
				n += len(c.Events)
			}
		}
		if n < million {
			b.Fatal(n)
		}
		fr.Close()
	}
	b.ReportMetric(float64(len(stream))/million, "B/tenant")
}

func BenchmarkDecodeEntry(b *testing.B) {
	entry, err := proto.EncodeEntry(fsm.Entry{At: 1_700_000_000_000, Key: "0123456789abcdef", Fingerprint: "x", Cmd: &fsm.CreateTenant{Name: "acme"}})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for range b.N {
		if _, err := proto.DecodeEntry(1, 1, entry); err != nil {
			b.Fatal(err)
		}
	}
}
