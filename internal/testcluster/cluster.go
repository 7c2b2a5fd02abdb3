package testcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/internal/wait"
)

// Options say what a deployment, or a group of one, is made of. Node i is in zone "z1" or
// "z2" in turn, all in region "eu", or in the group's (see RegionsOptions).
type Options struct {
	Controls, Nodes, Proxies int
	ControlArgs              []string // further flags of each control server
	NodeArgs                 []string
	ProxyArgs                []string
	// Faults puts links between the processes, so that each can be cut off from
	// each other; with DOMICILE_FAULT_NAMESPACES set these are real interfaces
	// (skipped where the test may not make any). The program is built with its
	// labelled points then (package faultpoint).
	Faults bool
	// Disks puts each control server and node on a small disk of its own.
	Disks Disks
}

// Disks says whether processes have disks of their own.
type Disks int

// Whether processes have disks of their own, which takes root.
const (
	NoDisks   Disks = iota
	WantDisks       // where the test may mount any; HasDisk tells
	NeedDisks       // the test is skipped where it may not
)

// Sizes of those disks, in MB: what a process needs at its start, and a few
// times what the tests write.
const (
	controlDisk = 64
	nodeDisk    = 96
)

// Tokens of every deployment made here; Verify looks for them where none may
// be.
const (
	Token     = "control-t0ken-c0ffee"
	NodeToken = "node-t0ken-deadbeef"
)

// Cluster is a running deployment.
type Cluster struct {
	Controls, Nodes, Proxies []*Process
	t                        testing.TB
	net                      network
	dir                      string
	faults, disks            bool
	prefix                   string   // of the names of its processes
	region                   string   // of its nodes
	groupArgs                []string // of its control servers: which directory they keep
}

// Start starts a deployment and waits until it can serve.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	disks := checkDisks(t, o)
	c := &Cluster{t: t, net: newNetwork(t, o), dir: folder(t), faults: o.Faults, disks: disks, region: homeRegion}
	c.startControls(o)
	c.startNodes(o)
	for range o.Proxies {
		c.AddProxy(o.ProxyArgs...).AwaitReady()
	}
	t.Cleanup(c.dumpWhenFailed)
	return c
}

// homeRegion is the region of nodes where nothing else is said.
const homeRegion = "eu"

func (c *Cluster) startControls(o Options) {
	c.t.Helper()
	for range o.Controls {
		c.AddControl(o.ControlArgs...).AwaitReady()
	}
	c.AwaitVoters()
}

func (c *Cluster) startNodes(o Options) {
	c.t.Helper()
	for range o.Nodes {
		c.spawnNode(o.NodeArgs...)
	}
	for i, n := range c.Nodes {
		n.AwaitReady()
		c.record(n, c.region, fmt.Sprintf("z%d", 1+i%2))
	}
}

// AddControl starts one more control server.
func (c *Cluster) AddControl(args ...string) *Process {
	id := fmt.Sprintf("%sc%d", c.prefix, len(c.Controls)+1)
	listen, reach := c.net.listener(id)
	raft, raftReach := c.net.listener(id)
	data, disk := c.diskFor(id, controlDisk)
	all := []string{"control", "--id", id, "--data", data, "--listen", listen, "--advertise", "http://" + reach, "--raft-listen", raft, "--raft-advertise", raftReach, "--token", Token, "--log-level", "debug"}
	if len(c.Controls) == 0 {
		all = append(all, "--bootstrap")
	} else {
		all = append(all, "--join", c.Controls[0].Via)
	}
	p := c.spawn(&Process{ID: id, Name: "control " + id, URL: "http://" + listen, Via: "http://" + reach, Data: data, disk: disk, args: append(append(all, c.groupArgs...), args...)})
	c.Controls = append(c.Controls, p)
	return p
}

func (c *Cluster) spawnNode(args ...string) *Process {
	id := fmt.Sprintf("%sn%d", c.prefix, len(c.Nodes)+1)
	listen, reach := c.net.listener(id)
	data, disk := c.diskFor(id, nodeDisk)
	all := append([]string{"node", "--listen", listen, "--data", data, "--admin-token", NodeToken, "--log-level", "debug"}, args...)
	p := c.spawn(&Process{ID: id, Name: "node " + id, URL: "http://" + listen, Via: "http://" + reach, Data: data, disk: disk, args: all})
	c.Nodes = append(c.Nodes, p)
	return p
}

// record has the directory know of a node.
func (c *Cluster) record(n *Process, region, zone string) {
	c.t.Helper()
	c.net.lives(n.ID, region)
	body := fmt.Sprintf(`{"addr":%q,"token":%q,"region":%q,"zone":%q}`, n.Via, NodeToken, region, zone)
	wait.For(c.t, n.Name+" is recorded", func() error { // the leader may change meanwhile
		a := c.Do(http.MethodPut, c.Controls[0].URL+"/_shard/nodes/"+n.ID, body, "Idempotency-Key", "record-"+n.ID)
		if a.Err != nil || a.Status != http.StatusCreated {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
}

// AddNode starts one more node and records it in that zone of the group's region.
func (c *Cluster) AddNode(zone string, args ...string) *Process {
	c.t.Helper()
	return c.AddNodeIn(c.region, zone, args...)
}

// AddNodeIn starts one more node and records it in that region and zone.
func (c *Cluster) AddNodeIn(region, zone string, args ...string) *Process {
	c.t.Helper()
	n := c.spawnNode(args...)
	n.AwaitReady()
	c.record(n, region, zone)
	return n
}

// AddProxy starts one more proxy.
func (c *Cluster) AddProxy(args ...string) *Process {
	id := fmt.Sprintf("%sp%d", c.prefix, len(c.Proxies)+1)
	listen, reach := c.net.listener(id)
	cache := filepath.Join(c.dir, id+".cache")
	all := append([]string{"proxy", "--listen", listen, "--control", c.ControlURLs(), "--token", Token, "--shared-secret", "marks", "--cache", cache, "--log-level", "debug"}, args...)
	p := c.spawn(&Process{ID: id, Name: "proxy " + id, URL: "http://" + listen, Via: "http://" + reach, Data: cache, args: all})
	c.Proxies = append(c.Proxies, p)
	return p
}

// spawn starts a process of the deployment.
func (c *Cluster) spawn(p *Process) *Process {
	c.t.Helper()
	if c.faults {
		p.points.file = filepath.Join(c.dir, p.ID+".points")
	}
	return spawn(c.t, c.net, p, c.wholeLog(p.ID))
}

// ControlURLs gives the control servers as a flag takes them.
func (c *Cluster) ControlURLs() string {
	var urls []string
	for _, p := range c.Controls {
		urls = append(urls, p.Via)
	}
	return strings.Join(urls, ",")
}

// Answer is what came back for a request; Err where nothing did.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	Err    error
}

func (a Answer) String() string {
	if a.Err != nil {
		return a.Err.Error()
	}
	return fmt.Sprintf("%d %s", a.Status, bytes.TrimSpace(a.Body))
}

// Decode reads the answer's JSON into v.
func (a Answer) Decode(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(a.Body, v); err != nil {
		t.Fatalf("%s: %v", a, err)
	}
}

// Do sends one request, with the control plane's token under /_shard/.
func (c *Cluster) Do(method, url, body string, header ...string) Answer {
	return do(context.Background(), http.DefaultClient, method, url, body, header...)
}

// DoWithin is Do that gives up after d.
func (c *Cluster) DoWithin(d time.Duration, method, url, body string, header ...string) Answer {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return do(ctx, http.DefaultClient, method, url, body, header...)
}

func do(ctx context.Context, hc *http.Client, method, url, body string, header ...string) Answer {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return Answer{Err: err}
	}
	if strings.Contains(url, "/_shard/") {
		req.Header.Set("Authorization", "Bearer "+Token)
	}
	if strings.Contains(url, "/_admin/") {
		req.Header.Set("Authorization", "Bearer "+NodeToken)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := hc.Do(req)
	if err != nil {
		return Answer{Err: err}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: data, Err: err}
}

// Must fails the test unless the answer has that status.
func (c *Cluster) Must(a Answer, status int) Answer {
	c.t.Helper()
	if a.Err != nil || a.Status != status {
		c.t.Fatalf("got %s, want status %d", a, status)
	}
	return a
}

// AwaitVoters waits until each control server counts: one that has just joined does not
// vote before it has caught up, and the loss of another would leave no majority.
func (c *Cluster) AwaitVoters() {
	c.t.Helper()
	wait.For(c.t, "every control server votes", func() error {
		for _, p := range c.Controls {
			var g struct{ Servers []struct{ Voter bool } }
			a := do(context.Background(), quick, http.MethodGet, p.URL+"/_shard/group", "")
			if a.Status != http.StatusOK || json.Unmarshal(a.Body, &g) != nil {
				return fmt.Errorf("%s answers with %d", p.URL, a.Status)
			}
			voters := 0
			for _, s := range g.Servers {
				if s.Voter {
					voters++
				}
			}
			if voters != len(c.Controls) {
				return fmt.Errorf("%d of %d servers vote", voters, len(c.Controls))
			}
		}
		return nil
	})
}

// Leader gives the control server that leads, as the others agree.
func (c *Cluster) Leader() *Process {
	c.t.Helper()
	var leader *Process
	wait.For(c.t, "a leader", func() error {
		for _, p := range c.Controls {
			if _, ended := p.Ended(); ended {
				continue
			}
			var g struct{ ID, Leader string }
			a := do(context.Background(), quick, http.MethodGet, p.URL+"/_shard/group", "")
			if a.Status != http.StatusOK {
				continue
			}
			if err := json.Unmarshal(a.Body, &g); err == nil && g.ID != "" && g.ID == g.Leader {
				leader = p
				return nil
			}
		}
		return fmt.Errorf("no control server says that it leads")
	})
	return leader
}
