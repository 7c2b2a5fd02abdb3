// Package replica copies units from the node that writes them (the source) to
// nodes that follow it, by shipping each commit's pages, and knows which
// position each copy has on disk. It decides when a write counts as
// acknowledged (requirement 3.7.1) and whether a primary may write after its
// start (3.7.4). It knows nothing of leases: what it needs of them it is told
// (SetCopies), or asks (Promises).
//
// Memory: a source keeps entries for Config.MemoryBytes on the whole node, and
// Config.RingBytes for a unit; a follower holds at most twice the window of a
// connection (wireWindow) and two entries for each source, and besideWindow for
// each image.
//
// # Goroutines
//
//   - for each connection, either side: one that reads and one that writes;
//     started when it is made, awaited by whoever made it (ServeUpgrade, or the
//     link that dialled).
//   - for each source that is followed: one that dials (link.run), started by
//     the first Follow, ended by the last Unfollow or by Run's end.
//   - for each image on its way, either side: one; bounded by Config.Images for
//     each connection; ended with its connection.
//   - Config.Appliers that apply entries, for all units: started and awaited by
//     Run.
//   - the housekeeper (rings, memory): in Run itself.
package replica
