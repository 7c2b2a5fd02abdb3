// Package durable replaces files so that a crash at any time leaves the old one or the new
// one, and frames those that are read whole, so that what is garbled or of another version is
// never taken. Goroutines: none.
package durable
