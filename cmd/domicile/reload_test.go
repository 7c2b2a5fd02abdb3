package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// TestO5SIGHUPReloadsTheToken: a control server, a node and a proxy take a new
// secret from their files without a restart, and the old one no more; and each
// ends with status 0 when it is stopped.
func TestO5SIGHUPReloadsTheToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	control, node, proxy := testcluster.FreeAddr(t), testcluster.FreeAddr(t), testcluster.FreeAddr(t)
	dir := t.TempDir()
	var started []*testcluster.Process
	for _, c := range []struct {
		name, addr, path string
		args             []string
	}{
		{"control", control, "/_shard/nodes", []string{"control", "--id", "c1", "--data", filepath.Join(dir, "c1"), "--bootstrap", "--listen", control, "--raft-listen", testcluster.FreeAddr(t), "--token-file", file}},
		{"node", node, "/_admin/units", []string{"node", "--data", filepath.Join(dir, "n1"), "--listen", node, "--admin-token-file", file}},
		{"proxy", proxy, "/_metrics", []string{"proxy", "--control", "http://" + control, "--listen", proxy, "--token-file", file}},
	} {
		write("old")
		p := testcluster.Spawn(t, c.name, c.addr, "", c.args...)
		started = append(started, p)
		asks := func(token string, status int) func() error {
			return func() error {
				req, err := http.NewRequest(http.MethodGet, p.URL+c.path, nil)
				if err != nil {
					return err
				}
				req.Header.Set("Authorization", "Bearer "+token)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					return err
				}
				resp.Body.Close()
				if resp.StatusCode != status {
					return fmt.Errorf("%s with the token %s: %s", c.name, token, resp.Status)
				}
				return nil
			}
		}
		wait.For(t, c.name+" takes the token it was started with", asks("old", http.StatusOK))
		write("new")
		p.Hangup()
		wait.For(t, c.name+" takes the new token", asks("new", http.StatusOK))
		if err := asks("old", http.StatusUnauthorized)(); err != nil {
			t.Error(err)
		}
		write("old")
		p.Hangup() // the proxy after it follows with the old one
		wait.For(t, c.name+" takes the old token again", asks("old", http.StatusOK))
	}
	for _, p := range started {
		p.Stop()
		if code, _ := p.Ended(); code != 0 {
			t.Errorf("%s, stopped with SIGTERM, ended with status %d", p.Name, code)
		}
	}
}
