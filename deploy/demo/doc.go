// Command demo starts the processes of deploy/compose.yaml in network namespaces of one
// machine, cuts a region off, and tells what happens (make demo-regions). It takes root,
// and leaves nothing behind: neither namespaces nor processes, however it ends.
//
// Each service has a namespace and an address; each region is a bridge; bridges meet in one
// more namespace, "wan", which routes between them until it is told not to. Goroutines: one
// for each process that waits for its end.
package main
