// Package balance plans which primaries change nodes so that the nodes hold
// their shares by bytes and weight (requirement B3). It is pure: the same input
// gives the same plan, in whatever order it is listed. It begins nothing.
//
// # What a node's share is
//
// All bytes are shared out by weight. A node never has to hold less than what
// is stuck on it, nor than the largest unit on it, for no move makes that
// smaller: where this is more than its share it is its share, and the others
// share what is left, again and again until no node is in that case. With units
// of one size and nodes of one weight this comes to whole units.
//
// What a draining node has to give counts in the shares of the others, for it
// comes to them, so that nothing moves twice. A node that neither takes nor
// gives is as if it did not exist.
//
// # Which moves are made
//
// While a node differs from its share by more than the threshold, the one that
// differs most, in proportion, gives to a node that lacks something or takes
// from one that has too much. It stops at the threshold: there is no memory of
// an earlier plan, so a batch of a plan and a plan of a batch are the same.
//
//   - A unit goes where it costs least: first to a node with an in-sync copy
//     (a switch-over, nothing is copied), then to any other, and only then so that
//     a copy is left in the zone of its primary, which repair would place anew.
//   - The heaviest unit is taken that brings neither the giver below its share nor
//     the taker above it; then the lightest of those that do, if it leaves the two at
//     most half as far apart and neither fuller than the giver was nor emptier than
//     the taker.
//   - One unit is moved rather than more than a hundred: what comes later in these
//     orders is taken where it weighs more than a hundred times as much.
//   - A tenth of a node's disk, counted as what is free and what its primaries
//     hold, is kept free: a plan after a plan finds the same tenth kept.
//
// Each move makes the sum over the nodes of bytes²/weight less, whatever the
// shares are: so plans end, do not undo each other, and the fullest node never
// gets fuller, nor the emptiest emptier.
//
// A plan is made in rounds, each from where the units are by then, until one
// moves nothing: planning again after it was carried out gives nothing. A unit
// that moved in two rounds is one move of the plan.
package balance
