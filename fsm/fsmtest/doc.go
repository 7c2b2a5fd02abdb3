// Package fsmtest makes logs for tests of the directory: random ones, in which
// every command, refusal and repeat is likely, and large directories. The same
// seed gives the same log. It starts no goroutine.
package fsmtest
