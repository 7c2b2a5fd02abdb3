package lease

import (
	"errors"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/internal/boottime"
	"domicile/proto"
)

const ms = time.Second // of the grants in these tests

// node is a lease under a clock that the test moves.
type node struct {
	*Lease
	t     testing.TB
	clock *boottime.Manual
}

func newNode(t testing.TB) *node {
	clock := &boottime.Manual{}
	return &node{New(clock, "boot-a"), t, clock}
}

func holder(term uint64) proto.Holder {
	return proto.Holder{Authority: "c1/eu", History: 1, Term: term}
}

// grant makes a renewal of term 1.
func grant(number, acked uint64) proto.Grant {
	return proto.Grant{MS: ms.Milliseconds(), Epoch: "5", Holder: holder(1), Grant: number, Acked: acked, Boot: "boot-a"}
}

// naming makes it carry the list, whole.
func naming(g proto.Grant, units ...fsm.UnitName) proto.Grant {
	list := make([]proto.UnitItem, len(units))
	for i, u := range units {
		list[i] = proto.UnitItem{Unit: u, ID: 7}
	}
	g.Primaries = &list
	return g
}

func (n *node) take(g proto.Grant) Change {
	n.t.Helper()
	c, err := n.Take(&g, n.clock.Now())
	if err != nil {
		n.t.Fatalf("grant %d: %v", g.Grant, err)
	}
	return c
}

// refuse wants a grant refused with an error like want, and nothing changed by it.
func refuse[E error](n *node, g proto.Grant) (e E) {
	n.t.Helper()
	before := n.State()
	_, err := n.Take(&g, n.clock.Now())
	e, ok := errors.AsType[E](err)
	if !ok {
		n.t.Fatalf("grant %d: %v, want %T", g.Grant, err, e)
	}
	if after := n.State(); after != before {
		n.t.Errorf("grant %d was refused and changed %+v to %+v", g.Grant, before, after)
	}
	return e
}

// want checks whether the unit may be written.
func (n *node) want(unit string, want error) {
	n.t.Helper()
	if err := n.MayWrite(unit, 7); !errors.Is(err, want) {
		n.t.Errorf("at %v unit %s: %v, want %v", n.clock.Now(), unit, err, want)
	}
}

// held is a node with a confirmed lease for the units: grant 1 came at 0, grant 2 a
// tenth of ms later.
func held(t testing.TB, units ...fsm.UnitName) *node {
	n := newNode(t)
	n.take(naming(grant(1, 0), units...))
	n.clock.Advance(ms / 10)
	n.take(grant(2, 1))
	return n
}

// Clause 1 and 2: a grant confirms nothing by itself.
func TestL3AGrantCountsOnceItsAnswerWasSeen(t *testing.T) {
	n := newNode(t)
	n.want("a", ErrNoLease)
	n.take(naming(grant(1, 0), "a"))
	n.want("a", ErrNoLease)
	n.take(grant(2, 0)) // its answer to 1 was lost
	n.want("a", ErrNoLease)
	n.take(grant(3, 2))
	n.want("a", nil)
	n.want("b", ErrNotNamed)
}

// Clause 2: the time runs from the arrival of the grant that is confirmed, not of the
// one that confirms it.
func TestL3TheLeaseRunsFromTheArrivalOfTheConfirmedGrant(t *testing.T) {
	n := newNode(t)
	n.take(naming(grant(1, 0), "a"))
	n.clock.Advance(ms / 2)
	n.take(grant(2, 1))
	n.clock.Advance(ms/2 - 1)
	n.want("a", nil)
	n.clock.Advance(1)
	n.want("a", ErrLapsed)
	n.take(grant(3, 1)) // confirms nothing new
	n.want("a", ErrLapsed)
	n.take(grant(4, 3))
	n.want("a", nil)
}

// Clause 2: what confirms counts by its number, which must have been taken here.
func TestL3AnUnknownGrantConfirmsNothing(t *testing.T) {
	n := newNode(t)
	n.take(naming(grant(5, 4), "a"))
	n.want("a", ErrNoLease)
	n.take(grant(9, 7))
	n.want("a", ErrNoLease)
	n.take(grant(10, 5))
	n.want("a", nil)
	n.clock.Advance(ms)
	n.take(grant(11, 5))
	n.want("a", ErrLapsed)
}

// Clause 2: old numbers, other boots and lists that are not held change nothing.
func TestL3GrantsOutOfOrderChangeNothing(t *testing.T) {
	n := held(t, "a")
	if e := refuse[*StaleError](n, naming(grant(2, 1), "b")); e.Newest != 2 {
		t.Errorf("%+v", e)
	}
	refuse[*StaleError](n, naming(grant(1, 0)))
	n.want("a", nil)
	n.want("b", ErrNotNamed)
}

func TestL3AGrantForAnotherBootIsNotTaken(t *testing.T) {
	n := held(t, "a")
	g := grant(3, 2)
	g.Boot = "boot-z"
	if e := refuse[*NotHeldError](n, g); e.Boot != "boot-a" || e.Epoch != "5" {
		t.Errorf("%+v", e)
	}
	n.take(grant(4, 3)) // 3 was not taken, so nothing is confirmed
	n.clock.Advance(ms * 9 / 10)
	n.want("a", ErrLapsed)
}

func TestL3AListThatIsNotHeldIsNotTaken(t *testing.T) {
	n := held(t, "a")
	g := grant(3, 2)
	g.Epoch = "6"
	if e := refuse[*NotHeldError](n, g); e.Epoch != "5" {
		t.Errorf("%+v", e)
	}
	g.Base, g.Add = "4", []proto.UnitItem{{Unit: "b", ID: 7}}
	refuse[*NotHeldError](n, g)
	n.want("b", ErrNotNamed)
	n.clock.Advance(ms * 9 / 10) // 3 confirmed nothing: 1 has run out
	n.want("a", ErrLapsed)
}

// Clause 9: a unit no longer named is not written from that moment, one newly named is
// written under the time that is left.
func TestL1TheListTakesEffectWithItsGrant(t *testing.T) {
	n := held(t, "a", "b")
	g := grant(3, 1)
	g.Epoch, g.Base = "6", "5"
	g.Add, g.Remove = []proto.UnitItem{{Unit: "c", ID: 7}}, []proto.UnitItem{{Unit: "a"}}
	g.Copies = map[fsm.UnitName][]string{"c": {"http://x", "http://y"}}
	g.InSync = map[fsm.UnitName][]string{"c": {"http://y"}}
	c := n.take(g)
	if c.Whole || !slices.Equal(c.Gone, []string{"a"}) || len(c.Changed) != 1 || c.Changed[0].Name != "c" ||
		len(c.Changed[0].Copies) != 2 || !slices.Equal(c.Changed[0].InSync, []string{"http://y"}) {
		t.Errorf("%+v", c)
	}
	n.want("a", ErrNotNamed)
	n.want("b", nil)
	n.want("c", nil)
	g.Grant = 4 // its answer was lost: the same difference again
	if c := n.take(g); len(c.Changed)+len(c.Gone) != 0 {
		t.Errorf("a difference was applied twice: %+v", c)
	}
	if err := n.MayWrite("c", 8); !errors.Is(err, ErrNotNamed) {
		t.Errorf("another unit of the same name: %v", err)
	}
}

// Clause 6: nothing older is taken after a newer holder, whose grants do not shorten
// the time that is left, nor count before one of them is confirmed.
func TestL4ANewerTermEndsTheOlder(t *testing.T) {
	n := held(t, "a") // until ms
	g := naming(grant(1, 0), "a")
	g.Holder, g.Epoch = holder(2), "9"
	n.take(g)
	n.want("a", nil)
	if e := refuse[*OlderError](n, grant(3, 2)); e.Holder != holder(2) {
		t.Errorf("%+v", e)
	}
	n.clock.Advance(ms / 2)
	g = grant(2, 0)
	g.Holder, g.Epoch = holder(2), "9"
	n.take(g)
	n.clock.Advance(ms*4/10 - 1)
	n.want("a", nil)
	n.clock.Advance(1)
	n.want("a", ErrLapsed)
	g.Grant, g.Acked = 3, 2
	n.take(g)
	n.want("a", nil)
}

// Clause 6: the later of the two counts where the newer holder's leases are shorter.
func TestL4TheTimeLeftIsNotShortened(t *testing.T) {
	n := held(t, "a") // until ms
	for i := range uint64(2) {
		g := grant(i+1, i)
		g.Holder, g.MS = holder(2), 100
		n.take(g)
	}
	n.clock.Advance(ms*9/10 - 1)
	n.want("a", nil)
	n.clock.Advance(1)
	n.want("a", ErrLapsed)
}

// Clause 6: numbers of an older holder's grants mean nothing under a newer one.
func TestL4NumbersBelongToTheirTerm(t *testing.T) {
	n := held(t, "a")
	g := grant(3, 2)
	g.Holder = holder(2)
	n.take(g) // acked 2 is not this holder's
	n.clock.Advance(ms * 9 / 10)
	n.want("a", ErrLapsed)
}

// A recovered history may use the names of lists anew.
func TestAListBelongsToItsHistory(t *testing.T) {
	n := held(t, "a")
	g := grant(1, 0)
	g.Holder = proto.Holder{Authority: "c1/eu", History: 2, Term: 1}
	refuse[*NotHeldError](n, g)
	n.want("a", nil) // the time left
}

// A shorter lease takes effect with the grant that is confirmed.
func TestTheConfirmedGrantSaysHowLong(t *testing.T) {
	n := held(t, "a")
	g := grant(3, 2)
	g.MS = 100
	n.take(g)
	g.Grant, g.Acked = 4, 3
	n.take(g)
	n.clock.Advance(100*time.Millisecond - 1)
	n.want("a", nil)
	n.clock.Advance(1)
	n.want("a", ErrLapsed)
}

func TestGarbledGrantsChangeNothing(t *testing.T) {
	n := held(t, "a")
	for name, edit := range map[string]func(*proto.Grant){
		"no ms":              func(g *proto.Grant) { g.MS = 0 },
		"negative ms":        func(g *proto.Grant) { g.MS = -5 },
		"an endless ms":      func(g *proto.Grant) { g.MS = 1 << 60 },
		"no epoch":           func(g *proto.Grant) { g.Epoch = "" },
		"no number":          func(g *proto.Grant) { g.Grant, g.Acked = 0, 0 },
		"confirming itself":  func(g *proto.Grant) { g.Acked = g.Grant },
		"confirming a later": func(g *proto.Grant) { g.Acked = 99 },
		"both lists":         func(g *proto.Grant) { *g = naming(*g, "b"); g.Base = "5" },
		"no base":            func(g *proto.Grant) { g.Add = []proto.UnitItem{{Unit: "b"}} },
		"twice":              func(g *proto.Grant) { *g = naming(*g, "b", "b") },
		"added and removed":  func(g *proto.Grant) { g.Base = "5"; g.Add = []proto.UnitItem{{Unit: "b"}}; g.Remove = g.Add },
		"a bad name":         func(g *proto.Grant) { *g = naming(*g, "../x") },
		"copies of others":   func(g *proto.Grant) { *g = naming(*g, "b"); g.Copies = map[fsm.UnitName][]string{"c": {"x"}} },
		"an empty address":   func(g *proto.Grant) { g.Copies = map[fsm.UnitName][]string{"a": {""}} },
		"in sync, no copy":   func(g *proto.Grant) { g.InSync = map[fsm.UnitName][]string{"a": {"x"}} },
	} {
		g := grant(3, 2)
		edit(&g)
		t.Run(name, func(t *testing.T) { refuse[*MalformedError](n, g) })
	}
	n.take(grant(3, 2)) // nothing was lost
	n.want("a", nil)
}

// A list of ten thousand units is not copied for a difference of one, and asking for a
// unit allocates nothing.
func TestTheListIsShared(t *testing.T) {
	n := newNode(t)
	names := make([]fsm.UnitName, 10_000)
	for i := range names {
		names[i] = fsm.UnitName("tenant-" + strconv.Itoa(i))
	}
	n.take(naming(grant(1, 0), names...))
	n.take(grant(2, 1))
	if a := testing.AllocsPerRun(100, func() { _ = n.MayWrite("tenant-77", 7) }); a != 0 {
		t.Errorf("%v allocations to ask for a unit", a)
	}
	var before, after runtime.MemStats
	const rounds = 100
	runtime.ReadMemStats(&before)
	for i := range rounds {
		g := grant(uint64(3+i), 1)
		g.Base, g.Epoch = strconv.Itoa(5+i), strconv.Itoa(6+i)
		g.Remove = []proto.UnitItem{{Unit: names[i*7]}}
		n.take(g)
	}
	runtime.ReadMemStats(&after)
	bytes := (after.TotalAlloc - before.TotalAlloc) / rounds
	if bytes > 100_000 {
		t.Errorf("a difference of one unit takes %d bytes", bytes)
	}
}

func BenchmarkMayWrite(b *testing.B) {
	n := held(b, "a", "b", "c")
	b.ReportAllocs()
	for b.Loop() {
		if n.MayWrite("b", 7) != nil {
			b.Fatal("refused")
		}
	}
}
