package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"domicile/proto"
)

// asked is a request that a fake server saw.
type asked struct{ method, target, key, auth, body string }

// answers is a transport that gives fixed answers in turn and keeps what was
// asked; it stands in for faults of the network, which a server cannot play.
type answers struct {
	mu   sync.Mutex
	seen []asked
	give []func(*http.Request) (*http.Response, error)
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	a.seen = append(a.seen, asked{r.Method, r.URL.String(), r.Header.Get("Idempotency-Key"), r.Header.Get("Authorization"), string(body)})
	give := a.give[0]
	if len(a.give) > 1 {
		a.give = a.give[1:]
	}
	return give(r)
}

func status(code int, body string, header ...string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = w.WriteString(body)
		resp := w.Result()
		resp.Request = r
		return resp, nil
	}
}

func broken(op string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		return nil, &net.OpError{Op: op, Net: "tcp", Err: errors.New("broken")}
	}
}

func clientOf(t *testing.T, give ...func(*http.Request) (*http.Response, error)) (*Client, *answers) {
	t.Helper()
	a := &answers{give: give}
	c, err := New(Config{Servers: []string{"http://a:1", "https://b:2/"}, Token: "secret", Transport: a})
	if err != nil {
		t.Fatal(err)
	}
	return c, a
}

func TestAChangeIsAskedAgainWithItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a := clientOf(t,
			status(503, `{"error":"no leader","code":"no_leader"}`, "Retry-After", "2"),
			broken("read"), broken("dial"),
			status(201, `{"tenant":"acme","node":"n1","region":"eu"}`))
		begun := time.Now()
		out, err := c.CreateTenant(context.Background(), "acme", proto.PutTenant{Schema: "x"})
		if err != nil || out.Node != "n1" {
			t.Fatalf("%+v, %v", out, err)
		}
		if took := time.Since(begun); took < 2*time.Second {
			t.Errorf("asked again after %v, before the server wished it", took)
		}
		targets := ""
		for _, s := range a.seen {
			targets += s.target[:len("https://b")] + " "
			if s.key == "" || s.key != a.seen[0].key || s.auth != "Bearer secret" || s.body != `{"schema":"x"}` || s.method != "PUT" {
				t.Errorf("asked %+v", s)
			}
		}
		if targets != "http://a: https://b http://a: https://b " {
			t.Errorf("asked %s", targets)
		}
		first := a.seen[0].key
		if _, err := c.CreateTenant(context.Background(), "acme", proto.PutTenant{}); err != nil || a.seen[len(a.seen)-1].key == first {
			t.Errorf("another change has the same key, or failed: %v", err)
		}
	})
}

func TestAnyOtherAnswerIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, code := range []int{302, 400, 401, 404, 409, 422, 500, 502} {
			c, a := clientOf(t, status(code, `{"error":"no","code":"tenant_exists","tenant":"acme"}`, "X-Request-Id", "r", "Location", "http://c:3/"))
			err := c.DeleteTenant(context.Background(), "acme")
			var said *Error
			if !errors.As(err, &said) || said.Status != code || said.Code != "tenant_exists" || said.Text != "no" ||
				said.Fields["tenant"] != "acme" || said.RequestID != "r" || len(a.seen) != 1 {
				t.Errorf("%d: %+v after %d requests", code, err, len(a.seen))
			}
		}
		c, a := clientOf(t, status(503, `not json`))
		if err := c.DeleteTenant(context.Background(), "acme"); err == nil || len(a.seen) != 1 {
			t.Errorf("503 without Retry-After: %v after %d requests", err, len(a.seen))
		}
	})
}

// A server that is cut off from its group answers 503 for as long as it is; the
// others do not.
func TestAServerThatCannotServeIsLeftForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := transport(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "a:1" {
				return status(503, `{"error":"no leader","code":"no_leader"}`, "Retry-After", "1")(r)
			}
			return status(204, ``)(r)
		})
		c, err := New(Config{Servers: []string{"http://a:1", "https://b:2/"}, Transport: a})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.DeleteTenant(context.Background(), "acme"); err != nil {
			t.Error(err)
		}
	})
}

// transport is a function as a transport.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAskingAgainEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a := clientOf(t, status(503, `{"error":"no leader","code":"no_leader"}`, "Retry-After", "1"))
		begun := time.Now()
		var said *Error
		if err := c.DeleteTenant(context.Background(), "acme"); !errors.As(err, &said) || said.Code != "no_leader" {
			t.Errorf("%v", err)
		}
		if took := time.Since(begun); took > defaultRetryFor || len(a.seen) < 10 {
			t.Errorf("%d requests in %v", len(a.seen), took)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
		defer cancel()
		if err := c.DeleteTenant(ctx, "acme"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the context's end", err)
		}
	})
}

func TestAHandOverIsNotAskedAgainOnceItMayHaveArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a := clientOf(t, broken("read"))
		if _, err := c.TransferLeadership(context.Background(), ""); err == nil || len(a.seen) != 1 {
			t.Errorf("%v after %d requests", err, len(a.seen))
		}
		c, a = clientOf(t, status(503, `{"error":"unknown","code":"outcome_unknown"}`, "Retry-After", "1"))
		if _, err := c.TransferLeadership(context.Background(), ""); err == nil || len(a.seen) != 1 {
			t.Errorf("%v after %d requests: it may have been done", err, len(a.seen))
		}
		c, a = clientOf(t, broken("dial"), status(200, `{"leader":"c2"}`))
		if led, err := c.TransferLeadership(context.Background(), "c2"); err != nil || led.Leader != "c2" || len(a.seen) != 2 {
			t.Errorf("%+v, %v after %d requests", led, err, len(a.seen))
		}
	})
}

func TestTheListIsWalkedPageByPage(t *testing.T) {
	c, a := clientOf(t,
		status(200, `[{"name":"a"},{"name":"b"}]`, "Link", `</_shard/tenants?after=b>; rel="next"`),
		status(200, `[{"name":"c"}]`))
	var names []string
	for tenant, err := range c.Consistent().Tenants(context.Background(), ListTenants{Prefix: "x", Bytes: true}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, string(tenant.Name))
	}
	if fmt.Sprint(names) != "[a b c]" || len(a.seen) != 2 || !strings.Contains(a.seen[1].target, "after=b") ||
		!strings.Contains(a.seen[1].target, "consistent=") || !strings.Contains(a.seen[1].target, "prefix=x") {
		t.Errorf("names %v, asked %+v", names, a.seen)
	}
}

func TestServersThatAreNoneAreRefused(t *testing.T) {
	for _, servers := range [][]string{nil, {""}, {"a:1"}, {"ftp://a:1"}, {"http://u:p@a:1"}, {"http://a:1/x"}, {"http://a:1?x"}, {"http://"}} {
		if _, err := New(Config{Servers: servers}); err == nil {
			t.Errorf("%q was taken", servers)
		}
	}
}
