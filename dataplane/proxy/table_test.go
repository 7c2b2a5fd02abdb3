package proxy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"domicile/fsm"
	"domicile/proto/follow"
)

// change makes a random event about few names, so that they meet.
func change(r *rand.Rand) fsm.Event {
	node := fsm.NodeName(fmt.Sprintf("n%d", r.IntN(8)))
	tenant := fsm.TenantName(fmt.Sprintf("t%d", r.IntN(300)))
	unit := fsm.Unit(tenant, uint32(r.IntN(3)))
	region := fsm.RegionName([]string{"eu", "us", "ap"}[r.IntN(3)])
	switch r.IntN(12) {
	case 0:
		return fsm.Event{Node: &fsm.NodeInfo{Name: node, Addr: fmt.Sprintf("127.0.0.1:%d", 1+r.IntN(3)), Region: region, Zone: "a", Lost: r.IntN(2) == 0, Unleased: r.IntN(2) == 0}}
	case 1:
		return fsm.Event{NodeGone: node}
	case 2, 3, 4:
		return fsm.Event{UnitGone: unit}
	case 5:
		return fsm.Event{Tenant: &fsm.TenantInfo{Name: tenant, Buckets: uint32(r.IntN(9)), Hash: fsm.Hash(r.IntN(3)), Home: region, HasHome: r.IntN(2) == 0}}
	case 6:
		return fsm.Event{TenantGone: tenant}
	case 7:
		return fsm.Event{Region: &fsm.Region{Name: region, Routers: []string{fmt.Sprint("http://r", r.IntN(3))}}}
	case 8:
		return fsm.Event{RegionGone: region}
	}
	u := &fsm.UnitInfo{
		Unit: unit, ID: fsm.UnitID(r.Uint64()), Node: node, State: fsm.UnitState(2 + r.IntN(2)), Epoch: r.Uint64(),
	}
	for range r.IntN(4) {
		u.Copies = append(u.Copies, fsm.Copy{Node: fsm.NodeName(fmt.Sprintf("n%d", r.IntN(8))), State: fsm.CopyState(1 + r.IntN(4))})
	}
	return fsm.Event{Unit: u}
}

func position(rev fsm.Revision) follow.Position {
	return follow.Position{Authority: "cluster/global", History: 3, Revision: rev}
}

// viewOf builds the view that t says it equals.
func viewOf(t *testing.T, tab *table) *fsm.View {
	t.Helper()
	v := fsm.NewView()
	var events []fsm.Event
	tab.all(func(e fsm.Event) bool { events = append(events, e); return true })
	if err := v.Load(events); err != nil {
		t.Fatal(err)
	}
	if err := v.Apply(0, tab.position.Revision, nil); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestTableEqualsTheViewAtEachRevision(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		view, tab := fsm.NewView(), newTable()
		rev := fsm.Revision(0)
		for step := range 400 {
			prev := rev
			rev += fsm.Revision(1 + r.IntN(3))
			events := make([]fsm.Event, r.IntN(8))
			edit := tab.edit(rev, uint64(step+1))
			for i := range events {
				events[i] = change(r)
				if err := edit.apply(&events[i]); err != nil {
					t.Fatal(err)
				}
			}
			if err := view.Apply(prev, rev, events); err != nil {
				t.Fatal(err)
			}
			tab = edit.seal(position(edit.revision))
			if step%10 == 0 && !viewOf(t, tab).Equal(view) {
				t.Fatalf("seed %d, revision %d: table and view differ", seed, rev)
			}
		}
		_, units, tenants, _ := view.Counts()
		if tab.units.count != units || tab.tenants.count != tenants {
			t.Fatalf("seed %d: table counts %d units and %d tenants, view %d and %d", seed, tab.units.count, tab.tenants.count, units, tenants)
		}
	}
}

func TestAnEditLeavesTheTableBeforeItAsItWas(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	tab := newTable()
	type kept struct {
		tab  *table
		view *fsm.View
	}
	var all []kept
	for i := range 60 {
		edit := tab.edit(fsm.Revision(i+1), uint64(i+1))
		for range 20 {
			e := change(r)
			if err := edit.apply(&e); err != nil {
				t.Fatal(err)
			}
		}
		tab = edit.seal(position(edit.revision))
		all = append(all, kept{tab, viewOf(t, tab)})
	}
	for i, k := range all {
		if !viewOf(t, k.tab).Equal(k.view) {
			t.Fatalf("table %d was changed by a later edit", i)
		}
	}
}

func TestShardsKeepWhatAMapKeeps(t *testing.T) {
	for name, c := range map[string]struct {
		mask uint64
		keys int
	}{
		"whole hashes": {^uint64(0), 3000}, "colliding hashes": {3<<58 | 3, 300},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShards()
			s.mask = c.mask
			keepsWhatAMapKeeps(t, s, c.keys)
		})
	}
}

func keepsWhatAMapKeeps(t *testing.T, s *shards, keys int) {
	r := rand.New(rand.NewPCG(3, 3))
	want := map[string]string{}
	for id := range uint64(300) {
		e := s.edit(id + 1)
		for range 1 + r.IntN(200) {
			key := fmt.Sprintf("k%d", r.IntN(keys))
			if r.IntN(3) == 0 {
				e.remove([]byte(key))
				delete(want, key)
				continue
			}
			value := string(make([]byte, r.IntN(20))) + key
			e.put([]byte(key), []byte(value), uint32(len(value)))
			want[key] = value
		}
		s = e.seal()
	}
	got := map[string]string{}
	s.each(func(k, v []byte) bool { got[string(k)] = string(v); return true })
	if !maps.Equal(got, want) || s.count != len(want) {
		t.Fatalf("got %d keys (count %d), want %d", len(got), s.count, len(want))
	}
	for k, v := range want {
		if string(s.get([]byte(k))) != v {
			t.Fatalf("get %q: got %q, want %q", k, s.get([]byte(k)), v)
		}
		if h, ok := s.hint([]byte(k)); !ok || h != uint32(len(v)) {
			t.Fatalf("hint %q: got %d, %v, want %d", k, h, ok, len(v))
		}
	}
	if s.get([]byte("none")) != nil {
		t.Fatal("a key that was never put is there")
	}
	if _, ok := s.hint([]byte("none")); ok {
		t.Fatal("a key that was never put has a hint")
	}
}

func TestTableRefusesWhatItCannotHold(t *testing.T) {
	tab := newTable()
	edit := tab.edit(1, 1)
	long := string(make([]byte, maxKey+1))
	for _, e := range []fsm.Event{
		{Unit: &fsm.UnitInfo{Unit: fsm.UnitName(long), Node: "n1"}},
		{Unit: &fsm.UnitInfo{Unit: "a", Node: "n1", Copies: make([]fsm.Copy, maxCopies+1)}},
		{Tenant: &fsm.TenantInfo{Name: fsm.TenantName(long)}},
	} {
		if err := edit.apply(&e); err == nil {
			t.Errorf("%+v was taken", e)
		}
	}
}

func TestLookUpsWhileTheTableChanges(t *testing.T) {
	const tenants = 2000
	var current atomic.Pointer[table]
	edit := newTable().edit(1, 1)
	for i := range tenants {
		put(t, edit, i, 1)
	}
	current.Store(edit.seal(position(edit.revision)))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 9))
			last := fsm.Revision(0)
			for {
				select {
				case <-stop:
					return
				default:
				}
				tab := current.Load()
				if tab.position.Revision < last {
					t.Error("the table went back")
				}
				last = tab.position.Revision
				i := r.IntN(tenants)
				u, ok := tab.unit(fmt.Appendf(nil, "tenant-%d", i))
				if !ok || u.epoch != uint64(i)*1000+uint64(u.revision) || tab.seat(fmt.Appendf(nil, "tenant-%d", i)).info.Name != fsm.NodeName(fmt.Sprintf("n%d", i%20)) {
					t.Errorf("tenant-%d: got %+v, %v", i, u, ok)
					return
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(1, 2))
	for rev := fsm.Revision(2); rev < 800; rev++ {
		edit := current.Load().edit(rev, uint64(rev))
		for range 1 + r.IntN(30) {
			put(t, edit, r.IntN(tenants), rev)
		}
		current.Store(edit.seal(position(edit.revision)))
	}
	close(stop)
	wg.Wait()
}

func TestFindingANodeAllocatesNothing(t *testing.T) {
	edit := newTable().edit(1, 1)
	for i := range 1000 {
		put(t, edit, i, 1)
	}
	tab := edit.seal(position(1))
	path := []byte("tenant-7/db/v2/pipeline")
	found := true
	n := testing.AllocsPerRun(100, func() {
		var name [maxUnit]byte
		p := parsePlace(path)
		found = found && tab.seat(p.unit(name[:0])) != nil
	})
	if n != 0 || !found {
		t.Errorf("%v allocations, found %v", n, found)
	}
}

func put(t testing.TB, e *tableEdit, i int, rev fsm.Revision) {
	err := e.apply(&fsm.Event{Unit: &fsm.UnitInfo{
		Unit: fsm.UnitName(fmt.Sprintf("tenant-%d", i)), ID: fsm.UnitID(i + 1), Node: fsm.NodeName(fmt.Sprintf("n%d", i%20)),
		State: fsm.UnitActive, Epoch: uint64(i)*1000 + uint64(rev), Copies: slices.Repeat([]fsm.Copy{{Node: "n0", State: 2}}, int(rev)%3),
	}})
	if err != nil {
		t.Error(err)
	}
}
