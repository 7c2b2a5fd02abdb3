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
	"domicile/proto"
)

// runStream serves the stream of a directory of many tenants on one node, so
// that a proxy has a table of that size without a group that made it.
func runStream(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("stream", flag.ContinueOnError)
	addr := fs.String("listen", "127.0.0.1:0", "address")
	node := fs.String("node", "", "address of the node that holds every tenant")
	tenants := fs.Int("tenants", 100_000, "tenants")
	region := fs.String("region", "", "region whose directory this is, beside a copy of the global one; none: the global one")
	home := fs.String("home", "", "with -region: the tenants' home; only that region's directory places them")
	router := fs.String("router", "", "with -region: address of the home's proxy")
	if err := fs.Parse(args); err != nil {
		return err
	}
	placed := *tenants
	if *region != *home {
		placed = 0
	}
	state, err := manyTenants(fsm.RegionName(*region), *node, placed)
	if err != nil {
		return err
	}
	own := streamOf(state)
	defer own.Close()
	global := own
	if *region != "" {
		if state, err = manyHomes(fsm.RegionName(*home), *router, *tenants); err != nil {
			return err
		}
		global = streamOf(state)
		defer global.Close()
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/_shard/subscribe", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get(proto.DirectoryParam) == proto.GlobalScope {
			global.ServeHTTP(w, r)
			return
		}
		own.ServeHTTP(w, r)
	})
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: mux}
	go func() { <-ctx.Done(); _ = srv.Close() }()
	return srv.Serve(l)
}

func streamOf(s *fsm.State) *stream.Hub {
	hub := stream.New(stream.Config{Logger: hclog.NewNullLogger()})
	hub.Reset(stream.Own(s))
	return hub
}

// entries is a directory under construction.
type entries struct {
	state    *fsm.State
	revision fsm.Revision
}

func newEntries(region fsm.RegionName) (*entries, error) {
	e := &entries{state: fsm.New()}
	_, err := e.apply(&fsm.Bootstrap{Scope: fsm.Scope{Cluster: "bench", Region: region, History: 1}})
	return e, err
}

func (e *entries) apply(c fsm.Command) (fsm.Result, error) {
	e.revision++
	r, _ := e.state.Apply(fsm.Entry{Revision: e.revision, Term: 1, At: 1, Cmd: c})
	if r.Refusal != nil {
		return r, fmt.Errorf("entry %d: %w", e.revision, r.Refusal)
	}
	return r, nil
}

// create makes that many tenants, each by its job.
func (e *entries) create(tenants int) error {
	for i := range tenants {
		r, err := e.apply(&fsm.CreateTenant{Name: fsm.TenantName(tenantName(i))})
		if err != nil {
			return err
		}
		if _, err := e.apply(&fsm.AdvanceJob{ID: r.Job, From: fsm.StepMake, To: fsm.StepDone}); err != nil {
			return err
		}
	}
	return nil
}

// manyTenants applies the entries that make a directory of that many tenants,
// each active, on one node.
func manyTenants(region fsm.RegionName, addr string, tenants int) (*fsm.State, error) {
	e, err := newEntries(region)
	if err != nil {
		return nil, err
	}
	token := "bench"
	if _, err := e.apply(&fsm.PutNode{Name: "n1", Addr: &addr, Token: &token, Region: &region}); err != nil {
		return nil, err
	}
	return e.state, e.create(tenants)
}

// manyHomes makes a global directory of that many tenants, each at home in a region that
// keeps its own.
func manyHomes(home fsm.RegionName, router string, tenants int) (*fsm.State, error) {
	e, err := newEntries("")
	if err != nil {
		return nil, err
	}
	if _, err := e.apply(&fsm.PutMember{Member: fsm.Member{ID: "c1", Raft: "c1:8071", Version: fsm.Version}}); err != nil {
		return nil, err
	}
	if _, err := e.apply(&fsm.PutRegion{Region: fsm.Region{Name: home, Routers: []string{router}}}); err != nil {
		return nil, err
	}
	if _, err := e.apply(&fsm.SetSettings{Settings: fsm.Settings{DefaultRegion: &home}}); err != nil {
		return nil, err
	}
	return e.state, e.create(tenants)
}
