package proxy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// headerClient names the client beside a request, with the mark of the proxy
// that it came through (G8): "<address> <unix time>.<hops>.<hmac>". hops counts
// the proxies before the one that made the mark.
const headerClient = "Domicile-Client"

const (
	// markAge is how old a mark may be, and how far ahead, clocks differing.
	markAge = 60 * time.Second
	// markKept is for how long a mark that was made is used again: it costs an
	// HMAC per address and this time, not per request.
	markKept = 5 * time.Second
	// maxHops is the number of proxies that a request may have come through.
	// Two are legitimate (one per level of directories); a request with more
	// goes round in a circle.
	maxHops    = 3
	markLabel  = "domicile-client-v1\n"
	markSlots  = 1024
	maxMarkLen = 200
)

var errMark = errors.New("not a mark of this deployment's proxies")

// client is who a request comes from.
type client struct {
	addr string // without a port
	hops int    // proxies that the request came through before this one
}

// marks makes and verifies marks under the shared secret. Safe for concurrent use.
type marks struct {
	secrets atomic.Pointer[markSecrets]
	made    [markSlots]atomic.Pointer[madeMark]
	seen    [markSlots]atomic.Pointer[seenMark]
}

// markSecrets are the secret in force and the one before the last reload, whose
// marks are still taken: proxies are not reloaded at the same instant.
type markSecrets struct{ current, previous string }

type madeMark struct {
	client client
	secret *markSecrets
	until  int64 // Unix seconds
	line   []byte
}

type seenMark struct {
	value  string
	secret *markSecrets
	at     int64 // Unix seconds in the mark
	client client
}

func newMarks(secret string) *marks {
	m := &marks{}
	m.secrets.Store(&markSecrets{current: secret})
	return m
}

// reload puts another secret in force.
func (m *marks) reload(secret string) {
	if old := m.secrets.Load(); old.current != secret {
		m.secrets.Store(&markSecrets{current: secret, previous: old.current})
	}
}

// append adds the header line that names c, with a mark where there is a secret.
func (m *marks) append(dst []byte, c client, now time.Time) []byte {
	secrets := m.secrets.Load()
	entry := &m.made[slotOf(c.addr)]
	if e := entry.Load(); e != nil && e.client == c && e.secret == secrets && now.Unix() < e.until {
		return append(dst, e.line...)
	}
	line := headerClient + ": " + c.addr
	if secrets.current != "" {
		line += " " + mark(secrets.current, c, now.Unix())
	}
	line += "\r\n"
	entry.Store(&madeMark{client: c, secret: secrets, until: now.Add(markKept).Unix(), line: []byte(line)})
	return append(dst, line...)
}

// verify reads the value of an incoming headerClient. It gives an error unless
// one of this deployment's proxies made it within markAge.
func (m *marks) verify(value []byte, now time.Time) (client, error) {
	secrets := m.secrets.Load()
	if secrets.current == "" || len(value) > maxMarkLen {
		return client{}, errMark
	}
	entry := &m.seen[slotOf(string(value))]
	e := entry.Load()
	if e == nil || e.secret != secrets || e.value != string(value) {
		fresh, err := parseMark(string(value), secrets)
		if err != nil {
			return client{}, err
		}
		e = fresh
		entry.Store(e)
	}
	if d := now.Sub(time.Unix(e.at, 0)); d > markAge || d < -markAge {
		return client{}, errMark
	}
	return e.client, nil
}

func parseMark(value string, secrets *markSecrets) (*seenMark, error) {
	addr, given, ok := strings.Cut(value, " ")
	parts := strings.Split(given, ".")
	if !ok || len(parts) != 3 {
		return nil, errMark
	}
	at, err1 := strconv.ParseInt(parts[0], 10, 64)
	hops, err2 := strconv.Atoi(parts[1])
	ip, err3 := netip.ParseAddr(addr)
	if err1 != nil || err2 != nil || err3 != nil || hops < 0 {
		return nil, errMark
	}
	c := client{addr: ip.String(), hops: hops}
	for _, secret := range []string{secrets.current, secrets.previous} {
		if secret != "" && hmac.Equal([]byte(given), []byte(mark(secret, client{addr, hops}, at))) {
			c.hops++
			return &seenMark{value: strings.Clone(value), secret: secrets, at: at, client: c}, nil
		}
	}
	return nil, errMark
}

// mark is "<unix time>.<hops>.<hmac>": HMAC-SHA256 in unpadded base64url over a
// label, the address, the time and the hops.
func mark(secret string, c client, at int64) string {
	text := strconv.FormatInt(at, 10) + "." + strconv.Itoa(c.hops)
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(markLabel + c.addr + "\n" + text))
	return text + "." + base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// slotOf spreads texts over the slots (FNV-1a); that one may chase another out
// of its slot costs an HMAC.
func slotOf(s string) uint32 {
	h := uint32(2166136261)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h % markSlots
}
