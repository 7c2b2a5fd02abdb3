// Package composefile reads as much of a Compose file as deploy/compose.yaml uses: for
// the test that holds it against the program's flags, and for the demonstration that
// starts the same deployment in network namespaces. It starts no goroutine.
package composefile
