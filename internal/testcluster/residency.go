package testcluster

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"domicile/dataplane/node/replica"
	"domicile/fsm"
	"domicile/internal/netfault"
	"domicile/proto"
)

// Residency of every byte (I2): the tap reads what nodes of different regions send each
// other, and judge compares the units whose bytes it saw with what was going on: a move
// that named the other region, or a read replica there.

// span is a unit and two nodes: the one that is followed, and the one that follows.
type span struct{ unit, from, to string }

// window is a time. No end: it goes on.
type window struct{ begin, end time.Time }

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// tap reads the replication connections between nodes of different regions.
type tap struct {
	mu     sync.Mutex
	region map[string]string // of each node's process
	conns  map[uint64]*tapped
	seen   map[span][]window // when bytes of a unit passed; pauses of less than near are none
	judged map[string]int    // windows of each unit that were judged
	wrong  []string
}

// near joins what was seen to one window.
const near = 100 * time.Millisecond

func newTap() *tap {
	return &tap{region: map[string]string{}, conns: map[uint64]*tapped{}, seen: map[span][]window{}, judged: map[string]int{}}
}

// lives says which region a node is in.
func (t *tap) lives(node, region string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.region[node] = region
}

// on has a way looked at.
func (t *tap) on(from, to string, w *netfault.Way) {
	w.Tap(func(number uint64, d netfault.Direction, b []byte) { t.look(from, to, number, d, b) })
}

// tapped is one connection: the follower dials.
type tapped struct {
	follower, source string
	units            map[uint32]string // by their numbers on the connection
	ways             [2]tappedWay
}

type tappedWay struct {
	begun bool   // the HTTP head that each direction begins with is over
	rest  []byte // that is no whole frame yet
}

func (t *tap) look(follower, source string, number uint64, d netfault.Direction, b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	near, far := t.region[follower], t.region[source]
	if b == nil || near == "" || far == "" || near == far {
		delete(t.conns, number) // it has ended, or does not cross regions
		return
	}
	c := t.conns[number]
	if c == nil {
		c = &tapped{follower: follower, source: source, units: map[uint32]string{}}
		t.conns[number] = c
	}
	w := &c.ways[d]
	w.rest = append(w.rest, b...)
	if err := t.read(c, w, d); err != nil && len(t.wrong) < maxWrong {
		t.wrong = append(t.wrong, fmt.Sprintf("what %s and %s send each other: %v", follower, source, err))
	}
}

// read takes heads and whole frames off what a way has brought.
func (t *tap) read(c *tapped, w *tappedWay, d netfault.Direction) error {
	if !w.begun {
		end := bytes.Index(w.rest, []byte("\r\n\r\n"))
		if end < 0 {
			return nil
		}
		if line, _, _ := strings.Cut(string(w.rest[:end]), "\r\n"); d == netfault.Forward && !strings.HasPrefix(line, "GET "+replica.Path+" ") {
			return fmt.Errorf("a request that is not to follow: %q", line)
		}
		w.begun, w.rest = true, w.rest[end+4:]
	}
	for {
		f, rest, err := nextFrame(w.rest)
		if err != nil || f == nil {
			return err
		}
		w.rest = rest
		if f.kind == frameFollow {
			c.units[f.unit] = f.name
		}
		if f.unit == 0 {
			continue // a heartbeat, or a promise
		}
		name := c.units[f.unit]
		if name == "" {
			return fmt.Errorf("a frame of kind %d of a unit that was not named", f.kind)
		}
		if !f.asks() {
			t.note(span{name, c.source, c.follower})
		}
	}
}

func (t *tap) note(s span) {
	now, seen := time.Now(), t.seen[s]
	if n := len(seen); n > 0 && now.Sub(seen[n-1].end) < near {
		seen[n-1].end = now
		return
	}
	t.seen[s] = append(seen, window{now, now})
}

// tapFrame is what the tap wants of a frame of the replication protocol: length u32, kind
// u8, unit u32, payload, sum u32, little-endian. The payload of a follow ends in the
// unit's name.
type tapFrame struct {
	kind byte
	unit uint32
	name string
}

// asks reports whether a frame only asks for a unit, or ends that: nothing of the unit is in it.
// A copy that was down as its source's move ended asks there until it is told of the next.
func (f *tapFrame) asks() bool {
	return f.kind == frameFollow || f.kind == frameUnfollow || f.kind == frameEnd
}

const (
	frameFollow   = 1
	frameUnfollow = 2
	frameEnd      = 22
	frameHead     = 9
	frameTail     = 4
	followNameAt  = 8 + 8 + 24 + 1 // id, epoch, where the follower stands, flags
	frameTooLarge = 16 << 20
)

// nextFrame takes one frame off b; nil where it is not whole yet.
func nextFrame(b []byte) (*tapFrame, []byte, error) {
	if len(b) < frameHead {
		return nil, b, nil
	}
	length := int(binary.LittleEndian.Uint32(b))
	if length > frameTooLarge {
		return nil, b, fmt.Errorf("a frame of %d bytes", length)
	}
	whole := frameHead + length + frameTail
	if len(b) < whole {
		return nil, b, nil
	}
	f := &tapFrame{kind: b[4], unit: binary.LittleEndian.Uint32(b[5:])}
	if f.kind == frameFollow {
		if length <= followNameAt {
			return nil, b, errors.New("a follow without a name")
		}
		f.name = string(b[frameHead+followNameAt : frameHead+length])
	}
	return f, b[whole:], nil
}

// around is by how much bytes may be seen before the test heard of what they are for, and
// after it heard that it is over: a reader is removed after its entry.
const around = 5 * time.Second

// judge tells the bytes that were in no window in which they might be, and forgets them:
// the moves that ended long ago are not listed any more in a run that lasts.
func (t *tap) judge(moves []proto.Move, reads map[span]window) (wrong []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	wrong, t.wrong = t.wrong, nil
	for s, seen := range t.seen {
		t.judged[s.unit] += len(seen)
		delete(t.seen, s)
		for _, w := range seen {
			if !t.mayPass(s, w, moves, reads) && len(wrong) < maxWrong {
				wrong = append(wrong, fmt.Sprintf("bytes of %s passed from %s in %s to %s in %s at %v, %v long, and neither a move nor a read replica was under way",
					s.unit, s.from, t.region[s.from], s.to, t.region[s.to], w.begin.Format(time.TimeOnly), w.end.Sub(w.begin)))
			}
		}
	}
	return wrong
}

func (t *tap) mayPass(s span, seen window, moves []proto.Move, reads map[span]window) bool {
	for _, m := range moves {
		regions := map[string]bool{t.region[string(m.From)]: true, t.region[string(m.To)]: true}
		for _, named := range []*fsm.RegionName{m.Region, m.FromRegion} { // which outlive the leader that knew the nodes
			if named != nil {
				regions[string(*named)] = true
			}
		}
		if m.FromRegion != nil {
			regions[string(*m.FromRegion)] = true
		}
		during := window{begin: m.Started}
		if m.Ended != nil {
			during.end = *m.Ended
		}
		if string(m.Tenant) == s.unit && regions[t.region[s.from]] && regions[t.region[s.to]] && during.holds(seen) {
			return true
		}
	}
	for r, during := range reads { // whoever is the primary: it may have changed
		if r.unit == s.unit && t.region[r.to] == t.region[s.to] && during.holds(seen) {
			return true
		}
	}
	return false
}

func (w window) holds(seen window) bool {
	return seen.begin.After(w.begin.Add(-around)) && (w.end.IsZero() || seen.end.Before(w.end.Add(around)))
}

// crossed counts what was seen of each unit.
func (t *tap) crossed() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := maps.Clone(t.judged)
	for s, seen := range t.seen {
		n[s.unit] += len(seen)
	}
	return n
}

// moves are all that any group lists, those that have ended, too.
func (r *Regions) moves() (all []proto.Move, err error) {
	for _, c := range r.groups() {
		url := c.AnyControl().URL + "/_shard/moves?limit=1000"
		a := r.Do(http.MethodGet, url, "")
		if a.Status != http.StatusOK {
			return nil, fmt.Errorf("%s answers %s", url, a)
		}
		var list []proto.Move
		if err := json.Unmarshal(a.Body, &list); err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}
