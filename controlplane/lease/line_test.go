package lease

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"domicile/fsm"
	"domicile/internal/boottime"
	"domicile/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer answers every request on a socket with what answer writes.
func peer(t *testing.T, answer func(c net.Conn, g proto.Grant)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(c)
			for {
				r, err := http.ReadRequest(in)
				if err != nil {
					break
				}
				var g proto.Grant
				_ = json.NewDecoder(r.Body).Decode(&g)
				answer(c, g)
			}
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

func write(c net.Conn, status int, body string) {
	fmt.Fprintf(c, "HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
}

// lead runs a keeper over one node at addr, with real sockets, until done says
// so of its status.
func lead(t *testing.T, addr string, done func(Status) bool) Status {
	t.Helper()
	n := leased("n1")
	n.Addr = addr
	log := newTestLog(t, 300, n)
	k := New(Config{Group: &member{testLog: log, term: 1}, Logger: quiet()})
	defer run(k, 1)()
	limit := time.After(20 * time.Second)
	for {
		changed := k.Changed()
		if s, ok := k.Node("n1"); ok && done(s) {
			return s
		}
		select {
		case <-changed:
		case <-time.After(time.Millisecond):
		case <-limit:
			s, _ := k.Node("n1")
			t.Fatalf("status stays %+v", s)
		}
	}
}

// TestFakePeers: whatever answers at a node's address, but does not answer as
// that node does, holds no lease, is silent, and lapses.
func TestFakePeers(t *testing.T) {
	ok := func(g proto.Grant) string {
		return fmt.Sprintf(`{"epoch":%q,"grant":%d,"boot":"b","left_ms":1}`, g.Epoch, g.Grant)
	}
	for name, answer := range map[string]func(c net.Conn, g proto.Grant){
		"garbage":       func(c net.Conn, _ proto.Grant) { io.WriteString(c, "\x00\xff nonsense\r\n\r\n") },
		"no JSON":       func(c net.Conn, _ proto.Grant) { write(c, 200, "<html>") },
		"another grant": func(c net.Conn, g proto.Grant) { g.Grant++; write(c, 200, ok(g)) },
		"another list":  func(c net.Conn, g proto.Grant) { g.Epoch += "0"; write(c, 200, ok(g)) },
		"no boot":       func(c net.Conn, g proto.Grant) { write(c, 200, strings.Replace(ok(g), `"b"`, `""`, 1)) },
		"a boot too long": func(c net.Conn, g proto.Grant) {
			write(c, 200, strings.Replace(ok(g), `"b"`, `"`+strings.Repeat("b", 9999)+`"`, 1))
		},
		"500": func(c net.Conn, g proto.Grant) { write(c, 500, ok(g)) },
		"a redirect": func(c net.Conn, g proto.Grant) {
			fmt.Fprintf(c, "HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
		},
		"401":                  func(c net.Conn, g proto.Grant) { write(c, 401, `{"error":"who?"}`) },
		"404":                  func(c net.Conn, g proto.Grant) { write(c, 404, "") },
		"412 for ever":         func(c net.Conn, g proto.Grant) { write(c, 412, `{"epoch":"","boot":"b"}`) },
		"412 of new processes": func(c net.Conn, g proto.Grant) { write(c, 412, fmt.Sprintf(`{"epoch":"","boot":"%d"}`, g.Grant)) },
		"stale beyond numbers": func(c net.Conn, g proto.Grant) { write(c, 409, `{"code":"stale_grant","grant":18446744073709551615}`) },
		"a newer holder":       func(c net.Conn, g proto.Grant) { write(c, 409, `{"authority":"c/eu","history":1,"term":9}`) },
		"an endless head": func(c net.Conn, g proto.Grant) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for {
				if _, err := io.WriteString(c, "X: "+strings.Repeat("x", 4000)+"\r\n"); err != nil {
					return
				}
			}
		},
		"an endless body": func(c net.Conn, g proto.Grant) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
			for {
				if _, err := c.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		},
		"closes": func(c net.Conn, g proto.Grant) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := lead(t, peer(t, answer), func(s Status) bool { return s.Lapsed })
			if !s.Silent || s.Answered || s.Problem == "" {
				t.Errorf("status %+v", s)
			}
		})
	}
}

// TestLateAnswerIsNeverSeen: a call that ran out of time ends its connection.
func TestLateAnswerIsNeverSeen(t *testing.T) {
	var calls atomic.Int64
	release := make(chan struct{})
	addr := peer(t, func(c net.Conn, g proto.Grant) {
		if calls.Add(1) == 1 {
			<-release
		}
		write(c, 200, fmt.Sprintf(`{"epoch":%q,"grant":%d,"boot":"b"}`, g.Epoch, g.Grant))
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := newHTTPLine(ctx, &Config{}, &fsm.Node{Addr: addr, Token: "x"})
	defer l.close()
	if _, err := l.call("POST", "/_admin/lease", []byte(`{"grant":1}`), 20*time.Millisecond); err == nil {
		t.Fatal("an answer without one")
	}
	if l.conn != nil {
		t.Error("the connection was kept")
	}
	close(release)
	r, err := l.call("POST", "/_admin/lease", []byte(`{"grant":2}`), 10*time.Second)
	if err != nil || !strings.Contains(string(r.body), `"grant":2`) {
		t.Errorf("%s, %v", r.body, err)
	}
}

// TestHTTPNode is a node behind net/http, and one behind TLS: the requests are
// well-formed, the connection is kept, and a node that was restarted is reached
// at once.
func TestHTTPNode(t *testing.T) {
	for _, secure := range []bool{false, true} {
		n := newTestNode(boottime.System{})
		var conns atomic.Int64
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil || r.Header.Get("Authorization") != "Bearer secret" || r.Host == "" {
				w.WriteHeader(400)
				return
			}
			status, answer := n.take(r.Method, r.URL.Path, body)
			w.WriteHeader(status)
			json.NewEncoder(w).Encode(answer)
		}))
		server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				conns.Add(1)
			}
		}
		if secure {
			server.StartTLS()
		} else {
			server.Start()
		}
		record := leased("n1")
		record.Addr = server.URL
		log := newTestLog(t, 600, record)
		client := server.Client().Transport.(*http.Transport)
		k := New(Config{Group: &member{testLog: log, term: 1}, Logger: quiet(), DialTLS: (&tls.Dialer{Config: client.TLSClientConfig}).DialContext})
		stop := run(k, 1)
		await(t, func() bool { _, known := k.Node("n1"); return known })
		rev := log.change(func(r *records, _ fsm.Revision) { r.units["u"] = unit("u", 1, "n1") }, "n1")
		if err := k.AwaitNamed(t.Context(), "n1", rev); err != nil || !n.writes("u") {
			t.Errorf("secure %v: named: %v", secure, err)
		}
		await(t, func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.newest > 8 })
		if c := conns.Load(); c != 1 {
			t.Errorf("secure %v: %d connections", secure, c)
		}
		n.restart()
		server.CloseClientConnections()
		await(t, func() bool { return n.writes("u") })
		if s, _ := k.Node("n1"); s.Silent || s.Lapsed {
			t.Errorf("secure %v: %+v", secure, s)
		}
		stop()
		client.CloseIdleConnections()
		server.Close()
	}
}

func await(t *testing.T, done func() bool) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for !done() {
		select {
		case <-time.After(time.Millisecond):
		case <-limit:
			t.Fatal("it does not come about")
		}
	}
}
