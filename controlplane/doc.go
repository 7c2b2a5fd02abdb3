// Package controlplane is a control server: one server of a group that keeps a
// directory, with the admin API on it (Server).
//
// A change goes: request → relayed to the leader unless this server leads →
// checked for what can be said without the directory → proposed to the group →
// validated and applied by fsm on every server → answered. What needs work on
// nodes (create, delete) is begun by its entry as a job and waited for. The
// leader's executor sees every running job in the directory, makes the calls
// that package loops plans, and proposes what came of them, so that a leader
// that dies anywhere leaves nothing that the next one does not finish (I8).
// Nothing but the executor changes a node.
//
// Copies, leases and failover are the leader's too: package lease grants, and
// says which nodes have lapsed and what primaries report of their copies; the
// executor acts on that as package loops plans. What it learned beside the
// directory (why a node did not do something, what was lost) it keeps for
// answers, in its term.
//
// Reads are answered by any server from its own copy of the directory, as new
// as Domicile-Revision says; with ?consistent by the leader, after it made sure
// that it still leads.
//
// # Answers to changes
//
// Every answer but 503 outcome_unknown, create_pending and delete_pending says
// that the change was made, or that nothing happened. outcome_unknown: it may
// have been made; the same Idempotency-Key asked again tells. create_pending
// and delete_pending: it is recorded, and the work goes on. Each 503 carries
// Retry-After.
//
// An Idempotency-Key stands for one method, path, query and body. Answers that
// were given before anything was proposed (400, 502 of a node that was asked
// before it was recorded, 503) are not remembered: the same key may be asked
// again. Of the changes of the group's servers, a removal is remembered. Adding
// one twice does the same as once, and a hand-over of leadership concerns the
// leader who is asked: those keys are checked and not remembered.
//
// # Decisions where the API leaves room
//
//   - A node is asked (N5) when it is new and when addr or token is given; a
//     change of zone, standby or weight needs no node that answers.
//   - A failover by hand never shortens a lease: force stands for nodes that take
//     none, and lets copies be promoted that may lack acknowledged writes.
//   - The states of nodes are the leader's to tell: other servers ask it, and
//     answer by the directory alone where they cannot.
//   - A node's weight is 1 when none is given; 0 takes no new tenants.
//   - Unknown query parameters, repeated ones, and JSON null are 400: each could
//     be read in two ways.
//   - A page of tenants holds 1,000 unless limit (up to 10,000) says otherwise.
//   - A tenant whose create is being undone is shown as deleting.
//
// # Goroutines
//
// Run starts, and waits for: the HTTP server with its connections; the group
// (see package group); the watcher of leadership, which feeds GET
// /_shard/events; and the one that stops the HTTP server when ctx ends. The
// group runs, while this server leads: the keeper of leases (package lease), the
// executor's loop, which starts a
// watcher of the directory and one goroutine for each call to a node and each
// proposal, all ended when the term's context ends; and the keeper of usage.
// A create, and the keeper, ask nodes for their usage with one goroutine each,
// and wait for them. A relayed request has one that looks whether the leader is
// still the leader; a failover by hand that waits for a lease has one that
// waits for the directory to change.
package controlplane
