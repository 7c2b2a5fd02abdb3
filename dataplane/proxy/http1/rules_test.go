package http1

import (
	"io"
	"strings"
	"testing"
)

// TestHeadsTowardsTheNode shows R1 for heads: what arrives at the node for what
// the client sent. ADD stands for the lines that the proxy adds.
func TestHeadsTowardsTheNode(t *testing.T) {
	p, n := proxyTo(t, answering(okAnswer))
	const h = "Host: h\r\n"
	for name, c := range map[string]struct{ sent, want string }{
		"target with dots and slashes": {"GET /a//b/../c HTTP/1.1\r\n" + h + "\r\n", "GET /a//b/../c HTTP/1.1\r\n" + h + "ADD\r\n"},
		"encoded dots":                 {"GET /%2e%2e/x HTTP/1.1\r\n" + h + "\r\n", "GET /%2e%2e/x HTTP/1.1\r\n" + h + "ADD\r\n"},
		"encoded slash":                {"GET /a%2Fb HTTP/1.1\r\n" + h + "\r\n", "GET /a%2Fb HTTP/1.1\r\n" + h + "ADD\r\n"},
		"two slashes first":            {"GET //evil.com/x HTTP/1.1\r\n" + h + "\r\n", "GET //evil.com/x HTTP/1.1\r\n" + h + "ADD\r\n"},
		"star":                         {"OPTIONS * HTTP/1.1\r\n" + h + "\r\n", "OPTIONS * HTTP/1.1\r\n" + h + "ADD\r\n"},
		"bad escape":                   {"GET /%zz HTTP/1.1\r\n" + h + "\r\n", "GET /%zz HTTP/1.1\r\n" + h + "ADD\r\n"},
		"bytes beyond ASCII":           {"GET /\xc3\xa9 HTTP/1.1\r\n" + h + "\r\n", "GET /\xc3\xa9 HTTP/1.1\r\n" + h + "ADD\r\n"},
		"empty query":                  {"GET /a? HTTP/1.1\r\n" + h + "\r\n", "GET /a? HTTP/1.1\r\n" + h + "ADD\r\n"},
		"fragment":                     {"GET /a#f HTTP/1.1\r\n" + h + "\r\n", "GET /a#f HTTP/1.1\r\n" + h + "ADD\r\n"},
		"absolute form":                {"GET http://H/x?y HTTP/1.1\r\n" + h + "\r\n", "GET http://H/x?y HTTP/1.1\r\n" + h + "ADD\r\n"},
		"unknown method":               {"BREW / HTTP/1.1\r\n" + h + "\r\n", "BREW / HTTP/1.1\r\n" + h + "ADD\r\n"},
		"lower-case method":            {"get / HTTP/1.1\r\n" + h + "\r\n", "get / HTTP/1.1\r\n" + h + "ADD\r\n"},
		"Host as written":              {"GET / HTTP/1.1\r\nHOST:T1.Example.COM.:80 \r\n\r\n", "GET / HTTP/1.1\r\nHOST:T1.Example.COM.:80 \r\nADD\r\n"},
		"order, case, space, doubles":  {"GET / HTTP/1.1\r\nb:1\r\n" + h + "A:  2 \r\nb: 3\r\nETag: x\r\nE:\r\n\r\n", "GET / HTTP/1.1\r\nb:1\r\n" + h + "A:  2 \r\nb: 3\r\nETag: x\r\nE:\r\nADD\r\n"},
		"bytes beyond ASCII in values": {"GET / HTTP/1.1\r\n" + h + "X: \xe9\t\xff\r\n\r\n", "GET / HTTP/1.1\r\n" + h + "X: \xe9\t\xff\r\nADD\r\n"},
		"authorization":                {"GET / HTTP/1.1\r\n" + h + "Authorization: Bearer x\r\n\r\n", "GET / HTTP/1.1\r\n" + h + "Authorization: Bearer x\r\nADD\r\n"},
		"an empty line first":          {"\r\nGET / HTTP/1.1\r\n" + h + "\r\n", "GET / HTTP/1.1\r\n" + h + "ADD\r\n"},
		"hop-by-hop":                   {"GET / HTTP/1.1\r\nKeep-Alive: 5\r\n" + h + "TE: trailers\r\nProxy-Connection: x\r\nA: b\r\nProxy-Authorization: c\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\nConnection: keep-alive\r\n\r\n", "GET / HTTP/1.1\r\n" + h + "A: b\r\nADD\r\n"},
		"named by Connection":          {"GET / HTTP/1.1\r\n" + h + "X-Hop: 1\r\nX-Keep: 2\r\nConnection: x-hop , ,keep-alive\r\nCONNECTION: X-Other\r\nx-other: 3\r\n\r\n", "GET / HTTP/1.1\r\n" + h + "X-Keep: 2\r\nADD\r\n"},
		"Connection may not name":      {"POST / HTTP/1.1\r\n" + h + "Authorization: x\r\nIdempotency-Key: k\r\nDomicile-Key: d\r\nContent-Length: 0\r\nConnection: host, content-length, authorization, transfer-encoding, domicile-key, x-request-id, domicile-route, idempotency-key\r\n\r\n", "POST / HTTP/1.1\r\n" + h + "Authorization: x\r\nIdempotency-Key: k\r\nDomicile-Key: d\r\nContent-Length: 0\r\nADD\r\n"},
		"our own names":                {"GET / HTTP/1.1\r\nDomicile-Client: 1.2.3.4 x\r\n" + h + "domicile-route: other 9\r\nDomicile-Mode: read\r\n\r\n", "GET / HTTP/1.1\r\n" + h + "Domicile-Mode: read\r\nADD\r\n"},
		"an id that is not valid":      {"GET / HTTP/1.1\r\nX-Request-Id: a b\r\n" + h + "\r\n", "GET / HTTP/1.1\r\n" + h + "ADD\r\n"},
		"an id that is too long":       {"GET / HTTP/1.1\r\n" + h + "X-Request-Id: " + strings.Repeat("x", 129) + "\r\n\r\n", "GET / HTTP/1.1\r\n" + h + "ADD\r\n"},
		"HTTP/1.0":                     {"GET / HTTP/1.0\r\n" + h + "\r\n", "GET / HTTP/1.1\r\n" + h + "ADD\r\n"},
		"HTTP/1.0 without Host":        {"GET / HTTP/1.0\r\nA: b\r\n\r\n", "GET / HTTP/1.1\r\nHost: NODE\r\nA: b\r\nADD\r\n"},
		"an upgrade with a body":       {"POST / HTTP/1.1\r\n" + h + "Upgrade: x\r\nConnection: upgrade\r\nContent-Length: 2\r\n\r\nhi", "POST / HTTP/1.1\r\n" + h + "Content-Length: 2\r\nADD\r\n"},
		"1000 lines":                   {"GET / HTTP/1.1\r\n" + h + strings.Repeat("a:\r\n", 999) + "\r\n", "GET / HTTP/1.1\r\n" + h + strings.Repeat("a:\r\n", 999) + "ADD\r\n"},
		"a head of 64 KiB":             {"GET / HTTP/1.1\r\n" + h + "X: " + strings.Repeat("x", 65000) + "\r\n\r\n", "GET / HTTP/1.1\r\n" + h + "X: " + strings.Repeat("x", 65000) + "\r\nADD\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			status, head, _ := dial(t, p.addr).send(c.sent).answer()
			if status != 200 {
				t.Fatalf("got %q", head)
			}
			got, _ := n.last(t)
			id := headValue(got, "X-Request-Id")
			if len(id) != 16 || headValue(head, "X-Request-Id") != id {
				t.Errorf("id at the node %q, in the answer %q", id, headValue(head, "X-Request-Id"))
			}
			want := strings.Replace(c.want, "ADD", "X-Request-Id: "+id+"\r\nDomicile-Route: acme 7", 1)
			want = strings.Replace(want, "NODE", n.addr(), 1) + "\r\n"
			if got != want {
				t.Errorf("the node got\n%.600q\nwant\n%.600q", got, want)
			}
		})
	}
}

// TestHeadsTowardsTheClient shows R1 for heads of answers.
func TestHeadsTowardsTheClient(t *testing.T) {
	const get10 = "GET / HTTP/1.0\r\nHost: h\r\nX-Request-Id: i\r\n\r\n"
	const get11 = "GET / HTTP/1.1\r\nHost: h\r\nX-Request-Id: i\r\n\r\n"
	for name, c := range map[string]struct{ request, answer, want string }{
		"as it came":       {get11, "HTTP/1.1 299 Odd  reason\r\nb: 1\r\nA:2 \r\nb:3\r\nDate: x\r\nServer: y\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 299 Odd  reason\r\nb: 1\r\nA:2 \r\nb:3\r\nDate: x\r\nServer: y\r\nContent-Length: 2\r\nX-Request-Id: i\r\n\r\nok"},
		"no reason":        {get11, "HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 \r\nContent-Length: 2\r\nX-Request-Id: i\r\n\r\nok"},
		"id exactly once":  {get11, "HTTP/1.1 200 OK\r\nX-Request-Id: other\r\nContent-Length: 2\r\nX-REQUEST-ID: i\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Request-Id: i\r\n\r\nok"},
		"hop-by-hop":       {get11, "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5\r\nX-Hop: 1\r\nConnection: x-hop\r\nContent-Length: 2\r\nProxy-Authenticate: z\r\nUpgrade: h2\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Request-Id: i\r\n\r\nok"},
		"node closes":      {get11, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Request-Id: i\r\n\r\nok"},
		"node of HTTP/1.0": {get11, "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Request-Id: i\r\n\r\nok"},
		"204":              {get11, "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 204 No Content\r\nX-Request-Id: i\r\n\r\n"},
		"304":              {get11, "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: \"x\"\r\n\r\n", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: \"x\"\r\nX-Request-Id: i\r\n\r\n"},
		"HEAD":             {strings.Replace(get11, "GET", "HEAD", 1), "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 500\r\nX-Request-Id: i\r\n\r\n"},
		"HEAD chunked":     {strings.Replace(get11, "GET", "HEAD", 1), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Request-Id: i\r\n\r\n"},
		"103 is dropped":   {get11, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Request-Id: i\r\n\r\nok"},
		"100 not expected": {get11, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Request-Id: i\r\n\r\nok"},
		"chunked":          {get11, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A, Host\r\n\r\n2;x=y\r\nok\r\n0\r\nA: b\r\nHost: evil\r\nX-Request-Id: z\r\nC: d\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: A, Host\r\nX-Request-Id: i\r\n\r\n2;x=y\r\nok\r\n0\r\nA: b\r\nC: d\r\n\r\n"},
		"1.0, length":      {get10, okAnswer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Request-Id: i\r\nConnection: close\r\n\r\nok"},
		"1.0, kept alive":  {"GET / HTTP/1.0\r\nHost: h\r\nX-Request-Id: i\r\nConnection: Keep-Alive\r\n\r\n", okAnswer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Request-Id: i\r\nConnection: keep-alive\r\n\r\nok"},
		"1.0, chunked":     {get10, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n3\r\nyes\r\n0\r\nA: b\r\n\r\n", "HTTP/1.1 200 OK\r\nX-Request-Id: i\r\nConnection: close\r\n\r\nokyes"},
		"client closes":    {"GET / HTTP/1.1\r\nHost: h\r\nX-Request-Id: i\r\nConnection: foo, Close\r\n\r\n", okAnswer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Request-Id: i\r\nConnection: close\r\n\r\nok"},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := proxyTo(t, answering(c.answer))
			conn := dial(t, p.addr).send(c.request)
			got := make([]byte, len(c.want))
			n, err := io.ReadFull(conn.r, got)
			if string(got[:n]) != c.want {
				t.Fatalf("got\n%q (%v)\nwant\n%q", got[:n], err, c.want)
			}
			if strings.Contains(c.want, "Connection: close") {
				conn.closed()
				return
			}
			// The connection serves another request.
			if status, head := conn.send(strings.Replace(c.request, "/", "/2", 1)).head(); status == 0 {
				t.Errorf("then got %q", head)
			}
		})
	}
}
