// Package global is a region's copy of the global directory: a server of a region's
// group follows the global group as proxies follow a group, keeps what it is told in
// memory and on disk, and serves it on to the proxies of its region.
//
// A copy is taken from the global group that the region belongs to and from no other.
// Which one that is the region's own directory says: the first one that is met is
// recorded there by an entry, and from then on another group's directory, or one of an
// older history, is refused whatever a server was started with (R4).
//
// # Goroutines
//
// Run works on its caller's goroutine and starts two: one reads the stream (package
// follow), one writes the cache. Both have ended when Run returns. Directories are
// immutable and read by anyone; the reader of the stream alone makes them.
package global
