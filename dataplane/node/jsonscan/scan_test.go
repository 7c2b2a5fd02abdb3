package jsonscan

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

// tree reads any value as encoding/json would, numbers as text.
func tree(s *Scanner) any {
	switch s.Kind() {
	case Null:
		s.Null()
	case Bool:
		return s.Bool()
	case Number:
		text, _ := s.Number()
		return json.Number(text)
	case String:
		return string(s.String())
	case Array:
		list := []any{}
		s.Open('[')
		for s.More(']') {
			list = append(list, tree(s))
		}
		return list
	case Object:
		object := map[string]any{}
		s.Open('{')
		for s.More('}') {
			key := string(s.Key())
			object[key] = tree(s)
		}
		return object
	case Bad:
		s.Fail("a value is expected")
	}
	return nil
}

// FuzzScanner compares with encoding/json, which is more lenient in known ways.
func FuzzScanner(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,-2.5e3,"x\n\u00e9\ud83c\udfe0",true,false,null,{}],"b":{"c":[]}}`, ` [ ] `, `01`, `"\ud800"`, `[1,]`, `{"a":1,}`,
		`{"a" 1}`, `-`, `1.`, `1e`, `tru`, `"` + "\x01" + `"`, `"\x"`, "\x00", `1 2`, `[[[[[[`, `1e5`, `"\u12"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var s, skipper Scanner
		s.Reset(text)
		got := tree(&s)
		s.End()
		skipper.Reset(text)
		skipper.Skip()
		skipper.End()
		if (s.Err() == nil) != (skipper.Err() == nil) {
			t.Fatalf("reading and skipping differ: %v, %v", s.Err(), skipper.Err())
		}
		if s.Err() != nil {
			stricter := !utf8.Valid(text) || strings.Contains(s.Err().Error(), "surrogate") || strings.Contains(s.Err().Error(), "deeply")
			if json.Valid(text) && !stricter {
				t.Fatalf("%q was refused: %v", text, s.Err())
			}
			return
		}
		var want any
		dec := json.NewDecoder(strings.NewReader(string(text)))
		dec.UseNumber()
		if err := dec.Decode(&want); err != nil {
			t.Fatalf("%q was taken: %v", text, err)
		}
		a, err1 := json.Marshal(got)
		b, err2 := json.Marshal(want)
		if err1 != nil || err2 != nil || string(a) != string(b) {
			t.Fatalf("%s, want %s", a, b)
		}
	})
}

// FuzzAppend: what is written reads back.
func FuzzAppend(f *testing.F) {
	f.Add("x\"\\\n\x00é\xff🏠", 1.5)
	f.Add("", math.Inf(-1))
	f.Add("\u2028", 1e21)
	f.Fuzz(func(t *testing.T, text string, number float64) {
		var s Scanner
		s.Reset(AppendString(nil, text))
		if got := string(s.String()); got != strings.ToValidUTF8(text, "\uFFFD") && s.Err() == nil {
			if utf8.ValidString(text) {
				t.Fatalf("%q came back as %q", text, got)
			}
		}
		s.End()
		if s.Err() != nil {
			t.Fatalf("%q: %v", text, s.Err())
		}
		out := AppendFloat(nil, number)
		if math.IsNaN(number) || math.IsInf(number, 0) {
			return
		}
		s.Reset(out)
		_, integer := s.Number()
		s.End()
		var back float64
		if err := json.Unmarshal(out, &back); err != nil || back != number || integer || s.Err() != nil {
			t.Fatalf("%v was written %s", number, out)
		}
	})
}

func TestBase64(t *testing.T) {
	for text, want := range map[string]string{"": "", "AA": "\x00", "AA==": "\x00", "AAE": "\x00\x01", "AAE=": "\x00\x01", "AAEC": "\x00\x01\x02", "+/+/": "\xfb\xff\xbf"} {
		got, err := DecodeBase64([]byte(text))
		if err != nil || string(got) != want {
			t.Errorf("%q: %q %v", text, got, err)
		}
	}
	for _, text := range []string{"A", "A=", "A===", "AA=", "AAAAA", "-_-_", "AA\n==", "A A=", "=", "===="} {
		if got, err := DecodeBase64([]byte(text)); err == nil {
			t.Errorf("%q was taken as %q", text, got)
		}
	}
}
