package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Names of what is made on the machine begin so.
const (
	prefix = "domicile-"
	wan    = prefix + "wan"
	uplink = prefix + "up" // this program's way into the network
	subnet = "10.213"      // region i has 10.213.i.0/24, this program 10.213.0.1
	etc    = "/etc/netns"  // where ip-netns(8) looks for a namespace's own files of /etc
)

// network is the regions' network.
type network struct {
	regions []string
	addrs   map[string]string // of each service
	region  map[string]string // of each service
}

// newNetwork makes the network of services in regions. What an earlier run left behind,
// which was killed, goes first.
func newNetwork(regions []string, region map[string]string) (*network, error) {
	n := &network{regions: regions, addrs: map[string]string{}, region: region}
	if err := n.close(); err != nil {
		return n, err
	}
	err := run(
		"netns add "+wan,
		"link add "+uplink+" type veth peer name top netns "+wan,
		"addr add "+subnet+".0.1/24 dev "+uplink,
		"link set "+uplink+" up",
		"-n "+wan+" link set lo up",
		"-n "+wan+" addr add "+subnet+".0.2/24 dev top",
		"-n "+wan+" link set top up",
		"route add "+subnet+".0.0/16 via "+subnet+".0.2",
		"netns exec "+wan+" sysctl -q -w net.ipv4.ip_forward=1",
	)
	if err != nil {
		return n, err
	}
	for i, r := range regions {
		err := run(
			"-n "+wan+" link add "+r+" type bridge",
			fmt.Sprintf("-n %s addr add %s.%d.1/24 dev %s", wan, subnet, i+1, r),
			"-n "+wan+" link set "+r+" up",
		)
		if err != nil {
			return n, err
		}
	}
	for i, s := range sorted(region) {
		n.addrs[s] = fmt.Sprintf("%s.%d.%d", subnet, 1+slices.Index(regions, region[s]), 10+i)
		if err := n.add(s, fmt.Sprintf("s%d", i)); err != nil {
			return n, err
		}
	}
	return n, n.writeHosts()
}

// add makes a service's namespace, with one end of a cable of that name in the bridge of its
// region.
func (n *network) add(service, cable string) error {
	ns, region := prefix+service, n.region[service]
	return run(
		"netns add "+ns,
		"-n "+ns+" link add eth0 type veth peer name "+cable+" netns "+wan,
		"-n "+wan+" link set "+cable+" master "+region+" up",
		"-n "+ns+" link set lo up",
		"-n "+ns+" addr add "+n.addrs[service]+"/24 dev eth0",
		"-n "+ns+" link set eth0 up",
		fmt.Sprintf("-n %s route add default via %s.%d.1", ns, subnet, 1+slices.Index(n.regions, region)),
	)
}

// writeHosts has every service know the others by name.
func (n *network) writeHosts() error {
	hosts := "127.0.0.1 localhost\n"
	for _, s := range sorted(n.addrs) {
		hosts += n.addrs[s] + " " + s + "\n"
	}
	for s := range n.addrs {
		dir := filepath.Join(etc, prefix+s)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "hosts"), []byte(hosts), 0o644)); err != nil {
			return err
		}
	}
	return nil
}

// command runs a program in a service's namespace.
func (n *network) command(service, program string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", prefix + service, program}, args...)...)
}

// cut loses all that a region and the others send each other: wan drops it, and says nothing.
func (n *network) cut(region string) error { return n.link(region, "add") }

// heal undoes cut.
func (n *network) heal(region string) error { return n.link(region, "del") }

func (n *network) link(region, how string) error {
	at := func(i int) string { return fmt.Sprintf("%s.%d.0/24", subnet, i+1) }
	i := slices.Index(n.regions, region)
	for j := range n.regions {
		if j == i {
			continue
		}
		err := run(
			fmt.Sprintf("-n %s rule %s pref 10 from %s to %s blackhole", wan, how, at(i), at(j)),
			fmt.Sprintf("-n %s rule %s pref 10 from %s to %s blackhole", wan, how, at(j), at(i)),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// close takes away all namespaces of that name, with all that is in them.
func (n *network) close() error {
	var failed error
	out, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		return fmt.Errorf("ip netns list: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		if ns := strings.Fields(line); len(ns) > 0 && strings.HasPrefix(ns[0], prefix) {
			failed = errors.Join(failed, run("netns del "+ns[0]), os.RemoveAll(filepath.Join(etc, ns[0])))
		}
	}
	if _, err := os.Stat("/sys/class/net/" + uplink); err == nil { // the namespace may take a moment to go
		_ = run("link del " + uplink)
	}
	_ = os.Remove(etc) // where it is empty
	return failed
}

// run runs commands of ip(8).
func run(commands ...string) error {
	for _, c := range commands {
		if out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", c, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
