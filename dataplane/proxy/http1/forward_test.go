package http1

import (
	"strings"
	"testing"
)

func TestForwardsBytesAsTheyCame(t *testing.T) {
	p, n := proxyTo(t, answering(okAnswer))
	c := dial(t, p.addr)
	for range 3 {
		c.send("POST /t/acme//x/../%2e%2F?a=b&&c#f HTTP/1.1\r\nhOsT: h\r\nX-lower: a  b \t\r\nx-lower:  2\r\nX-Request-Id: my-id\r\nContent-Length: 4\r\nUser-Agent:\r\n\r\nbody")
		status, head, body := c.answer()
		if status != 200 || body != "ok" || headValue(head, "X-Request-Id") != "my-id" {
			t.Fatalf("got %q %q", head, body)
		}
	}
	head, body := n.last(t)
	want := "POST /t/acme//x/../%2e%2F?a=b&&c#f HTTP/1.1\r\nhOsT: h\r\nX-lower: a  b \t\r\nx-lower:  2\r\nContent-Length: 4\r\nUser-Agent:\r\nX-Request-Id: my-id\r\nDomicile-Route: acme 7\r\n\r\n"
	if head != want || body != "body" {
		t.Errorf("node got\n%q\nwant\n%q, body %q", head, want, body)
	}
	if got := n.conns.Load(); got != 1 {
		t.Errorf("%d connections to the node, want 1", got)
	}
	if strings.Count(head, "X-Request-Id") != 1 {
		t.Errorf("X-Request-Id not exactly once: %q", head)
	}
}
