package global

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/proto/follow"
)

// randomEvents changes few names, again and again.
func randomEvents(r *rand.Rand, n int) []fsm.Event {
	name := func() string { return []string{"a", "a-b", "ab", "b", "ba", "c"}[r.IntN(6)] }
	var all []fsm.Event
	for range n {
		tenant, node, region := fsm.TenantName(name()), fsm.NodeName(name()), fsm.RegionName(name())
		switch r.IntN(9) {
		case 0:
			all = append(all, fsm.Event{Node: &fsm.NodeInfo{Name: node, Addr: "x", Region: region}})
		case 1:
			all = append(all, fsm.Event{Region: &fsm.Region{Name: region, Routers: []string{"http://r"}}})
		case 2:
			all = append(all, fsm.Event{RegionGone: region})
		case 3, 4:
			all = append(all, fsm.Event{UnitGone: fsm.UnitName(tenant)}, fsm.Event{Tenant: &fsm.TenantInfo{Name: tenant, Home: region, HasHome: true}})
		case 5:
			all = append(all, fsm.Event{TenantGone: tenant})
		case 6:
			all = append(all, fsm.Event{UnitGone: fsm.UnitName(tenant)}, fsm.Event{Tenant: &fsm.TenantInfo{Name: tenant, Buckets: 2}},
				fsm.Event{Unit: &fsm.UnitInfo{Unit: fsm.Unit(tenant, 1), Node: node}})
		default:
			all = append(all, fsm.Event{TenantGone: tenant}, fsm.Event{Unit: &fsm.UnitInfo{Unit: fsm.UnitName(tenant), ID: fsm.UnitID(r.Uint64()), Node: node,
				Copies: []fsm.Copy{{Node: node, State: fsm.CopyInSync}}}})
		}
	}
	return all
}

// viewOf reduces what a directory projects.
func viewOf(t *testing.T, d *Directory) *fsm.View {
	t.Helper()
	v := fsm.NewView()
	if err := errors.Join(v.Load(slices.Collect(d.Project())), v.Apply(0, d.Revision(), nil)); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestADirectoryIsWhatItsEventsMake compares directories with the reducer of package fsm:
// each one still is what it was when later ones were made.
func TestADirectoryIsWhatItsEventsMake(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b, v := newBuilder(), fsm.NewView()
	var directories []*Directory
	var views []*fsm.View
	var all []fsm.Event
	for rev := fsm.Revision(1); rev < 200; rev++ {
		events := randomEvents(r, 1+r.IntN(5))
		all = append(all, events...)
		if err := errors.Join(b.apply(events), v.Apply(rev-1, rev, events)); err != nil {
			t.Fatal(err)
		}
		d := b.seal(follow.Position{Authority: "c1/global", History: 1, Revision: rev})
		was := fsm.NewView()
		if err := errors.Join(was.Load(all), was.Apply(0, rev, nil)); err != nil {
			t.Fatal(err)
		}
		directories, views = append(directories, d), append(views, was)
		checkNames(t, r, d, was)
	}
	for i, d := range directories {
		if !viewOf(t, d).Equal(views[i]) {
			t.Fatalf("the directory of revision %d is not what its events make", d.Revision())
		}
	}
	if err := b.apply([]fsm.Event{{NodeGone: "a"}, {}}); err == nil || !viewOf(t, b.seal(directories[len(directories)-1].at)).Equal(v) {
		t.Errorf("an event of nothing: %v", err)
	}
}

// checkNames compares the list of tenants with the view.
func checkNames(t *testing.T, r *rand.Rand, d *Directory, v *fsm.View) {
	t.Helper()
	want := map[fsm.TenantName]Where{}
	region := func(u *fsm.UnitInfo) Where {
		if n, ok := v.Node(u.Node); ok {
			return Where{Region: n.Region, ID: u.ID}
		}
		return Where{ID: u.ID}
	}
	for _, name := range []fsm.TenantName{"a", "a-b", "ab", "b", "ba", "c"} {
		if info, ok := v.Tenant(name); ok && info.HasHome {
			want[name] = Where{Region: info.Home, Home: true, ID: info.ID}
		} else if u, found := v.Unit(fsm.Unit(name, 1)); ok && found {
			want[name] = Where{Region: region(u).Region}
		} else if ok {
			want[name] = Where{}
		} else if u, found := v.Unit(fsm.UnitName(name)); found {
			want[name] = region(u)
		}
		where, ok := d.Tenant(name)
		if w, known := want[name]; ok != known || where != w {
			t.Fatalf("revision %d: tenant %s is at %+v, %v, want %+v, %v", d.Revision(), name, where, ok, w, known)
		}
	}
	prefix, after := []string{"", "a", "b", "x"}[r.IntN(4)], []fsm.TenantName{"", "a", "a-b", "ba"}[r.IntN(4)]
	var names []fsm.TenantName
	for name, where := range d.Tenants(prefix, after) {
		if where != want[name] {
			t.Fatalf("the list has %s at %+v, want %+v", name, where, want[name])
		}
		names = append(names, name)
	}
	var wanted []fsm.TenantName
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if strings.HasPrefix(string(name), prefix) && (after == "" || name > after) {
			wanted = append(wanted, name)
		}
	}
	if !slices.Equal(names, wanted) {
		t.Fatalf("tenants %q after %q: %v, want %v", prefix, after, names, wanted)
	}
	for range d.Tenants("", "") { // a reader may stop at once
		break
	}
}

func TestTheCacheHoldsTheDirectory(t *testing.T) {
	b := newBuilder()
	if err := b.apply(randomEvents(rand.New(rand.NewPCG(3, 4)), 50)); err != nil {
		t.Fatal(err)
	}
	d := b.seal(follow.Position{Authority: "c1/global", History: 2, Revision: 77})
	path := filepath.Join(t.TempDir(), "global")
	asOf := time.UnixMilli(1234567890123)
	if err := save(path, d, asOf); err != nil {
		t.Fatal(err)
	}
	got, at, err := load(path, newBuilder())
	if err != nil || got.at != d.at || !at.Equal(asOf) || !viewOf(t, got).Equal(viewOf(t, d)) {
		t.Fatalf("%+v of %v, %v", got, at, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range text {
		broken := bytes.Clone(text)
		broken[i] ^= 1
		if _, _, err := parse(broken, newBuilder()); err == nil {
			t.Fatalf("with byte %d changed it is taken", i)
		}
		if _, _, err := parse(text[:i], newBuilder()); err == nil {
			t.Fatalf("the first %d bytes of it are taken", i)
		}
	}
}

// TestAMillionHomesAreHeldInLittle bounds what a server of a region keeps of the others:
// what is live once it has been read from the cache.
func TestAMillionHomesAreHeldInLittle(t *testing.T) {
	if testing.Short() {
		t.Skip("a million")
	}
	const homes, most = 1_000_000, 200 << 20
	path := filepath.Join(t.TempDir(), "global")
	func() {
		b := newBuilder()
		for i := range homes {
			info := &fsm.TenantInfo{Name: fsm.TenantName(fmt.Sprintf("tenant-%d", i)), Home: []fsm.RegionName{"us", "tr"}[i%2], HasHome: true}
			if err := b.apply([]fsm.Event{{Tenant: info}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := save(path, b.seal(follow.Position{Authority: "c1/global", History: 1, Revision: homes}), time.Now()); err != nil {
			t.Fatal(err)
		}
	}()
	live := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := live()
	d, _, err := load(path, newBuilder())
	if err != nil {
		t.Fatal(err)
	}
	after := live()
	if held := int64(after) - int64(before); held > most {
		t.Errorf("%d homes are held in %d MiB, want at most %d", homes, held>>20, most>>20)
	} else {
		t.Logf("%d homes in %d MiB", homes, held>>20)
	}
	if where, ok := d.Tenant("tenant-7"); !ok || where != (Where{Region: "tr", Home: true}) {
		t.Errorf("%+v, %v", where, ok)
	}
}
