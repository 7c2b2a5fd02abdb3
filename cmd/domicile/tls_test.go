package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"domicile/internal/testcluster"
	"domicile/internal/tlsconf/certtest"
	"domicile/internal/wait"
)

// TestO5WholeDeploymentOverTLS: three control servers, a node and a proxy,
// every link encrypted, the parts known to each other by certificate alone; the
// CLI with a certificate works, and whoever has none is refused by the parts'
// ports.
func TestO5WholeDeploymentOverTLS(t *testing.T) {
	t.Parallel()
	ca := certtest.NewCA(t, "parts")
	cert, key := ca.Issue(t, "part", "127.0.0.1")
	files := []string{"--tls-cert", cert, "--tls-key", key, "--tls-ca", ca.File}
	dir := t.TempDir()
	secure := func(name, addr, data string, args ...string) *testcluster.Process {
		p := testcluster.Spawn(t, name, addr, data, append(args, files...)...)
		p.URL = "https://" + addr
		return p
	}
	var controls []string
	for i := range 3 {
		addr := testcluster.FreeAddr(t)
		data := filepath.Join(dir, fmt.Sprintf("c%d", i))
		args := []string{"control", "--id", fmt.Sprintf("c%d", i), "--data", data, "--listen", addr, "--raft-listen", testcluster.FreeAddr(t)}
		if i == 0 {
			args = append(args, "--bootstrap")
		} else {
			args = append(args, "--join", controls[0])
		}
		secure(fmt.Sprintf("control c%d", i), addr, data, args...)
		controls = append(controls, "https://"+addr)
	}
	nodeAddr, proxyAddr := testcluster.FreeAddr(t), testcluster.FreeAddr(t)
	secure("node", nodeAddr, "", "node", "--listen", nodeAddr, "--data", filepath.Join(dir, "n1"), "--admin-token", "n0de")
	secure("proxy", proxyAddr, "", "proxy", "--listen", proxyAddr, "--control", strings.Join(controls, ","))

	cli := func(args ...string) error {
		var out bytes.Buffer
		all := append([]string{"admin", "--server", strings.Join(controls, ","), "--tls-cert", cert, "--tls-key", key, "--tls-ca", ca.File}, args...)
		if code := run(context.Background(), all, &env{stdout: &out, stderr: &out}); code != 0 {
			return fmt.Errorf("domicile %s: status %d: %s", strings.Join(args, " "), code, out.String())
		}
		return nil
	}
	wait.For(t, "the three servers form a group", func() error {
		var out bytes.Buffer
		all := []string{"admin", "--server", controls[0], "--tls-cert", cert, "--tls-key", key, "--tls-ca", ca.File, "group"}
		if code := run(context.Background(), all, &env{stdout: &out, stderr: &out}); code != 0 || strings.Count(out.String(), "healthy") < 3 {
			return fmt.Errorf("%s", out.String())
		}
		return nil
	})
	for _, args := range [][]string{
		{"nodes", "put", "n1", "--addr", "https://" + nodeAddr, "--node-token", "n0de"},
		{"tenants", "create", "acme"},
	} {
		if err := cli(args...); err != nil {
			t.Fatal(err)
		}
	}
	pem, err := os.ReadFile(ca.File)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	application := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	wait.For(t, "an application without a certificate is served by the proxy", func() error {
		resp, err := application.Post("https://"+proxyAddr+"/t/acme/query", "", strings.NewReader(`{"sql":"select 1 as one"}`))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", resp.Status, body)
		}
		return nil
	})
	for _, url := range []string{controls[0] + "/_shard/nodes", "https://" + nodeAddr + "/_health"} {
		if resp, err := application.Get(url); err == nil {
			resp.Body.Close()
			t.Errorf("%s answers %s to a client without a certificate", url, resp.Status)
		}
	}
}
