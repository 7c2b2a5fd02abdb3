// Package netfault is a TCP proxy that fails on demand, for tests: it stands on
// the way from one process to another and cuts, stalls in one direction, delays,
// slows, garbles or resets what passes.
//
// A Link forwards from its own address to a target. A cut is silent, as a
// firewall or a pulled cable makes it: bytes are neither delivered nor refused,
// and go on after Heal, as TCP's retransmissions would bring them; a connection
// that is opened meanwhile opens and stays silent. Reset is what a killed process
// makes: connections break at once and new ones are refused until Heal. When one
// end closes, so does the other: half-closed connections are not kept.
//
// What happens to a connection is said by its Way. A Link made by New has one
// way for all; one made by NewGate asks for the way of each connection, by who
// dialled it, so that one process can be cut off from another and from no other.
//
// Each Link runs one goroutine that accepts, started by New or NewGate, one for
// each connection and two for each direction of it, which end with the
// connection. Close ends all of them and waits.
package netfault
