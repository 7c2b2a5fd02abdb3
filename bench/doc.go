// Command bench measures Domicile beside what a user would pick instead: its
// proxy beside nginx and HAProxy, its directory beside etcd, its node beside
// SQLite in process. Both sides run in one run and in turns; figures are
// medians with their range, ratios first, CPU per request beside every
// latency. The last figures stand in README.md.
//
// Programs that it starts itself (backend, forwarder) are sub-commands of it,
// so that each is a process with a CPU clock of its own.
package main
