package httpserve

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"

	"domicile/proto"
)

type requestIDKey struct{}

// RequestID gives the id of the request that ctx belongs to, or "".
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// WithRequestID gives a context that carries a request id.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// requestID takes the client's id if it is 1 to 128 printable ASCII
// characters, else draws one of 16 hex digits (spec §2.2).
func requestID(r *http.Request) string {
	if ids := r.Header.Values(proto.HeaderRequestID); len(ids) == 1 && printable(ids[0]) {
		return ids[0]
	}
	return NewRequestID()
}

// NewRequestID draws a request id of 16 hex digits.
func NewRequestID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

func printable(s string) bool {
	if len(s) == 0 || len(s) > 128 {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}
