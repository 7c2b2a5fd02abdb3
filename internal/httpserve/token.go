package httpserve

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// Authorized reports whether a request carries the bearer token; with no token
// to ask for, each does. The time it takes tells nothing of the token, its
// length included: digests are compared.
func Authorized(r *http.Request, token string) bool {
	if token == "" {
		return true
	}
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return false
	}
	scheme, given, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	want, have := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(strings.TrimSpace(given)))
	return subtle.ConstantTimeCompare(want[:], have[:]) == 1
}

// refusedToken says what is wrong with a request's token: whether there was one
// is the client's own to know.
func refusedToken(r *http.Request) string {
	if r.Header.Get("Authorization") == "" {
		return "the token is missing: send the header Authorization: Bearer <token> with the server's token (CLI: --token or DOMICILE_TOKEN)"
	}
	return "the token is not the server's: send the header Authorization: Bearer <token> with the server's token (CLI: --token or DOMICILE_TOKEN)"
}
