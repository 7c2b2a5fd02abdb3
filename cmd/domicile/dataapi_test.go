package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// shownAfter is the example, counted from 0, whose answer docs/data-api.md shows.
const shownAfter = 3

// shownAnswer is the JSON that the page shows.
func shownAnswer(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "```json\n")
	answer, _, end := strings.Cut(rest, "```")
	if !ok || !end {
		t.Fatal("the page shows no answer")
	}
	return answer
}

func post(t *testing.T, url, body string) string {
	t.Helper()
	resp, err := http.Post(url, "", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestO1DataAPIExamples runs every shell command of docs/data-api.md, in its order,
// against a deployment of its own, and asks for the answer that the page shows.
func TestO1DataAPIExamples(t *testing.T) {
	t.Parallel()
	page := filepath.Join("..", "..", "docs", "data-api.md")
	blocks := fences(t, page)
	if len(blocks) < 8 {
		t.Fatalf("%s has %d blocks of shell code; its examples were not understood", page, len(blocks))
	}
	const proxy = "127.0.0.1:8090"
	addr := testcluster.FreeAddr(t)
	d := testcluster.Spawn(t, "dev", addr, "", "dev", "--data", t.TempDir(), "--listen", addr,
		"--control-listen", "127.0.0.1:0", "--raft-listen", "127.0.0.1:0", "--node-listen", "127.0.0.1:0")
	d.AwaitReady()
	wait.For(t, "a tenant can be created", func() error { return expect("PUT", d.URL+"/_shard/tenants/first", "", 201) })
	shown, run := shownAnswer(t, page), 0
	for _, b := range blocks {
		for line := range strings.Lines(b) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), "   #")
			switch {
			case line == "":
			case !strings.HasPrefix(line, "curl ") || !strings.Contains(line, proxy):
				t.Errorf("%s is no example of this API", line)
			default:
				line = strings.ReplaceAll(line, proxy, addr)
				shell(t, t.TempDir(), nil, line)
				if _, data, ok := strings.Cut(line, ` -d '`); ok && run == shownAfter {
					got := post(t, d.URL+"/t/acme/query", strings.TrimSuffix(data, "'"))
					if got != shown {
						t.Errorf("the page shows\n%sbut the answer is\n%s", shown, got)
					}
				}
				run++
			}
		}
	}
	if run <= shownAfter || run < 12 {
		t.Errorf("%d examples were run", run)
	}
}
