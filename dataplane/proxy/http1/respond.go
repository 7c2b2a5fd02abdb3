package http1

import (
	"net/http"
	"strconv"
)

// appendJSON appends s as a JSON string.
func appendJSON(out []byte, s string) []byte {
	const hex = "0123456789abcdef"
	out = append(out, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c < 0x20:
			out = append(out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			out = append(out, c)
		}
	}
	return append(out, '"')
}

// refuse answers a request that is not to be understood any further: the
// connection ends, without a reset that could take the answer away.
func (c *conn) refuse(r *reject) {
	c.x.keep = false
	c.respond(r, nil)
	c.account(c.x)
	c.linger()
}

// respondLast answers after the connection was ended: the answer is the last
// thing that it carries.
func (c *conn) respondLast(r *reject) {
	c.x.keep = false
	c.ended = causeNone
	c.revive()
	c.respond(r, nil)
}

func (c *conn) respondDecision() {
	d := &c.x.decision
	if d.Status == 0 {
		d.Respond(http.StatusNotFound, "not_found", "there is nothing at this path")
	}
	c.respond(&reject{d.Status, d.Code, d.Message}, d.Headers)
}

// respond writes a JSON answer of the proxy's own. A body that has not arrived
// is not waited for: then the connection ends.
func (c *conn) respond(r *reject, headers []byte) {
	x := c.x
	if x.body.start(c) != nil {
		x.keep = false
	}
	if !x.body.done || c.srv.draining.Load() || x.up.running {
		x.keep = false
	}
	body := append(make([]byte, 0, 256), `{"error":`...)
	body = appendJSON(body, r.message)
	body = append(body, `,"code":`...)
	body = appendJSON(body, r.code)
	body = append(body, "}\n"...)
	out := x.appendStatus(make([]byte, 0, 512+len(headers)), r.status)
	out = append(out, "Content-Type: application/json\r\nContent-Length: "...)
	out = strconv.AppendInt(out, int64(len(body)), 10)
	out = append(out, "\r\n"...)
	out = append(out, *c.srv.date.Load()...)
	switch r.status {
	case http.StatusServiceUnavailable:
		out = append(out, "Retry-After: 1\r\n"...)
	case http.StatusMethodNotAllowed:
		out = append(out, "Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n"...)
	}
	out = append(out, headers...)
	out = appendID(out, x.req.id)
	out = x.endHead(out, false)
	if string(x.req.msg.method) != "HEAD" {
		out = append(out, body...)
	}
	c.enter(phaseWrite)
	x.began = true
	if c.sock.write(out) != nil {
		x.keep = false
		return
	}
	x.status = r.status
}

// appendStatus appends the status line of an answer of the proxy's own.
func (x *exchange) appendStatus(out []byte, status int) []byte {
	out = append(out, "HTTP/1.1 "...)
	out = strconv.AppendInt(out, int64(status), 10)
	out = append(out, ' ')
	out = append(out, http.StatusText(status)...)
	return append(out, "\r\n"...)
}
