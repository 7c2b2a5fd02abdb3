package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"

	"github.com/hashicorp/go-hclog"

	"domicile/controlplane/stream"
	"domicile/fsm"
)

// runStream serves the stream of a directory of many tenants on one node, so
// that a proxy has a table of that size without a group that made it.
func runStream(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("stream", flag.ContinueOnError)
	addr := fs.String("listen", "127.0.0.1:0", "address")
	node := fs.String("node", "", "address of the node that holds every tenant")
	tenants := fs.Int("tenants", 100_000, "tenants")
	if err := fs.Parse(args); err != nil {
		return err
	}
	state, err := manyTenants(*node, *tenants)
	if err != nil {
		return err
	}
	hub := stream.New(stream.Config{Logger: hclog.NewNullLogger()})
	defer hub.Close()
	hub.Reset(stream.Own(state))
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/_shard/subscribe", hub)
	srv := &http.Server{Handler: mux}
	go func() { <-ctx.Done(); _ = srv.Close() }()
	return srv.Serve(l)
}

// manyTenants applies the entries that make a directory of that many tenants,
// each active, on one node.
func manyTenants(addr string, tenants int) (*fsm.State, error) {
	s := fsm.New()
	revision := fsm.Revision(0)
	apply := func(c fsm.Command) (fsm.Result, error) {
		revision++
		r, _ := s.Apply(fsm.Entry{Revision: revision, Term: 1, At: 1, Cmd: c})
		if r.Refusal != nil {
			return r, fmt.Errorf("entry %d: %w", revision, r.Refusal)
		}
		return r, nil
	}
	if _, err := apply(&fsm.Bootstrap{Scope: fsm.Scope{Cluster: "bench", History: 1}}); err != nil {
		return nil, err
	}
	token := "bench"
	if _, err := apply(&fsm.PutNode{Name: "n1", Addr: &addr, Token: &token}); err != nil {
		return nil, err
	}
	for i := range tenants {
		r, err := apply(&fsm.CreateTenant{Name: fsm.TenantName(tenantName(i))})
		if err != nil {
			return nil, err
		}
		if _, err := apply(&fsm.AdvanceJob{ID: r.Job, From: fsm.StepMake, To: fsm.StepDone}); err != nil {
			return nil, err
		}
	}
	return s, nil
}
