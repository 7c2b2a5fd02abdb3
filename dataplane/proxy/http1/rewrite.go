package http1

// appendKept appends the header lines that go on, as they came, in runs.
func (m *message) appendKept(out []byte) []byte {
	from := m.firstEnd
	for i := range m.fields {
		f := &m.fields[i]
		if !f.drop {
			continue
		}
		out = append(out, m.buf[from:f.name]...)
		from = f.end
	}
	return append(out, m.buf[from:len(m.buf)-2]...)
}

// appendRequest appends the head that a node gets.
func (x *exchange) appendRequest(out []byte, addr string) []byte {
	m := &x.req.msg
	switch {
	case x.decision.Target != nil:
		out = append(append(append(out, m.method...), ' '), x.decision.Target...)
		out = append(out, " HTTP/1.1\r\n"...)
	case m.minor == 1:
		out = append(out, m.buf[:m.firstEnd]...)
	default:
		out = append(out, m.buf[:m.firstEnd-3]...) // HTTP/1.
		out = append(out, "1\r\n"...)
	}
	if m.minor == 0 && m.hosts == 0 {
		out = append(out, "Host: "...)
		out = append(out, addr...)
		out = append(out, "\r\n"...)
	}
	out = m.appendKept(out)
	out = appendID(out, x.req.id)
	out = append(out, x.decision.Lines...)
	if m.upgrade {
		out = append(out, "Connection: Upgrade\r\n"...)
	}
	return append(out, "\r\n"...)
}

func appendID(out, id []byte) []byte {
	out = append(out, "X-Request-Id: "...)
	out = append(out, id...)
	return append(out, "\r\n"...)
}

// appendAnswer appends the head of a node's answer as the client gets it.
func (x *exchange) appendAnswer(out []byte) []byte {
	a := &x.answer
	out = append(out, "HTTP/1.1"...)
	out = append(out, a.buf[8:a.firstEnd]...)
	out = a.appendKept(out)
	out = append(out, x.view.Lines...)
	if a.status == 426 && a.upgrade {
		out = append(out, "Connection: Upgrade\r\n"...)
	}
	out = appendID(out, x.req.id)
	return x.endHead(out, a.status == 101)
}

// endHead ends the head of an answer by what it says of the connection.
func (x *exchange) endHead(out []byte, upgraded bool) []byte {
	switch {
	case upgraded:
		out = append(out, "Connection: Upgrade\r\n"...)
	case !x.keep:
		out = append(out, "Connection: close\r\n"...)
	case x.req.msg.minor == 0:
		out = append(out, "Connection: keep-alive\r\n"...)
	}
	return append(out, "\r\n"...)
}

// dropFraming takes the Transfer-Encoding line off, for clients that know none.
func (m *message) dropFraming() {
	for i := range m.fields {
		if m.fields[i].kind == fieldTransferEncoding {
			m.fields[i].drop = true
		}
	}
}
