package proxy

import (
	"bufio"
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/internal/durable"
)

// randomTable is a table after many changes.
func randomTable(t testing.TB, seed uint64) *table {
	r := rand.New(rand.NewPCG(seed, 4))
	edit := newTable().edit(41, 1)
	for range 2000 {
		e := change(r)
		if err := edit.apply(&e); err != nil {
			t.Fatal(err)
		}
	}
	tab := edit.seal(position(edit.revision))
	return tab
}

func TestR3CacheGivesTheTableBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cache")
	asOf := time.UnixMilli(1_700_000_000_123)
	want := randomTable(t, 1)
	if err := saveCache(path, want, asOf); err != nil {
		t.Fatal(err)
	}
	got, at, err := loadCache(path, 1)
	if err != nil {
		t.Fatal(err)
	}
	if !viewOf(t, got).Equal(viewOf(t, want)) || got.position != want.position || !at.Equal(asOf) {
		t.Errorf("got revision %d of %+v as of %v, want %d of %+v as of %v", got.position.Revision, got.position, at, want.position.Revision, want.position, asOf)
	}
	for e := range want.all {
		if e.Unit == nil {
			continue
		}
		name := []byte(e.Unit.Unit)
		if s := got.seat(name); s == nil || s.info.Name != e.Unit.Node {
			t.Fatalf("unit %s is not found at %s", name, e.Unit.Node)
		}
	}
	next := got.edit(50, 2)
	if err := next.apply(&fsm.Event{Unit: &fsm.UnitInfo{Unit: "new", Node: "n1", State: fsm.UnitActive}}); err != nil {
		t.Fatal(err)
	}
	if next.seal(position(50)).seat([]byte("new")) == nil {
		t.Error("a table from the cache cannot be changed")
	}
	names, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(names) != 1 {
		t.Errorf("got %v, %v: want the cache file alone", names, err)
	}
}

func TestR3GarbledCacheIsNeverTaken(t *testing.T) {
	var buf bytes.Buffer
	if err := writeCache(&buf, randomTable(t, 2), time.UnixMilli(1)); err != nil {
		t.Fatal(err)
	}
	whole := buf.Bytes()
	r := rand.New(rand.NewPCG(5, 5))
	for range 300 {
		cut := r.IntN(len(whole))
		if _, _, err := parseCache(whole[:cut], 1); err == nil {
			t.Fatalf("the first %d of %d bytes were taken", cut, len(whole))
		}
		flipped := bytes.Clone(whole)
		flipped[r.IntN(len(flipped))] ^= 1 << r.IntN(8)
		if _, _, err := parseCache(flipped, 1); err == nil {
			t.Fatal("a flipped bit was taken")
		}
	}
	body, err := cacheFormat.Body(whole)
	if err != nil {
		t.Fatal(err)
	}
	newer := cacheFormat
	newer.Version++
	if _, _, err := parseCache(framed(t, newer, body), 1); err == nil {
		t.Error("another version was taken")
	}
	if _, _, err := parseCache(framed(t, cacheFormat, append(bytes.Clone(body), 0, 0)), 1); err == nil {
		t.Error("bytes behind the end were taken")
	}
}

// framed gives a whole file with that body.
func framed(t *testing.T, f durable.Format, body []byte) []byte {
	var buf bytes.Buffer
	if err := f.Write(&buf, func(w *bufio.Writer) error { _, err := w.Write(body); return err }); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// FuzzCache changes what stands behind a right checksum: it may be refused, it
// may not crash, and a table that is taken can be used.
func FuzzCache(f *testing.F) {
	edit := newTable().edit(41, 1)
	r := rand.New(rand.NewPCG(1, 1))
	for range 12 {
		e := change(r)
		if err := edit.apply(&e); err != nil {
			f.Fatal(err)
		}
	}
	var buf bytes.Buffer
	if err := writeCache(&buf, edit.seal(position(edit.revision)), time.UnixMilli(1)); err != nil {
		f.Fatal(err)
	}
	body, err := cacheFormat.Body(buf.Bytes())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		tab, _, err := parseCache(framed(t, cacheFormat, body), 1)
		if err != nil {
			return
		}
		for e := range tab.all {
			if e.Unit != nil && tab.seat([]byte(e.Unit.Unit)) == nil {
				t.Errorf("unit %q has no seat", e.Unit.Unit)
			}
		}
		var again bytes.Buffer
		if err := writeCache(&again, tab, time.UnixMilli(1)); err != nil {
			t.Error(err)
		}
	})
}
