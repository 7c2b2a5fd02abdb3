package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// fences gives the shell code of a document, block by block.
func fences(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

var portPattern = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// freshPorts gives each address that the README names one that is free here,
// the same one for the same address.
func freshPorts(t *testing.T, blocks []string) []string {
	t.Helper()
	fresh := map[string]string{}
	out := make([]string, len(blocks))
	for i, b := range blocks {
		out[i] = portPattern.ReplaceAllStringFunc(b, func(addr string) string {
			if fresh[addr] == "" {
				fresh[addr] = testcluster.FreeAddr(t)
			}
			return fresh[addr]
		})
	}
	return out
}

// TestO1ReadmeCommands runs every shell command of the README, in its order,
// on ports of this test's own: make targets are checked to exist, servers are
// started, the rest must succeed.
func TestO1ReadmeCommands(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	original := fences(t, filepath.Join(root, "README.md"))
	if len(original) < 4 {
		t.Fatalf("README.md has %d blocks of shell code; its commands were not understood", len(original))
	}
	blocks := freshPorts(t, original)
	devDefault := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(blocks[1])
	control := testcluster.FreeAddr(t)
	d := testcluster.Spawn(t, "dev", devDefault, "", "dev", "--data", filepath.Join(work, "dev"), "--listen", devDefault,
		"--control-listen", control, "--raft-listen", "127.0.0.1:0", "--node-listen", "127.0.0.1:0")
	d.AwaitReady()
	wait.For(t, "dev recorded its nodes", func() error {
		if !strings.Contains(d.Log(), "Try, in another terminal") {
			return fmt.Errorf("it has not said what to try")
		}
		return nil
	})
	env := append(os.Environ(), "DOMICILE_SERVER=http://"+control)
	for _, b := range blocks {
		for _, line := range strings.Split(strings.TrimSpace(b), "\n") {
			line, _, _ = strings.Cut(line, "   #")
			switch line = strings.TrimSpace(line); {
			case line == "":
			case strings.HasPrefix(line, "make "):
				makeTarget(t, root, strings.Fields(line)[1])
			case strings.HasPrefix(line, "export "):
				env = append(env, strings.Fields(line)[1:]...)
			case regexp.MustCompile(`^bin/domicile +(control|node|proxy) `).MatchString(line):
				startReadmeServer(t, work, line)
			default:
				shell(t, work, env, line)
			}
		}
	}
}

func makeTarget(t *testing.T, root, target string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^` + target + `:`).Match(text) {
		t.Errorf("README names make %s, which the Makefile lacks", target)
	}
}

func startReadmeServer(t *testing.T, work, line string) {
	t.Helper()
	args := strings.Fields(line)[1:]
	var addr string
	for i, a := range args {
		if a == "--listen" {
			addr = args[i+1]
		}
		if strings.HasPrefix(a, "data/") {
			args[i] = filepath.Join(work, a)
		}
	}
	testcluster.Spawn(t, "readme "+args[0], addr, "", args...).AwaitReady()
}

func shell(t *testing.T, work string, env []string, line string) {
	t.Helper()
	line = strings.Replace(line, "bin/domicile", testcluster.Binary(), 1)
	line = strings.Replace(line, "curl ", "curl -sS --fail-with-body ", 1)
	cmd := exec.CommandContext(context.Background(), "bash", "-c", line)
	cmd.Dir, cmd.Env = work, env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("README: %s\n%v\n%s", line, err, out)
	}
}

// TestO1DevKeepsItsData: dev serves a tenant, and serves it again after a
// restart.
func TestO1DevKeepsItsData(t *testing.T) {
	t.Parallel()
	addr, data := testcluster.FreeAddr(t), t.TempDir()
	args := []string{"dev", "--data", data, "--listen", addr, "--control-listen", testcluster.FreeAddr(t), "--raft-listen", testcluster.FreeAddr(t), "--node-listen", "127.0.0.1:0"}
	d := testcluster.Spawn(t, "dev", addr, data, args...)
	d.AwaitReady()
	wait.For(t, "a tenant can be created", func() error { return expect(http.MethodPut, d.URL+"/_shard/tenants/acme", "", 201) })
	if err := expect(http.MethodPost, d.URL+"/t/acme/query", `{"sql":"create table t (n)"}`, 200); err != nil {
		t.Fatal(err)
	}
	d.Stop()
	if code, _ := d.Ended(); code != 0 {
		t.Errorf("stopped with SIGTERM it ended with status %d", code)
	}
	d.Start()
	d.AwaitReady()
	wait.For(t, "the tenant is served again", func() error { return expect(http.MethodPost, d.URL+"/t/acme/query", `{"sql":"select n from t"}`, 200) })
}

func expect(method, url, body string, status int) error {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != status {
		return fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, text)
	}
	return nil
}
