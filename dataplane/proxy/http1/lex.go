package http1

import (
	"encoding/binary"
	"math/bits"
)

// tokenBytes tells which bytes a token (RFC 9110 §5.6.2) may hold: methods and
// field names.
var tokenBytes = byteSet("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")

// hostBytes are the bytes of a Host value: reg-name, IP literals and a port, no
// userinfo (RFC 9110 §7.2, RFC 3986 §3.2).
var hostBytes = byteSet("-._~!$&'()*+,;=:[]%0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")

func byteSet(s string) (set [256]bool) {
	for i := range len(s) {
		set[s[i]] = true
	}
	return set
}

func allOf(b []byte, set *[256]bool) bool {
	for _, c := range b {
		if !set[c] {
			return false
		}
	}
	return true
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// controlAt gives the index of the first byte at or after from that is a
// control character other than HTAB, or len(b). Eight bytes at a time: the
// lowest bit that the subtraction leaves is always a true find.
func controlAt(b []byte, from int) int {
	i := from
	for i+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[i:])
		del := x ^ (0x7f * ones)
		m := ((x-0x20*ones)&^x | (del-ones)&^del) & highs
		if m == 0 {
			i += 8
			continue
		}
		i += bits.TrailingZeros64(m) / 8
		if b[i] != '\t' {
			return i
		}
		i++
	}
	for ; i < len(b); i++ {
		if c := b[i]; (c < 0x20 && c != '\t') || c == 0x7f {
			return i
		}
	}
	return i
}

// trim takes spaces and tabs off both ends.
func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// foldEqual compares ASCII without regard to case; s is in lower case.
func foldEqual(b []byte, s string) bool {
	if len(b) != len(s) {
		return false
	}
	for i := range len(s) {
		if lower(b[i]) != s[i] {
			return false
		}
	}
	return true
}

// foldSame compares ASCII without regard to case.
func foldSame(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i, c := range a {
		if lower(c) != lower(b[i]) {
			return false
		}
	}
	return true
}

// eachItem calls f with each non-empty element of a comma-separated list until
// it returns false.
func eachItem(list []byte, f func(item []byte) bool) {
	for len(list) > 0 {
		end := 0
		for end < len(list) && list[end] != ',' {
			end++
		}
		if item := trim(list[:end]); len(item) > 0 && !f(item) {
			return
		}
		if end == len(list) {
			return
		}
		list = list[end+1:]
	}
}

// decimal reads a Content-Length: digits alone, at most 18 of them.
func decimal(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// validID tells whether b may be an X-Request-Id: 1 to 128 printable ASCII
// characters.
func validID(b []byte) bool {
	if len(b) == 0 || len(b) > maxID {
		return false
	}
	for _, c := range b {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}
