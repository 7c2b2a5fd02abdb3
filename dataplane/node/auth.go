package node

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"github.com/golang-jwt/jwt/v5"

	"domicile/internal/httpserve"
)

// guard checks tokens. It is immutable; Reload replaces it.
type guard struct {
	admin *[sha256.Size]byte // nil: the admin protocol is off
	data  *[sha256.Size]byte
	key   any // what JWTs are verified with; nil: none are taken
	jwt   *jwt.Parser
}

func newGuard(t Tokens) (*guard, error) {
	g := &guard{admin: digest(t.Admin), data: digest(t.HTTP)}
	if len(t.JWTKey) == 0 {
		return g, nil
	}
	key, method, err := parseJWTKey(t.JWTKey)
	if err != nil {
		return nil, fmt.Errorf("JWT key: %w", err)
	}
	g.key = key
	// One method, chosen by the key's kind and never by the token: a token cannot have a
	// public key taken for a secret, nor ask for none.
	g.jwt = jwt.NewParser(jwt.WithValidMethods([]string{method}), jwt.WithStrictDecoding())
	return g, nil
}

func digest(token string) *[sha256.Size]byte {
	if token == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(token))
	return &sum
}

// parseJWTKey tells a PEM public key from a secret, and which method it is for.
func parseJWTKey(text []byte) (key any, method string, err error) {
	text = bytes.TrimSpace(text)
	if !bytes.Contains(text, []byte("-----BEGIN ")) {
		if len(text) == 0 {
			return nil, "", errors.New("the file is empty")
		}
		return text, jwt.SigningMethodHS256.Alg(), nil
	}
	block, rest := pem.Decode(text)
	if block == nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, "", errors.New("not one PEM block")
	}
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	default:
		return nil, "", fmt.Errorf("a PEM block %q is not a public key", block.Type)
	}
	if err != nil {
		return nil, "", err
	}
	switch k := key.(type) {
	case *rsa.PublicKey:
		return k, jwt.SigningMethodRS256.Alg(), nil
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() {
			return nil, "", errors.New("ES256 needs a key on P-256")
		}
		return k, jwt.SigningMethodES256.Alg(), nil
	case ed25519.PublicKey:
		return k, jwt.SigningMethodEdDSA.Alg(), nil
	}
	return nil, "", fmt.Errorf("a key of type %T is not supported: use RSA, ECDSA P-256 or Ed25519", key)
}

// bearer is the token of an Authorization header, nil where there is none.
func bearer(header []byte) []byte {
	scheme, token, ok := bytes.Cut(header, []byte{' '})
	if !ok || !bytes.EqualFold(scheme, []byte("bearer")) {
		return nil
	}
	return bytes.TrimSpace(token)
}

// same compares in a time that tells nothing of either token.
func same(token []byte, want *[sha256.Size]byte) bool {
	if want == nil || len(token) == 0 {
		return false
	}
	sum := sha256.Sum256(token)
	return subtle.ConstantTimeCompare(sum[:], want[:]) == 1
}

func errUnauthorized(text string) *httpserve.Error {
	return httpserve.Errorf(401, "unauthorized", "%s", text)
}

// admitData checks the token of a data request for a tenant, existing or not.
func (g *guard) admitData(authorization, tenant []byte) *httpserve.Error {
	if g.data == nil && g.key == nil {
		return nil
	}
	token := bearer(authorization)
	if same(token, g.data) {
		return nil
	}
	if g.key == nil || len(token) == 0 {
		return errUnauthorized("this needs the header Authorization: Bearer <token> with the node's data token or a JWT that it takes")
	}
	claims := jwt.MapClaims{}
	parsed, err := g.jwt.ParseWithClaims(string(token), claims, func(*jwt.Token) (any, error) { return g.key, nil })
	if err != nil || beyond(parsed, claims) {
		return errUnauthorized("the token was not accepted: it is malformed, expired, not valid yet, or not signed with the node's key")
	}
	if !namesTenant(claims["tenant"], string(tenant)) {
		return httpserve.Errorf(403, "forbidden", "the token's tenant claim does not name this tenant")
	}
	return nil
}

// beyond tells of what the library lets pass: an expiry of 0, which it takes for none,
// and extensions that a verifier must know (RFC 7515 §4.1.11).
func beyond(token *jwt.Token, claims jwt.MapClaims) bool {
	_, critical := token.Header["crit"]
	return critical || claims["exp"] == 0.0
}

// namesTenant tells whether a claim, a name or a list of names, has the tenant.
func namesTenant(claim any, tenant string) bool {
	switch c := claim.(type) {
	case string:
		return c == tenant
	case []any:
		return slices.Contains(c, any(tenant))
	}
	return false
}

// admitAdmin checks the token of an admin request. Without a token the admin protocol
// is off, which looks as if it did not exist.
func (g *guard) admitAdmin(authorization []byte) *httpserve.Error {
	if g.admin == nil {
		return errUnknownRoute()
	}
	if !same(bearer(authorization), g.admin) {
		return errUnauthorized("this needs the header Authorization: Bearer <token> with the node's admin token")
	}
	return nil
}

func errUnknownRoute() *httpserve.Error {
	return httpserve.Errorf(404, "unknown_route", "there is nothing at this path; this is a node and serves the data API of its tenants under /t/<tenant>/ "+
		"(query, batch, changes, v2/pipeline, v3/pipeline, v3/cursor), /_health, /_ready and /_metrics, and /_admin/ where it has an admin token")
}
