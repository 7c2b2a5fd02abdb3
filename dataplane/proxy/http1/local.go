package http1

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// serveLocal runs a ServeFunc.
func (c *conn) serveLocal() {
	x := c.x
	x.body.chunk.strip = true
	w := &localWriter{c: c}
	body := &localBody{c: c}
	c.enter(phaseServe)
	x.decision.Serve(w, &x.req, body)
	w.finish()
}

// localBody reads a request's body on the connection's own goroutine.
type localBody struct {
	c     *conn
	piece []byte
	began bool
	told  bool // to go on, by 100 Continue
	err   error
}

func (b *localBody) Read(p []byte) (int, error) {
	c := b.c
	s := &c.x.body
	for len(b.piece) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		switch {
		case !b.began:
			b.began = true
			if err := s.start(c); err != nil {
				b.err = err
			}
			b.piece = s.first
		case s.done:
			b.err = io.EOF
		default:
			if c.x.req.msg.expect100 && !b.told && len(s.first) == 0 {
				b.told = true
				if b.err = c.sock.write([]byte("HTTP/1.1 100 Continue\r\n\r\n")); b.err != nil {
					continue
				}
			}
			b.piece, b.err = s.next(c)
			c.progress(phaseServe)
		}
	}
	n := copy(p, b.piece)
	b.piece = b.piece[n:]
	return n, nil
}

// localWriter writes a ServeFunc's answer: of a known length where it is short
// or says so, else chunked, or to the connection's end for HTTP/1.0.
type localWriter struct {
	c       *conn
	status  int
	headers []byte
	length  int64 // from Content-Length; -1 without
	sized   bool
	began   bool // the head was written
	chunked bool
	buf     []byte
	err     error
}

func (w *localWriter) SetHeader(name, value string) error {
	n, v := []byte(name), []byte(value)
	if len(n) == 0 || !allOf(n, &tokenBytes) || controlAt(v, 0) != len(v) {
		return fmt.Errorf("http1: %q is not a header that a head may hold", name)
	}
	switch kindOf(n) {
	case fieldContentLength:
		length, ok := decimal(v)
		if !ok {
			return fmt.Errorf("http1: Content-Length %q is not a number", value)
		}
		w.length, w.sized = length, true
		return nil
	case fieldTransferEncoding, fieldConnection, fieldUpgrade, fieldHop, fieldRequestID:
		return fmt.Errorf("http1: %s is not a handler's to set", name)
	}
	w.headers = append(append(append(append(w.headers, n...), ": "...), v...), "\r\n"...)
	return nil
}

func (w *localWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// localBuffer is how much is kept before the head has to be written.
const localBuffer = 32 << 10

func (w *localWriter) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	w.WriteHeader(http.StatusOK)
	w.buf = append(w.buf, p...)
	if len(w.buf) >= localBuffer {
		if err := w.Flush(); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (w *localWriter) Flush() error {
	if w.err != nil {
		return w.err
	}
	w.WriteHeader(http.StatusOK)
	var out []byte
	if !w.began {
		out = w.head(false)
	}
	return w.send(w.appendBody(out))
}

// head gives the answer's head; whole: the body is all in buf.
func (w *localWriter) head(whole bool) []byte {
	c := w.c
	x := c.x
	w.began = true
	if !x.body.done || c.srv.draining.Load() {
		x.keep = false // what was not read of the body would be taken for a request
	}
	bodiless := w.status == http.StatusNoContent || w.status == http.StatusNotModified
	out := x.appendStatus(nil, w.status)
	out = append(out, w.headers...)
	out = append(out, *c.srv.date.Load()...)
	if whole && !w.sized {
		w.length, w.sized = int64(len(w.buf)), true
	}
	switch {
	case bodiless:
		w.buf = nil
	case w.sized:
		out = append(strconv.AppendInt(append(out, "Content-Length: "...), w.length, 10), "\r\n"...)
	case x.req.msg.minor == 1:
		w.chunked = true
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	default:
		x.keep = false
	}
	return x.endHead(appendID(out, x.req.id), false)
}

// appendBody appends what was written and not sent yet.
func (w *localWriter) appendBody(out []byte) []byte {
	switch {
	case string(w.c.x.req.msg.method) == "HEAD" || len(w.buf) == 0:
	case w.chunked:
		out = append(strconv.AppendInt(out, int64(len(w.buf)), 16), "\r\n"...)
		out = append(append(out, w.buf...), "\r\n"...)
	default:
		if w.sized && int64(len(w.buf)) > w.length {
			w.buf, w.c.x.keep = w.buf[:w.length], false
		}
		w.length -= int64(len(w.buf))
		out = append(out, w.buf...)
	}
	w.buf = w.buf[:0]
	return out
}

func (w *localWriter) send(out []byte) error {
	c := w.c
	c.x.began = true
	if k := c.enter(phaseWrite); k == causeNone {
		w.err = c.sock.write(out)
	} else {
		w.err = ErrClosed
	}
	if w.err != nil {
		c.x.keep = false
		return w.err
	}
	c.x.status = w.status
	c.enter(phaseServe)
	return nil
}

// finish ends the answer. One that is shorter than it said ends the connection.
func (w *localWriter) finish() {
	w.WriteHeader(http.StatusOK)
	x := w.c.x
	if w.err != nil {
		x.keep = false
		return
	}
	var out []byte
	if !w.began {
		if x.body.start(w.c) != nil {
			x.keep = false
		}
		out = w.head(true)
	}
	out = w.appendBody(out)
	head := string(x.req.msg.method) == "HEAD"
	if w.chunked && !head {
		out = append(out, "0\r\n\r\n"...)
	}
	if w.sized && w.length > 0 && !head {
		x.keep = false
	}
	if len(out) > 0 {
		_ = w.send(out)
	}
}
