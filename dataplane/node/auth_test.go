package node

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

func publicPEM(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func sign(t *testing.T, method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
	t.Helper()
	token, err := jwt.NewWithClaims(method, claims).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestDataToken(t *testing.T) {
	n := startNode(t, func(c *Config) { c.Tokens.HTTP = "data-token" })
	n.create("acme", 1)
	for _, c := range []struct {
		authorization string
		status        int
	}{
		{"", 401}, {"Bearer", 401}, {"Bearer ", 401}, {"Bearer wrong", 401}, {"Basic data-token", 401},
		{"Bearer " + adminToken, 401}, {"Bearer data-token", 200}, {"bearer data-token", 200},
	} {
		for _, tenant := range []string{"acme", "missing"} {
			want := c.status
			if want == 200 && tenant == "missing" {
				want = 404
			}
			a := n.want(want, "GET", "/t/"+tenant+"/", "", "Authorization", c.authorization)
			if want == 401 && a.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("no WWW-Authenticate")
			}
		}
	}
	n.want(401, "GET", "/_admin/stats", "", "Authorization", "Bearer data-token")
	n.want(401, "GET", "/_metrics", "", "Authorization", "Bearer data-token")
	if err := n.s.Reload(Tokens{Admin: adminToken, HTTP: "second"}); err != nil {
		t.Fatal(err)
	}
	n.want(401, "GET", "/t/acme/", "", "Authorization", "Bearer data-token")
	n.want(200, "GET", "/t/acme/", "", "Authorization", "Bearer second")
	if strings.Contains(n.audit.String(), "token\":") || strings.Contains(n.audit.String(), "data-token") {
		t.Errorf("a token is in the audit log")
	}
	var line auditEntry
	first, _, _ := strings.Cut(n.audit.String(), "\n")
	if err := json.Unmarshal([]byte(first), &line); err != nil || line.Event != "change" || line.Status != 201 || line.Path != "/_admin/tenants/acme" || line.Peer != "127.0.0.1" || line.RequestID == "" {
		t.Errorf("%v: %s", err, first)
	}
	if !strings.Contains(n.audit.String(), `"event":"refused_token","method":"GET","path":"/t/missing/","http_status":401`) {
		t.Errorf("%s", n.audit.String())
	}
}

func TestAdminOffWithoutToken(t *testing.T) {
	n := startNode(t, func(c *Config) { c.Tokens = Tokens{} })
	n.want(404, "GET", "/_admin/stats", "")
	n.want(404, "PUT", "/_admin/tenants/acme", `{"id":1}`, "Domicile-Holder", holder1)
	n.want(200, "GET", "/_metrics", "")
	n.want(404, "GET", "/t/acme/", "")
}

// keyCase is a key that the node is given and what signs for it.
type keyCase struct {
	name   string
	key    []byte
	method jwt.SigningMethod
	signer any
}

func keyCases(t *testing.T) []keyCase {
	t.Helper()
	rsaKey, err1 := rsa.GenerateKey(rand.Reader, 2048)
	ecKey, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	edPub, edKey, err3 := ed25519.GenerateKey(rand.Reader)
	if err1 != nil || err2 != nil || err3 != nil {
		t.Fatal(err1, err2, err3)
	}
	secret := []byte("a secret of thirty-two bytes ...")
	return []keyCase{
		{"HS256", append(secret, '\n'), jwt.SigningMethodHS256, secret},
		{"RS256", publicPEM(t, &rsaKey.PublicKey), jwt.SigningMethodRS256, rsaKey},
		{"ES256", publicPEM(t, &ecKey.PublicKey), jwt.SigningMethodES256, ecKey},
		{"EdDSA", publicPEM(t, edPub), jwt.SigningMethodEdDSA, edKey},
	}
}

func TestJWT(t *testing.T) {
	n := startNode(t, nil)
	n.create("acme", 1)
	now := time.Now().Unix()
	for _, k := range keyCases(t) {
		if err := n.s.Reload(Tokens{Admin: adminToken, JWTKey: k.key}); err != nil {
			t.Fatal(err)
		}
		good := sign(t, k.method, k.signer, jwt.MapClaims{"tenant": "acme"})
		parts := strings.Split(good, ".")
		extended := jwt.NewWithClaims(k.method, jwt.MapClaims{"tenant": "acme"})
		extended.Header["crit"] = []string{"b64"}
		critical, err := extended.SignedString(k.signer)
		if err != nil {
			t.Fatal(err)
		}
		none := sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, jwt.MapClaims{"tenant": "acme"})
		confused := sign(t, jwt.SigningMethodHS256, k.key, jwt.MapClaims{"tenant": "acme"}) // the public key as a secret
		if k.name == "HS256" {
			confused = sign(t, jwt.SigningMethodHS512, k.signer, jwt.MapClaims{"tenant": "acme"})
		}
		for _, c := range []struct {
			name, token string
			status      int
		}{
			{"a name", good, 200},
			{"a list", sign(t, k.method, k.signer, jwt.MapClaims{"tenant": []string{"globex", "acme"}}), 200},
			{"not expired, valid already", sign(t, k.method, k.signer, jwt.MapClaims{"tenant": "acme", "exp": now + 60, "nbf": now - 60}), 200},
			{"expired", sign(t, k.method, k.signer, jwt.MapClaims{"tenant": "acme", "exp": now - 1}), 401},
			{"not valid yet", sign(t, k.method, k.signer, jwt.MapClaims{"tenant": "acme", "nbf": now + 60}), 401},
			{"an expiry that is no number", sign(t, k.method, k.signer, jwt.MapClaims{"tenant": "acme", "exp": "never"}), 401},
			{"expired long ago", sign(t, k.method, k.signer, jwt.MapClaims{"tenant": "acme", "exp": 0}), 401},
			{"no expiry at all", sign(t, k.method, k.signer, jwt.MapClaims{"tenant": "acme", "exp": nil}), 401},
			{"an extension that is not known", critical, 401},
			{"another tenant", sign(t, k.method, k.signer, jwt.MapClaims{"tenant": "globex"}), 403},
			{"a list without it", sign(t, k.method, k.signer, jwt.MapClaims{"tenant": []string{"globex"}}), 403},
			{"no tenant", sign(t, k.method, k.signer, jwt.MapClaims{"sub": "acme"}), 403},
			{"a number", sign(t, k.method, k.signer, jwt.MapClaims{"tenant": 7}), 403},
			{"a list of lists", sign(t, k.method, k.signer, jwt.MapClaims{"tenant": []any{[]string{"acme"}}}), 403},
			{"no signature", parts[0] + "." + parts[1] + ".", 401},
			{"a cut signature", good[:len(good)-4], 401},
			{"another's claims", parts[0] + "." + strings.Split(confused, ".")[1] + "x." + parts[2], 401},
			{"algorithm none", none, 401},
			{"another algorithm", confused, 401},
			{"nothing", "", 401},
			{"no JWT", "data-token", 401},
		} {
			for _, tenant := range []string{"acme", "missing"} {
				want := c.status
				if tenant == "missing" && want == 200 {
					want = 403
				}
				if a := n.do("GET", "/t/"+tenant+"/", "", "Authorization", "Bearer "+c.token); a.status != want {
					t.Errorf("%s, %s, tenant %s: %d, want %d: %s", k.name, c.name, tenant, a.status, want, a.body)
				}
			}
		}
		n.want(401, "GET", "/_admin/stats", "", "Authorization", "Bearer "+good)
	}
}

func TestJWTKeysThatAreNone(t *testing.T) {
	ecKey, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(ecKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string][]byte{
		"blank":             []byte(" \n"),
		"broken PEM":        []byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"),
		"cut PEM":           []byte("-----BEGIN PUBLIC KEY-----\nAAAA"),
		"a private key":     pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		"a curve too large": publicPEM(t, &ecKey.PublicKey),
		"two keys":          append(publicPEM(t, &ecKey.PublicKey), publicPEM(t, &ecKey.PublicKey)...),
	} {
		if _, err := newGuard(Tokens{JWTKey: key}); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
