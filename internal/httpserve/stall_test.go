package httpserve

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// short is a time that a test can wait for.
const short = 50 * time.Millisecond

// stalling serves with these times for a body to come and an answer to be taken.
func stalling(t *testing.T, body, write time.Duration, handler HandlerFunc) (net.Conn, *bufio.Reader) {
	t.Helper()
	h := New(Config{Token: "secret", Logger: hclog.NewNullLogger(), Routes: []Route{
		{Method: "PUT", Path: "/guarded", Name: "guarded", Handler: handler},
		{Method: "PUT", Path: "/open", Name: "open", Open: true, Handler: handler},
	}})
	h.bodyWait, h.writeWait = body, write
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, bufio.NewReader(c)
}

func text(w http.ResponseWriter, r *http.Request) error {
	body, err := ReadBody(r, 100)
	if err != nil {
		return err
	}
	WriteJSON(w, 200, string(body))
	return nil
}

// A body that is promised and does not come holds nothing for ever: neither
// where a handler reads it, nor where the request is refused before, without a
// token. net/http reads a body to its end before it answers.
func TestABodyThatDoesNotComeIsGivenUp(t *testing.T) {
	for path, status := range map[string]int{"/guarded": 401, "/open": 400, "/nowhere": 404} {
		c, answer := stalling(t, short, time.Minute, text)
		fmt.Fprintf(c, "PUT %s HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf", path)
		resp, err := http.ReadResponse(answer, nil)
		if err != nil || resp.StatusCode != status {
			t.Fatalf("%s: %v, %v; want %d", path, resp, err, status)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
		if _, err := answer.ReadByte(); err == nil {
			t.Errorf("%s: the connection goes on", path)
		}
	}
}

// A client that does not take its answer is cut off.
func TestAnAnswerThatIsNotTakenIsGivenUp(t *testing.T) {
	gone := make(chan error, 1)
	c, _ := stalling(t, short, short, func(w http.ResponseWriter, _ *http.Request) error {
		part := []byte(strings.Repeat("x", 1<<20))
		for {
			if _, err := w.Write(part); err != nil {
				gone <- err
				return nil
			}
		}
	})
	fmt.Fprint(c, "PUT /open HTTP/1.1\r\nHost: h\r\n\r\n")
	if err := <-gone; err == nil {
		t.Error("no error")
	}
}

// The times are those of one request: work that takes longer than a body may,
// and a connection that was idle, are left alone.
func TestTimesEndWithTheirRequest(t *testing.T) {
	work := make(chan struct{})
	c, answer := stalling(t, short, short, func(w http.ResponseWriter, r *http.Request) error {
		body, err := ReadBody(r, 100)
		if err != nil {
			return err
		}
		if string(body) == "long" {
			select {
			case <-work:
			case <-r.Context().Done():
				t.Error("the request was ended while it was worked on")
			}
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	})
	ask := func(body string) *http.Response {
		fmt.Fprintf(c, "PUT /open HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		if body == "long" {
			time.AfterFunc(4*short, func() { close(work) })
		}
		resp, err := http.ReadResponse(answer, nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	for _, body := range []string{"short", "long", "short"} {
		if resp := ask(body); resp.StatusCode != http.StatusNoContent {
			t.Errorf("%s: %d", body, resp.StatusCode)
		}
	}
}

// A client that writes its whole body before it reads gets the refusal: the
// connection is not closed while it writes.
func TestTheAnswerToALargeBodyArrives(t *testing.T) {
	c, answer := stalling(t, time.Minute, time.Minute, text)
	if err := c.(*net.TCPConn).SetWriteBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "PUT /open HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", 3<<20)
	for range 3 << 10 {
		if _, err := c.Write(make([]byte, 1<<10)); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := http.ReadResponse(answer, nil)
	if err != nil || resp.StatusCode != 413 {
		t.Fatalf("%v, %v", resp, err)
	}
}
