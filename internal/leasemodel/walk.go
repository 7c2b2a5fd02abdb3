package leasemodel

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
)

// ErrTooLarge says that the set of states has no room left.
var ErrTooLarge = errors.New("the table of states is full: give it more room, or make the instance smaller")

// Report is what a walk found.
type Report struct {
	States, Steps int64
	Depth         int
	Bad           string  // what is wrong with the last state of Trace, or ""
	Trace         []Found // shortest way to a bad state
}

// Found is a state of a trace and the step that led to it.
type Found struct {
	Step  Step
	State State
}

// Walk visits every state of m that can be reached, breadth first, until one is
// bad or none is left. room is the number of states that fit, a power of two; a
// state takes 16 bytes. It ends with ErrTooLarge when nine tenths are taken, or
// with the context's error.
func (m *Model) Walk(ctx context.Context, room int) (Report, error) {
	w := &walk{m: m, seed: maphash.MakeSeed(), seen: newTable(1 << 16)}
	var level []State
	for _, s := range m.Start() {
		m.settle(&s)
		if w.seen.add(w.hash(&s), 0) {
			level = append(level, s)
		}
	}
	var r Report
	for len(level) > 0 && w.bad.Load() == nil {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		w.seen = w.seen.grown(room)
		level = w.next(level)
		r.Depth++
		if w.seen.full.Load() || w.seen.used.Load() > int64(len(w.seen.hashes))*9/10 {
			return r, ErrTooLarge
		}
	}
	r.States, r.Steps = w.seen.used.Load(), w.steps.Load()
	if b := w.bad.Load(); b != nil {
		r.Bad = b.Bad(&m.Rule, &m.Bounds)
		r.Trace = w.trace(b)
	}
	return r, nil
}

type walk struct {
	m     *Model
	seed  maphash.Seed
	seen  *table
	steps atomic.Int64
	bad   atomic.Pointer[State]
}

func (w *walk) hash(s *State) uint64 { return max(1, maphash.Comparable(w.seed, *s)) }

// next gives the states that one step leads to from those of a level and that
// were not seen before.
func (w *walk) next(level []State) []State {
	workers := runtime.GOMAXPROCS(0)
	parts := make([][]State, workers)
	var taken atomic.Int64
	const share = 256
	var wait sync.WaitGroup
	for i := range workers {
		wait.Go(func() {
			steps := int64(0)
			defer func() { w.steps.Add(steps) }()
			for {
				end := int(taken.Add(share))
				if end-share >= len(level) || w.bad.Load() != nil {
					return
				}
				for j := end - share; j < min(end, len(level)); j++ {
					from := w.hash(&level[j])
					w.m.Each(&level[j], func(_ Step, n *State) {
						steps++
						if !w.seen.add(w.hash(n), from) {
							return
						}
						if n.Bad(&w.m.Rule, &w.m.Bounds) != "" {
							bad := *n
							w.bad.CompareAndSwap(nil, &bad)
						}
						parts[i] = append(parts[i], *n)
					})
				}
			}
		})
	}
	wait.Wait()
	var all []State
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// trace walks from a start to s again, along the hashes by which s was found.
func (w *walk) trace(s *State) []Found {
	var chain []uint64
	for h := w.hash(s); h != 0; h = w.seen.from(h) {
		chain = append(chain, h)
	}
	var now State
	for _, s := range w.m.Start() {
		if w.m.settle(&s); w.hash(&s) == chain[len(chain)-1] {
			now = s
		}
	}
	trace := []Found{{State: now}}
	for i := len(chain) - 2; i >= 0; i-- {
		var found *Found
		w.m.Each(&now, func(step Step, n *State) {
			if found == nil && w.hash(n) == chain[i] {
				found = &Found{step, *n}
			}
		})
		if found == nil {
			panic(fmt.Sprintf("no step leads to state %x, which was found from this one", chain[i]))
		}
		trace = append(trace, *found)
		now = found.State
	}
	return trace
}

// table is a set of hashes, each with the one from which it was found. Writers
// do not wait for each other; from and grow are called when they have ended.
type table struct {
	hashes []atomic.Uint64
	froms  []uint64
	used   atomic.Int64
	full   atomic.Bool
}

func newTable(size int) *table {
	return &table{hashes: make([]atomic.Uint64, size), froms: make([]uint64, size)}
}

// add reports whether h is new. A table that has no room sets full.
func (t *table) add(h, from uint64) bool {
	mask := uint64(len(t.hashes) - 1)
	for i, n := h&mask, 0; n < len(t.hashes); i, n = (i+1)&mask, n+1 {
		was := t.hashes[i].Load()
		if was == 0 {
			if t.hashes[i].CompareAndSwap(0, h) {
				t.froms[i] = from
				t.used.Add(1)
				return true
			}
			was = t.hashes[i].Load()
		}
		if was == h {
			return false
		}
	}
	t.full.Store(true)
	return false
}

func (t *table) from(h uint64) uint64 {
	mask := uint64(len(t.hashes) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		if t.hashes[i].Load() == h {
			return t.froms[i]
		}
	}
}

// grown gives a table with at least four times the room that is used, but not
// more slots than most.
func (t *table) grown(most int) *table {
	size := len(t.hashes)
	for size < most && t.used.Load()*4 > int64(size) {
		size *= 2
	}
	if size == len(t.hashes) {
		return t
	}
	n := newTable(size)
	for i := range t.hashes {
		if h := t.hashes[i].Load(); h != 0 {
			n.add(h, t.froms[i])
		}
	}
	return n
}
