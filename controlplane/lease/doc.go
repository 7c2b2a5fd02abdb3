// Package lease is the leader's side of leases (architecture §3.5): it renews
// the lease of every node that takes one, says which units the node may write,
// and tells when a node's lease has certainly lapsed.
//
// A Keeper works for one term at a time. Each node has a loop of its own, with
// one connection and at most one call under way, so that a node that is slow,
// silent or large delays no other. What a node holds as its list of units has a
// name, the revision of the last change of that list (fsm's ListRevision): a
// renewal names it and is a few hundred bytes; a change is sent as the
// difference to the list that the node last answered to hold, and whole where
// that is not known.
//
// The rules, by the clauses of architecture §3.5, and where they are kept:
//
//   - 1, 3, 4, 5: ledger, one node's numbers and times, without any I/O. A grant
//     counts as confirmed when its answer was seen before the start of a
//     leadership check that has succeeded since; the checks are run by one
//     goroutine for all nodes (confirmer).
//   - 2: the second grant of a node's process follows as soon as the first one
//     counts as confirmed.
//   - 3: a node is lapsed once now is beyond the answer to its newest answered
//     grant and the length of that grant and a tenth. Its loop sleeps until
//     exactly then; a call that is under way ends then too, and its answer is
//     never seen. From then until Resume nothing is sent to the node.
//   - 5: in a new term each node counts as granted at the later of the term's
//     start here (which is after the barrier) and the time at which the node was
//     seen in the directory, for Settings.LongestLease.
//   - 8: the clock counts suspension; each node is renewed six times in a lease.
//   - 9: grants name fsm's Grantable units: those that a flip has not been
//     promoted for are left out.
//
// A leader that was itself stopped for longer than a renewal takes asks once
// more before it takes a node for lapsed: it has not listened.
//
// Nodes that take no lease (409 takes_no_lease) are asked for the state of
// their copies each second instead, and for a grant each ten seconds: they may
// have been restarted with a lease. So are all nodes while
// Settings.AutoFailover is 0, but for the grant.
//
// # Goroutines
//
// Run starts, and waits for: one watcher of the directory, which starts and
// stops a loop for each recorded node; the loops; and the confirmer. All end
// with the context of Run. AwaitNamed runs in its caller's.
package lease
