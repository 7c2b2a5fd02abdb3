// Package proxy is Domicile's stateless proxy: it follows the directory and
// forwards each request to the node that holds its tenant.
//
// # What it knows
//
// A [Proxy] keeps a table of the directory: which node holds which unit, at one
// revision. The table is immutable behind one atomic pointer, so that a request
// finds its node without a lock and without allocating; a change of the directory
// makes the next table by copying a few kilobytes. The table is a hint: the node
// decides whether it holds what it is asked for (I6), and where it says that it
// does not, the proxy looks again.
//
// Nothing on the path of a request waits for the control plane (I9), but for a
// tenant that the table does not know: that is asked about before the client
// hears 404. With a cache file the proxy forwards from the start, whether a
// control server can be reached or not (R3).
//
// # How it decides
//
// The HTTP engine is in http1; [handler] says where a request goes (route.go),
// and what follows where a node refused without effect (refused.go). A tenant is
// named by the path, /t/<tenant>/ or /t/<tenant>/b/<bucket>/, of which no byte
// is decoded or cleaned; or, with a domain, by the host. An empty name is 404, a
// name that no tenant can have 400. A node's 404 goes to the client as it is: a
// stale table may name a node for a tenant that was deleted.
//
// Domicile-Route carries the revision of the table by which a request was
// routed, not that of the unit's last change: that is what one look-up, at the
// cost of one cache miss, can tell.
//
// # Goroutines
//
//   - server: http1's, started by New and Run, ended by Run.
//   - follower: follows the directory and is the only one to change the table;
//     started and ended by Run.
//   - cache keeper: writes the cache file; started and ended by Run.
//   - a question to the control plane: one per unknown tenant, 64 at most;
//     started by requests, waited for by Run.
//   - closing an upstream: one per node that went or changed its address, waited
//     for by Run.
package proxy
