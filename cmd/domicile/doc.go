// Command domicile is the whole program: servers of the directory, proxies,
// data nodes, the operator's CLI, and all of them in one process (dev).
//
// Each sub-command is a file that turns flags into a Config, calls New and
// then Run with a context that ends on SIGTERM or SIGINT; SIGHUP reloads
// certificates and secrets. Exit status: 0 done, 1 failed, 2 bad arguments.
package main
