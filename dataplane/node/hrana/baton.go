package hrana

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"sync"
)

// A baton is base64url of
//
//	version (1) ‖ kind ‖ a (8 bytes) ‖ b (8 bytes) ‖ HMAC-SHA256, its first 16 bytes
//
// where the MAC is over what stands before it and the unit's key. Stateless: a is
// the Unix time at which it was given, b a random number that makes each baton new.
// Kept: a is the stream's id, b counts its requests.
const (
	batonVersion   = 1
	batonStateless = 0
	batonKept      = 1
	batonHead      = 2 + 8 + 8
	batonMAC       = 16
	batonSize      = batonHead + batonMAC
)

var batonEncoding = base64.RawURLEncoding.Strict()

type baton struct {
	kind byte
	a, b uint64
}

// signer makes and checks batons under one key.
type signer struct {
	macs sync.Pool // of *batonMACState
}

type batonMACState struct {
	mac hash.Hash
	buf [batonHead + sha256.Size]byte
	raw [batonSize + 2]byte
}

// newSigner derives the key from secret, which nodes that take each other's batons
// have in common; without one the key is random and lasts as long as the process.
func newSigner(secret []byte) (*signer, error) {
	if len(secret) == 0 {
		secret = make([]byte, 32)
		rand.Read(secret)
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "domicile hrana baton v1", 32)
	if err != nil {
		return nil, fmt.Errorf("derive the key of batons: %w", err)
	}
	return &signer{macs: sync.Pool{New: func() any { return &batonMACState{mac: hmac.New(sha256.New, key)} }}}, nil
}

// sum fills st.buf with the head and the MAC behind it.
func (st *batonMACState) sum(head []byte, unit string) []byte {
	st.mac.Reset()
	st.mac.Write(head)
	// Through buf, so that the string does not have to be copied to the heap.
	for from := 0; from < len(unit); {
		n := copy(st.buf[batonHead:], unit[from:])
		st.mac.Write(st.buf[batonHead : batonHead+n])
		from += n
	}
	return st.mac.Sum(st.buf[batonHead:batonHead])[:batonMAC]
}

func (s *signer) appendBaton(dst []byte, b baton, unit string) []byte {
	st := s.macs.Get().(*batonMACState)
	defer s.macs.Put(st)
	head := st.buf[:batonHead]
	head[0], head[1] = batonVersion, b.kind
	binary.BigEndian.PutUint64(head[2:], b.a)
	binary.BigEndian.PutUint64(head[10:], b.b)
	st.sum(head, unit)
	return batonEncoding.AppendEncode(dst, st.buf[:batonSize])
}

// parse checks the MAC before it looks at anything else.
func (s *signer) parse(text []byte, unit string) (baton, bool) {
	if len(text) != batonEncoding.EncodedLen(batonSize) {
		return baton{}, false
	}
	st := s.macs.Get().(*batonMACState)
	defer s.macs.Put(st)
	n, err := batonEncoding.Decode(st.raw[:], text)
	if err != nil || n != batonSize {
		return baton{}, false
	}
	head := st.raw[:batonHead]
	if !hmac.Equal(st.sum(head, unit), st.raw[batonHead:batonSize]) || head[0] != batonVersion || head[1] > batonKept {
		return baton{}, false
	}
	return baton{kind: head[1], a: binary.BigEndian.Uint64(head[2:]), b: binary.BigEndian.Uint64(head[10:])}, true
}
