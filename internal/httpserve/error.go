package httpserve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"domicile/proto"
)

// Error is a negative answer: {"error":Text,"code":Code} and Fields.
type Error struct {
	Status int
	Code   proto.Code
	Text   string         // what happened and what to do
	Fields map[string]any // further fields of the body
	// RetryAfter in seconds is sent as Retry-After when it is not 0. An
	// answer of 503 always carries one: 1 when this is 0.
	RetryAfter int
	Cause      error // for the log alone, or nil
}

// Errorf makes an Error.
func Errorf(status int, code proto.Code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Text: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string { return e.Text }

func (e *Error) Unwrap() error { return e.Cause }

// WriteError answers e. It must be the first thing written.
func WriteError(w http.ResponseWriter, e *Error) {
	h := w.Header()
	if e.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if after := e.RetryAfter; after > 0 || e.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", strconv.Itoa(max(after, 1)))
	}
	write(w, e.Status, e.Body())
}

// Body is the error as it is sent: error, code, then the further fields by
// name.
func (e *Error) Body() []byte {
	first, err := EncodeJSON(struct {
		Error string     `json:"error"`
		Code  proto.Code `json:"code"`
	}{e.Text, e.Code})
	if err == nil && len(e.Fields) > 0 {
		var rest []byte
		if rest, err = EncodeJSON(e.Fields); err == nil {
			first = append(append(first[:len(first)-len("}\n")], ','), rest[1:]...)
		}
	}
	if err != nil {
		panic(fmt.Sprintf("BUG: encode the error %s: %v", e.Code, err))
	}
	return first
}

// EncodeJSON is json.Marshal for people and programs, not for HTML: < and & stay
// what they are. A newline ends it.
func EncodeJSON(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// WriteJSON answers v, which must be encodable, with a status.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	text, err := EncodeJSON(v)
	if err != nil {
		panic(fmt.Sprintf("BUG: encode %T: %v", v, err))
	}
	write(w, status, text)
}

func write(w http.ResponseWriter, status int, text []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	// A client that has gone away is no concern of the handler.
	_, _ = w.Write(text)
}
