// Package testcluster runs a whole deployment of real processes for tests:
// control servers, nodes and proxies of the built binary, on loopback, with
// verbs to start, stop, kill, pause and restart each, and Verify, which every
// test that uses it ends in.
//
// Regions is a deployment of two levels: the global group, and groups of regions that
// keep their own directory. It is cut and healed region by region, and its Verify looks at
// every entry of every directory, and at every byte that nodes of different regions sent
// each other.
//
// A test's package calls Main from its TestMain, which builds the binary once.
// All waiting goes through package wait. Goroutines: one per process that
// waits for its end, started by start, ended with the process; of Regions one per
// directory that follows it, and one that looks at what they found, ended with the test.
package testcluster
