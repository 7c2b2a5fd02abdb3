package jsonscan

import (
	"encoding/base64"
	"errors"
	"math"
	"strconv"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// AppendString appends text as a JSON string. What is not UTF-8 becomes U+FFFD;
// nothing but what JSON demands is escaped.
func AppendString[T ~string | ~[]byte](dst []byte, text T) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= utf8.RuneSelf {
			r, size := decodeRune(text[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(dst, text[from:i]...)
				dst = append(dst, "\uFFFD"...)
				from = i + 1
			}
			i += size
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, text[from:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		from = i
	}
	dst = append(dst, text[from:]...)
	return append(dst, '"')
}

func decodeRune[T ~string | ~[]byte](text T) (rune, int) {
	// A rune has at most four bytes; the conversion of so few does not allocate.
	return utf8.DecodeRuneInString(string(text[:min(len(text), utf8.UTFMax)]))
}

// AppendFloat appends f so that it reads back as the same float and is seen to be
// one: 1 is written 1.0. JSON has no infinity; 1e999 stands for it, which readers
// of 64-bit floats take as infinite, and NaN (SQLite has none) is null.
func AppendFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "null"...)
	case math.IsInf(f, 1):
		return append(dst, "1e999"...)
	case math.IsInf(f, -1):
		return append(dst, "-1e999"...)
	}
	start, format := len(dst), byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e' // what ECMAScript does
	}
	dst = strconv.AppendFloat(dst, f, format, -1, 64)
	for _, c := range dst[start:] {
		if c == '.' || c == 'e' {
			return dst
		}
	}
	return append(dst, '.', '0')
}

// AppendBase64 appends data as a JSON string in the standard alphabet, unpadded.
func AppendBase64(dst, data []byte) []byte {
	dst = append(dst, '"')
	dst = base64.RawStdEncoding.AppendEncode(dst, data)
	return append(dst, '"')
}

var errBase64 = errors.New("invalid base64: the standard alphabet is expected, with or without padding")

// DecodeBase64 takes the standard alphabet, padded or not.
func DecodeBase64(text []byte) ([]byte, error) {
	n := len(text)
	if n%4 == 0 {
		for i := 0; i < 2 && n > 0 && text[n-1] == '='; i++ {
			n--
		}
	}
	for _, c := range text[:n] {
		// encoding/base64 ignores line breaks; a value that was cut by one is a fault.
		if c == '\n' || c == '\r' {
			return nil, errBase64
		}
	}
	out, err := base64.RawStdEncoding.AppendDecode(make([]byte, 0, base64.RawStdEncoding.DecodedLen(n)), text[:n])
	if err != nil {
		return nil, errBase64
	}
	return out, nil
}
