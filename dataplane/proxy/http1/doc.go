// Package http1 is the HTTP/1.1 reverse-proxy engine of a Domicile proxy. It
// reads a request's head in place, asks a [Handler] where the request goes, and
// passes on the bytes that arrived. It knows nothing of tenants, nodes' names or
// the directory.
//
// # What it promises
//
//   - Target, method, header names and values, their order, bodies and trailers
//     reach the other side byte for byte (R1). Taken off: hop-by-hop fields and
//     what Connection names. Added: X-Request-Id and the lines that the Handler
//     asks for.
//   - Nothing that may have reached a node is sent again, unless the method is
//     GET, HEAD or OPTIONS or the client sent an Idempotency-Key; and then once (R2).
//   - A node that is lost, by the word of who knows, is not waited for longer than the
//     Handler wants it to be (Lost).
//   - What two parsers could read differently (two lengths, bare CR or LF,
//     folded lines …) is refused with 400 and never reaches a node. Answers of
//     nodes are read as strictly: 502.
//   - What is refused without effect, or cannot be decided about at once, the Handler
//     may keep waiting, and send elsewhere: with at most 64 KiB of its body kept.
//   - A node that cannot be reached costs a request one bounded connect, then
//     nothing until a probe reaches it (R5).
//
// # How it works
//
// A goroutine serves a client connection. On Linux it reads and writes by raw
// non-blocking system calls and parks in the runtime's poller only when the
// kernel says "would block"; TLS and other platforms go through [net.Conn]. An
// idle connection holds no buffer. No per-request deadline is set: each
// connection publishes one word (phase and time) and the reaper wakes those that
// overstayed.
//
// Interim answers: 100 is relayed to an HTTP/1.1 client that expects it, other
// 1xx are dropped. "Upgrade: h2c" and an Upgrade on a request with a body are
// taken off and the request is served as a plain one.
//
// # Goroutines
//
//   - accept loop: the caller of [Server.Serve]; ends with Shutdown or Close.
//   - reaper: started by [New], ended by Shutdown or Close. Timeouts, clients
//     that went away, the coarse clock.
//   - one per client connection: started by the accept loop, ends with the connection.
//   - uploader: one per request whose body had not arrived with its head;
//     the connection's goroutine starts it and waits for it.
//   - tunnel copier: one per upgraded connection; the same.
//   - prober: one per [Upstream] that is down; ends when it is up or closed.
//   - watcher: one per [Upstream] that there was doubt of ([Upstream.Doubt]), in place
//     of the prober; ends when it is closed.
//
// [Server.Shutdown], [Server.Close] and [Upstream.Close] wait for theirs.
package http1
