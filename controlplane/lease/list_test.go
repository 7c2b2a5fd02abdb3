package lease

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"domicile/fsm"
	"domicile/proto"
)

// told is what a node holds of a unit.
type told struct {
	ID             fsm.UnitID
	Epoch          uint64
	Copies, InSync []string
}

// tell takes the members of a grant in as a node does.
func tell(t *testing.T, list map[fsm.UnitName]told, epoch string, part []byte) map[fsm.UnitName]told {
	t.Helper()
	if len(part) == 0 {
		return list
	}
	var g proto.Grant
	if err := json.Unmarshal(append(append([]byte{'{'}, part...), '}'), &g); err != nil {
		t.Fatalf("%v: %s", err, part)
	}
	add := g.Add
	if g.Primaries != nil {
		list, add = make(map[fsm.UnitName]told), *g.Primaries
	} else if g.Base != epoch {
		t.Fatalf("base %q to the list %q", g.Base, epoch)
	}
	for _, u := range g.Remove {
		if _, held := list[u.Unit]; !held {
			t.Errorf("%s is removed and was not held", u.Unit)
		}
		delete(list, u.Unit)
	}
	for _, u := range add {
		list[u.Unit] = told{u.ID, u.Epoch, g.Copies[u.Unit], g.InSync[u.Unit]}
	}
	for u := range g.Copies {
		if !slices.ContainsFunc(add, func(i proto.UnitItem) bool { return i.Unit == u }) {
			t.Errorf("copies of %s, which is not named", u)
		}
	}
	return list
}

// expected is what a node must hold, straight from the directory.
func expected(state *fsm.State, node fsm.NodeName) map[fsm.UnitName]told {
	list := make(map[fsm.UnitName]told)
	for p := range state.Grantable(node) {
		u := told{ID: p.ID, Epoch: p.Epoch}
		for _, c := range p.Copies {
			n, _ := state.Node(c.Node)
			if c.State.Follows() {
				u.Copies = append(u.Copies, baseURL(n.Addr))
			}
			if c.State.Counts() {
				u.InSync = append(u.InSync, baseURL(n.Addr))
			}
		}
		list[p.Unit] = u
	}
	return list
}

// TestListsByDifference changes a directory at random, with answers that are
// lost and nodes that begin anew: what a node holds is always what it answered
// by name, and equals the directory at that revision.
func TestListsByDifference(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		log := newTestLog(t, 1000, leased("n1"), leased("n2"), leased("n3"), &fsm.Node{Name: "n4", Addr: "https://n4:1", Token: "x"})
		var h held
		holds, epoch := map[fsm.UnitName]told(nil), ""
		var present *list
		for range 80 {
			mutate(log, r)
			if present == nil || present.rev != log.state.ListRevision("n1") {
				present = listOf(log.state, "n1")
			}
			for {
				part := h.next(present)
				fits := len(part) > 0 && (h.whole || h.base != nil && h.base.name == epoch)
				if !fits && epoch != present.name {
					if !h.lacks(epoch) {
						t.Fatalf("seed %d: the whole list does not fit", seed)
					}
					continue
				}
				if epoch != present.name {
					holds, epoch = tell(t, holds, epoch, part), present.name
				}
				break
			}
			if diff := cmp.Diff(expected(log.state, "n1"), holds); diff != "" {
				t.Fatalf("seed %d: the node holds something else (-want +got)\n%s", seed, diff)
			}
			switch r.IntN(6) {
			case 0: // the answer was lost
			case 1:
				holds, epoch = nil, ""
				h.forget()
			default:
				h.took()
			}
		}
	}
}

// mutate makes one change that matters to n1's list, or none.
func mutate(log *testLog, r *rand.Rand) {
	log.change(func(d *records, rev fsm.Revision) {
		u := fsm.UnitName(fmt.Sprint("u", r.IntN(12)))
		old, ok := d.units[u]
		switch k := r.IntN(9); {
		case !ok || k == 0: // new, or another of its name
			log.ids++
			d.units[u] = unit(string(u), uint64(log.ids), "n1")
		case k == 1:
			delete(d.units, u)
		case k == 2: // what no node is told of
			p := *old
			d.units[u] = &p
		case k == 3:
			n := *d.nodes["n3"]
			n.Addr = fmt.Sprintf("h%d:1", rev)
			d.nodes["n3"] = &n
		case k == 4: // it went away and came back
			p := *old
			p.Epoch = uint64(rev)
			d.units[u] = &p
		default:
			p := *old
			p.Copies = nil
			for _, n := range []fsm.NodeName{"n2", "n3", "n4"} {
				if s := fsm.CopyState(r.IntN(6)); s > 0 {
					p.Copies = append(p.Copies, fsm.Copy{Node: n, State: s, Entry: 1})
				}
			}
			d.units[u] = &p
		}
	}, "n1")
}

// TestListIsRenderedOncePerChange: repeats of a grant cost no second rendering.
func TestListIsRenderedOncePerChange(t *testing.T) {
	log := newTestLog(t, 1000, leased("n1"))
	log.change(func(d *records, _ fsm.Revision) { d.units["u"] = unit("u", 1, "n1") }, "n1")
	first := listOf(log.state, "n1")
	var h held
	h.next(first)
	h.lacks("")
	whole := h.next(first)
	if again := h.next(first); &again[0] != &whole[0] {
		t.Error("the whole list was rendered again")
	}
	h.took()
	log.change(func(d *records, _ fsm.Revision) { d.units["v"] = unit("v", 2, "n1") }, "n1")
	second := listOf(log.state, "n1")
	part := h.next(second)
	if again := h.next(second); &again[0] != &part[0] {
		t.Error("the difference was rendered again")
	}
	h.took()
	if got := h.next(second); got != nil {
		t.Errorf("a renewal carries %s", got)
	}
}

func BenchmarkWholeListOf10000(b *testing.B) {
	l := &list{rev: 1, addrs: map[fsm.NodeName]string{"n2": "http://10.0.0.2:8081"}}
	for i := range 10_000 {
		l.units = append(l.units, unit(fmt.Sprintf("tenant-%05d", i), uint64(i+1), "n1", fsm.Copy{Node: "n2", State: fsm.CopyInSync}))
	}
	for b.Loop() {
		b.SetBytes(int64(len(l.whole())))
	}
}

func BenchmarkDifferenceIn10000(b *testing.B) {
	l := &list{rev: 1, addrs: map[fsm.NodeName]string{"n2": "http://10.0.0.2:8081"}}
	for i := range 10_000 {
		l.units = append(l.units, unit(fmt.Sprintf("tenant-%05d", i), uint64(i+1), "n1", fsm.Copy{Node: "n2", State: fsm.CopyInSync}))
	}
	other := *l
	other.units = append(slices.Clone(l.units[1:]), unit("new", 20_000, "n1"))
	for b.Loop() {
		other.since(l)
	}
}
