package http1

// parseAnswer reads the head of a node's answer to a request of that method; b
// ends with its empty line. Lengths are read as strictly as a request's.
func (m *message) parseAnswer(b []byte, head bool) *reject {
	m.reset(b)
	if err := m.statusLine(); err != nil {
		return err
	}
	if err := m.fieldLines(); err != nil {
		return err
	}
	if m.named {
		if err := m.connection(); err != nil {
			return err
		}
	}
	if m.chunked && m.minor == 0 {
		return errEncoding
	}
	switch {
	case m.status < 200 || m.status == 204:
		// Neither has a body, whatever it says; a length would mislead.
		for i := range m.fields {
			if k := m.fields[i].kind; k == fieldContentLength || k == fieldTransferEncoding {
				m.fields[i].drop = true
			}
		}
	case head || m.status == 304:
	case m.chunked:
		m.body = BodyChunked
	case m.lengths > 0:
		if m.length > 0 {
			m.body = BodyLength
		}
	default:
		m.body = bodyClose
	}
	if m.status == 101 || m.status == 426 && m.upgrade {
		m.keepUpgrade()
	}
	return nil
}

func (m *message) statusLine() *reject {
	b := m.buf
	if len(b) < 14 || string(b[:7]) != "HTTP/1." || (b[7] != '0' && b[7] != '1') || b[8] != ' ' {
		return errStatusLine
	}
	m.minor = b[7] - '0'
	for _, c := range b[9:12] {
		if c < '0' || c > '9' {
			return errStatusLine
		}
		m.status = m.status*10 + int(c-'0')
	}
	end := controlAt(b, 12)
	if m.status < 100 || (b[12] != ' ' && b[12] != '\r') || b[end] != '\r' || b[end+1] != '\n' {
		return errStatusLine
	}
	m.firstEnd = uint32(end + 2)
	return nil
}

// reusable tells whether the node keeps the connection open after this answer.
func (m *message) reusable() bool {
	if m.body == bodyClose || m.close {
		return false
	}
	return m.minor == 1 || m.keepAlive
}
