package hrana

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzPipeline: any body is refused as a whole, or gives an answer that is JSON, has a
// result for each request, and leaves nothing behind that a client has no baton for.
func FuzzPipeline(f *testing.F) {
	for _, seed := range []string{
		`{"requests":[]}`,
		`{"baton":null,"requests":[{"type":"execute","stmt":{"sql":"select","args":[{"type":"integer","value":"1"}],"want_rows":true}},{"type":"close"}]}`,
		`{"requests":[{"type":"batch","batch":{"steps":[{"stmt":{"sql":"begin"}},{"condition":{"type":"ok","step":0},"stmt":{"sql":"insert"}},{"condition":{"type":"not","cond":{"type":"and","conds":[{"type":"error","step":1},{"type":"is_autocommit"}]}},"stmt":{"sql":"rollback"}}]}}]}`,
		`{"requests":[{"type":"store_sql","sql_id":1,"sql":"a"},{"type":"sequence","sql_id":1},{"type":"describe","sql":"x"},{"type":"close_sql","sql_id":1},{"type":"get_autocommit"}]}`,
		`{"requests":[{"stmt":{"named_args":[{"value":{"base64":"AA==","type":"blob"},"name":"a"}],"sql":"\u00e9\ud83c\udfe0"},"type":"execute"}]}`,
		`{"baton":"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","requests":[]}`,
	} {
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, body []byte, v3 bool) {
		v := V2
		if v3 {
			v = V3
		}
		before := bytes.Clone(body)
		req, err := ParsePipeline(v, body)
		if !bytes.Equal(before, body) {
			t.Fatal("the body was changed")
		}
		if err != nil {
			return
		}
		defer req.Release()
		if !json.Valid(body) {
			t.Fatalf("what is not JSON was taken: %q", body)
		}
		s := newStreams(t, Config{Secret: []byte("fuzz")})
		db := &script{}
		out, err := s.Pipeline(t.Context(), "u", db, req, nil)
		if err != nil {
			if s.Kept() != 0 {
				t.Fatal("a refused request keeps a stream")
			}
			return
		}
		var answer struct {
			Baton   *string
			Results []struct{ Type string }
		}
		if err := json.Unmarshal(out, &answer); err != nil {
			t.Fatalf("%v: %q", err, out)
		}
		if len(answer.Results) != len(req.items) {
			t.Fatalf("%d results for %d requests", len(answer.Results), len(req.items))
		}
		if answer.Baton == nil && (s.Kept() != 0 || db.inTx()) {
			t.Fatal("a closed stream is kept")
		}
	})
}

// FuzzBaton: no text but one that was signed for the unit is taken.
func FuzzBaton(f *testing.F) {
	s, err := newSigner([]byte("fuzz"))
	if err != nil {
		f.Fatal(err)
	}
	good := s.appendBaton(nil, baton{kind: batonKept, a: 7, b: 9}, "u")
	f.Add(good)
	f.Add(good[:10])
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, ok := s.parse(text, "u")
		if ok && !bytes.Equal(s.appendBaton(nil, b, "u"), text) {
			t.Fatalf("%q was taken as %+v", text, b)
		}
		if ok != bytes.Equal(text, good) {
			t.Fatalf("%q: %v", text, ok)
		}
	})
}
