// Package fsm is the directory: a pure, deterministic state machine that says
// which node holds which tenant, and what work is under way.
//
// A State changes only by Apply, which takes one committed entry and answers
// with a Result and the Events that say what changed. Everything that is ever
// validated is validated there (invariant I3): a Command is a conditional
// write that carries what it was decided on, and is refused when that has
// passed. Nothing here reads a clock, draws a random number, does I/O or
// starts a goroutine; times and chosen values arrive in the entry.
//
// State is persistent: Snapshot is O(1) and shares structure with the state it
// was taken from, so that a read, a snapshot and a subscriber's first load are
// each one pointer. Records are immutable once they are in a State; to change
// one, copy it, change the copy, put it.
//
// A View is the reducer of Events, used by whoever follows the directory: the
// View at revision r equals the projection of the State at r.
//
// To add a command: give it a number in command.go (numbers are never reused),
// a struct with a comment that says who proposes it and what it expects, a
// case in Apply, the events it makes, the invariants in Check, its wire form
// in package proto, a golden log, and the member version that knows it.
package fsm
