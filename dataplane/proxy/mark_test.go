package proxy

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
)

var markTime = time.Unix(1_700_000_000, 0)

// acmes is a request that marks are made for.
var acmes = markedRequest{id: []byte("a-request"), tenant: []byte("acme")}

// requestOf is what the mark is for that a server got with r.
func requestOf(r *http.Request) markedRequest {
	return markedRequest{id: []byte(r.Header.Get("X-Request-Id")), tenant: tenantOfPath([]byte(r.URL.Path))}
}

// line gives the value that m sends for c, as the client of acmes.
func line(t testing.TB, m *marks, c client, now time.Time) string {
	t.Helper()
	text := string(m.append(nil, c, acmes, now))
	value, ok := strings.CutPrefix(text, headerClient+": ")
	if !ok || !strings.HasSuffix(value, "\r\n") {
		t.Fatalf("got %q, want a header line", text)
	}
	return strings.TrimSuffix(value, "\r\n")
}

func TestG8MarkNamesTheClientToTheNextProxy(t *testing.T) {
	here, there := newMarks("secret"), newMarks("secret")
	for _, addr := range []string{"192.0.2.7", "2001:db8::7", "::1"} {
		value := line(t, here, client{addr: addr}, markTime)
		got, err := there.verify([]byte(value), acmes, markTime.Add(59*time.Second))
		if want := (client{addr, 1}); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", value, got, err, want)
		}
		again, err := newMarks("secret").verify([]byte(line(t, there, got, markTime)), acmes, markTime)
		if want := (client{addr, 2}); err != nil || again != want {
			t.Errorf("a second hop: got %+v, %v, want %+v", again, err, want)
		}
	}
}

func TestG8MarkThatIsNotRightMeansNothing(t *testing.T) {
	m := newMarks("secret")
	good := line(t, m, client{addr: "192.0.2.7"}, markTime)
	addr, text, _ := strings.Cut(good, " ")
	parts := strings.Split(text, ".")
	for name, value := range map[string]string{
		"another address": "192.0.2.8 " + text,
		"another time":    addr + " 1700000001." + parts[1] + "." + parts[2],
		"more hops":       addr + " " + parts[0] + ".1." + parts[2],
		"cut short":       good[:len(good)-1],
		"no mark":         addr,
		"another secret":  line(t, newMarks("other"), client{addr: "192.0.2.7"}, markTime),
		"negative hops":   line(t, m, client{addr, -1}, markTime),
		"no address":      line(t, m, client{addr: "x"}, markTime),
		"empty":           "",
		"long":            good + strings.Repeat("=", maxMarkLen),
	} {
		if c, err := m.verify([]byte(value), acmes, markTime); err == nil {
			t.Errorf("%s: %q was taken: %+v", name, value, c)
		}
	}
	for _, off := range []time.Duration{markAge + time.Second, -markAge - time.Second} {
		if _, err := m.verify([]byte(good), acmes, markTime.Add(off)); err == nil {
			t.Errorf("a mark %v old was taken", off)
		}
	}
	if _, err := newMarks("").verify([]byte(good), acmes, markTime); err == nil {
		t.Error("a proxy without a secret took a mark")
	}
	if got := line(t, newMarks(""), client{addr: "192.0.2.7"}, markTime); got != "192.0.2.7" {
		t.Errorf("without a secret: got %q, want the address alone", got)
	}
}

func TestMarksSurviveAChangeOfTheSecret(t *testing.T) {
	m := newMarks("old")
	before := line(t, m, client{addr: "192.0.2.7"}, markTime)
	m.reload("new")
	if _, err := m.verify([]byte(before), acmes, markTime); err != nil {
		t.Errorf("a mark of the secret before: %v", err)
	}
	if after := line(t, m, client{addr: "192.0.2.7"}, markTime); after == before {
		t.Error("after the reload marks are still made under the old secret")
	}
	m.reload("newer")
	if _, err := m.verify([]byte(before), acmes, markTime); err == nil {
		t.Error("a mark of the secret before the last one was taken")
	}
}

// TestG8MarkIsGoodForOneRequestAlone: for its id and its tenant, as it was made, and it is
// known again once a token was refused under it.
func TestG8MarkIsGoodForOneRequestAlone(t *testing.T) {
	m := newMarks("secret")
	value := []byte(line(t, m, client{addr: "192.0.2.7"}, markTime))
	for name, other := range map[string]markedRequest{
		"another request":    {id: []byte("another"), tenant: acmes.tenant},
		"another tenant":     {id: acmes.id, tenant: []byte("beta")},
		"no tenant's":        {id: acmes.id},
		"parted differently": {id: []byte("a-request\nac"), tenant: []byte("me")},
	} {
		if c, err := m.verify(value, other, markTime); err == nil {
			t.Errorf("%s: taken for %+v", name, c)
		}
	}
	next := []byte(line(t, m, client{addr: "192.0.2.7"}, markTime))
	if bytes.Equal(value, next) {
		t.Error("two attempts have the same mark")
	}
	for i, want := range []bool{false, true, true} {
		if got := m.spent.spend(value); got != want {
			t.Errorf("refused for the %d. time: spent %v", i+1, got)
		}
	}
	if m.spent.spend(next) {
		t.Error("a mark that was never refused a token is spent")
	}
}

func TestSpentMarksAreBounded(t *testing.T) {
	m := newMarks("secret")
	mark := func(i int) []byte {
		var sum markSum
		binary.LittleEndian.PutUint64(sum[:], uint64(i))
		return markEncoding.AppendEncode([]byte("192.0.2.7 1.0."), sum[:])
	}
	const more = 100
	for i := range maxSpent + more {
		m.spent.spend(mark(i))
	}
	for i := more; i < maxSpent+more; i++ {
		if !m.spent.spend(mark(i)) {
			t.Fatalf("mark %d was forgotten", i)
		}
	}
	if n := len(m.spent.seen); n != maxSpent || len(m.spent.ring) != maxSpent {
		t.Errorf("%d marks are remembered, and %d in their order", n, len(m.spent.ring))
	}
	if m.spent.spend(mark(0)) {
		t.Error("the oldest mark is remembered beyond the bound")
	}
}

// TestMarksCostNoMemory, to make and, for an address that was heard of, to verify.
func TestMarksCostNoMemory(t *testing.T) {
	m := newMarks("secret")
	c := client{addr: "192.0.2.7"}
	buf := make([]byte, 0, 256)
	value := []byte(line(t, m, c, markTime))
	for name, fn := range map[string]func(){
		"made": func() { buf = m.append(buf[:0], c, acmes, markTime) },
		"verified": func() {
			if _, err := m.verify(value, acmes, markTime); err != nil {
				t.Error(err)
			}
		},
	} {
		if n := testing.AllocsPerRun(1000, fn); n >= 1 { // the race detector has pools lose what they hold
			t.Errorf("a mark that is %s costs %v allocations", name, n)
		}
	}
}

func BenchmarkMark(b *testing.B) {
	m := newMarks("secret")
	c := client{addr: "192.0.2.7"}
	buf := make([]byte, 0, 256)
	value := []byte(line(b, m, c, markTime))
	b.Run("made", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf = m.append(buf[:0], c, acmes, markTime)
		}
	})
	b.Run("verified", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := m.verify(value, acmes, markTime); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func FuzzMark(f *testing.F) {
	m := newMarks("secret")
	f.Add("192.0.2.7 1700000000.0.AAAA", "id", "acme")
	f.Add(line(f, newMarks("other"), client{addr: "::1"}, markTime), "a-request", "acme")
	f.Add(" ..", "", "")
	good := line(f, m, client{addr: "192.0.2.7"}, markTime)
	f.Add(good, "a-request", "beta")
	f.Add(good, "another", "acme")
	f.Fuzz(func(t *testing.T, value, id, tenant string) {
		r := markedRequest{[]byte(id), []byte(tenant)}
		right := value == good && id == string(acmes.id) && tenant == string(acmes.tenant)
		if c, err := m.verify([]byte(value), r, markTime); (err == nil) != right {
			t.Errorf("%q for %q of %q: %+v, %v", value, id, tenant, c, err)
		}
		m.spent.spend([]byte(value)) // whatever it is: it is no more than remembered
	})
}

// TestG8NoByteOfAMarkCanBeChanged, at whatever time and hops it was made; and as it was
// made it holds for markAge.
func TestG8NoByteOfAMarkCanBeChanged(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for range 200 {
		c := client{addr: netip.AddrFrom4([4]byte{byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())}).String(), hops: r.IntN(maxHops)}
		at := markTime.Add(time.Duration(r.IntN(1e6)) * time.Second)
		value := []byte(line(t, newMarks("secret"), c, at))
		there := newMarks("secret")
		later := at.Add(time.Duration(r.Int64N(int64(2*markAge))) - markAge)
		if got, err := there.verify(value, acmes, later); err != nil || got != (client{c.addr, c.hops + 1}) {
			t.Fatalf("%s after %v: got %+v, %v", value, later.Sub(at), got, err)
		}
		i := r.IntN(len(value))
		changed := bytes.Clone(value)
		changed[i] ^= 1 << r.IntN(8)
		if got, err := there.verify(changed, acmes, at); err == nil {
			t.Errorf("%q, changed at %d, was taken for %+v", changed, i, got)
		}
		cut := value[:r.IntN(len(value))]
		if _, err := there.verify(cut, acmes, at); err == nil {
			t.Errorf("%q was taken", cut)
		}
	}
}
