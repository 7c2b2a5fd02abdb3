package proxy

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"

	"domicile/fsm"
)

const million = 1_000_000

// loaded gives a table of n tenants on 100 nodes, each with a copy, and the
// names in random order.
func loaded(b *testing.B, n int) (*table, [][]byte) {
	b.Helper()
	names := make([][]byte, n)
	edit := newTable().edit(1, 1)
	for i := range names {
		names[i] = fmt.Appendf(nil, "tenant-%d", i)
		err := edit.apply(&fsm.Event{Unit: &fsm.UnitInfo{
			Unit: fsm.UnitName(names[i]), ID: fsm.UnitID(i + 1), Node: fsm.NodeName(fmt.Sprintf("node%d", i%100)),
			State: fsm.UnitActive, Epoch: 1, Copies: []fsm.Copy{{Node: fsm.NodeName(fmt.Sprintf("node%d", (i+1)%100)), State: fsm.CopyInSync}},
		}})
		if err != nil {
			b.Fatal(err)
		}
	}
	rand.Shuffle(n, func(i, j int) { names[i], names[j] = names[j], names[i] })
	return edit.seal(position(edit.revision)), names
}

// BenchmarkLookUpAmongAMillion looks names up in random order. The name is made
// in a buffer, as a request's is in its connection's: what it costs to make it
// is BenchmarkMakeAName.
func BenchmarkLookUpAmongAMillion(b *testing.B) {
	t, _ := loaded(b, million)
	r := rand.New(rand.NewPCG(1, 1))
	name := []byte("tenant-")
	b.ReportAllocs()
	for b.Loop() {
		name = strconv.AppendUint(name[:7], r.Uint64N(million), 10)
		if t.seat(name) == nil {
			b.Fatal("not found")
		}
	}
}

func BenchmarkMakeAName(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	name := []byte("tenant-")
	for b.Loop() {
		name = strconv.AppendUint(name[:7], r.Uint64N(million), 10)
	}
}

func BenchmarkLoadAMillion(b *testing.B) {
	events := make([]fsm.Event, million)
	for i := range events {
		events[i] = fsm.Event{Unit: &fsm.UnitInfo{
			Unit: fsm.UnitName(fmt.Sprintf("tenant-%d", i)), ID: fsm.UnitID(i + 1), Node: fsm.NodeName(fmt.Sprintf("node%d", i%100)),
			State: fsm.UnitActive, Copies: []fsm.Copy{{Node: "node7", State: fsm.CopyInSync}},
		}}
	}
	var t *table
	for b.Loop() {
		edit := newTable().edit(1, 1)
		for i := range events {
			if err := edit.apply(&events[i]); err != nil {
				b.Fatal(err)
			}
		}
		t = edit.seal(position(edit.revision))
	}
	b.ReportMetric(float64(t.units.bytes())/1e6, "MB")
}

func BenchmarkDeltaOnAMillion(b *testing.B) {
	t, names := loaded(b, million)
	runtime.GC()
	b.ReportAllocs()
	id := uint64(2)
	for b.Loop() {
		edit := t.edit(fsm.Revision(id), id)
		err := edit.apply(&fsm.Event{Unit: &fsm.UnitInfo{
			Unit: fsm.UnitName(names[id%million]), ID: 1, Node: "node3", State: fsm.UnitActive, Epoch: id,
		}})
		if err != nil {
			b.Fatal(err)
		}
		t = edit.seal(position(edit.revision))
		id++
	}
}

// BenchmarkLoadAMillionHomes loads what a proxy has of tenants that live in regions with
// directories of their own.
func BenchmarkLoadAMillionHomes(b *testing.B) {
	events := make([]fsm.Event, million)
	for i := range events {
		events[i] = fsm.Event{Tenant: &fsm.TenantInfo{
			Name: fsm.TenantName(fmt.Sprintf("tenant-%d", i)), HasHome: true, Home: fsm.RegionName([]string{"eu", "us", "tr"}[i%3]),
		}}
	}
	var t *table
	for b.Loop() {
		edit := newTable().edit(1, 1)
		if err := edit.applyAll(events); err != nil {
			b.Fatal(err)
		}
		t = edit.seal(position(edit.revision))
	}
	b.ReportMetric(float64(t.tenants.bytes())/1e6, "MB")
}

// BenchmarkFindAHomeAmongAMillion is what a region's proxy does for a tenant of another one.
func BenchmarkFindAHomeAmongAMillion(b *testing.B) {
	p := twoTables(b, million)
	r := rand.New(rand.NewPCG(1, 1))
	name := []byte("tenant-")
	b.ReportAllocs()
	for b.Loop() {
		name = strconv.AppendUint(name[:7], r.Uint64N(million), 10)
		if f := p.find(name, name); f.home == nil {
			b.Fatal("not found")
		}
	}
}
