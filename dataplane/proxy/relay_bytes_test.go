package proxy

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/fsm"
)

// wire is a connection of a test, as a client or as a node has it.
type wire struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func newWire(t *testing.T, c net.Conn) *wire {
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(long))
	return &wire{c, t, bufio.NewReader(c)}
}

// upTo reads until end has come, which it gives as well.
func (w *wire) upTo(end string) string {
	var b []byte
	for !bytes.HasSuffix(b, []byte(end)) {
		c, err := w.r.ReadByte()
		if err != nil {
			w.t.Errorf("%v after %q", err, b)
			return string(b)
		}
		b = append(b, c)
	}
	return string(b)
}

func (w *wire) say(format string, args ...any) {
	if _, err := fmt.Fprintf(w, format, args...); err != nil {
		w.t.Errorf("write: %v", err)
	}
}

// twoProxies gives a client's connection to eu's proxy; what it asks of acme goes through
// us's to a node that behaves, once for each connection.
func twoProxies(t *testing.T, behave func(node *wire)) *wire {
	x := newPair(t, nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				behave(newWire(t, c))
			}()
		}
	}()
	x.inUS.await(x.us.change(fsm.Event{Node: &fsm.NodeInfo{Name: "n1", Addr: ln.Addr().String()}}))
	c, err := net.Dial("tcp", x.inEU.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return newWire(t, c)
}

// lines gives the header lines of a head without those that proxies add.
func lines(head string) (kept []string, added map[string]int) {
	added = map[string]int{}
	for l := range strings.SplitSeq(strings.TrimSuffix(head, "\r\n\r\n"), "\r\n") {
		name, _, _ := strings.Cut(l, ":")
		switch name {
		case "X-Request-Id", headerClient, headerRoute:
			added[name]++
		default:
			kept = append(kept, l)
		}
	}
	return kept, added
}

func TestR1RelayedBytesArriveAsTheyWereSent(t *testing.T) {
	const ask = "POST /t/acme//x/../y%2f?a=%20b HTTP/1.1\r\nHOST: my.Host\r\nx-ODD:  two  spaces \r\nAuthorization: Bearer t\r\n" +
		"Domicile-Hold: 5000\r\nAccept:\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\n\r\n"
	const body = "5;e=1\r\nhello\r\n1\r\n!\r\n0\r\nSum: 9\r\n\r\n"
	const reply = "HTTP/1.1 207 Whatever You Say\r\nSet-cookie: a=1\r\nset-Cookie: b=2\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\n"
	got := make(chan string, 1)
	client := twoProxies(t, func(n *wire) {
		for range 3 {
			got <- n.upTo("\r\n\r\n") + n.upTo("Sum: 9\r\n\r\n")
			n.say("%s\r\n%s", reply, body)
		}
	})
	for range 3 { // over the same connections
		client.say("%s%s", ask, body)
		head, sent, _ := strings.Cut(<-got, "\r\n\r\n")
		kept, added := lines(head)
		want, _ := lines(ask)
		if !slices.Equal(kept, want) || sent != body || added["X-Request-Id"] != 1 || added[headerClient] != 1 || added[headerRoute] != 1 {
			t.Errorf("the node got %q and %q", head, sent)
		}
		head = client.upTo("\r\n\r\n")
		kept, added = lines(head)
		want, _ = lines(reply)
		if want = want[:len(want)-1]; !slices.Equal(kept, want) || added["X-Request-Id"] != 1 {
			t.Errorf("the client got %q, want %q", kept, want)
		}
		if sent := client.upTo("Sum: 9\r\n\r\n"); sent != body {
			t.Errorf("the client got %q", sent)
		}
	}
}

func TestR1RelayedRequestWaitsForTheNodes100AndItsEvents(t *testing.T) {
	seen := make(chan struct{})
	client := twoProxies(t, func(n *wire) {
		head := n.upTo("\r\n\r\n")
		if !strings.Contains(head, "Expect: 100-continue") {
			t.Errorf("the node got %q", head)
		}
		<-seen // until then the client has no 100
		n.say("HTTP/1.1 100 Continue\r\n\r\n")
		if got := n.upTo("hello"); got != "hello" {
			t.Errorf("the node got %q", got)
		}
		n.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
		for i := range 3 { // each is sent when the one before has arrived
			n.say("data: %d\n\n", i)
			<-seen
		}
	})
	client.say("POST /t/acme/changes HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	seen <- struct{}{}
	if got := client.upTo("\r\n\r\n"); got != "HTTP/1.1 100 Continue\r\n\r\n" {
		t.Errorf("got %q", got)
	}
	client.say("hello")
	client.upTo("\r\n\r\n")
	for i := range 3 {
		if got, want := client.upTo("\n\n"), fmt.Sprintf("data: %d\n\n", i); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		seen <- struct{}{}
	}
	if _, err := client.r.ReadByte(); !errors.Is(err, io.EOF) { // an answer without a length
		t.Errorf("after its end: %v", err)
	}
}

func TestR1RelayedUpgradeCarriesBothWays(t *testing.T) {
	client := twoProxies(t, func(n *wire) {
		head := n.upTo("\r\n\r\n")
		if !strings.Contains(head, "\r\nUpgrade: websocket\r\n") || !strings.Contains(head, "\r\nConnection: Upgrade\r\n") {
			t.Errorf("the node got %q", head)
		}
		n.say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nfirst.")
		for range 3 {
			n.say("<%s>", n.upTo("."))
		}
	})
	client.say("GET /t/acme/ws HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
	if head := client.upTo("\r\n\r\n"); !strings.HasPrefix(head, "HTTP/1.1 101 ") {
		t.Errorf("got %q", head)
	}
	if got := client.upTo("."); got != "first." {
		t.Errorf("got %q", got)
	}
	for i := range 3 {
		client.say("%d.", i)
		if got, want := client.upTo(">"), fmt.Sprintf("<%d.>", i); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestR1RelayedLongBodiesBothWays(t *testing.T) {
	x := newPair(t, nil)
	x.nodeUS.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		var all bytes.Buffer
		n, err := io.Copy(io.MultiWriter(sum, &all), r.Body)
		if err != nil {
			t.Errorf("after %d bytes: %v", n, err)
		}
		w.Header().Set("Sum", fmt.Sprintf("%x", sum.Sum(nil)))
		w.Write(all.Bytes())
	})
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, 4096, 1 << 16, 1<<16 + 1, 5_000_000} {
		body := make([]byte, size)
		for i := range body {
			body[i] = byte(r.Uint32())
		}
		a := x.inEU.send("PUT", "/t/acme/file", nil, string(body))
		if want := fmt.Sprintf("%x", sha256.Sum256(body)); a.body != string(body) || a.Header.Get("Sum") != want {
			t.Errorf("%d bytes: got %d with %d bytes back, the node had the right ones: %v", size, a.StatusCode, len(a.body), a.Header.Get("Sum") == want)
		}
	}
}
