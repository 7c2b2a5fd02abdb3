package http1

import "bytes"

const (
	maxHead        = 64 << 10 // bytes of a head: 431
	maxFields      = 1000     // header lines of a head: 431
	maxNamed       = 32       // names in Connection
	maxID          = 128      // bytes of an X-Request-Id
	maxGeneratedID = 16       // hex digits
)

// reject is a message that is refused, and the answer that its sender gets.
type reject struct {
	status        int
	code, message string
}

func (e *reject) Error() string { return e.message }

func malformed(message string) *reject { return &reject{400, "bad_request", message} }

var (
	errHeadTooLarge = &reject{431, "head_too_large", "the request's head is over 64 KiB or has over 1000 lines; send fewer or shorter headers"}
	errBareLF       = malformed("a line of the request's head ends without CR LF")
	errBareCR       = malformed("a bare CR, NUL or other control character in the request's head")
	errRequestLine  = malformed("the request line is not METHOD SP TARGET SP HTTP/1.x")
	errVersion      = malformed("the version is neither HTTP/1.1 nor HTTP/1.0")
	errTarget       = malformed("the request target is neither a path nor an http address")
	errAuthority    = malformed("the request target names another host than Host")
	errFieldName    = malformed("a header name is empty or has a byte that a name may not have")
	errFolded       = malformed("a header line is folded")
	errHost         = malformed("Host is missing, repeated or not a host")
	errLength       = malformed("Content-Length is repeated or not a number, or comes with Transfer-Encoding")
	errEncoding     = malformed("Transfer-Encoding is anything but exactly one chunked")
	errAliasing     = malformed("a header name is Content-Length or Transfer-Encoding written with an underscore")
	errNamed        = malformed("Connection names too many headers")
	errStatusLine   = malformed("the status line is not HTTP/1.x SP three digits")
	errMethod       = &reject{405, "method_not_allowed", "CONNECT and TRACE are not served"}
)

// message is a parsed head. Its slices point into buf.
type message struct {
	buf    []byte // from the first line to the empty one, both included
	fields []field

	method, target, path, query, host []byte // of a request
	status                            int    // of an answer
	minor                             byte   // HTTP/1.minor

	body      BodyKind
	length    int64 // for BodyLength
	id        []byte
	close     bool // Connection: close
	keepAlive bool // Connection: keep-alive
	upgrade   bool // Connection: upgrade, with an Upgrade field
	expect100 bool
	once      bool // Idempotency-Key is there

	firstEnd uint32 // where the first line ends, CRLF included
	lengths  uint8  // Content-Length fields
	hosts    uint8
	named    bool // there is a Connection field
	chunked  bool
}

func (m *message) reset(buf []byte) {
	*m = message{buf: buf, fields: m.fields[:0]}
}

func (m *message) name(f *field) []byte   { return m.buf[f.name:f.colon] }
func (m *message) fvalue(f *field) []byte { return m.buf[f.value:f.valueEnd] }

func (m *message) value(name string) []byte {
	for i := range m.fields {
		if f := &m.fields[i]; int(f.colon-f.name) == len(name) && foldSameString(m.name(f), name) {
			return m.fvalue(f)
		}
	}
	return nil
}

func foldSameString(b []byte, s string) bool {
	for i := range len(s) {
		if lower(b[i]) != lower(s[i]) {
			return false
		}
	}
	return true
}

func (m *message) each(yield func(name, value []byte) bool) {
	for i := range m.fields {
		if f := &m.fields[i]; !yield(m.name(f), m.fvalue(f)) {
			return
		}
	}
}

// headEnd looks for the empty line that ends a head. It starts at from, the
// next value of an earlier call that found none (so that a head that trickles in
// is looked at once), and gives the head's length, or 0 and the next from.
func headEnd(b []byte, from int) (end, next int, err *reject) {
	for {
		i := bytes.IndexByte(b[from:], '\n')
		if i < 0 {
			return 0, from, nil
		}
		at := from + i
		if at == 0 || b[at-1] != '\r' {
			return 0, 0, errBareLF
		}
		if i == 1 && from > 0 {
			return at + 1, 0, nil
		}
		from = at + 1
	}
}

// parseRequest reads a request's head; b ends with its empty line.
func (m *message) parseRequest(b []byte) *reject {
	m.reset(b)
	if err := m.requestLine(); err != nil {
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
	if err := m.requestTarget(); err != nil {
		return err
	}
	if m.hosts > 1 || (m.hosts == 0 && m.minor == 1) || !allOf(m.host, &hostBytes) {
		return errHost
	}
	if m.chunked && m.minor == 0 {
		return errEncoding
	}
	m.frame()
	m.plainUpgrade()
	return nil
}

func (m *message) requestLine() *reject {
	b := m.buf
	i := 0
	for tokenBytes[b[i]] {
		i++
	}
	if i == 0 || b[i] != ' ' {
		return errRequestLine
	}
	m.method = b[:i]
	start := i + 1
	for i = start; b[i] > ' ' && b[i] != 0x7f; i++ {
	}
	if i == start || b[i] != ' ' {
		return errRequestLine
	}
	m.target = b[start:i]
	end := bytes.IndexByte(b[i:], '\n') + i // there is one: b ends with it
	version := b[i+1 : end-1]
	if len(version) != 8 || string(version[:7]) != "HTTP/1." || (version[7] != '0' && version[7] != '1') {
		return errVersion
	}
	m.minor = version[7] - '0'
	m.firstEnd = uint32(end + 1)
	return nil
}

// requestTarget checks the target's form (RFC 9112 §3.2) and finds its path.
func (m *message) requestTarget() *reject {
	t := m.target
	switch {
	case string(m.method) == "CONNECT" || string(m.method) == "TRACE":
		return errMethod
	case t[0] == '/':
	case len(t) == 1 && t[0] == '*':
		if string(m.method) != "OPTIONS" {
			return errTarget
		}
	default:
		rest, ok := cutScheme(t)
		if !ok {
			return errTarget
		}
		end := bytes.IndexAny(rest, "/?#")
		if end < 0 {
			end = len(rest)
		}
		if end == 0 {
			return errTarget
		}
		if !foldSame(rest[:end], m.host) {
			return errAuthority
		}
		t = rest[end:]
	}
	m.path = t
	if q := bytes.IndexByte(t, '?'); q >= 0 {
		m.path, m.query = t[:q], t[q+1:]
	}
	if len(m.path) == 0 {
		m.path = rootPath
	}
	return nil
}

var rootPath = []byte("/")

func cutScheme(t []byte) ([]byte, bool) {
	for _, s := range [...]string{"http://", "https://"} {
		if len(t) > len(s) && foldEqual(t[:len(s)], s) {
			return t[len(s):], true
		}
	}
	return nil, false
}

// fieldLines reads the header lines; the last line of buf is empty.
func (m *message) fieldLines() *reject {
	b := m.buf
	i := int(m.firstEnd)
	for b[i] != '\r' || b[i+1] != '\n' {
		if len(m.fields) == maxFields {
			return errHeadTooLarge
		}
		f := field{name: uint32(i)}
		for tokenBytes[b[i]] {
			i++
		}
		if b[i] != ':' || i == int(f.name) {
			if i == int(f.name) && (b[i] == ' ' || b[i] == '\t') {
				return errFolded
			}
			return errFieldName
		}
		f.colon = uint32(i)
		i = controlAt(b, i+1)
		if b[i] != '\r' || b[i+1] != '\n' {
			return errBareCR
		}
		v := trim(b[f.colon+1 : i])
		f.value = f.colon + 1
		if len(v) > 0 {
			f.value = uint32(cap(b) - cap(v))
		}
		f.valueEnd = f.value + uint32(len(v))
		i += 2
		f.end = uint32(i)
		f.kind = kindOf(b[f.name:f.colon])
		if f.kind != fieldOther {
			if err := m.known(&f, v); err != nil {
				return err
			}
		}
		m.fields = append(m.fields, f)
	}
	return nil
}

// known takes in a field that means something to a proxy, and marks those that
// go no further. Whatever is decided by Connection comes later.
func (m *message) known(f *field, v []byte) *reject {
	switch f.kind {
	case fieldHost:
		m.hosts = min(m.hosts+1, 2)
		m.host = v
	case fieldConnection:
		m.named = true
		f.drop = true
	case fieldContentLength:
		n, ok := decimal(v)
		if !ok || m.lengths > 0 || m.chunked {
			return errLength
		}
		m.lengths, m.length = 1, n
	case fieldTransferEncoding:
		if m.chunked || !foldEqual(v, "chunked") {
			return errEncoding
		}
		if m.lengths > 0 {
			return errLength
		}
		m.chunked = true
	case fieldExpect:
		m.expect100 = m.minor == 1 && foldEqual(v, "100-continue")
	case fieldRequestID:
		f.drop = true
		if m.id == nil && validID(v) {
			m.id = v
		}
	case fieldIdempotencyKey:
		m.once = m.once || len(v) > 0 // nothing is kept under an empty one
	case fieldHop, fieldUpgrade, fieldOurs:
		f.drop = true
	case fieldAliasing:
		return errAliasing
	}
	return nil
}

// connection reads the Connection fields: options, and names of fields that go
// no further. What frames, routes or authorises a message cannot be named away.
func (m *message) connection() *reject {
	named := 0
	wants := false
	for i := range m.fields {
		if m.fields[i].kind != fieldConnection {
			continue
		}
		eachItem(m.fvalue(&m.fields[i]), func(item []byte) bool {
			switch {
			case foldEqual(item, "close"):
				m.close = true
			case foldEqual(item, "keep-alive"):
				m.keepAlive = true
			case foldEqual(item, "upgrade"):
				wants = true
			default:
				named++
				m.dropNamed(item)
			}
			return named <= maxNamed
		})
	}
	if named > maxNamed {
		return errNamed
	}
	if wants && m.minor == 1 {
		for i := range m.fields {
			m.upgrade = m.upgrade || m.fields[i].kind == fieldUpgrade
		}
	}
	return nil
}

func (m *message) dropNamed(name []byte) {
	for i := range m.fields {
		if f := &m.fields[i]; f.kind == fieldOther && foldSame(m.name(f), name) {
			f.drop = true
		}
	}
}

// frame sets body and length from the fields of a request.
func (m *message) frame() {
	switch {
	case m.chunked:
		m.body = BodyChunked
	case m.lengths > 0 && m.length > 0:
		m.body = BodyLength
	}
	if m.body == BodyNone {
		m.expect100 = false
	}
}

// plainUpgrade takes the upgrade off where it is not passed on: with a body
// (the connection would change its protocol in the middle of it), and to h2c,
// which would hide requests from every rule here.
func (m *message) plainUpgrade() {
	if !m.upgrade {
		return
	}
	plain := m.body != BodyNone
	for i := range m.fields {
		if f := &m.fields[i]; f.kind == fieldUpgrade {
			eachItem(m.fvalue(f), func(item []byte) bool {
				plain = plain || foldEqual(item, "h2c") || foldEqual(item, "h2")
				return !plain
			})
		}
	}
	m.upgrade = !plain
	if m.upgrade {
		m.keepUpgrade()
	}
}

func (m *message) keepUpgrade() {
	for i := range m.fields {
		if m.fields[i].kind == fieldUpgrade {
			m.fields[i].drop = false
		}
	}
}
