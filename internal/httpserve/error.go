package httpserve

import (
	"encoding/json"
	"fmt"
	"maps"
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
	body := make(map[string]any, len(e.Fields)+2)
	maps.Copy(body, e.Fields)
	body["error"], body["code"] = e.Text, e.Code
	WriteJSON(w, e.Status, body)
}

// WriteJSON answers v, which must be encodable, with a status.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("BUG: encode %T: %v", v, err))
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)+1))
	w.WriteHeader(status)
	// A client that has gone away is no concern of the handler.
	_, _ = w.Write(append(text, '\n'))
}
