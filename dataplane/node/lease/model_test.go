package lease

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/internal/boottime"
	"domicile/proto"
)

// model is the rule as it is written (architecture §3.5.2, 6, 9), with everything
// remembered and nothing shared.
type model struct {
	term   uint64
	taken  []modelGrant // of this term, in order
	before time.Duration
	list   []string
	epoch  string
}

type modelGrant struct {
	g  proto.Grant
	at time.Duration
}

// deadline is arrival of grant j + ms, j the highest acked among those taken.
func (m *model) own() (d time.Duration, ok bool) {
	var j uint64
	for _, t := range m.taken {
		for _, of := range m.taken {
			if of.g.Grant == t.g.Acked && t.g.Acked > j {
				j = t.g.Acked
			}
		}
	}
	for _, t := range m.taken {
		if t.g.Grant == j {
			return t.at + time.Duration(t.g.MS)*time.Millisecond, true
		}
	}
	return 0, false
}

func (m *model) deadline() time.Duration {
	d, _ := m.own()
	return max(d, m.before)
}

func (m *model) take(g proto.Grant, at time.Duration) bool {
	if g.Term < m.term {
		return false
	}
	if g.Term > m.term {
		m.before = m.deadline()
		m.term, m.taken = g.Term, nil
	}
	for _, t := range m.taken {
		if g.Grant <= t.g.Grant {
			return false
		}
	}
	if g.Boot != "boot-a" || g.Primaries == nil && g.Epoch != m.epoch {
		return false
	}
	if g.Primaries != nil {
		m.list = nil
		for _, u := range *g.Primaries {
			m.list = append(m.list, string(u.Unit))
		}
		m.epoch = g.Epoch
	}
	m.taken = append(m.taken, modelGrant{g, at})
	return true
}

// TestL3RandomGrantsAgreeWithTheRule sends what leaders of several terms could have
// sent, late, lost, twice and in any order, and compares the node with the model after
// each step.
func TestL3RandomGrantsAgreeWithTheRule(t *testing.T) {
	for seed := range uint64(300) {
		if err := walk(rand.New(rand.NewPCG(seed, 1)), 120); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func walk(r *rand.Rand, steps int) error {
	clock := &boottime.Manual{}
	l, m := New(clock, "boot-a"), &model{}
	units := []string{"a", "b", "c"}
	numbers := map[uint64]uint64{}
	var sent []proto.Grant
	for step := range steps {
		clock.Advance(time.Duration(r.IntN(200)) * time.Millisecond)
		if len(sent) == 0 || r.IntN(3) > 0 {
			sent = append(sent, randomGrant(r, numbers, units))
		}
		g := sent[r.IntN(len(sent))] // anything that was sent may arrive now, or again
		_, err := l.Take(&g, clock.Now())
		if took := m.take(g, clock.Now()); took != (err == nil) {
			return fmt.Errorf("step %d: the model takes %+v: %v; the node says %v", step, g, took, err)
		}
		for _, u := range units {
			may := clock.Now() < m.deadline() && slices.Contains(m.list, u)
			if got := l.MayWrite(u, 7); (got == nil) != may {
				return fmt.Errorf("step %d at %v: unit %s: %v; the model says %v until %v", step, clock.Now(), u, got, may, m.deadline())
			}
		}
	}
	return nil
}

func randomGrant(r *rand.Rand, numbers map[uint64]uint64, units []string) proto.Grant {
	term := uint64(1 + r.IntN(3))
	numbers[term]++
	n := numbers[term]
	g := proto.Grant{MS: int64(100 + r.IntN(900)), Holder: holder(term), Grant: n, Boot: "boot-a", Acked: uint64(r.IntN(int(n)))}
	if r.IntN(10) == 0 {
		g.Boot = "boot-b"
	}
	mask := r.IntN(8)
	g.Epoch = fmt.Sprint(mask)
	if r.IntN(2) == 0 {
		list := []proto.UnitItem{}
		for i, u := range units {
			if mask>>i&1 == 1 {
				list = append(list, proto.UnitItem{Unit: fsm.UnitName(u), ID: 7})
			}
		}
		g.Primaries = &list
	}
	return g
}
