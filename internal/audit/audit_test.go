package audit

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

func TestEntriesAreWholeLinesWithTheNamedFields(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	for range 2 { // the second opening appends
		log, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := log.Write(Entry{At: at, Event: Change, Method: "PUT", Path: "/_shard/tenants/a\n\"b",
					Status: 201, Peer: "127.0.0.1", RequestID: "r"}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := 0
	for s := bufio.NewScanner(file); s.Scan(); lines++ {
		var got map[string]any
		if err := json.Unmarshal(s.Bytes(), &got); err != nil {
			t.Fatalf("line %d: %v", lines+1, err)
		}
		for _, field := range []string{"at", "event", "method", "path", "http_status", "peer", "request_id"} {
			if _, ok := got[field]; !ok {
				t.Errorf("line %d has no %s", lines+1, field)
			}
		}
		if got["at"] != "2026-01-02T02:04:05Z" {
			t.Errorf("at = %v, want UTC", got["at"])
		}
	}
	if lines != 40 {
		t.Errorf("%d lines, want 40", lines)
	}
	if info, _ := file.Stat(); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode().Perm())
	}
}

func TestNoLogTakesEntries(t *testing.T) {
	log, err := Open("")
	if err != nil || log.Write(Entry{}) != nil || log.Close() != nil {
		t.Error("a log that was not asked for fails")
	}
}
