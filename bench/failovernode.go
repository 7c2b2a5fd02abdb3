package main

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
)

// fakeNode answers what a node without units answers to a leader.
func fakeNode(grants *atomic.Int64) http.Handler {
	reply := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_admin/stats", func(w http.ResponseWriter, _ *http.Request) { reply(w, map[string]int{"tenants": 0}) })
	mux.HandleFunc("GET /_admin/units", func(w http.ResponseWriter, _ *http.Request) { reply(w, []string{}) })
	mux.HandleFunc("GET /_admin/sizes", func(w http.ResponseWriter, _ *http.Request) { reply(w, map[string]int{}) })
	mux.HandleFunc("GET /_admin/copies", func(w http.ResponseWriter, _ *http.Request) { reply(w, map[string]any{"following": map[string]int{}}) })
	mux.HandleFunc("POST /_admin/lease", func(w http.ResponseWriter, r *http.Request) {
		var g struct {
			Epoch string
			Grant uint64
		}
		if err := json.NewDecoder(r.Body).Decode(&g); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		grants.Add(1)
		reply(w, map[string]any{"epoch": g.Epoch, "left_ms": 900, "grant": g.Grant, "boot": "b0f1c2", "ack": "replica"})
	})
	return mux
}
