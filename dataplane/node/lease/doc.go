// Package lease is the node's side of the lease rule (architecture §3.5): which
// units the node may write, and until when, by the grants that it took and by
// the promises of its copies; and what this node, as a copy, has promised to the
// nodes that it follows. It reads the world only through what it is given: a
// clock that counts suspension, and Peers.
//
//   - lease.go, take.go: grants (clauses 1, 2, 6, 9).
//   - right.go: whether a unit may be written (clauses 7, 9, 10), asked several
//     times in each write: it takes no lock and allocates nothing.
//   - continue.go: without a control plane (clause 10), the primary's side.
//   - promise.go: the copy's side of it.
//
// # Goroutines
//
//   - Lease.Run is the caller's; it starts one for each server that it probes and
//     each copy that it asks, and waits for them in each round.
package lease
