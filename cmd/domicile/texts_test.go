package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
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
