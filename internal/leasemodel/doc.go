// Package leasemodel walks every interleaving of a small instance of the lease
// rule (architecture §3.5) and looks for an instant at which two nodes may
// acknowledge writes of one unit (I1).
//
// The instance is one unit, its primary under a lease, one copy, an old leader
// that never learns that it was deposed, and a new one. Messages are late, lost,
// reordered and, if the bounds say so, delivered twice; both nodes may restart;
// a process that is paused is one that takes no step while time goes on, which
// every order of steps contains. Time is whole ticks; the primary's clock may
// lose one tick in each lease, which is the tenth that clocks may drift, against
// all others. Taking a node for lapsed and the entry that says so are two steps.
//
// What the model takes away from the rule is marked where it does so. It only
// ever gives the leaders and the copy more freedom than the rule does: a
// leader may name any boot of the primary in a grant, a copy that was promoted
// writes at once and for ever, a primary asks for promises whenever it likes.
//
// A Rule is the set of clauses in force. The whole rule must have no bad state;
// each rule with one clause left out must have one, or the clause, or the
// model, says nothing.
//
// States are found breadth first, so that a trace is as short as any. A state
// that was seen is known by a 64-bit hash, as in TLC: at n states the chance
// that one was passed over is below n²/2⁶⁵.
//
// Goroutines: Walk starts some for each level and waits for them.
package leasemodel
