// Package proto is what crosses a wire: protobuf of log entries, snapshots and
// the directory's stream (domicile.proto, wire_*.go), JSON of the admin API
// and of the node protocol (admin.go, node.go), and the codes of answers with
// their statuses (codes.go).
//
// Numbers of protobuf fields, codes and header names are never reused; fields
// are only added. What a binary does not know it refuses; it skips nothing.
// Goroutines: none.
package proto
