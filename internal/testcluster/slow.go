package testcluster

import (
	"time"

	"domicile/internal/netfault"
)

// bytewise is a network that can do more to bytes than to lose them. Namespaces
// cannot: the kernel that the tests run on may lack what slows packets down, and
// what garbles them is found by TCP's own sum.
type bytewise interface {
	delay(from, to string, d time.Duration)
	slow(from, to string, bytes int64)
	garble(from, to string)
}

// Bytewise reports whether the network can delay, slow down and garble.
func (c *Cluster) Bytewise() bool {
	_, ok := c.net.(bytewise)
	return ok
}

func (c *Cluster) bytewise() bytewise {
	c.t.Helper()
	b, ok := c.net.(bytewise)
	if !ok {
		c.t.Fatal("this network can lose bytes and nothing else")
	}
	return b
}

// Delay holds up for d all that one process sends the other, until Heal.
func (c *Cluster) Delay(from, to *Process, d time.Duration) { c.bytewise().delay(from.ID, to.ID, d) }

// Slow lets so many bytes a second of what one process sends the other through,
// on each connection, until Heal.
func (c *Cluster) Slow(from, to *Process, bytes int64) { c.bytewise().slow(from.ID, to.ID, bytes) }

// Garble flips one bit of what one node sends another next: of their replication
// connections, whose frames have a sum, and not of the HTTP request and answer
// that each begins with. Plain HTTP has no sum, so that nothing else is garbled.
func (c *Cluster) Garble(from, to *Process) { c.bytewise().garble(from.ID, to.ID) }

// sending gives the two ways that carry what one process sends the other, each
// with its direction.
func (g *gates) sending(from, to string, f func(*netfault.Way, netfault.Direction)) {
	f(g.way(from, to), netfault.Forward)
	f(g.way(to, from), netfault.Backward)
}

func (g *gates) delay(from, to string, d time.Duration) {
	g.sending(from, to, func(w *netfault.Way, dir netfault.Direction) { w.Delay(dir, d) })
}

func (g *gates) slow(from, to string, bytes int64) {
	g.sending(from, to, func(w *netfault.Way, dir netfault.Direction) { w.Bandwidth(dir, bytes) })
}

func (g *gates) garble(from, to string) {
	g.sending(from, to, func(w *netfault.Way, dir netfault.Direction) {
		w.Spare(1)
		w.Garble(dir)
	})
}
