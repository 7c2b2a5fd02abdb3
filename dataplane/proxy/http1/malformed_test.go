package http1

import (
	"strings"
	"testing"
)

// TestMalformedNeverReachesANode sends what two parsers could read differently.
// Each gets an error answer and the end of the connection; the node sees nothing
// of it, nor of the second request behind it.
func TestMalformedNeverReachesANode(t *testing.T) {
	p, n := proxyTo(t, answering(okAnswer))
	const h = "Host: h\r\n"
	for name, c := range map[string]struct {
		raw    string
		status int
	}{
		"two lengths":                {"POST / HTTP/1.1\r\n" + h + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400},
		"the same length twice":      {"POST / HTTP/1.1\r\n" + h + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400},
		"a list of lengths":          {"POST / HTTP/1.1\r\n" + h + "Content-Length: 5, 5\r\n\r\nhello", 400},
		"a signed length":            {"POST / HTTP/1.1\r\n" + h + "Content-Length: +5\r\n\r\nhello", 400},
		"a negative length":          {"POST / HTTP/1.1\r\n" + h + "Content-Length: -5\r\n\r\nhello", 400},
		"a hex length":               {"POST / HTTP/1.1\r\n" + h + "Content-Length: 0x5\r\n\r\nhello", 400},
		"an empty length":            {"POST / HTTP/1.1\r\n" + h + "Content-Length: \r\n\r\nhello", 400},
		"an overflowing length":      {"POST / HTTP/1.1\r\n" + h + "Content-Length: 18446744073709551621\r\n\r\nhello", 400},
		"length and chunked":         {"POST / HTTP/1.1\r\n" + h + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		"chunked and length":         {"POST / HTTP/1.1\r\n" + h + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400},
		"chunked twice":              {"POST / HTTP/1.1\r\n" + h + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		"gzip, chunked":              {"POST / HTTP/1.1\r\n" + h + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
		"chunked, identity":          {"POST / HTTP/1.1\r\n" + h + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400},
		"identity":                   {"POST / HTTP/1.1\r\n" + h + "Transfer-Encoding: identity\r\n\r\n", 400},
		"xchunked":                   {"POST / HTTP/1.1\r\n" + h + "Transfer-Encoding: xchunked\r\n\r\n", 400},
		"vertical tab in encoding":   {"POST / HTTP/1.1\r\n" + h + "Transfer-Encoding: \x0bchunked\r\n\r\n", 400},
		"empty encoding":             {"POST / HTTP/1.1\r\n" + h + "Transfer-Encoding:\r\n\r\n", 400},
		"chunked in HTTP/1.0":        {"POST / HTTP/1.0\r\n" + h + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		"space before the colon":     {"POST / HTTP/1.1\r\n" + h + "Content-Length : 5\r\n\r\nhello", 400},
		"tab before the colon":       {"GET / HTTP/1.1\r\n" + h + "X\t: 5\r\n\r\n", 400},
		"empty header name":          {"GET / HTTP/1.1\r\n" + h + ": 5\r\n\r\n", 400},
		"no colon":                   {"GET / HTTP/1.1\r\n" + h + "Content-Length\r\n\r\n", 400},
		"space in a name":            {"GET / HTTP/1.1\r\n" + h + "X Y: 5\r\n\r\n", 400},
		"folded line":                {"GET / HTTP/1.1\r\n" + h + "X: a\r\n b\r\n\r\n", 400},
		"folded first line":          {"GET / HTTP/1.1\r\n X: a\r\n" + h + "\r\n", 400},
		"bare LF ends a header":      {"GET / HTTP/1.1\r\n" + h + "X: a\nY: b\r\n\r\n", 400},
		"bare LF ends the request":   {"GET / HTTP/1.1\n" + h + "\r\n", 400},
		"bare LF only":               {"GET / HTTP/1.1\nHost: h\n\n", 400},
		"bare LF as the empty line":  {"GET / HTTP/1.1\r\n" + h + "\n", 400},
		"bare CR in a value":         {"GET / HTTP/1.1\r\n" + h + "X: a\rb\r\n\r\n", 400},
		"CR CR LF":                   {"GET / HTTP/1.1\r\n" + h + "X: a\r\r\n\r\n", 400},
		"bare CR in the first line":  {"GET /\r HTTP/1.1\r\n" + h + "\r\n", 400},
		"NUL in a value":             {"GET / HTTP/1.1\r\n" + h + "X: a\x00b\r\n\r\n", 400},
		"DEL in a value":             {"GET / HTTP/1.1\r\n" + h + "X: a\x7f\r\n\r\n", 400},
		"NUL in a name":              {"GET / HTTP/1.1\r\n" + h + "X\x00: a\r\n\r\n", 400},
		"UTF-8 in a name":            {"GET / HTTP/1.1\r\n" + h + "X\u00e9: a\r\n\r\n", 400},
		"underscore length":          {"POST / HTTP/1.1\r\n" + h + "Content_Length: 5\r\n\r\nhello", 400},
		"underscore encoding":        {"POST / HTTP/1.1\r\n" + h + "Transfer_Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		"no Host":                    {"GET / HTTP/1.1\r\nX: y\r\n\r\n", 400},
		"two Hosts":                  {"GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", 400},
		"Host with userinfo":         {"GET / HTTP/1.1\r\nHost: a@h\r\n\r\n", 400},
		"Host with a path":           {"GET / HTTP/1.1\r\nHost: h/x\r\n\r\n", 400},
		"Host with a space":          {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
		"HTTP/2.0":                   {"GET / HTTP/2.0\r\n" + h + "\r\n", 400},
		"HTTP/1.2":                   {"GET / HTTP/1.2\r\n" + h + "\r\n", 400},
		"HTTP/01.1":                  {"GET / HTTP/01.1\r\n" + h + "\r\n", 400},
		"lower-case version":         {"GET / http/1.1\r\n" + h + "\r\n", 400},
		"HTTP/0.9":                   {"GET /\r\n\r\n", 400},
		"space behind the version":   {"GET / HTTP/1.1 \r\n" + h + "\r\n", 400},
		"two spaces in the first":    {"GET  / HTTP/1.1\r\n" + h + "\r\n", 400},
		"a space in the target":      {"GET /a b HTTP/1.1\r\n" + h + "\r\n", 400},
		"tab in the first line":      {"GET\t/ HTTP/1.1\r\n" + h + "\r\n", 400},
		"control byte in the target": {"GET /\x01 HTTP/1.1\r\n" + h + "\r\n", 400},
		"no method":                  {" / HTTP/1.1\r\n" + h + "\r\n", 400},
		"bad method":                 {"G(T / HTTP/1.1\r\n" + h + "\r\n", 400},
		"relative target":            {"GET a HTTP/1.1\r\n" + h + "\r\n", 400},
		"star with GET":              {"GET * HTTP/1.1\r\n" + h + "\r\n", 400},
		"other scheme":               {"GET ftp://h/ HTTP/1.1\r\n" + h + "\r\n", 400},
		"no authority":               {"GET http:///a HTTP/1.1\r\n" + h + "\r\n", 400},
		"another authority":          {"GET http://other/a HTTP/1.1\r\n" + h + "\r\n", 400},
		"authority with userinfo":    {"GET http://a@h/ HTTP/1.1\r\n" + h + "\r\n", 400},
		"CONNECT":                    {"CONNECT h:443 HTTP/1.1\r\n" + h + "\r\n", 405},
		"TRACE":                      {"TRACE / HTTP/1.1\r\n" + h + "\r\n", 405},
		"a TLS hello":                {"\x16\x03\x01\x02\x00\x01\x00\n", 400},
		"a head over 64 KiB":         {"GET / HTTP/1.1\r\n" + h + "X: " + strings.Repeat("x", 70<<10) + "\r\n\r\n", 431},
		"a target over 64 KiB":       {"GET /" + strings.Repeat("x", 70<<10), 431},
		"over 1000 lines":            {"GET / HTTP/1.1\r\n" + h + strings.Repeat("a:\r\n", 1001) + "\r\n", 431},
		"Connection names too much":  {"GET / HTTP/1.1\r\n" + h + "Connection: " + strings.Repeat("x,", 40) + "y\r\n\r\n", 400},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, p.addr)
			_, _ = conn.Write([]byte(c.raw + get("/smuggled"))) // the answer may come before all is sent
			status, head, body := conn.answer()
			if status != c.status || headValue(head, "Connection") != "close" || headValue(head, "X-Request-Id") == "" {
				t.Errorf("got %q", head)
			}
			if !strings.Contains(body, `"code":"`) || !strings.Contains(body, `"error":"`) {
				t.Errorf("body %q", body)
			}
			conn.closed()
		})
	}
	if got := n.requests(); got > 0 {
		t.Errorf("%d requests reached the node: %q", got, n.heads)
	}
}

// TestMalformedBodyNeverCompletes sends heads that are right and bodies that are
// not: the node may see the head, but never the end of the body or what follows.
func TestMalformedBodyNeverCompletes(t *testing.T) {
	for name, body := range map[string]string{
		"bare LF after a size":      "5\nhello\r\n0\r\n\r\n",
		"bare LF after the data":    "5\r\nhello\n0\r\n\r\n",
		"data longer than its size": "5\r\nhelloo\r\n0\r\n\r\n",
		"no size":                   "\r\nhello\r\n0\r\n\r\n",
		"a signed size":             "+5\r\nhello\r\n0\r\n\r\n",
		"0x":                        "0x5\r\nhello\r\n0\r\n\r\n",
		"space before the size":     " 5\r\nhello\r\n0\r\n\r\n",
		"space behind the size":     "5 \r\nhello\r\n0\r\n\r\n",
		"an overflowing size":       "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
		"an endless extension":      "5;" + strings.Repeat("a", 2000) + "\r\nhello\r\n0\r\n\r\n",
		"bare CR in an extension":   "5;a\rb\r\nhello\r\n0\r\n\r\n",
		"NUL in an extension":       "5;a\x00\r\nhello\r\n0\r\n\r\n",
		"bad trailer name":          "0\r\nA B: c\r\n\r\n",
		"trailer without a colon":   "0\r\nabc\r\n\r\n",
		"folded trailer":            "0\r\nA: b\r\n c\r\n\r\n",
		"bare LF after a trailer":   "0\r\nA: b\n\r\n",
		"endless trailers":          "0\r\n" + strings.Repeat("A: "+strings.Repeat("b", 1000)+"\r\n", 20) + "\r\n",
	} {
		for _, apart := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				p, n := proxyTo(t, answering(okAnswer))
				c := dial(t, p.addr)
				c.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
				if apart {
					c.send("1\r\nx\r\n")
					eventually(t, "the head is at the node", func() bool { return n.requests() == 1 })
				}
				_, _ = c.Write([]byte(body + get("/smuggled")))
				status, head, answer := c.answer()
				if status != 400 || headValue(head, "Connection") != "close" || !strings.Contains(answer, "bad_request") {
					t.Errorf("got %q %q", head, answer)
				}
				c.closed()
				n.stop()
				for _, h := range n.heads {
					if strings.Contains(h, "/smuggled") {
						t.Error("the request behind the body reached the node")
					}
				}
				for _, b := range n.body {
					if strings.HasSuffix(b, "0\r\n\r\n") {
						t.Errorf("the node took the body for complete: %q", b)
					}
				}
			})
		}
	}
}

// TestBadAnswersAreNotRelayed lets a node answer what cannot be relayed: 502,
// and the connection to the node is not used again.
func TestBadAnswersAreNotRelayed(t *testing.T) {
	for name, answer := range map[string]string{
		"two lengths":           "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
		"length and chunked":    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"gzip, chunked":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"bare LF":               "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
		"folded line":           "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok",
		"space before a colon":  "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
		"bad version":           "HTTP/2 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"bad status":            "HTTP/1.1 2x0 OK\r\nContent-Length: 2\r\n\r\nok",
		"status of two digits":  "HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nok",
		"no HTTP":               "hello\r\n\r\n",
		"101 not asked for":     "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
		"bad chunk at once":     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"head over 64 KiB":      "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 70<<10) + "\r\n\r\n",
		"interim without end":   strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 20),
		"chunked in HTTP/1.0":   "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"control byte in value": "HTTP/1.1 200 OK\r\nX: a\x01\r\nContent-Length: 2\r\n\r\nok",
	} {
		t.Run(name, func(t *testing.T) {
			p, n := proxyTo(t, answering(answer))
			c := dial(t, p.addr)
			for i := range 2 {
				status, _, body := c.send(get("/")).answer()
				if status != 502 || !strings.Contains(body, `"code":"bad_gateway"`) {
					t.Errorf("got %d %q", status, body)
				}
				if got := int(n.conns.Load()); got != i+1 {
					t.Errorf("%d connections to the node after %d requests", got, i+1)
				}
			}
		})
	}
}
