package proxy

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestG8R6ReplayedMarkMeansNothing: whoever has seen the mark of a request tries tokens under
// it. One is refused as the request's own would be; then he waits as one who comes directly,
// by his own address. For another request or another tenant he never had a mark.
func TestG8R6ReplayedMarkMeansNothing(t *testing.T) {
	const base = 5 * time.Millisecond
	var mu sync.Mutex
	var refusedTo []string
	x := newPair(t, func(c *Config) {
		c.AuthDelay = base
		c.Audit = func(a Audit) {
			mu.Lock()
			defer mu.Unlock()
			refusedTo = append(refusedTo, a.Client)
		}
	})
	x.nodeUS.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	counted := func() (n int) {
		x.inUS.refusals.mu.Lock()
		defer x.inUS.refusals.mu.Unlock()
		for _, e := range x.inUS.refusals.byAddr {
			n += e.Value.(*refusedAddr).count
		}
		return n
	}
	captured := http.Header{
		"Authorization": {"Bearer forged"}, "X-Request-Id": {string(acmes.id)},
		headerClient: {line(t, newMarks("secret"), client{addr: "192.0.2.9"}, time.Now())},
	}
	for want := range 4 {
		if a := x.inUS.send("GET", "/t/acme/query", captured, ""); a.StatusCode != 401 || counted() != want {
			t.Errorf("got %d, with %d refusals counted before it was answered, want %d", a.StatusCode, counted(), want)
		}
	}
	mu.Lock()
	if got := strings.Join(refusedTo, " "); got != "192.0.2.9 127.0.0.1 127.0.0.1 127.0.0.1" {
		t.Errorf("the audit log names %s", got)
	}
	mu.Unlock()
	// For a tenant that us does not hold it is a client's request, and never answered 421.
	if a := x.inUS.send("GET", "/t/beta/query", captured, ""); a.body != "ap 0" {
		t.Errorf("another tenant: got %d %q", a.StatusCode, a.body)
	}
	another := captured.Clone()
	another.Set("X-Request-Id", "another")
	another.Set(headerClient, line(t, newMarks("secret"), client{addr: "192.0.2.9"}, time.Now()))
	if a := x.inUS.send("GET", "/t/acme/query", another, ""); a.StatusCode != 401 || counted() != 4 {
		t.Errorf("another request: got %d, %d refusals counted, want 4", a.StatusCode, counted())
	}
}
