// Package loops holds the planners of a group's leader: functions that look at
// the whole directory and say what is to be done next. They are pure: no I/O,
// no clock, no randomness, no goroutine. They are level-triggered: a call or a
// proposal that was lost is planned again, because the state still asks for it.
//
// Next plans one round. What a leader has learned from nodes in its own term
// stands in a Memory beside the state; a new leader starts with an empty one,
// and each step is such that beginning it again is harmless.
//
// # Jobs
//
// Work of more than one step (invariant I8):
//
//   - make: a node that holds the unit under the job's unit id answers as if it
//     had made it now.
//   - schema: SQL must run once, and a leader that took the job over cannot know
//     whether it did. It removes the unit, makes it again and runs the SQL on
//     the empty one; nobody else could write to it yet. A late call of the
//     former leader is refused by the node, which has heard the newer term.
//   - undo, remove: done when the node has said that it does not hold the unit.
//     A create that began in this term and certainly never reached its node
//     (the connection was refused) is undone without asking it. Where this
//     term's make got no answer, it may still arrive; the unit is asked for a
//     second time, ConfirmAfter later, before it counts as gone.
//   - release, thaw: a handover. The source gives units up for the job, and
//     answers the same when it is asked again; it takes back what it did not
//     give up and what still belongs to it.
//
// # Regions
//
// What a job of the global group needs of a region, that region's group does as its
// task (tasks.go): one call at a time to each, which may be repeated. A tenant goes from
// one directory to another by a job of the global group (relocate.go) and a task at either
// side (depart.go, receive.go).
//
// # Nodes
//
// A node whose lease has certainly lapsed is failed over by one entry; one that
// was lost and answers is said to be back, and what it holds is compared with
// the directory; one that stops, or lacks what a copy has, hands over. What a
// primary reports of its copies takes them from syncing to joining to in sync,
// or back to syncing (architecture §3.7.1).
//
// # Units
//
// Each unit of which something was heard is looked at: a flipped one is
// promoted, in calls of many, and its copies follow the new primary; copies that
// are missing or badly placed are asked for after a grace, those that are too
// many leave once as many as are wanted are in sync without them, and are
// removed after another grace. A unit that needs nothing is remembered nowhere;
// every ScanEvery all units are looked at, a part in each round.
//
// # Recovery
//
// While the directory is being recovered nothing of this is planned: nodes are read,
// units taken over and the recovery ended (architecture §3.8.3; recovery.go).
//
// A node that does not answer delays no other node's work: calls are limited
// for each node apart, and a silent node is asked by one call at a time.
package loops
