package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"domicile/proto"
)

// TestO2WhatGoesWrongIsTold: no server, and an answer about many tenants that has no
// code of its own.
func TestO2WhatGoesWrongIsTold(t *testing.T) {
	some := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "q")
		w.WriteHeader(502)
		_, _ = io.WriteString(w, `{"replicated":[],"failed":[{"tenant":"a","why":"x"},{"tenant":"b","why":"x"}]}`)
	}))
	defer some.Close()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"admin", "replicas", "repair", "--server", some.URL}, "some tenants failed (502, request q)"},
		{[]string{"admin", "replicas", "repair", "-o", "json", "--server", some.URL}, `{"error":"some tenants failed","request_id":"q","status":502}`},
	} {
		var out, complaints bytes.Buffer
		if code := run(context.Background(), c.args, &env{stdout: &out, stderr: &complaints}); code != 1 || !strings.Contains(complaints.String(), c.want) {
			t.Errorf("%v: status %d, %s, want %s", c.args, code, complaints.String(), c.want)
		}
	}
	var complaints bytes.Buffer
	new(cli).complain(&env{stderr: &complaints}, &url.Error{Op: "Get", URL: "http://127.0.0.1:9", Err: syscall.ECONNREFUSED})
	if text := complaints.String(); !strings.Contains(text, "no server answers: ") || !strings.Contains(text, "--server (DOMICILE_SERVER)") {
		t.Errorf("no server is reached: %s", text)
	}
}

// TestG11AServerOfARegionThatCannotBeIsABadArgument: nothing is opened, and status 2 says that it
// was the command line (spec 2.1).
func TestG11AServerOfARegionThatCannotBeIsABadArgument(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--region", "global", "--global", "http://127.0.0.1:9"}, "the global group's name"},
		{[]string{"--region", "global"}, "the global group's name"},
		{[]string{"--region", "EU", "--global", "http://127.0.0.1:9"}, "is not the name of a region"},
		{[]string{"--region", "us"}, "--global"},
		{[]string{"--global", "http://127.0.0.1:9"}, "--region"},
		{[]string{"--default-region", "global"}, "the global group's name"},
		{[]string{"--id", "@c1"}, "is not the name of a server"},
	} {
		data := filepath.Join(t.TempDir(), "data")
		var out, complaints bytes.Buffer
		args := append([]string{"control", "--id", "c1", "--data", data, "--bootstrap", "--listen", "127.0.0.1:0", "--raft-listen", "127.0.0.1:0"}, c.args...)
		ctx, stop := context.WithCancel(context.Background())
		stop() // one that starts all the same ends at once
		code := run(ctx, args, &env{stdout: &out, stderr: &complaints})
		_, err := os.Stat(data)
		if code != 2 || !strings.Contains(complaints.String(), c.want) || !os.IsNotExist(err) {
			t.Errorf("%v: status %d, %s, want 2 and %s; the data folder: %v", c.args, code, complaints.String(), c.want, err)
		}
	}
}

// TestO2AnInterruptedWaitTellsWhatGoesOn: Ctrl-C ends the command, not the work.
func TestO2AnInterruptedWaitTellsWhatGoesOn(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"tenants", "move", "acme", "--to", "n2"}, "interrupted; what has begun goes on, see: domicile admin moves --tenant acme\n"},
		{[]string{"moves", "watch", "7"}, "interrupted; what has begun goes on, see: domicile admin moves watch 7\n"},
		{[]string{"nodes", "drain", "n1", "--wait"}, "interrupted; what has begun goes on, see: domicile admin nodes drain n1 --show\n"},
		{[]string{"tenants", "delete", "acme"}, "interrupted: whether it was done is not known\n"},
	} {
		ctx, interrupt := context.WithCancel(context.Background())
		held := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // until it is read, nothing tells that the client has gone
			interrupt()
			<-r.Context().Done()
		}))
		var out, complaints bytes.Buffer
		code := run(ctx, append([]string{"admin", "--server", held.URL}, c.args...), &env{stdout: &out, stderr: &complaints})
		if code != 1 || complaints.String() != "domicile: "+c.want {
			t.Errorf("%v: status %d, %s, want %s", c.args, code, complaints.String(), c.want)
		}
		interrupt()
		held.Close()
	}
}

// TestC8ReadReplicasAreAmongTheCopies: a tenant's copies as they are listed to people.
func TestC8ReadReplicasAreAmongTheCopies(t *testing.T) {
	replicas := []proto.Replica{{Node: "eu2", State: inSync}}
	for _, c := range []struct {
		tenant proto.Tenant
		want   string
	}{
		{proto.Tenant{Replicas: replicas}, "eu2"},
		{proto.Tenant{Replicas: replicas, ReadReplicas: []proto.ReadReplica{{Region: "us", Node: "us1", State: proto.ReaderFollowing}}}, "eu2, us1 (read replica in us)"},
		{proto.Tenant{Replicas: replicas, ReadReplicas: []proto.ReadReplica{{Region: "us", State: proto.ReaderHome}}}, "eu2"},
		{proto.Tenant{Unreplicated: "why", ReadReplicas: []proto.ReadReplica{{Region: "us", State: proto.ReaderUnplaced}}}, "unreplicated, none (read replica in us)"},
		{proto.Tenant{ReadReplicas: []proto.ReadReplica{{Region: "us", Node: "us1", State: proto.ReaderLost}}}, "us1 (read replica in us, lost)"},
	} {
		if got := copiesText(&c.tenant); got != c.want {
			t.Errorf("%+v: %q, want %q", c.tenant, got, c.want)
		}
	}
}
