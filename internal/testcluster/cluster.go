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

	"domicile/internal/wait"
)

// Options say what a deployment is made of. Node i is in zone "z1" or "z2" in
// turn, all in region "eu".
type Options struct {
	Controls, Nodes, Proxies int
	ControlArgs              []string // further flags of each control server
	NodeArgs                 []string
	ProxyArgs                []string
}

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
}

// Start starts a deployment and waits until it can serve.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	dir := t.TempDir()
	for i := range o.Controls {
		addr := FreeAddr(t)
		data := filepath.Join(dir, fmt.Sprintf("c%d", i+1))
		args := []string{"control", "--id", fmt.Sprintf("c%d", i+1), "--data", data, "--listen", addr, "--raft-listen", FreeAddr(t), "--token", Token, "--log-level", "debug"}
		if i == 0 {
			args = append(args, "--bootstrap")
		} else {
			args = append(args, "--join", c.Controls[0].URL)
		}
		c.Controls = append(c.Controls, Spawn(t, fmt.Sprintf("control c%d", i+1), addr, data, append(args, o.ControlArgs...)...))
		c.Controls[i].AwaitReady()
	}
	for i := range o.Nodes {
		addr := FreeAddr(t)
		data := filepath.Join(dir, fmt.Sprintf("n%d", i+1))
		args := []string{"node", "--listen", addr, "--data", data, "--admin-token", NodeToken, "--log-level", "debug"}
		c.Nodes = append(c.Nodes, Spawn(t, fmt.Sprintf("node n%d", i+1), addr, data, append(args, o.NodeArgs...)...))
	}
	for i, n := range c.Nodes {
		n.AwaitReady()
		body := fmt.Sprintf(`{"addr":%q,"token":%q,"region":"eu","zone":"z%d"}`, n.URL, NodeToken, 1+i%2)
		c.Must(c.Do(http.MethodPut, c.Controls[0].URL+fmt.Sprintf("/_shard/nodes/n%d", i+1), body), http.StatusCreated)
	}
	for i := range o.Proxies {
		addr := FreeAddr(t)
		cache := filepath.Join(dir, fmt.Sprintf("p%d.cache", i+1))
		args := []string{"proxy", "--listen", addr, "--control", c.ControlURLs(), "--token", Token, "--shared-secret", "marks", "--cache", cache, "--log-level", "debug"}
		p := Spawn(t, fmt.Sprintf("proxy p%d", i+1), addr, cache, append(args, o.ProxyArgs...)...)
		c.Proxies = append(c.Proxies, p)
		p.AwaitReady()
	}
	return c
}

// ControlURLs gives the control servers as a flag takes them.
func (c *Cluster) ControlURLs() string {
	var urls []string
	for _, p := range c.Controls {
		urls = append(urls, p.URL)
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
