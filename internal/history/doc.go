// Package history records what clients asked of units and what they were told,
// and checks it: each unit is linearizable, what was acknowledged is there once
// and what was refused is not, one node at a time acknowledged, and a read that
// named a position saw what had been written there.
//
// Each unit holds a log of unique write ids and a register: the id of the last
// write and how many there were, both changed in one transaction. An operation
// whose outcome nobody told is unknown, and stays open for ever: it may take
// effect at any time after its begin, or never.
//
// Goroutines: Load runs one for each client, started by Start, ended by Stop,
// which waits for them.
package history
