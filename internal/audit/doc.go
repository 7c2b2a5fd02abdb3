// Package audit writes the audit log: one JSON line for each refused token and
// each change that was asked for, who asked from where, and what came of it.
// Lines hold no body and no token. The package starts no goroutine.
package audit
