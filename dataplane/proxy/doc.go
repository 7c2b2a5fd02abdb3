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
// A proxy of a region that keeps its own directory has two tables (find.go): that of its
// region and, from the same servers, their copy of the global directory. Its own is asked
// first; what that does not place goes by the other: to a node, where the tenant's region has no
// directory of its own, or to the tenant's region (G7).
//
// Nothing on the path of a request waits for the control plane (I9), but for a
// tenant that neither table knows, which is asked about before the client
// hears 404, and, with holding off, for a node's 421 that the table cannot explain. With a cache file the proxy forwards from the start, whether a
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
// # Other regions
//
// A region that keeps its own directory is reached by its routers (G3), the one that
// answered last first, the next one where nothing was sent (relay.go, ring.go). One that
// cannot be connected to is down, as a node is. One that takes connections and does not
// answer is found out when a request has waited for half the connect timeout: it is asked
// for its health, and lost while it does not give that. With all of them down or lost
// requests are 502 region_unreachable at once; nothing is held for that.
//
// What is relayed carries the client's address and a mark (mark.go). A proxy that finds
// a mark does not relay again between regions, nor to a node of another one: where it does
// not place the tenant it answers 421, without effect, which no client sees: the proxy that
// relayed holds the request until its tables say where it belongs. Domicile-Route tells the
// second proxy how much is left of the time for which the request may be held. Refused
// tokens are delayed, and counted for it, at the first proxy alone; a mark is made for one
// request, and one under which a token was refused means nothing the next time (spent.go).
//
// A tenant whose home is the proxy's own region, which does not place it, is between two
// homes: its requests are held until either table changes that, and 503 then (3.9.2).
//
// # Holding
//
// A request that had no effect because its unit is between two nodes waits until it
// can be sent: a node refused it (421; 503 no_lease, lease_lapsed, not_named,
// transfer_in_progress), or could not be reached and the unit has a copy or is moving
// (hold.go). It waits for up to Config.Hold, or the milliseconds of the client's
// Domicile-Hold where these are fewer; then the client gets the refusal's answer: 503
// with Retry-After, or 502 node_unreachable. What is held is bounded by number and
// memory, per unit and altogether, and a client that goes away frees its place.
//
// Each unit has a queue of its own, first in, first out. One request at a time, the
// trial, finds out whether the unit is served again: at once when the table places
// the unit elsewhere or a node that was down can be reached, and otherwise, where a
// node that can be reached refuses, after a pause that grows from 20 to 250 ms. Once
// a trial is answered the others follow in a window that grows with each answer.
// Where the node refuses with 503, only what it refused waits: it may serve reads. A
// request whose body is, or may be, over 64 KiB could not be sent again, and waits
// before its body is read. A node that is down costs nobody a connect meanwhile
// (R5).
//
// A request that a node may have got and does not answer is given up once the
// directory says that the node is lost and the unit elsewhere (Lost in refused.go): where
// R2 allows that it is sent to the new node, else the client gets 502 outcome_unknown.
//
// With Domicile-Mode: read and Domicile-Prefer: replica a request goes to an in-sync
// copy, a near one first, and to the primary where none is there, or the copy cannot
// be reached, answers 421, 503 or 504, breaks the connection or gives no answer within
// 2 s (copies.go). Nothing is executed twice by that (R2): Domicile-Route says that it was
// sent to a copy, and no node executes a write that comes so. A copy that gave no answer
// is asked again after 5 s, by one request.
//
// Domicile-Route carries the revision of the table by which a request was
// routed, not that of the unit's last change: that is what one look-up, at the
// cost of one cache miss, can tell.
//
// # Goroutines
//
//   - server: http1's, started by New and Run, ended by Run.
//   - follower: follows a directory and is the only one to change its table; one for
//     each of the two, started and ended by Run.
//   - cache keeper: writes the cache file; one for each directory, started and ended by Run.
//   - a question to the control plane: one per unknown tenant, 64 at most;
//     started by requests, waited for by Run.
//   - timer of a queue: a time.AfterFunc, ended with the queue, which ends with the
//     last request that waits in it.
//   - closing an upstream: one per node that went or changed its address, waited
//     for by Run.
package proxy
