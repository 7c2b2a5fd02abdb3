// Package stream serves the directory's stream: to each subscriber the whole
// directory, or the changes after what it holds, then every change as it is
// applied, and a heartbeat each second. Leaders and followers serve it alike.
//
// A Hub keeps the newest changes in a ring, each encoded once and shared by all
// subscribers, and for each subscriber a cursor into it and nothing else: there
// is no queue that could grow, drop or reorder. A subscriber whose cursor the
// ring has overtaken, or who does not take what is written to it, is cut off
// and comes back for a whole directory. That one is encoded once for all who
// ask at about the same time, and written while it is being encoded.
//
// Changes cover stretches of revisions, and servers cut the log into different
// stretches. A subscriber that comes from another server may stand inside of
// one: it is given all of its events from where it stands, which is right since
// an event replaces whatever was known of its record.
//
// # Goroutines
//
// Publish and Reset run on the group's goroutine, ServeHTTP on its request's.
// The first subscriber that needs a whole directory starts one goroutine that
// encodes it; it ends with that, or in Close, which waits for it.
package stream
