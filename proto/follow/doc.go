// Package follow keeps a copy of a directory by following its stream from any
// of its servers: a snapshot, then deltas without a gap. It comes back with the
// revision that it has, changes servers, backs off, and never takes an older,
// cut or foreign directory (requirement R4).
//
// Goroutines: none of its own; Run is the caller's.
package follow
