// Package node is the data node: an HTTP server (fasthttp) in front of the storage
// engine of package store. It serves the data API under /t/<tenant>/ (Hrana for
// libSQL clients, query, batch, changes), the admin protocol under /_admin/ by which
// the control plane and operators change what the node holds, and /_health, /_ready
// and /_metrics.
//
// # The way of a request
//
// handler.go finds the route, asks for the token (auth.go) before any unit is looked
// up, and counts and logs what came of it. A data request acquires its unit and is
// admitted by fence.go, the one place that decides whether a unit may be read or
// written here: once when the request arrives, again under the writer, and for the
// lease once more between commit and answer. Statements run in exec.go; query.go,
// pipeline.go and cursor.go are what surrounds them. The statement decides whether a
// request reads or writes, not its path. Answers are built in memory and written
// after the unit was let go of, so that a client that stops reading holds nothing;
// the exceptions (cursor, changes, file) stream under write deadlines.
//
// # Errors
//
// Everything negative is an *httpserve.Error, made where it is known what to do about
// it; errors.go maps those of the engine. A refusal (503 with Retry-After, 421) says
// that the request had no effect; where that is not certain the code is
// outcome_unknown.
//
// # Values in JSON
//
// query and batch carry SQLite's values as JSON's: null, numbers, strings, and blobs
// as {"base64":"…"}; true and false are bound as 1 and 0. A number without fraction
// and exponent is an integer of 64 bits and is written with all its digits, so that
// integers beyond 2^53 survive where both ends parse them as integers; JavaScript's
// JSON.parse does not, and has Hrana, where integers are strings. A float always has a
// fraction or an exponent.
//
// # Goroutines
//
//   - fasthttp's: one per connection, started by Run, ended by its shutdown.
//   - a cursor's and an image's producer: one per request, ends with its reader or its
//     batch; Run waits for it.
//   - replication, the lease's rounds without a control plane, its watch, and the
//     forgetting of promises that have run out: started by startCopies in Run, which
//     waits for them before it closes the store.
//   - a follower's connection: fasthttp's, given away to package replica; ends with the
//     connection or replication; Run waits for it.
//   - a changes stream's: fasthttp's body writer, ends when the unit goes, the client
//     goes, or Run ends it.
//   - package hrana's timers and package store's own, stopped by Run's end.
package node
