// Package stream serves the directory's stream to those who follow it
// (GET /_shard/subscribe): a snapshot, or the deltas after the revision that
// the follower has, then each delta as it is committed, then a heartbeat each
// second.
//
// A Hub keeps a bounded ring of the latest deltas, each encoded once. A follower
// is a cursor over that ring and nothing else: there is no queue for each, so
// that a slow one costs nothing, and one that fell off the ring is cut off and
// comes back for a snapshot. Simultaneous snapshots of one revision are encoded
// once and shared.
//
// Batches of entries are cut differently by each server, so that a follower
// may come from another server at a revision in the middle of a batch. Events
// are absolute (a record is put or gone, the later one counts), so it is given
// the whole batch, told as a delta from where it stands.
//
// Goroutines: none of its own; each follower is served on its request's.
package stream
