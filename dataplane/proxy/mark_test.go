package proxy

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"
)

var markTime = time.Unix(1_700_000_000, 0)

// line gives the value that m sends for c.
func line(t testing.TB, m *marks, c client, now time.Time) string {
	t.Helper()
	text := string(m.append(nil, c, now))
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
		got, err := there.verify([]byte(value), markTime.Add(59*time.Second))
		if want := (client{addr, 1}); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", value, got, err, want)
		}
		again, err := newMarks("secret").verify([]byte(line(t, there, got, markTime)), markTime)
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
		"negative hops":   addr + " " + mark("secret", client{addr, -1}, markTime.Unix()),
		"no address":      "x " + mark("secret", client{"x", 0}, markTime.Unix()),
		"empty":           "",
		"long":            good + strings.Repeat("=", maxMarkLen),
	} {
		if c, err := m.verify([]byte(value), markTime); err == nil {
			t.Errorf("%s: %q was taken: %+v", name, value, c)
		}
	}
	for _, off := range []time.Duration{markAge + time.Second, -markAge - time.Second} {
		if _, err := m.verify([]byte(good), markTime.Add(off)); err == nil {
			t.Errorf("a mark %v old was taken", off)
		}
	}
	if _, err := newMarks("").verify([]byte(good), markTime); err == nil {
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
	if _, err := m.verify([]byte(before), markTime); err != nil {
		t.Errorf("a mark of the secret before: %v", err)
	}
	if after := line(t, m, client{addr: "192.0.2.7"}, markTime); after == before {
		t.Error("after the reload marks are still made under the old secret")
	}
	m.reload("newer")
	if _, err := m.verify([]byte(before), markTime); err == nil {
		t.Error("a mark of the secret before the last one was taken")
	}
}

func TestMarkIsMadeOncePerAddressAndTime(t *testing.T) {
	m := newMarks("secret")
	c := client{addr: "192.0.2.7"}
	m.append(nil, c, markTime)
	buf := make([]byte, 0, 256)
	if n := testing.AllocsPerRun(100, func() { buf = m.append(buf[:0], c, markTime) }); n != 0 {
		t.Errorf("a mark that was made costs %v allocations", n)
	}
	if line(t, m, c, markTime) == line(t, m, c, markTime.Add(markKept)) {
		t.Error("a mark was kept for longer than markKept")
	}
}

func FuzzMark(f *testing.F) {
	m := newMarks("secret")
	f.Add("192.0.2.7 1700000000.0.AAAA")
	f.Add(line(f, newMarks("other"), client{addr: "::1"}, markTime))
	f.Add(" ..")
	f.Fuzz(func(t *testing.T, value string) {
		if c, err := m.verify([]byte(value), markTime); err == nil {
			t.Errorf("%q was taken for %+v", value, c)
		}
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
		if got, err := there.verify(value, later); err != nil || got != (client{c.addr, c.hops + 1}) {
			t.Fatalf("%s after %v: got %+v, %v", value, later.Sub(at), got, err)
		}
		i := r.IntN(len(value))
		changed := bytes.Clone(value)
		changed[i] ^= 1 << r.IntN(8)
		if got, err := there.verify(changed, at); err == nil {
			t.Errorf("%q, changed at %d, was taken for %+v", changed, i, got)
		}
		cut := value[:r.IntN(len(value))]
		if _, err := there.verify(cut, at); err == nil {
			t.Errorf("%q was taken", cut)
		}
	}
}
