package testcluster

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// namespaces is a network of real interfaces: each process is in a network
// namespace of its own, with an address on a bridge that the test is on too. A
// cut drops packets where they arrive, as a broken cable would.
type namespaces struct {
	t      testing.TB
	prefix string // of the names of bridge and namespaces
	subnet string // first three numbers of every address

	mu    sync.Mutex
	hosts map[string]string // process to address
	ports map[string]int
}

func mayMakeNamespaces() error {
	if os.Geteuid() != 0 {
		return errors.New("not root")
	}
	for _, program := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			return err
		}
	}
	return nil
}

func newNamespaces(t testing.TB) *namespaces {
	n := rand.IntN(1 << 16)
	ns := &namespaces{t: t, prefix: fmt.Sprintf("dom%04x", n), subnet: fmt.Sprintf("10.%d.%d", 64+n>>8&63, n&255), hosts: map[string]string{}, ports: map[string]int{}}
	ns.run("ip", "link", "add", ns.prefix, "type", "bridge")
	t.Cleanup(func() { ns.run("ip", "link", "del", ns.prefix) })
	ns.run("ip", "addr", "add", ns.subnet+".1/24", "dev", ns.prefix)
	ns.run("ip", "link", "set", ns.prefix, "up")
	return ns
}

func (n *namespaces) run(name string, args ...string) {
	n.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		n.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
}

func (n *namespaces) name(process string) string { return n.prefix + "-" + process }

// listener gives a process its namespace the first time, and one more port.
func (n *namespaces) listener(process string) (listen, reach string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hosts[process] == "" {
		n.hosts[process] = fmt.Sprintf("%s.%d", n.subnet, 10+len(n.hosts))
		n.add(process)
	}
	n.ports[process]++
	addr := fmt.Sprintf("%s:%d", n.hosts[process], 8000+n.ports[process])
	return addr, addr
}

// add makes the namespace, its interface and its list of whom it hears nothing
// from.
func (n *namespaces) add(process string) {
	ns, veth := n.name(process), n.name(process)+"v"
	n.run("ip", "netns", "add", ns)
	n.t.Cleanup(func() { n.run("ip", "netns", "del", ns) }) // and the interface with it
	n.run("ip", "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", ns)
	n.run("ip", "link", "set", veth, "master", n.prefix, "up")
	n.run("ip", "-n", ns, "link", "set", "lo", "up")
	n.run("ip", "-n", ns, "addr", "add", n.hosts[process]+"/24", "dev", "eth0")
	n.run("ip", "-n", ns, "link", "set", "eth0", "up")
	n.run("ip", "netns", "exec", ns, "nft",
		"add table ip fault; add set ip fault deaf { type ipv4_addr; }; add chain ip fault in { type filter hook input priority 0; }; add rule ip fault in ip saddr @deaf drop")
}

func (n *namespaces) command(process, program string, args []string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", n.name(process), program}, args...)...)
}

// flags: without TLS the program listens on loopback alone, unless told.
func (n *namespaces) flags() []string { return []string{"--insecure"} }

func (n *namespaces) cut(from, to string) {
	n.run("ip", "netns", "exec", n.name(to), "nft", "add element ip fault deaf { "+n.hosts[from]+" }")
}

func (n *namespaces) heal() {
	for process := range n.hosts {
		n.run("ip", "netns", "exec", n.name(process), "nft", "flush set ip fault deaf")
	}
}
