package http1

import "io"

// maxReplay is how much of a body is kept to send it again.
const maxReplay = 64 << 10

var (
	errBodyTooLarge = &reject{413, "body_too_large", "the request's body is larger than this proxy lets through"}
	errSlowBody     = &reject{408, "body_timeout", "the request's body comes too slowly"}
)

// bodySource gives a request's body piece by piece as it is to be sent on:
// with its framing, checked, or the content alone with strip.
//
// What came with the head is the first piece and stays in conn.in until the
// request has ended. What comes later is read into buf, and a copy is kept while
// it is short.
type bodySource struct {
	kind  BodyKind
	left  int64 // of BodyLength
	chunk chunkScanner
	limit int64 // bytes of content; 0: none
	done  bool  // all of it was given
	begun bool  // start was called

	first []byte
	later []byte // copy of what was given after first
	long  bool   // later is not all
	buf   buffer
}

func (s *bodySource) init(c *conn, m *message) {
	if m.body == BodyNone {
		*s = bodySource{done: true}
		return
	}
	*s = bodySource{kind: m.body, left: m.length}
	s.buf.pools = c.srv.pools
}

// take gives what b holds of the body.
func (s *bodySource) take(b *buffer) ([]byte, *reject) {
	have := b.bytes()
	if s.kind == BodyLength {
		n := int(min(int64(len(have)), s.left))
		s.left -= int64(n)
		s.done = s.left == 0
		b.r += n
		return have[:n], nil
	}
	in, out, err := s.chunk.scan(have)
	if err != nil {
		return nil, err
	}
	b.r += in
	s.done = s.chunk.done
	if s.limit > 0 && s.chunk.content > s.limit {
		return nil, errBodyTooLarge
	}
	return have[:out], nil
}

// start gives the part that came with the head.
func (s *bodySource) start(c *conn) *reject {
	if s.done || s.begun {
		return nil
	}
	s.begun = true
	// A short body often comes in the packet behind the head's.
	if s.kind == BodyLength && c.in.len() == 0 && s.left <= int64(len(c.in.data)-c.in.w) && !c.x.req.msg.expect100 {
		if err := c.sock.tryFill(&c.in); err != nil && err != errWouldBlock {
			return nil // next will meet it again
		}
	}
	var err *reject
	s.first, err = s.take(&c.in)
	return err
}

// next reads until there is a piece to send, valid until the following call.
// io.EOF: there is no more. Errors are a *reject or the connection's.
func (s *bodySource) next(c *conn) ([]byte, error) {
	b := &s.buf
	if n := c.in.len(); n > 0 { // the beginning of a line
		b.need()
		b.w = copy(b.data, c.in.bytes())
		c.in.r = c.in.w
	}
	for !s.done {
		b.skip(0)
		b.long = s.left > smallBuffer
		if b.w == len(b.data) && b.data != nil {
			b.long = true
		}
		if b.long && b.data != nil {
			b.needBig()
		}
		b.room()
		if err := c.sock.fill(b); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		full := b.w == len(b.data)
		piece, rej := s.take(b)
		if rej != nil {
			return nil, rej
		}
		if full && !s.done && b.len() == 0 {
			b.long = true
		}
		if len(piece) > 0 {
			s.keep(piece)
			return piece, nil
		}
	}
	return nil, io.EOF
}

// keep copies a piece for a possible second sending.
func (s *bodySource) keep(piece []byte) {
	if s.long {
		return
	}
	if len(s.first)+len(s.later)+len(piece) > maxReplay {
		s.long, s.later = true, nil
		return
	}
	s.later = append(s.later, piece...)
}

// replayable tells whether all that was given can be given again.
func (s *bodySource) replayable() bool { return !s.long }

// finish leaves in conn.in what the client sent behind the body.
func (s *bodySource) finish(c *conn) {
	if s.buf.len() > 0 {
		c.in.release()
		c.in, s.buf = s.buf, buffer{}
		c.in.long = false
		return
	}
	s.buf.release()
	c.in.skip(0)
}
