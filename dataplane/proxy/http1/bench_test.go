package http1

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
)

var typicalHead = []byte("POST /t/acme/v2/pipeline HTTP/1.1\r\nHost: acme.example.com\r\nUser-Agent: libsql-client/0.14.0\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate, br\r\nAuthorization: Bearer 0123456789abcdef0123456789abcdef\r\nContent-Type: application/json\r\nContent-Length: 120\r\n\r\n")

func BenchmarkParseRequest(b *testing.B) {
	var m message
	b.ReportAllocs()
	for b.Loop() {
		end, _, _ := headEnd(typicalHead, 0)
		if err := m.parseRequest(typicalHead[:end:end]); err != nil {
			b.Fatal(err)
		}
	}
}

// TestForwardingDoesNotAllocate: no memory per request beyond the pools.
func TestForwardingDoesNotAllocate(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector makes pools forget on purpose")
	}
	p, _ := proxyTo(t, func(c *nodeConn) {
		b, answer := make([]byte, 4096), []byte(okAnswer)
		for {
			if _, err := c.Read(b); err != nil {
				return
			}
			c.Write(answer)
		}
	})
	c := dial(t, p.addr)
	request, b := []byte(get("/t/acme/x")), make([]byte, 4096)
	round := func() {
		c.Write(request)
		for n := 0; !bytes.HasSuffix(b[:n], []byte("ok")); {
			k, err := c.Read(b[n:])
			if err != nil {
				t.Fatal(err)
			}
			n += k
		}
	}
	for range 100 {
		round()
	}
	if got := testing.AllocsPerRun(1000, round); got >= 1 {
		t.Errorf("%v allocations a request", got)
	}
}

// BenchmarkIdleConnection reports the memory of an idle client connection, the
// client's half of it included.
func BenchmarkIdleConnection(b *testing.B) {
	p := startProxy(b, &testHandler{route: func(r *Request, d *Decision) { d.Respond(200, "", "") }}, nil)
	const count = 5000
	before := resident(b)
	for b.Loop() {
		conns := make([]net.Conn, 0, count)
		buf := make([]byte, 1024)
		for range count {
			c, err := net.Dial("tcp", p.addr)
			if err != nil {
				b.Fatal(err)
			}
			io.WriteString(c, get("/"))
			if _, err := c.Read(buf); err != nil {
				b.Fatal(err)
			}
			conns = append(conns, c)
		}
		runtime.GC()
		b.ReportMetric(float64(resident(b)-before)/count, "B/conn")
		for _, c := range conns {
			c.Close()
		}
		eventually(b, "the connections are gone", func() bool { return p.Stats().Connections.Load() == 0 })
	}
}

// resident gives the heap and stacks in use.
func resident(b *testing.B) int64 {
	if _, err := os.Stat("/proc/self/statm"); err != nil {
		b.Skip("no /proc")
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// TestIdleConnectionsHoldNoBuffers: what waits for a request has given its
// memory back.
func TestIdleConnectionsHoldNoBuffers(t *testing.T) {
	p, _ := proxyTo(t, answering(okAnswer))
	for range 10 {
		dial(t, p.addr).send(strings.Replace(get("/"), "\r\n\r\n", fmt.Sprintf("\r\nX: %s\r\n\r\n", strings.Repeat("x", 30<<10)), 1)).answer()
	}
	eventually(t, "all are idle and empty", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for c := range p.conns {
			if state(c.state.Load()).phase() != phaseIdle {
				return false
			}
		}
		return true
	})
	shutdown(t, p.Server)
}
