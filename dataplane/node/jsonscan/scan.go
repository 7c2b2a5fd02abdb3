package jsonscan

import (
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how deep arrays and objects may nest. It bounds the stack that a
// hostile body can use.
const MaxDepth = 64

// Kind is the kind of a JSON value, known from its first byte.
type Kind uint8

// The kinds. Bad stands for the end of the input or a byte that begins no value.
const (
	Bad Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

// Error says what was wrong with the input and where.
type Error struct {
	Offset int // bytes from the beginning
	What   string
}

func (e *Error) Error() string { return fmt.Sprintf("invalid JSON at byte %d: %s", e.Offset, e.What) }

// Scanner reads one JSON text. The first error sticks: from then on every method
// returns a zero value and More returns false, so that a decoder asks for Err once,
// at its end. The slices it returns alias the input where that is possible.
//
//	s.Open('{')
//	for s.More('}') {
//		switch string(s.Key()) {
//		case "sql":
//			sql = s.String()
//		default:
//			s.Skip()
//		}
//	}
type Scanner struct {
	buf   []byte
	pos   int
	depth int
	first bool // the next element is the first of its array or object
	err   error
}

// Reset begins with a new input.
func (s *Scanner) Reset(buf []byte) {
	*s = Scanner{buf: buf}
	if !utf8.Valid(buf) {
		s.Fail("the text is not UTF-8")
	}
}

// Err is the first error, or nil.
func (s *Scanner) Err() error { return s.err }

// Offset is how many bytes were read.
func (s *Scanner) Offset() int { return s.pos }

// Fail records an error at the present place, unless there is one already.
func (s *Scanner) Fail(what string) {
	if s.err == nil {
		s.err = &Error{Offset: s.pos, What: what}
	}
}

// End checks that nothing but white space is left.
func (s *Scanner) End() {
	if s.err == nil && s.peek() != 0 {
		s.Fail("something follows the value")
	} else if s.err == nil && s.pos < len(s.buf) {
		s.Fail("unexpected NUL")
	}
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *Scanner) peek() byte {
	for s.pos < len(s.buf) {
		switch c := s.buf[s.pos]; c {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// Kind tells what the next value is, without reading it.
func (s *Scanner) Kind() Kind {
	if s.err != nil {
		return Bad
	}
	switch c := s.peek(); {
	case c == '"':
		return String
	case c == '{':
		return Object
	case c == '[':
		return Array
	case c == 'n':
		return Null
	case c == 't' || c == 'f':
		return Bool
	case c == '-' || c >= '0' && c <= '9':
		return Number
	}
	return Bad
}

// Open reads the bracket that begins an array ('[') or an object ('{').
func (s *Scanner) Open(bracket byte) {
	if s.err != nil {
		return
	}
	if s.peek() != bracket {
		s.Fail(expected(bracket))
		return
	}
	if s.depth++; s.depth > MaxDepth {
		s.Fail("nested too deeply")
		return
	}
	s.pos++
	s.first = true
}

func expected(bracket byte) string {
	if bracket == '{' {
		return "an object is expected"
	}
	return "an array is expected"
}

// More reads the comma before the next element, or the closing bracket, and tells
// which it was.
func (s *Scanner) More(closing byte) bool {
	if s.err != nil {
		return false
	}
	c := s.peek()
	if c == closing {
		s.pos++
		s.depth--
		s.first = false
		return false
	}
	if s.first {
		s.first = false
		return true
	}
	if c != ',' {
		s.Fail("a comma or the end of the array or object is expected")
		return false
	}
	s.pos++
	return true
}

// Key reads an object's next key and its colon.
func (s *Scanner) Key() []byte {
	key := s.String()
	if s.err != nil {
		return nil
	}
	if s.peek() != ':' {
		s.Fail("a colon is expected")
		return nil
	}
	s.pos++
	return key
}

// String reads a string. The result aliases the input unless it held escapes.
func (s *Scanner) String() []byte {
	if s.err != nil {
		return nil
	}
	if s.peek() != '"' {
		s.Fail("a string is expected")
		return nil
	}
	s.pos++
	start := s.pos
	for s.pos < len(s.buf) {
		switch c := s.buf[s.pos]; {
		case c == '"':
			s.pos++
			return s.buf[start : s.pos-1 : s.pos-1]
		case c == '\\':
			return s.escaped(start)
		case c < 0x20:
			s.Fail("a control character stands in a string")
			return nil
		}
		s.pos++
	}
	s.Fail("a string does not end")
	return nil
}

// escaped reads on in a string that holds a backslash at pos.
func (s *Scanner) escaped(start int) []byte {
	out := make([]byte, 0, s.pos-start+64)
	out = append(out, s.buf[start:s.pos]...)
	for s.pos < len(s.buf) {
		c := s.buf[s.pos]
		switch {
		case c == '"':
			s.pos++
			return out
		case c < 0x20:
			s.Fail("a control character stands in a string")
			return nil
		case c != '\\':
			out = append(out, c)
			s.pos++
			continue
		}
		if s.pos+1 >= len(s.buf) {
			break
		}
		c = s.buf[s.pos+1]
		s.pos += 2
		switch c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, ok := s.unicode()
			if !ok {
				return nil
			}
			out = utf8.AppendRune(out, r)
		default:
			s.Fail("an unknown escape stands in a string")
			return nil
		}
	}
	s.Fail("a string does not end")
	return nil
}

// unicode reads the digits behind \u, and a second escape where the first is half
// of a surrogate pair.
func (s *Scanner) unicode() (rune, bool) {
	r, ok := s.hex4()
	if !ok {
		return 0, false
	}
	if !utf16.IsSurrogate(r) {
		return r, true
	}
	if s.pos+1 < len(s.buf) && s.buf[s.pos] == '\\' && s.buf[s.pos+1] == 'u' {
		s.pos += 2
		low, ok := s.hex4()
		if !ok {
			return 0, false
		}
		if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
			return r, true
		}
	}
	s.Fail("half a surrogate pair stands in a string")
	return 0, false
}

func (s *Scanner) hex4() (rune, bool) {
	if s.pos+4 > len(s.buf) {
		s.Fail("a string does not end")
		return 0, false
	}
	var r rune
	for _, c := range s.buf[s.pos : s.pos+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			s.Fail("four hexadecimal digits are expected")
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	s.pos += 4
	return r, true
}

// Number reads a number and returns its text as it stands. integer tells that it
// has neither a fraction nor an exponent.
func (s *Scanner) Number() (text []byte, integer bool) {
	if s.Kind() != Number {
		s.Fail("a number is expected")
		return nil, false
	}
	start, p := s.pos, s.pos
	at := func() byte {
		if p < len(s.buf) {
			return s.buf[p]
		}
		return 0
	}
	digits := func() bool {
		from := p
		for c := at(); c >= '0' && c <= '9'; c = at() {
			p++
		}
		return p > from
	}
	if at() == '-' {
		p++
	}
	ok := true
	if at() == '0' {
		p++
	} else {
		ok = digits()
	}
	integer = true
	if ok && at() == '.' {
		p++
		integer, ok = false, digits()
	}
	if c := at(); ok && (c == 'e' || c == 'E') {
		p++
		if c := at(); c == '+' || c == '-' {
			p++
		}
		integer, ok = false, digits()
	}
	// 01 and 1x end here, where a delimiter must stand.
	switch at() {
	case 0, ' ', '\t', '\r', '\n', ',', ']', '}':
	default:
		ok = false
	}
	s.pos = p
	if !ok {
		s.Fail("the number is malformed")
		return nil, false
	}
	return s.buf[start:p], integer
}

// Int reads a whole number that fits 64 bits.
func (s *Scanner) Int() int64 {
	text, integer := s.Number()
	if s.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || !integer {
		s.Fail("a whole number within 64 bits is expected")
		return 0
	}
	return n
}

// Float reads a number that fits a finite 64-bit float.
func (s *Scanner) Float() float64 {
	text, _ := s.Number()
	if s.err != nil {
		return 0
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		s.Fail("the number is out of range")
		return 0
	}
	return f
}

// Bool reads true or false.
func (s *Scanner) Bool() bool {
	if s.err == nil && s.peek() == 't' {
		s.literal("true")
		return s.err == nil
	}
	s.literal("false")
	return false
}

// Null reads null.
func (s *Scanner) Null() { s.literal("null") }

func (s *Scanner) literal(word string) {
	if s.err != nil {
		return
	}
	s.peek()
	if len(s.buf)-s.pos < len(word) || string(s.buf[s.pos:s.pos+len(word)]) != word {
		s.Fail(word + " is expected")
		return
	}
	s.pos += len(word)
}

// TryNull reads null if that is next, and tells whether it was.
func (s *Scanner) TryNull() bool {
	if s.Kind() != Null {
		return false
	}
	s.Null()
	return s.err == nil
}

// Skip reads one value of any kind and drops it.
func (s *Scanner) Skip() {
	switch s.Kind() {
	case String:
		s.String()
	case Number:
		s.Number()
	case Bool:
		s.Bool()
	case Null:
		s.Null()
	case Array:
		s.Open('[')
		for s.More(']') {
			s.Skip()
		}
	case Object:
		s.Open('{')
		for s.More('}') {
			s.Key()
			s.Skip()
		}
	case Bad:
		s.Fail("a value is expected")
	}
}
