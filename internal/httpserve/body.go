package httpserve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"domicile/proto"
)

// maxDiscard is how much of a body that is too large is read all the same: a
// client that is still writing when the connection closes may lose the answer.
const maxDiscard = 4 << 20

// ReadBody reads a request's body of at most limit bytes: 413 beyond.
func ReadBody(r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, tooLarge(r, limit)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err != nil {
		return nil, &Error{Status: http.StatusBadRequest, Code: proto.CodeBadRequest,
			Text: "the body could not be read to its end", Cause: err}
	}
	if int64(len(body)) > limit {
		return nil, tooLarge(r, limit)
	}
	return body, nil
}

func tooLarge(r *http.Request, limit int64) error {
	_, _ = io.CopyN(io.Discard, r.Body, maxDiscard)
	return Errorf(http.StatusRequestEntityTooLarge, proto.CodeBodyTooLarge, "the body is larger than %d bytes", limit)
}

// DecodeObject fills the struct that v points to from a JSON object: 400 for
// anything that could be read in two ways, or not at all (spec §2.2): not
// UTF-8, not an object, an unknown field, one field twice or in another case,
// a null, something after the object. An empty body is {}.
func DecodeObject(body []byte, v any) error {
	if len(body) == 0 {
		return nil
	}
	if err := decodeObject(body, v); err != nil {
		return Errorf(http.StatusBadRequest, proto.CodeBadRequest, "the body is not as it should be: %v", err)
	}
	return nil
}

func decodeObject(body []byte, v any) error {
	if !utf8.Valid(body) {
		return errors.New("it is not UTF-8")
	}
	if err := checkObject(body, fieldNames(v)); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) && kind.Field != "" {
			// A field of an embedded struct is told with that struct's name.
			field := kind.Field[strings.LastIndexByte(kind.Field, '.')+1:]
			if strings.HasPrefix(kind.Value, "number") && strings.HasPrefix(kind.Type.Kind().String(), "uint") {
				return fmt.Errorf("field %q is a number from 0 on, without a fraction, that fits into %d bits; it cannot be %s",
					field, kind.Type.Bits(), strings.TrimPrefix(kind.Value, "number "))
			}
			return fmt.Errorf("field %q cannot be a %s", field, kind.Value)
		}
		return err
	}
	return nil
}

// checkObject refuses what encoding/json would let pass in silence: a field
// given twice (the last wins), in another case, or as null (left as it was).
func checkObject(body []byte, known map[string]bool) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return errors.New("it is not a JSON object")
	}
	seen := make(map[string]bool)
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return fmt.Errorf("it is not JSON: %w", err)
		}
		name, _ := t.(string) // a key is always a string
		switch {
		case !known[name]:
			return fmt.Errorf("unknown field %q", name)
		case seen[name]:
			return fmt.Errorf("field %q is given twice", name)
		}
		seen[name] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return fmt.Errorf("it is not JSON: %w", err)
		}
		if string(value) == "null" {
			return fmt.Errorf("field %q is null; leave it out instead", name)
		}
	}
	if _, err := dec.Token(); err != nil {
		return fmt.Errorf("it is not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the object")
	}
	return nil
}
