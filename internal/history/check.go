package history

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// ErrUndecided says that a checker ran out of time.
var ErrUndecided = errors.New("not decided in time")

// Logs are what the units hold at the end: for each write that took effect its
// id and how many writes there were with it, as LogQuery gives them.
type Logs map[string][]Register

// Check runs every checker. patience is for each unit.
func Check(ops []*Op, logs Logs, patience time.Duration) error {
	return errors.Join(Present(ops, logs), OneWriter(ops), ReadYourWrites(ops), Linearizable(ops, logs, patience))
}

func byUnit(ops []*Op) map[string][]*Op {
	units := map[string][]*Op{}
	for _, o := range ops {
		units[o.Unit] = append(units[o.Unit], o)
	}
	return units
}

// Present checks that each acknowledged write is there exactly once, each
// refused one is not, and nothing is there that nobody wrote.
func Present(ops []*Op, logs Logs) error {
	var errs []error
	for unit, ops := range byUnit(ops) {
		times := map[int64]int{}
		for _, w := range logs[unit] {
			times[w.Last]++
		}
		for _, o := range ops {
			if o.Kind != Write {
				continue
			}
			n := times[o.ID]
			delete(times, o.ID)
			switch {
			case o.Outcome == OK && n == 0:
				errs = append(errs, fmt.Errorf("unit %s: write %d was acknowledged at %v with position %v and is gone", unit, o.ID, o.End, o.Position))
			case o.Outcome == Refused && n > 0:
				errs = append(errs, fmt.Errorf("unit %s: write %d was refused (%s) and is there", unit, o.ID, o.Why))
			case n > 1:
				errs = append(errs, fmt.Errorf("unit %s: write %d is there %d times", unit, o.ID, n))
			}
		}
		for id := range times {
			errs = append(errs, fmt.Errorf("unit %s: nobody wrote %d, and it is there", unit, id))
		}
	}
	return errors.Join(errs...)
}

// OneWriter checks by positions that no two nodes acknowledged at a time: a
// write that begins after another was acknowledged has a higher position (so
// that after an epoch's first acknowledgement none of an older one comes), and
// no position was given twice.
func OneWriter(ops []*Op) error {
	var errs []error
	for unit, ops := range byUnit(ops) {
		var acked []*Op
		given := map[Position]*Op{}
		for _, o := range ops {
			if o.Kind != Write || o.Outcome != OK {
				continue
			}
			if o.Position == (Position{}) {
				errs = append(errs, fmt.Errorf("unit %s: write %d was acknowledged without a position", unit, o.ID))
				continue
			}
			if p := given[o.Position]; p != nil && !o.Replayed {
				errs = append(errs, fmt.Errorf("unit %s: writes %d and %d were both acknowledged at %v", unit, p.ID, o.ID, o.Position))
			}
			if !o.Replayed {
				given[o.Position] = o
			}
			acked = append(acked, o)
		}
		ended := slices.Clone(acked)
		slices.SortFunc(ended, func(a, b *Op) int { return int(a.End - b.End) })
		slices.SortFunc(acked, func(a, b *Op) int { return int(a.Begin - b.Begin) })
		var highest *Op
		for _, o := range acked {
			for len(ended) > 0 && ended[0].End < o.Begin {
				if e := ended[0]; highest == nil || e.Position.Compare(highest.Position) > 0 {
					highest = e
				}
				ended = ended[1:]
			}
			if highest != nil && o.Position.Compare(highest.Position) < 0 {
				errs = append(errs, fmt.Errorf("unit %s: write %d began at %v and was acknowledged at %v, after write %d had been acknowledged (%v) at %v", unit, o.ID, o.Begin, o.Position, highest.ID, highest.End, highest.Position))
			}
		}
	}
	return errors.Join(errs...)
}

// ReadYourWrites checks reads that named the position of a write: they saw it.
func ReadYourWrites(ops []*Op) error {
	var errs []error
	for _, o := range ops {
		if o.Outcome == OK && o.After != nil && o.Seen.Count < o.After.Seen.Count {
			errs = append(errs, fmt.Errorf("unit %s: a read after %v (write %d, count %d) saw count %d", o.Unit, o.After.Position, o.After.ID, o.After.Seen.Count, o.Seen.Count))
		}
	}
	return errors.Join(errs...)
}

// registerModel is a unit's register for porcupine. A write of which nobody knows
// what it saw has a Count of 0.
var registerModel = porcupine.Model{
	Init: func() any { return Register{} },
	Step: func(state, input, _ any) (bool, any) {
		s, o := state.(Register), input.(*Op)
		if o.Kind == Read {
			return s == o.Seen, s
		}
		s = Register{Last: o.ID, Count: s.Count + 1}
		return o.Seen.Count == 0 || s == o.Seen, s
	},
}

// Linearizable checks that each unit's operations took effect one at a time,
// each between its begin and its end. Reads of copies are not meant. It ends
// with ErrUndecided where patience, for each unit, was not enough.
//
// Of an unknown write the unit's log tells at which count it took effect; one
// that is not there, and that nobody saw, had none. This only takes away orders
// that the log contradicts, and the many that are to be tried otherwise.
func Linearizable(ops []*Op, logs Logs, patience time.Duration) error {
	var errs []error
	for unit, ops := range byUnit(ops) {
		all := operations(ops, logs[unit])
		switch porcupine.CheckOperationsTimeout(registerModel, all, patience) {
		case porcupine.Illegal:
			errs = append(errs, fmt.Errorf("unit %s: its %d operations are not linearizable%s", unit, len(all), contradiction(all)))
		case porcupine.Unknown:
			errs = append(errs, fmt.Errorf("unit %s: whether %d operations are linearizable is %w", unit, len(all), ErrUndecided))
		}
	}
	return errors.Join(errs...)
}

// contradiction names two operations of which the later one saw less than the
// earlier one, for people; "" where no two alone contradict each other.
func contradiction(all []porcupine.Operation) string {
	for _, a := range all {
		for _, b := range all {
			first, then := a.Input.(*Op), b.Input.(*Op)
			if a.Return < b.Call && then.Seen.Count != 0 && then.Seen.Count < first.Seen.Count {
				return fmt.Sprintf(": %s %d (%v to %v, at %v) saw count %d, and %s %d (%v to %v, at %v, %s) after it count %d",
					first.Kind, first.ID, first.Begin, first.End, first.Position, first.Seen.Count,
					then.Kind, then.ID, then.Begin, then.End, then.Position, then.Outcome, then.Seen.Count)
			}
		}
	}
	return ""
}

// operations are one unit's, as porcupine takes them.
func operations(ops []*Op, log []Register) (all []porcupine.Operation) {
	counts, seen := map[int64]int64{}, map[int64]bool{}
	for _, w := range log {
		counts[w.Last] = w.Count
	}
	for _, o := range ops {
		if o.Outcome == OK && o.Kind != CopyRead {
			seen[o.Seen.Last] = true
		}
	}
	for _, o := range ops {
		if o.Kind == CopyRead || o.Outcome == Refused || o.Kind == Read && o.Outcome != OK {
			continue
		}
		end := int64(o.End)
		if o.Outcome == Unknown {
			end = math.MaxInt64
			count, there := counts[o.ID]
			if !there && !seen[o.ID] {
				continue
			}
			known := *o
			known.Seen = Register{Last: o.ID, Count: count}
			o = &known
		}
		all = append(all, porcupine.Operation{ClientId: len(all), Input: o, Call: int64(o.Begin), Return: end})
	}
	return all
}
