package httpserve

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
)

type inner struct {
	Deep string `json:"deep"`
}

type sample struct {
	Name  *string  `json:"name,omitempty"`
	Count uint32   `json:"count,omitempty"`
	List  []string `json:"list"`
	Plain string
	inner
}

var bodies = []struct {
	text string
	ok   bool
}{
	{``, true}, {`{}`, true}, {` { } `, true}, {`{"name":"x","count":3,"list":["a"],"deep":"d"}`, true}, {`{"name":""}`, true},
	{` `, false}, {`[]`, false}, {`null`, false}, {`1`, false}, {`{`, false}, {`{}{}`, false}, {`{} x`, false}, {`{},`, false},
	{`{"name":"a","name":"b"}`, false}, {`{"Name":"a"}`, false}, {`{"NAME":"a"}`, false}, {`{"name":null}`, false},
	{`{"count":null}`, false}, {`{"count":-1}`, false}, {`{"count":1e2}`, false}, {`{"count":"1"}`, false}, {`{"count":4294967296}`, false},
	{`{"list":{}}`, false}, {`{"other":1}`, false}, {`{"inner":{}}`, false}, {`{"Plain":"x"}`, false}, {"{\"name\":\"\xff\"}", false},
	{`{"name":"a",}`, false}, {`{name:"a"}`, false}, {`{'name':"a"}`, false}, {"\ufeff{}", false}, {`{"n\u0061me":"a","name":"b"}`, false},
	{`{"\u006eame":"a"}`, true}, {strings.Repeat(`{"list":`, 500), false},
}

func TestOnlyWhatCanBeReadInOneWayIsDecoded(t *testing.T) {
	for _, b := range bodies {
		err := DecodeObject([]byte(b.text), new(sample))
		if (err == nil) != b.ok {
			t.Errorf("%.60q: %v, want ok %v", b.text, err, b.ok)
		}
		var e *Error
		if err != nil && (!errors.As(err, &e) || e.Status != 400) {
			t.Errorf("%.60q: %v is no 400", b.text, err)
		}
	}
}

// FuzzDecodeObject: what is taken means the same when it is written and read
// again.
func FuzzDecodeObject(f *testing.F) {
	for _, b := range bodies {
		f.Add([]byte(b.text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var first, second sample
		if DecodeObject(body, &first) != nil || len(body) == 0 {
			return
		}
		var loose map[string]json.RawMessage
		if err := json.Unmarshal(body, &loose); err != nil {
			t.Fatalf("%q was taken and is no JSON object: %v", body, err)
		}
		for name := range loose {
			if !fieldNames(&first)[name] {
				t.Fatalf("%q was taken with the field %q", body, name)
			}
		}
		text, err := json.Marshal(loose)
		if err != nil {
			t.Fatal(err)
		}
		if err := DecodeObject(text, &second); err != nil || !reflect.DeepEqual(first, second) {
			t.Fatalf("%q is %+v, written again %+v: %v", body, first, second, err)
		}
	})
}

func TestABodyOverTheLimitIsRefused(t *testing.T) {
	for size, ok := range map[int]bool{0: true, 10: true, 11: false, 1000: false} {
		for _, chunked := range []bool{false, true} {
			r := httptest.NewRequest("PUT", "/", strings.NewReader(strings.Repeat("x", size)))
			if chunked {
				r.ContentLength = -1
			}
			body, err := ReadBody(r, 10)
			var e *Error
			if ok != (err == nil) || ok && len(body) != size || !ok && (!errors.As(err, &e) || e.Status != 413) {
				t.Errorf("%d bytes, chunked %v: %d bytes, %v", size, chunked, len(body), err)
			}
		}
	}
}

// TestANumberOutOfRangeIsToldWithItsRange names the field as a client knows it.
func TestANumberOutOfRangeIsToldWithItsRange(t *testing.T) {
	type holder struct {
		Term uint64 `json:"term"`
	}
	var v struct {
		holder
		Replicas uint32 `json:"replicas"`
	}
	for body, want := range map[string]string{
		`{"replicas":-1}`:  `field "replicas" is a number from 0 on, without a fraction, that fits into 32 bits; it cannot be -1`,
		`{"term":-1}`:      `field "term" is a number from 0 on, without a fraction, that fits into 64 bits; it cannot be -1`,
		`{"replicas":"x"}`: `field "replicas" cannot be a string`,
	} {
		if err := DecodeObject([]byte(body), &v); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}
