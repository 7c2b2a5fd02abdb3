package testcluster

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
)

// network is what the processes of a deployment reach each other over. The test
// itself is on it too, and no fault ever concerns it.
type network interface {
	// listener makes an address for a process: where it listens, and where the
	// others reach it.
	listener(process string) (listen, reach string)
	// command makes the command that runs a program with args as that process.
	command(process, program string, args []string) *exec.Cmd
	// cut loses what goes from each of some processes to each of others, silently.
	cut(from, to []string)
	// refuse breaks what connections they have with each other, and refuses new ones.
	refuse(a, b []string)
	// heal undoes every cut and refusal between each of some processes and each of others.
	heal(a, b []string)
	// flags are further ones that each process needs here.
	flags() []string
	// lives says that a process is a node, and in which region.
	lives(process, region string)
}

// namespacesEnv asks for network namespaces where the test may make them.
const namespacesEnv = "DOMICILE_FAULT_NAMESPACES"

func newNetwork(t testing.TB, o Options) network {
	switch {
	case !o.Faults:
		return loopback{t}
	case os.Getenv(namespacesEnv) == "":
		return newGates(t)
	}
	if err := mayMakeNamespaces(); err != nil {
		t.Skipf("network namespaces (%s) need root and the programs ip and nft: %v", namespacesEnv, err)
	}
	return newNamespaces(t)
}

// loopback has no faults.
type loopback struct{ t testing.TB }

func (l loopback) listener(string) (listen, reach string) {
	addr := FreeAddr(l.t)
	return addr, addr
}

func (loopback) command(_, program string, args []string) *exec.Cmd {
	return exec.Command(program, args...)
}

func (l loopback) cut(from, to []string) {
	l.t.Fatalf("cut %s from %s: the deployment was started without Options.Faults", from, to)
}
func (l loopback) refuse(a, b []string) { l.cut(a, b) }
func (loopback) heal(_, _ []string)     {}
func (loopback) flags() []string        { return nil }
func (loopback) lives(_, _ string)      {}

// Cut loses all that the two processes send each other, until Heal.
func (c *Cluster) Cut(a, b *Process) {
	c.CutOneWay(a, b)
	c.CutOneWay(b, a)
}

// CutOneWay loses all that one process sends the other, until Heal.
func (c *Cluster) CutOneWay(from, to *Process) { c.net.cut([]string{from.ID}, []string{to.ID}) }

// Isolate cuts a process off from every other one, but not from the test, until
// Heal.
func (c *Cluster) Isolate(p *Process) {
	others := slices.DeleteFunc(ids(c.All()), func(id string) bool { return id == p.ID })
	cutBoth(c.net, []string{p.ID}, others)
}

// Heal undoes every cut.
func (c *Cluster) Heal() {
	all := ids(c.All())
	c.net.heal(all, all)
}

func cutBoth(n network, a, b []string) {
	n.cut(a, b)
	n.cut(b, a)
}

func ids(processes []*Process) (ids []string) {
	for _, p := range processes {
		ids = append(ids, p.ID)
	}
	return ids
}

// All are the processes: control servers, nodes, proxies.
func (c *Cluster) All() []*Process {
	var all []*Process
	all = append(all, c.Controls...)
	all = append(all, c.Nodes...)
	return append(all, c.Proxies...)
}

// Node gives the node of that name in the directory.
func (c *Cluster) Node(name string) *Process {
	c.t.Helper()
	for _, n := range c.Nodes {
		if n.ID == name {
			return n
		}
	}
	c.t.Fatalf("there is no node %q", name)
	return nil
}

func (p *Process) String() string { return fmt.Sprintf("%s (%s)", p.Name, p.URL) }
