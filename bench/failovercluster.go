package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// copyCluster is a deployment of real processes: control servers, nodes in a zone
// each, a proxy.
type copyCluster struct {
	bin, dir  string
	cuts      *cuts // nil: nothing stands between the processes
	controls  []*process
	apis      []string // of control servers, as everyone reaches them
	global    *process // the global group's only server, for a region's group; another cluster's may be followed
	globalURL string
	globalVia string // how other processes reach it
	inRegion  string // what says of a new tenant that it is to live there
	tap       *tap   // nil: nobody listens to what nodes are asked
	nodes     []*process
	direct    []string // addresses of nodes that no cut concerns
	args      [][]string
	proxy     *process
	proxyURL  string
	hc        *http.Client
}

type copyOptions struct {
	controls    int
	nodes       int      // 0: two
	regions     []string // of nodes; of others "eu"
	cuts        bool     // nodes can be cut off
	named       bool     // cuts tell every process from what is outside, and not nodes alone
	tap         *tap
	lease       time.Duration
	region      string       // the group's, which keeps its own directory; "": it is the only one
	follows     *copyCluster // whose global group it follows; nil: one of its own
	nodeArgs    []string
	controlArgs []string
}

func startCopies(ctx context.Context, bin, dir string, o copyOptions) (*copyCluster, error) {
	c := &copyCluster{bin: bin, dir: dir, hc: &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 2000}}}
	if o.cuts {
		c.cuts = newCuts()
	}
	if o.region != "" {
		args, err := c.startGlobal(ctx, o)
		if err != nil {
			return c, err
		}
		o.controlArgs = append(args, o.controlArgs...)
	}
	for i := range o.controls {
		if err := c.addControl(ctx, i, o); err != nil {
			return c, err
		}
	}
	c.tap = o.tap
	if o.region == "" {
		if err := c.addNodes(ctx, o); err != nil {
			return c, err
		}
	}
	router, err := c.startProxy(ctx, o)
	if err != nil || o.region == "" {
		return c, err
	}
	if err := c.recordRegion(ctx, o.region, router); err != nil {
		return c, err
	}
	return c, c.addNodes(ctx, o)
}

// startProxy starts the proxy, which clients reach directly; router is where it is reached
// from elsewhere.
func (c *copyCluster) startProxy(ctx context.Context, o copyOptions) (router string, err error) {
	var gates *cuts
	if o.named {
		gates = c.cuts
	}
	listen, reach, err := gates.listener(proxyID)
	if err != nil {
		return "", err
	}
	c.proxyURL = "http://" + listen
	args := []string{"proxy", "--listen", listen, "--control", strings.Join(c.apis, ","), "--log-level", "error"}
	if o.region != "" {
		args = append(args, "--region", o.region, "--shared-secret", "bench")
	}
	if c.proxy, err = start(ctx, proxyID, nil, c.bin, args...); err != nil {
		return "", err
	}
	gates.started(proxyID, c.proxy.cmd.Process.Pid)
	return "http://" + reach, awaitReady(ctx, c.proxyURL)
}

// proxyID is the name of the proxy in cuts.
const proxyID = "proxy"

func (c *copyCluster) addNodes(ctx context.Context, o copyOptions) error {
	for range cmp.Or(o.nodes, 2) {
		if err := c.addNode(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (c *copyCluster) addControl(ctx context.Context, i int, o copyOptions) error {
	id := controlID(i)
	listen, reach, err := c.cuts.listener(id)
	if err != nil {
		return err
	}
	raft, err := freePort()
	if err != nil {
		return err
	}
	args := []string{"control", "--id", id, "--data", filepath.Join(c.dir, id), "--listen", listen, "--advertise", "http://" + reach,
		"--raft-listen", raft, "--auto-failover", o.lease.String(), "--repair-after", "200ms", "--remove-after", "1s", "--log-level", "error"}
	if i == 0 {
		args = append(args, "--bootstrap")
	} else {
		args = append(args, "--join", c.apis[0])
	}
	p, err := start(ctx, id, nil, c.bin, append(args, o.controlArgs...)...)
	if err != nil {
		return err
	}
	c.controls, c.apis = append(c.controls, p), append(c.apis, "http://"+reach)
	if o.named {
		c.cuts.started(id, p.cmd.Process.Pid)
	}
	if err := awaitReady(ctx, "http://"+listen); err != nil {
		return fmt.Errorf("%w\n%s", err, p.out)
	}
	return nil
}

func (c *copyCluster) addNode(ctx context.Context, o copyOptions) error {
	i := len(c.nodes)
	id, region := nodeID(i), cmp.Or(o.region, "eu")
	if i < len(o.regions) {
		region = o.regions[i]
	}
	listen, reach, err := c.cuts.listener(id)
	if err == nil {
		reach, err = c.tap.front(id, reach)
	}
	if err != nil {
		return err
	}
	c.nodes, c.direct = append(c.nodes, nil), append(c.direct, "http://"+listen)
	c.args = append(c.args, append([]string{"node", "--listen", listen, "--data", filepath.Join(c.dir, id), "--admin-token", nodeToken, "--lease", "--log-level", "error"}, o.nodeArgs...))
	if err := c.startNode(ctx, i); err != nil {
		return err
	}
	_, err = c.ask(ctx, http.MethodPut, c.apis[0]+"/_shard/nodes/"+id, fmt.Sprintf(`{"addr":"http://%s","token":%q,"region":%q,"zone":"z%d"}`, reach, nodeToken, region, i+1))
	return err
}

// nodeToken is the admin token of every node.
const nodeToken = "bench"

func nodeID(i int) string { return fmt.Sprintf("n%d", i+1) }

func (c *copyCluster) startNode(ctx context.Context, i int) (err error) {
	if c.nodes[i], err = start(ctx, nodeID(i), nil, c.bin, c.args[i]...); err != nil {
		return err
	}
	c.cuts.started(nodeID(i), c.nodes[i].cmd.Process.Pid)
	if err := awaitReady(ctx, c.direct[i]); err != nil {
		return fmt.Errorf("%w\n%s", err, c.nodes[i].out)
	}
	return nil
}

func (c *copyCluster) stop() {
	if c == nil {
		return
	}
	c.cuts.heal()
	for _, p := range append(append([]*process{c.proxy, c.global}, c.controls...), c.nodes...) {
		if p != nil && p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	}
	c.cuts.close()
	c.tap.close()
}

// isolate cuts a node off from everything but whoever asks it directly; without cuts
// it pauses the node, which then is as silent to everybody.
func (c *copyCluster) isolate(i int) {
	if c.cuts == nil {
		_ = c.nodes[i].cmd.Process.Signal(syscall.SIGSTOP)
		return
	}
	var others []string
	for n := range c.nodes {
		if n != i {
			others = append(others, nodeID(n))
		}
	}
	for n := range c.controls {
		others = append(others, controlID(n))
	}
	c.cuts.isolate(nodeID(i), others)
}

// heal undoes isolate.
func (c *copyCluster) heal(i int) {
	if c.cuts == nil {
		_ = c.nodes[i].cmd.Process.Signal(syscall.SIGCONT)
		return
	}
	c.cuts.heal()
}

// leader gives the place and the API of the control server that leads.
func (c *copyCluster) leader(ctx context.Context) (i int, api string, err error) {
	data, err := c.ask(ctx, http.MethodGet, c.apis[0]+"/_shard/group", "")
	if err != nil {
		return 0, "", err
	}
	var group struct{ Leader string }
	if err := json.Unmarshal(data, &group); err != nil {
		return 0, "", err
	}
	for i := range c.controls {
		if group.Leader == controlID(i) {
			return i, c.apis[i], nil
		}
	}
	return 0, "", fmt.Errorf("no server leads: %s", data)
}

// index is that of the last entry which the first server has applied.
func (c *copyCluster) index(ctx context.Context) (uint64, error) {
	data, err := c.ask(ctx, http.MethodGet, c.apis[0]+"/_shard/group", "")
	if err != nil {
		return 0, err
	}
	var group struct{ Index uint64 }
	err = json.Unmarshal(data, &group)
	return group.Index, err
}

func controlID(i int) string { return fmt.Sprintf("c%d", i+1) }

// ask makes a request of the admin API that must succeed.
func (c *copyCluster) ask(ctx context.Context, method, url, body string, header ...string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.hc.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, data)
	}
	return data, err
}

const logTable = "create table log (id integer primary key, body text)"

// create makes tenants on a node.
func (c *copyCluster) create(ctx context.Context, tenants, node int) error {
	next, failed := make(chan int), make(chan error, 8)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var err error
			for t := range next {
				if err == nil {
					err = await(ctx, "the tenant is not created", 10*time.Second, func() error { // its node has a lease
						_, err := c.ask(ctx, http.MethodPut, c.proxyURL+"/_shard/tenants/"+tenantName(t), fmt.Sprintf(`{"node":%q,"schema":%q%s}`, nodeID(node), logTable, c.inRegion))
						return err
					})
				}
			}
			failed <- err
		})
	}
	for t := range tenants {
		next <- t
	}
	close(next)
	wg.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// createInSync makes tenants on a node of two, and waits for their copies.
func (c *copyCluster) createInSync(ctx context.Context, tenants, node int) error {
	if err := c.create(ctx, tenants, node); err != nil {
		return err
	}
	return c.awaitSync(ctx, tenants, node)
}

// awaitSync waits until a node of two holds all tenants and the other a copy in sync
// of each: they are then served, replicated, and nothing is under way.
func (c *copyCluster) awaitSync(ctx context.Context, tenants, node int) error {
	return await(ctx, "copies are not in sync", 2*time.Minute, func() error {
		return c.shows(ctx,
			"domicile_unreplicated_units 0\n",
			fmt.Sprintf("domicile_tenants{node=%q} %d\n", nodeID(node), tenants),
			fmt.Sprintf("domicile_replicas{node=%q} %d\n", nodeID(1-node), tenants))
	})
}

// shows asks whether the first control server's metrics have these lines.
func (c *copyCluster) shows(ctx context.Context, lines ...string) error {
	data, err := c.ask(ctx, http.MethodGet, c.apis[0]+"/_metrics", "")
	if err != nil {
		return err
	}
	for _, want := range lines {
		if !bytes.Contains(data, []byte(want)) {
			return fmt.Errorf("no %s", want)
		}
	}
	return nil
}

// ack is an acknowledged write: its epoch, and when the client saw it.
type ack struct {
	epoch string
	at    time.Time
}

var errRefused = errors.New("refused")

// write inserts a row. Through a proxy it is given a key, so that it may be
// sent again.
func (c *copyCluster) write(ctx context.Context, base string, tenant int, key string) (a ack, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/t/"+tenantName(tenant)+"/query", strings.NewReader(`{"sql":"insert into log (body) values ('a row of a tenant, as long as one is')"}`))
	if err != nil {
		return a, err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := c.hc.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	var got struct{ Position string }
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	if resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("%w: %s: %s", errRefused, resp.Status, data)
	}
	if err := json.Unmarshal(data, &got); err != nil {
		return a, err
	}
	epoch, _, _ := strings.Cut(got.Position, ":")
	return ack{epoch, time.Now()}, nil
}
