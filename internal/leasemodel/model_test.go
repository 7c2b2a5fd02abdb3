package leasemodel

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

const room = 1 << 22

func walkSmall(t *testing.T, rule Rule, b Bounds) (*Model, Report) {
	t.Helper()
	m := &Model{Rule: rule, Bounds: b}
	r, err := m.Walk(context.Background(), room)
	if err != nil {
		t.Fatal(err)
	}
	return m, r
}

// TestI1WholeRuleHasNoInstantWithTwoWriters walks the small instances; make
// model walks the usual ones.
func TestI1WholeRuleHasNoInstantWithTwoWriters(t *testing.T) {
	for name, b := range map[string]Bounds{"leases": Small.Leases(), "promises": Small.Promises()} {
		m, r := walkSmall(t, Whole(), b)
		if r.Bad != "" {
			var out bytes.Buffer
			m.Print(&out, r.Trace)
			t.Errorf("%s: %s:\n%s", name, r.Bad, &out)
		}
		if r.States < 100_000 {
			t.Errorf("%s: only %d states: the walk is not what it says", name, r.States)
		}
	}
}

// TestI1EachClauseIsNeeded: a rule that lacks a clause has an instant with two
// writers, and the trace leads there step by step.
func TestI1EachClauseIsNeeded(t *testing.T) {
	for _, k := range Knockouts() {
		t.Run(k.Name, func(t *testing.T) {
			if testing.Short() && (k.Name == "the leadership check (4)" || k.Name == "boot numbers (1, 2)") {
				t.Skip("some seconds")
			}
			rule, b := Whole(), Small.Leases()
			if k.LeaveOut(&rule); k.Promises {
				b = Small.Promises()
			}
			m, r := walkSmall(t, rule, b)
			if r.Bad == "" {
				t.Fatalf("no bad state among %d: the clause is not needed here, or the model has no place for it", r.States)
			}
			last := r.Trace[len(r.Trace)-1].State
			if last.Bad(&m.Rule, &m.Bounds) != r.Bad || len(r.Trace) != r.Depth+1 {
				t.Errorf("the trace has %d states and ends in another one than was found at depth %d", len(r.Trace), r.Depth)
			}
			var out bytes.Buffer
			m.Print(&out, r.Trace)
			if n := strings.Count(out.String(), "\n"); n != len(r.Trace) {
				t.Errorf("the trace prints in %d lines, has %d states", n, len(r.Trace))
			}
		})
	}
}

// TestWholeRuleLetsThePrimaryWrite: the model is not safe for want of anything
// that happens: the primary may write under a lease and under a promise, and
// the copy is promoted.
func TestWholeRuleLetsThePrimaryWrite(t *testing.T) {
	for _, b := range []Bounds{Small.Leases(), Small.Promises()} {
		m := &Model{Rule: Whole(), Bounds: b}
		var lease, promise, promoted, resigned bool
		seen := map[State]bool{}
		level := m.Start()
		for len(level) > 0 && len(seen) < 300_000 {
			var next []State
			for i := range level {
				m.Each(&level[i], func(_ Step, s *State) {
					if seen[*s] {
						return
					}
					seen[*s] = true
					next = append(next, *s)
					may := s.mayWrite(&m.Rule, &m.Bounds)
					lease = lease || may && s.deadline() > 0
					promise = promise || may && s.deadline() == 0 && s.Window > 0
					promoted = promoted || s.Promoted != 0
					resigned = resigned || s.Promoted != 0 && s.List == listEmpty && s.deadline() > 0
				})
			}
			level = next
		}
		if !lease || promise != b.Promises || !promoted || !b.Promises && !resigned {
			t.Errorf("%+v: may write under a lease: %v, under a promise: %v; copy promoted: %v; former primary leased without the unit: %v", b, lease, promise, promoted, resigned)
		}
	}
}

func TestWalkSaysWhenTheTableIsFull(t *testing.T) {
	m := &Model{Rule: Whole(), Bounds: Small.Leases()}
	if _, err := m.Walk(context.Background(), 1<<16); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := m.Walk(ctx, room); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}
