package http1

import "bytes"

const (
	maxChunkLine   = 1 << 10  // bytes of a chunk's size line, extensions included
	maxTrailerLine = 8 << 10  // bytes of a trailer line
	maxTrailers    = 16 << 10 // bytes of all trailer lines
)

var (
	errChunk   = malformed("the chunked body is malformed")
	errTrailer = malformed("the body's trailers are malformed or too large")
)

// chunkScanner checks a chunked body as it passes (RFC 9112 §7.1). The zero
// value is at the start of a body. Chunks pass as they are, extensions and
// allowed trailers included; with strip only their content passes.
type chunkScanner struct {
	strip   bool
	done    bool
	content int64 // bytes of content so far
	state   chunkState
	left    int64 // of the chunk's data
	trailer int   // bytes of trailer lines so far
}

type chunkState uint8

const (
	chunkSize chunkState = iota
	chunkData
	chunkEnd // the CR LF behind the data
	chunkTrailer
)

// scan checks b, which goes on where the last call's in ended. It gives how
// many bytes it has taken and, in place, how many of b[:out] are to pass on. An
// incomplete line is not taken: the caller brings it again with more behind it.
func (s *chunkScanner) scan(b []byte) (in, out int, err *reject) {
	for in < len(b) && !s.done {
		var n int
		switch s.state {
		case chunkData:
			n = int(min(int64(len(b)-in), s.left))
			out += move(b, out, in, n)
			s.left -= int64(n)
			s.content += int64(n)
			if s.left == 0 {
				s.state = chunkEnd
			}
		case chunkEnd:
			if n, err = s.endOfChunk(b[in:]); n == 0 {
				return in, out, err
			}
			if !s.strip {
				out += move(b, out, in, n)
			}
		case chunkSize:
			if n, err = s.sizeLine(b[in:]); n == 0 {
				return in, out, err
			}
			if !s.strip {
				out += move(b, out, in, n)
			}
		case chunkTrailer:
			var keep bool
			if n, keep, err = s.trailerLine(b[in:]); n == 0 {
				return in, out, err
			}
			if keep && !s.strip {
				out += move(b, out, in, n)
			}
		}
		in += n
	}
	return in, out, nil
}

func move(b []byte, to, from, n int) int {
	if to != from {
		copy(b[to:], b[from:from+n])
	}
	return n
}

func (s *chunkScanner) endOfChunk(b []byte) (int, *reject) {
	if b[0] != '\r' || (len(b) > 1 && b[1] != '\n') {
		return 0, errChunk
	}
	if len(b) < 2 {
		return 0, nil
	}
	s.state = chunkSize
	return 2, nil
}

// sizeLine reads 1*HEXDIG, extensions, CR LF. No space around the size: that
// is where parsers differ.
func (s *chunkScanner) sizeLine(b []byte) (int, *reject) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		if len(b) > maxChunkLine {
			return 0, errChunk
		}
		return 0, nil
	}
	if end > maxChunkLine || end < 2 || b[end-1] != '\r' {
		return 0, errChunk
	}
	line := b[:end-1]
	var size int64
	i := 0
	for ; i < len(line); i++ {
		d, ok := hexDigit(line[i])
		if !ok {
			break
		}
		if i == 15 {
			return 0, errChunk // 60 bits are enough for any body
		}
		size = size<<4 | int64(d)
	}
	if i == 0 || (i < len(line) && line[i] != ';') || controlAt(line, i) != len(line) {
		return 0, errChunk
	}
	s.left, s.state = size, chunkData
	if size == 0 {
		s.state = chunkTrailer
	}
	return end + 1, nil
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// trailerLine reads a trailer field or the empty line that ends the body.
func (s *chunkScanner) trailerLine(b []byte) (n int, keep bool, err *reject) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		if len(b) > maxTrailerLine {
			return 0, false, errTrailer
		}
		return 0, false, nil
	}
	s.trailer += end + 1
	if end == 0 || b[end-1] != '\r' || end > maxTrailerLine || s.trailer > maxTrailers {
		return 0, false, errTrailer
	}
	line := b[:end-1]
	if len(line) == 0 {
		s.done = true
		return end + 1, true, nil
	}
	i := 0
	for i < len(line) && tokenBytes[line[i]] {
		i++
	}
	if i == 0 || i == len(line) || line[i] != ':' || controlAt(line, i) != len(line) {
		return 0, false, errTrailer
	}
	return end + 1, !forbiddenTrailer(line[:i]), nil
}
