package node

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/valyala/fasthttp"
)

// rawClient sends the same bytes again and again, so that the client costs little
// beside the server.
type rawClient struct {
	conn net.Conn
	br   *bufio.Reader
}

func dialRaw(b *testing.B, addr string) *rawClient {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	return &rawClient{c, bufio.NewReaderSize(c, 64<<10)}
}

var contentLength = []byte("Content-Length: ")

func (c *rawClient) do(request []byte) error {
	if _, err := c.conn.Write(request); err != nil {
		return err
	}
	length, first := 0, true
	for {
		line, err := c.br.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
			return fmt.Errorf("%s", line)
		}
		first = false
		if len(line) == 2 {
			break
		}
		if v, ok := bytes.CutPrefix(line, contentLength); ok {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(v)))
		}
	}
	_, err := c.br.Discard(length)
	return err
}

func rawRequest(path, body string) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: node\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

func benchRequests(b *testing.B, addr string, connections int, request func(i int) []byte) {
	clients := make([]*rawClient, connections)
	for i := range clients {
		clients[i] = dialRaw(b, addr)
		defer clients[i].conn.Close()
		if err := clients[i].do(request(i)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, c := range clients {
		n := b.N / connections
		if i < b.N%connections {
			n++
		}
		wg.Go(func() {
			for range n {
				if err := c.do(request(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
}

// emptyServer answers everything with a short body: the most that fasthttp gives.
func emptyServer(b *testing.B) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := &fasthttp.Server{NoDefaultServerHeader: true, Handler: func(ctx *fasthttp.RequestCtx) {
		ctx.SetContentType("application/json")
		_, _ = io.WriteString(ctx, `{"ok":true}`)
	}}
	go s.Serve(ln)
	b.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			b.Error(err)
		}
	})
	return ln.Addr().String()
}

func benchNode(b *testing.B) *testNode {
	n := startNode(b, nil)
	n.tenantWithTable("acme")
	n.query("acme", "with recursive c(x) as (select 1 union all select x+1 from c limit 10000) insert into t select x, 'value ' || x from c")
	return n
}

func BenchmarkHTTP(b *testing.B) {
	read := `{"sql":"select id, v from t where id = ?","args":[%d]}`
	insert := `{"sql":"insert into t (v) values (?)","args":["some text"]}`
	hranaRead := `{"baton":null,"requests":[{"type":"execute","stmt":{"sql":"select id, v from t where id = ?","args":[{"type":"integer","value":"%d"}],"want_rows":true}},{"type":"close"}]}`
	hranaInsert := `{"baton":null,"requests":[{"type":"execute","stmt":{"sql":"insert into t (v) values (?)","args":[{"type":"text","value":"some text"}]}},{"type":"close"}]}`
	for _, conns := range []int{1, 8, 64} {
		for _, c := range []struct{ name, path, body string }{
			{"empty", "", read},
			{"query-read", "/t/acme/query", read},
			{"query-insert", "/t/acme/query", insert},
			{"hrana-read", "/t/acme/v2/pipeline", hranaRead},
			{"hrana-insert", "/t/acme/v2/pipeline", hranaInsert},
		} {
			b.Run(fmt.Sprintf("%s/conns=%d", c.name, conns), func(b *testing.B) {
				var addr string
				path := c.path
				if path == "" {
					addr, path = emptyServer(b), "/t/acme/query"
				} else {
					addr = strings.TrimPrefix(benchNode(b).url, "http://")
				}
				requests := make([][]byte, conns)
				for i := range requests {
					body := c.body
					if strings.Contains(body, "%d") {
						body = fmt.Sprintf(body, 1+i*97)
					}
					requests[i] = rawRequest(path, body)
				}
				benchRequests(b, addr, conns, func(i int) []byte { return requests[i] })
			})
		}
	}
}
