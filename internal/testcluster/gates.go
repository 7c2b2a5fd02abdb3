package testcluster

import (
	"net"
	"os/exec"
	"sync"
	"testing"

	"domicile/internal/netfault"
)

// gates is a network on loopback: a link stands in front of each listener, and
// is what the directory records. It tells who dialled by the process that owns
// the other end of the connection.
type gates struct {
	t   testing.TB
	tap *tap

	diallers netfault.Diallers // the test is ""

	mu   sync.Mutex
	ways map[[2]string]*netfault.Way // who dials, who listens
}

func newGates(t testing.TB) *gates {
	return &gates{t: t, tap: newTap(), ways: map[[2]string]*netfault.Way{}}
}

func (g *gates) listener(process string) (listen, reach string) {
	listen, reach = FreeAddr(g.t), FreeAddr(g.t)
	l, err := netfault.NewGate(reach, listen, func(c net.Conn) *netfault.Way { return g.way(g.diallers.Name(c), process) })
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(l.Close)
	return listen, reach
}

func (g *gates) command(_, program string, args []string) *exec.Cmd {
	return exec.Command(program, args...)
}

func (g *gates) flags() []string { return nil }

func (g *gates) lives(process, region string) { g.tap.lives(process, region) }

func (g *gates) way(from, to string) *netfault.Way {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.ways[[2]string{from, to}]
	if w == nil {
		w = netfault.NewWay()
		g.ways[[2]string{from, to}] = w
		g.tap.on(from, to, w)
	}
	return w
}

func (g *gates) cut(from, to []string) {
	each(from, to, func(a, b string) {
		g.way(a, b).CutOne(netfault.Forward)
		g.way(b, a).CutOne(netfault.Backward)
	})
}

func (g *gates) refuse(a, b []string) {
	each(a, b, func(a, b string) {
		g.way(a, b).Reset()
		g.way(b, a).Reset()
	})
}

func (g *gates) heal(a, b []string) {
	each(a, b, func(a, b string) {
		g.way(a, b).Heal()
		g.way(b, a).Heal()
	})
}

// each calls f for each of a with each of b, but for a process and itself.
func each(a, b []string, f func(a, b string)) {
	for _, x := range a {
		for _, y := range b {
			if x != y {
				f(x, y)
			}
		}
	}
}
