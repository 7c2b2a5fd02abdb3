package controlplane

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"sync/atomic"
)

// sealLabel makes the key of seals differ from every other use of the shared secret.
const sealLabel = "domicile-seal-v1"

var errSeal = errors.New("it was not sealed under this deployment's --shared-secret; all control servers and proxies have the same one")

// seals close secrets that pass from one group to another through proxies, which relay
// them and may not read them (N5): AES-256-GCM under a key derived from the shared secret.
// Safe for concurrent use.
type seals struct{ keys atomic.Pointer[sealKeys] }

// sealKeys are the key in force and the one before the last reload, which is still taken:
// servers are not reloaded at the same instant.
type sealKeys struct {
	secret   string
	current  cipher.AEAD
	previous cipher.AEAD
}

func newSeals(secret string) *seals {
	s := &seals{}
	s.keys.Store(&sealKeys{secret: secret, current: sealKey(secret)})
	return s
}

// reload puts another secret in force.
func (s *seals) reload(secret string) {
	if old := s.keys.Load(); old.secret != secret {
		s.keys.Store(&sealKeys{secret: secret, current: sealKey(secret), previous: old.current})
	}
}

func sealKey(secret string) cipher.AEAD {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(sealLabel))
	block, err := aes.NewCipher(h.Sum(nil))
	if err != nil {
		panic("BUG: a SHA-256 is no AES-256 key: " + err.Error())
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic("BUG: AES has no GCM: " + err.Error())
	}
	return aead
}

// seal closes text for one use, which open names again; "" stays "".
func (s *seals) seal(text, use string) string {
	if text == "" {
		return ""
	}
	aead := s.keys.Load().current
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(text)+aead.Overhead())
	_, _ = rand.Read(nonce) // never fails (crypto/rand)
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nonce, nonce, []byte(text), []byte(use)))
}

// open gives what was sealed for a use.
func (s *seals) open(sealed, use string) (string, error) {
	if sealed == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return "", errSeal
	}
	keys := s.keys.Load()
	for _, aead := range []cipher.AEAD{keys.current, keys.previous} {
		if aead == nil || len(raw) < aead.NonceSize() {
			continue
		}
		if text, err := aead.Open(nil, raw[:aead.NonceSize()], raw[aead.NonceSize():], []byte(use)); err == nil {
			return string(text), nil
		}
	}
	return "", errSeal
}
