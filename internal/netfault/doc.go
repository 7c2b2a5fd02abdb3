// Package netfault is a TCP proxy that fails on demand, for tests: it stands on
// the way from one process to another and cuts, stalls in one direction, delays
// or resets what passes.
//
// A Link forwards from its own address to a target. A cut is silent, as a
// firewall or a pulled cable makes it: bytes are neither delivered nor refused,
// and go on after Heal, as TCP's retransmissions would bring them. Reset is
// what a killed process makes: connections break at once and new ones are
// refused until Heal. When one end closes, so does the other: half-closed
// connections are not kept.
//
// Each Link runs one goroutine that accepts, started by New, and two for each
// connection and direction, which end with the connection. Close ends all of
// them and waits.
package netfault
