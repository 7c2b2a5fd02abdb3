// Package hrana is the Hrana protocol over HTTP, versions 2 and 3 in JSON, as libSQL
// clients speak it (the libSQL project's HTTP_V2_SPEC and HRANA_3_SPEC): it decodes
// the bodies of a pipeline and of a cursor, runs them on a Session that the caller
// provides, and encodes the answers. It knows neither HTTP's server nor SQLite.
//
// # Streams and batons
//
// A stream is the client's session; the baton of one answer names it in the next
// request. Between requests a stream costs something only where it has something to
// keep:
//
//   - With no open transaction and no stored statement its baton is stateless: a
//     signed statement that there is nothing to keep, taken by every node that has
//     the same key (derived from the replication token), until Config.IdleTimeout
//     after it was given. So a session outlives a move or a failover.
//   - With an open transaction the session stays here, for Config.TransactionTimeout
//     between two requests; then it is rolled back, and the baton answers
//     STREAM_EXPIRED. The same answer meets it on any other node.
//   - With stored statements alone the texts stay here, for Config.IdleTimeout.
//
// A baton is bound to the unit it was given for, cannot be forged, and can be used
// once where there is state behind it. A stateless one may be used again: it names
// nothing that a second use could find changed.
//
// A cursor sends its baton before it runs its batch, so what will be left behind has
// to be known beforehand: a batch that begins a transaction gets a baton with state.
//
// # Errors
//
// What is wrong with a request as a whole is a *ProtocolError (HTTP 400, nothing was
// executed). What is wrong with a statement is an *Error in its result, with sqld's
// codes. A *Refused is the node's: it answers the whole request where nothing had an
// effect yet, so that a proxy may send it again elsewhere, and is a statement's error
// otherwise.
//
// # Goroutines
//
// One timer per kept stream, whose function runs for as long as a rollback takes;
// Streams.Close stops them and waits.
package hrana
