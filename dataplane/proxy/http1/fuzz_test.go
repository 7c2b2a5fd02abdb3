package http1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// FuzzRequestHead reads what this parser accepts with net/http's as well: both
// must see one request, of the same method, target, host and framing. (The other
// direction is not asked: this parser may refuse more.)
func FuzzRequestHead(f *testing.F) {
	for _, seed := range []string{
		get("/"), post("Content-Length: 5", "hello"), post("Transfer-Encoding: chunked", "0\r\n\r\n"), upgradeHead,
		"GET http://h/x HTTP/1.1\r\nHost: h\r\n\r\n", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "GET / HTTP/1.1\nHost: h\n\n",
		"GET / HTTP/1.1\r\nHost: h\r\nX : y\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \x0bchunked\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: h\r\nConnection: x,y\r\nx:1\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		end, next, rej := headEnd(data, 0)
		if rej != nil || end == 0 || end > maxHead {
			return
		}
		if next != 0 {
			t.Fatalf("an end and a next: %d %d", end, next)
		}
		var m message
		if m.parseRequest(data[:end:end]) != nil {
			return
		}
		x := exchange{req: Request{msg: m, id: []byte("i")}}
		checkForwarded(t, data[:end], &x, x.appendRequest(nil, "node:1"))
	})
}

// checkForwarded compares the head that goes to the node with the one that came,
// as another implementation reads them.
func checkForwarded(t *testing.T, in []byte, x *exchange, out []byte) {
	m := &x.req.msg
	r := bufio.NewReader(bytes.NewReader(append(append([]byte{}, out...), "0\r\n\r\n"...)))
	req, err := http.ReadRequest(r)
	if err != nil {
		// net/http refuses more in targets and hosts; what is left must still be
		// one head.
		if bytes.Count(out, []byte("\r\n\r\n")) != 1 || !bytes.HasSuffix(out, []byte("\r\n\r\n")) {
			t.Fatalf("%q became %q: %v", in, out, err)
		}
		return
	}
	if req.Method != string(m.method) || req.RequestURI != string(m.target) {
		t.Fatalf("%q: other method or target: %q %q", in, req.Method, req.RequestURI)
	}
	if m.hosts > 0 && !strings.EqualFold(req.Host, string(m.host)) && m.target[0] == '/' {
		t.Fatalf("%q: other host: %q", in, req.Host)
	}
	chunked := len(req.TransferEncoding) > 0
	if chunked != (m.body == BodyChunked) || (m.body == BodyLength && req.ContentLength != m.length) ||
		(m.body == BodyNone && req.ContentLength > 0) {
		t.Fatalf("%q: other framing: %v %d against %d %d", in, req.TransferEncoding, req.ContentLength, m.body, m.length)
	}
	for _, name := range []string{"Keep-Alive", "TE", "Domicile-Client", "Domicile-Route", "Proxy-Connection"} {
		if req.Header.Get(name) != "" {
			t.Fatalf("%q: %s went on", in, name)
		}
	}
	if v := req.Header.Values("X-Request-Id"); len(v) != 1 || v[0] != "i" {
		t.Fatalf("%q: ids %q", in, v)
	}
}

// FuzzAnswerHead: no input makes the parser fail in another way than by refusing.
func FuzzAnswerHead(f *testing.F) {
	f.Add([]byte(okAnswer), false)
	f.Add([]byte(misdirected), true)
	f.Add([]byte("HTTP/1.0 200\r\nConnection: x\r\nTransfer-Encoding: chunked\r\n\r\n"), false)
	f.Fuzz(func(t *testing.T, data []byte, head bool) {
		end, _, rej := headEnd(data, 0)
		if rej != nil || end == 0 {
			return
		}
		var m message
		if m.parseAnswer(data[:end:end], head) != nil {
			return
		}
		x := exchange{answer: m, req: Request{id: []byte("i")}}
		out := x.appendAnswer(nil)
		if bytes.Count(out, []byte("\r\n\r\n")) != 1 || !bytes.HasSuffix(out, []byte("\r\n\r\n")) {
			t.Fatalf("%q became %q", data, out)
		}
	})
}

// FuzzChunked: what passes is the same however it is cut, decodes to the same
// content by net/http's reader, and nothing behind the end is taken.
func FuzzChunked(f *testing.F) {
	for _, seed := range []string{"5\r\nhello\r\n0\r\n\r\n", "1;a=b\r\nx\r\n0\r\nA: b\r\nHost: c\r\n\r\nGET /", "0\r\n\r\n", "fffffffffffffff\r\n", "5\nhello\n0\n\n", "3\r\nabc\r\n00\r\nX:\r\n\r\n"} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, cut uint8) {
		whole := append([]byte{}, data...)
		var s chunkScanner
		in, out, err := s.scan(whole)
		passed := append([]byte{}, whole[:out]...)

		pieces, rest := scanInPieces(data, int(cut)+1, false)
		if err == nil && s.done && (!bytes.Equal(pieces, passed) || rest != len(data)-in) {
			t.Fatalf("%q: in pieces of %d: %q, at once %q", data, cut+1, pieces, passed)
		}
		if err != nil || !s.done {
			return
		}
		content, _ := scanInPieces(data, int(cut)+1, true)
		resp, rerr := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), bytes.NewReader(passed))), nil)
		if rerr != nil {
			t.Fatal(rerr)
		}
		want, rerr := io.ReadAll(resp.Body)
		if rerr != nil && strings.Contains(rerr.Error(), "trailer") {
			return // net/http refuses more in trailers
		}
		if rerr == nil && !bytes.Equal(content, want) {
			t.Fatalf("%q: content %q, by net/http %q", data, content, want)
		}
		for name := range resp.Trailer {
			if forbiddenTrailer([]byte(name)) {
				t.Fatalf("%q: trailer %s passed", data, name)
			}
		}
	})
}

// scanInPieces scans data as it would come in pieces of n bytes.
func scanInPieces(data []byte, n int, strip bool) (passed []byte, rest int) {
	s := chunkScanner{strip: strip}
	var have []byte
	for len(data) > 0 && !s.done {
		k := min(n, len(data))
		have = append(have, data[:k]...)
		data = data[k:]
		in, out, err := s.scan(have)
		passed = append(passed, have[:out]...)
		have = append([]byte{}, have[in:]...)
		if err != nil {
			break
		}
	}
	return passed, len(have) + len(data)
}
