package proxy

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// headerClient names the client beside a request, with the mark of the proxy
// that it came through (G8): "<address> <unix time>.<hops>.<hmac>". hops counts
// the proxies before the one that made the mark. hmac is, in unpadded base64url, 8 random
// bytes and an HMAC-SHA256 over all of that, the request's id and its tenant: each attempt
// has a mark of its own, which is good for nothing else.
const headerClient = "Domicile-Client"

const (
	// markAge is how old a mark may be, and how far ahead, clocks differing.
	markAge = 60 * time.Second
	// maxHops is the number of proxies that a request may have come through.
	// Two are legitimate (one per level of directories); a request with more
	// goes round in a circle.
	maxHops    = 3
	markLabel  = "domicile-client-v2\n"
	maxMarkLen = 200
	// addrSlots is the number of clients' addresses that are kept as they were read.
	addrSlots = 1024
	nonceSize = 8
)

var (
	errMark      = errors.New("not a mark of this deployment's proxies")
	markEncoding = base64.RawURLEncoding.Strict() // a mark has one spelling
)

// client is who a request comes from.
type client struct {
	addr string // without a port
	hops int    // proxies that the request came through before this one
}

// markedRequest is what a mark is good for.
type markedRequest struct {
	id     []byte // X-Request-Id
	tenant []byte // that the target names; empty for what is no tenant's
}

// marks makes and verifies marks under the shared secret, and knows those that were
// refused a token. Safe for concurrent use; making and verifying one takes no lock and, for
// an address that was heard of, no memory.
type marks struct {
	keys  atomic.Pointer[markKeys]
	addrs [addrSlots]atomic.Pointer[readAddr]
	spent spentMarks
}

// markKeys are the secret in force and the one before the last reload, whose
// marks are still taken: proxies are not reloaded at the same instant. nil: no secret.
type markKeys struct{ current, previous *markKey }

// markKey computes HMACs under one secret.
type markKey struct {
	secret string
	macs   sync.Pool // of *markMAC
}

// markMAC is a computation, and the memory that it needs.
type markMAC struct {
	hash hash.Hash
	text []byte // what is signed; nonce and HMAC behind it
}

// readAddr is a client's address as it stood in a mark.
type readAddr struct{ given, addr string }

func newMarkKey(secret string) *markKey {
	if secret == "" {
		return nil
	}
	k := &markKey{secret: secret}
	k.macs.New = func() any { return &markMAC{hash: hmac.New(sha256.New, []byte(secret))} }
	return k
}

func newMarks(secret string) *marks {
	m := &marks{}
	m.keys.Store(&markKeys{current: newMarkKey(secret)})
	return m
}

// reload puts another secret in force.
func (m *marks) reload(secret string) {
	old := m.keys.Load().current
	if next := newMarkKey(secret); next == nil && old != nil || next != nil && (old == nil || old.secret != secret) {
		m.keys.Store(&markKeys{current: next, previous: old})
	}
}

// append adds the header line that names c as the client of r, with a mark where there is
// a secret.
func (m *marks) append(dst []byte, c client, r markedRequest, now time.Time) []byte {
	dst = append(append(dst, headerClient...), ": "...)
	signed := len(dst)
	dst = append(dst, c.addr...)
	if key := m.keys.Load().current; key != nil {
		dst = strconv.AppendInt(append(dst, ' '), now.Unix(), 10)
		dst = strconv.AppendInt(append(dst, '.'), int64(c.hops), 10)
		dst = key.appendSum(append(dst, '.'), dst[signed:], r)
	}
	return append(dst, "\r\n"...)
}

// verify reads the value of r's headerClient. It gives an error unless one of this
// deployment's proxies made it for r, within markAge.
func (m *marks) verify(value []byte, r markedRequest, now time.Time) (client, error) {
	keys := m.keys.Load()
	signed, sum := cutSum(value)
	addr, text, ok := bytes.Cut(signed, space)
	at, before, _ := bytes.Cut(text, dot)
	if keys.current == nil || !ok || len(value) > maxMarkLen {
		return client{}, errMark
	}
	made, err1 := strconv.ParseInt(string(at), 10, 64)
	hops, err2 := strconv.Atoi(string(before))
	if err1 != nil || err2 != nil || hops < 0 {
		return client{}, errMark
	}
	if d := now.Sub(time.Unix(made, 0)); d > markAge || d < -markAge {
		return client{}, errMark
	}
	if !keys.current.signs(signed, sum, r) && !keys.previous.signs(signed, sum, r) {
		return client{}, errMark
	}
	name, ok := m.addrOf(addr)
	if !ok {
		return client{}, errMark
	}
	return client{addr: name, hops: hops + 1}, nil
}

// cutSum parts a mark's last field from what it signs.
func cutSum(value []byte) (signed, sum []byte) {
	i := bytes.LastIndexByte(value, '.')
	if i < 0 {
		return nil, nil
	}
	return value[:i], value[i+1:]
}

// addrOf gives an address that stood in a mark in its canonical form.
func (m *marks) addrOf(given []byte) (addr string, ok bool) {
	slot := &m.addrs[slotOf(given)]
	if a := slot.Load(); a != nil && a.given == string(given) {
		return a.addr, true
	}
	ip, err := netip.ParseAddr(string(given))
	if err != nil {
		return "", false
	}
	a := &readAddr{given: string(given), addr: ip.String()}
	slot.Store(a)
	return a.addr, true
}

// slotOf spreads addresses over the slots (FNV-1a); that one may chase another out
// of its slot costs reading it again.
func slotOf(addr []byte) uint32 {
	h := uint32(2166136261)
	for _, b := range addr {
		h = (h ^ uint32(b)) * 16777619
	}
	return h % addrSlots
}

// appendSum appends the last field of a mark of r that begins with signed.
func (k *markKey) appendSum(dst, signed []byte, r markedRequest) []byte {
	var sum markSum
	binary.LittleEndian.PutUint64(sum[:], rand.Uint64())
	k.complete(&sum, signed, r)
	return markEncoding.AppendEncode(dst, sum[:])
}

// signs tells whether sum is what appendSum could have appended; no key has.
func (k *markKey) signs(signed, sum []byte, r markedRequest) bool {
	given, ok := parseSum(sum)
	if k == nil || !ok {
		return false
	}
	want := given
	k.complete(&want, signed, r)
	return hmac.Equal(given[:], want[:])
}

// complete puts the HMAC behind the random bytes of sum.
func (k *markKey) complete(sum *markSum, signed []byte, r markedRequest) {
	m := k.macs.Get().(*markMAC)
	defer k.macs.Put(m)
	text := append(append(m.text[:0], markLabel...), sum[:nonceSize]...)
	text = append(append(text, signed...), '\n')
	text = append(append(append(text, r.id...), '\n'), r.tenant...)
	m.hash.Reset()
	m.hash.Write(text)
	m.text = m.hash.Sum(text[:0])
	copy(sum[nonceSize:], m.text)
}
