package httpserve

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

func newTestServer(t *testing.T, log io.Writer, served chan<- Served) *httptest.Server {
	h := New(Config{
		Token: "secret", Guarded: "/a/", Nothing: "nothing here",
		Logger: hclog.New(&hclog.LoggerOptions{Output: log}),
		Before: func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Always", "1") },
		Done:   func(s Served) { served <- s },
		Routes: []Route{
			{Method: "GET", Path: "/a/{x}", Name: "get", Handler: func(w http.ResponseWriter, r *http.Request) error {
				WriteJSON(w, 200, r.PathValue("x"))
				return nil
			}},
			{Method: "PUT", Path: "/a/{x}", Name: "put", Handler: func(http.ResponseWriter, *http.Request) error {
				return &Error{Status: 503, Code: "busy", Text: "a < b & c", Fields: map[string]any{"who": "me", "also": "<>"}}
			}},
			{Method: "GET", Path: "/open", Name: "open", Open: true, Handler: func(w http.ResponseWriter, r *http.Request) error {
				switch r.URL.RawQuery {
				case "panic":
					panic("at the disco")
				case "fail":
					return errors.New("inner secret")
				case "half":
					_, _ = io.WriteString(w, "half")
					return errors.New("the other half is missing")
				}
				return nil
			}},
		},
	})
	s := httptest.NewServer(h)
	s.Config.ErrorLog = hclog.NewNullLogger().StandardLogger(nil)
	t.Cleanup(s.Close)
	return s
}

func TestEveryAnswerGoesThroughOnePlace(t *testing.T) {
	var log bytes.Buffer
	served := make(chan Served, 1) // each is taken before the next request
	s := newTestServer(t, &log, served)
	for _, c := range []struct {
		method, path, token string
		status              int
		body, route         string
	}{
		{"GET", "/a/b", "secret", 200, `"b"`, "get"},
		{"HEAD", "/a/b", "secret", 200, ``, "get"},
		{"GET", "/a/b%2Fc", "secret", 200, `"b/c"`, "get"},
		{"GET", "/a/%62", "secret", 200, `"b"`, "get"},
		{"GET", "/a/b", "", 401, `{"error":"the token is missing`, "get"},
		{"GET", "/a/b", "", 401, `"code":"unauthorized"`, "get"},
		{"GET", "/a/b", "secre", 401, `{"error":"the token is not the server's`, "get"},
		{"GET", "/a/b", "secre", 401, `"code":"unauthorized"`, "get"},
		{"GET", "/a/b", "secret2", 401, `"code":"unauthorized"`, "get"},
		{"GET", "/a/b/c", "", 401, `"code":"unauthorized"`, ""},
		{"GET", "/a/b/c", "secret", 404, `"code":"unknown_route"`, ""},
		{"GET", "//a/b", "secret", 404, `"code":"unknown_route"`, ""},
		{"GET", "/a/../a/b", "secret", 404, `"code":"unknown_route"`, ""},
		{"GET", "/elsewhere", "", 404, `{"error":"nothing here","code":"unknown_route"}`, ""},
		{"POST", "/a/b", "secret", 405, `"code":"method_not_allowed"`, ""},
		{"OPTIONS", "/open", "", 405, `"code":"method_not_allowed"`, ""},
		{"PUT", "/a/b", "secret", 503, `{"error":"a < b & c","code":"busy","also":"<>","who":"me"}`, "put"},
		{"GET", "/open", "", 200, ``, "open"},
		{"GET", "/open?panic", "", 500, `"code":"internal"`, "open"},
		{"GET", "/open?fail", "", 500, `"code":"internal"`, "open"},
	} {
		req, _ := http.NewRequest(c.method, s.URL+c.path, nil)
		if c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		last := <-served
		if resp.StatusCode != c.status || !strings.Contains(string(text), c.body) || last.Route != c.route || last.Status != c.status {
			t.Errorf("%s %s: %d %s, counted as %+v; want %d %s", c.method, c.path, resp.StatusCode, text, last, c.status, c.body)
		}
		if last.Peer != "127.0.0.1" || last.Took <= 0 || last.RequestID != resp.Header.Get("X-Request-Id") {
			t.Errorf("%s %s: counted as %+v", c.method, c.path, last)
		}
		if resp.Header.Get("Always") != "1" || resp.Header.Get("X-Request-Id") == "" || strings.Contains(string(text), "inner secret") {
			t.Errorf("%s %s: headers %v, body %s", c.method, c.path, resp.Header, text)
		}
		if c.status == 503 && resp.Header.Get("Retry-After") != "1" {
			t.Errorf("%s %s: Retry-After %q", c.method, c.path, resp.Header.Get("Retry-After"))
		}
		if allow := resp.Header.Get("Allow"); c.status == 405 && allow != "GET, HEAD, PUT" && allow != "GET, HEAD" {
			t.Errorf("%s %s: Allow %q", c.method, c.path, allow)
		}
	}
	if !strings.Contains(log.String(), "at the disco") || !strings.Contains(log.String(), "inner secret") {
		t.Errorf("the log lacks what failed: %s", log.String())
	}
	// On a connection of its own: on one that served before, the client asks again.
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(s.URL + "/open?half")
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	if err == nil {
		t.Error("half an answer looks whole")
	}
}
