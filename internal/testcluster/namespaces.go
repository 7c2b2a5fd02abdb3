package testcluster

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
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
	nodes map[string]string // process to region
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
	ns := &namespaces{t: t, prefix: fmt.Sprintf("dom%04x", n), subnet: fmt.Sprintf("10.%d.%d", 64+n>>8&63, n&255), hosts: map[string]string{}, ports: map[string]int{}, nodes: map[string]string{}}
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
		"add table ip fault; add set ip fault deaf { type ipv4_addr; }; add set ip fault rude { type ipv4_addr; }; "+
			"add chain ip fault in { type filter hook input priority 0; }; add rule ip fault in ip saddr @deaf drop; "+
			"add rule ip fault in ip saddr @rude reject with tcp reset; "+
			"add set ip fault far { type ipv4_addr; }; add counter ip fault far; insert rule ip fault in ip saddr @far counter name far")
}

func (n *namespaces) command(process, program string, args []string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", n.name(process), program}, args...)...)
}

// flags: without TLS the program listens on loopback alone, unless told.
func (n *namespaces) flags() []string { return []string{"--insecure"} }

func (n *namespaces) cut(from, to []string) { n.change(to, from, "add element ip fault deaf { %s }; ") }

func (n *namespaces) refuse(a, b []string) {
	n.change(a, b, "add element ip fault rude { %s }; ")
	n.change(b, a, "add element ip fault rude { %s }; ")
}

func (n *namespaces) heal(a, b []string) {
	var undo strings.Builder
	for _, set := range []string{"deaf", "rude"} { // what is not there cannot be deleted
		undo.WriteString("add element ip fault " + set + " { %[1]s }; delete element ip fault " + set + " { %[1]s }; ")
	}
	n.change(a, b, undo.String())
	if !slices.Equal(a, b) {
		n.change(b, a, undo.String())
	}
}

// change runs commands of nft, with an address put into them, at each process for each of
// the others.
func (n *namespaces) change(at, others []string, commands string) {
	for _, process := range at {
		var script strings.Builder
		for _, other := range others {
			if other != process {
				fmt.Fprintf(&script, commands, n.hosts[other])
			}
		}
		n.run("ip", "netns", "exec", n.name(process), "nft", script.String())
	}
}

// lives has what a node hears from nodes of other regions counted, and what they hear of it.
func (n *namespaces) lives(process, region string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for other, at := range n.nodes {
		set := "add"
		if at == region {
			set = "add element ip fault far { %[1]s }; delete"
		}
		n.change([]string{process}, []string{other}, set+" element ip fault far { %[1]s }; ")
		n.change([]string{other}, []string{process}, set+" element ip fault far { %[1]s }; ")
	}
	n.nodes[process] = region
}

// crossed counts the packets that nodes heard from nodes of other regions.
func (n *namespaces) crossed() (packets int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for process := range n.nodes {
		out, err := exec.Command("ip", "netns", "exec", n.name(process), "nft", "list counter ip fault far").CombinedOutput()
		m := regexp.MustCompile(`packets (\d+)`).FindSubmatch(out)
		if err != nil || m == nil {
			n.t.Fatalf("the packets that %s heard from far: %v: %s", process, err, out)
		}
		count, _ := strconv.Atoi(string(m[1]))
		packets += count
	}
	return packets
}
