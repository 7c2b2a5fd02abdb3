// Package testcluster runs a whole deployment of real processes for tests:
// control servers, nodes and proxies of the built binary, on loopback, with
// verbs to start, stop, kill, pause and restart each, and Verify, which every
// test that uses it ends in.
//
// A test's package calls Main from its TestMain, which builds the binary once.
// All waiting goes through package wait. Goroutines: one per process that
// waits for its end, started by start, ended with the process.
package testcluster
