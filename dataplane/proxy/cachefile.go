package proxy

import (
	"bufio"
	"encoding/binary"
	"io"
	"os"
	"time"

	"domicile/fsm"
	"domicile/internal/durable"
	"domicile/proto/follow"
)

// The cache file holds the last good directory, so that a proxy that is started
// while no control server can be reached forwards at once (R3): whose directory it
// is, its revision and age, nodes, regions, then the records of the table's shards
// as they lie in memory.
var cacheFormat = durable.Format{Magic: "domicile directory cache\n", Version: 3}

// saveCache writes t to path: whole, or the file stays as it was.
func saveCache(path string, t *table, asOf time.Time) error {
	return durable.Replace(path, func(file io.Writer) error { return writeCache(file, t, asOf) })
}

type cacheWriter struct {
	w *bufio.Writer
	b []byte
}

func writeCache(file io.Writer, t *table, asOf time.Time) error {
	return cacheFormat.Write(file, func(w *bufio.Writer) error { return (&cacheWriter{w: w}).table(t, asOf) })
}

func (c *cacheWriter) table(t *table, asOf time.Time) error {
	c.text(t.position.Authority)
	c.number(t.position.History, uint64(t.position.Revision), uint64(asOf.UnixMilli()))
	c.number(uint64(len(t.nodes)))
	for i := range t.nodes {
		s := &t.nodes[i]
		c.text(string(s.info.Name), s.info.Addr, string(s.info.Region), string(s.info.Zone))
		c.number(map[bool]uint64{true: 1}[s.present], map[bool]uint64{true: 1}[s.info.Lost], map[bool]uint64{true: 1}[s.info.Unleased])
	}
	c.number(uint64(len(t.regions)))
	for _, r := range t.regions {
		c.text(string(r.Name))
		c.number(uint64(len(r.Routers)))
		c.text(r.Routers...)
	}
	for _, m := range []*shards{t.tenants, t.units} {
		c.number(uint64(m.count))
		for arena := range m.arenas {
			c.flush()
			if _, err := c.w.Write(arena); err != nil {
				return err
			}
		}
	}
	c.flush()
	return nil
}

func (c *cacheWriter) text(all ...string) {
	for _, s := range all {
		c.b = append(binary.AppendUvarint(c.b, uint64(len(s))), s...)
	}
}

func (c *cacheWriter) number(all ...uint64) {
	for _, n := range all {
		c.b = binary.AppendUvarint(c.b, n)
	}
}

func (c *cacheWriter) flush() {
	_, _ = c.w.Write(c.b) // bufio keeps the error for its Flush
	c.b = c.b[:0]
}

// loadCache reads the file at path: the table, without upstreams, and the time
// at which it was known to be the newest.
func loadCache(path string, editID uint64) (*table, time.Time, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, time.Time{}, err
	}
	return parseCache(b, editID)
}

func parseCache(b []byte, editID uint64) (*table, time.Time, error) {
	none := time.Time{}
	body, err := cacheFormat.Body(b)
	if err != nil {
		return nil, none, err
	}
	r := &cacheReader{b: body}
	at := follow.Position{Authority: r.text(), History: r.number(), Revision: fsm.Revision(r.number())}
	edit := newTable().edit(at.Revision, editID)
	asOf := time.UnixMilli(int64(r.number()))
	r.nodes(edit)
	r.regions(edit)
	r.records(edit.tenants, func(key, value []byte) (uint32, bool) {
		if len(value) < tenantHeader || value[5] > 1 || !fsm.ValidName(string(key)) {
			return 0, false
		}
		if value[5] == 0 {
			return 0, true
		}
		if place, ok := edit.next.homeAt[fsm.RegionName(value[tenantHeader:])]; ok { // which makes no string
			return 1 + place, true
		}
		return 1 + edit.home(fsm.RegionName(value[tenantHeader:])), true
	})
	r.records(edit.units, func(key, value []byte) (uint32, bool) {
		return validUnitRecord(key, value, uint32(len(edit.next.nodes)))
	})
	if r.bad || len(r.b) != 0 || at.Authority == "" {
		return nil, none, durable.ErrGarbled
	}
	return edit.seal(at), asOf, nil
}

type cacheReader struct {
	b   []byte
	bad bool
}

func (r *cacheReader) number() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *cacheReader) text() string {
	n := r.number()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *cacheReader) nodes(e *tableEdit) {
	for n := r.number(); n > 0 && !r.bad; n-- {
		info := fsm.NodeInfo{
			Name: fsm.NodeName(r.text()), Addr: r.text(), Region: fsm.RegionName(r.text()), Zone: fsm.ZoneName(r.text()),
		}
		if _, twice := e.next.places[info.Name]; twice || !fsm.ValidName(string(info.Name)) {
			r.bad = true
			return
		}
		present := r.number() == 1
		info.Lost = r.number() == 1
		info.Unleased = r.number() == 1
		if present {
			e.putNode(&info)
		} else {
			e.place(info.Name)
		}
	}
}

func (r *cacheReader) regions(e *tableEdit) {
	for n := r.number(); n > 0 && !r.bad; n-- {
		region := &fsm.Region{Name: fsm.RegionName(r.text())}
		for m := r.number(); m > 0 && !r.bad; m-- {
			region.Routers = append(region.Routers, r.text())
		}
		e.regions()[region.Name] = region
	}
}

// records reads what shards.arenas gave: records of any order.
func (r *cacheReader) records(e *editor, valid func(key, value []byte) (hint uint32, ok bool)) {
	for n := r.number(); n > 0 && !r.bad; n-- {
		if len(r.b) < recordHeader {
			r.bad = true
			return
		}
		k, v := int(r.b[0]), int(binary.LittleEndian.Uint16(r.b[2:]))
		size := recordSize(k, v)
		if k == 0 || size > len(r.b) {
			r.bad = true
			return
		}
		value, key := r.b[recordHeader:recordHeader+v], r.b[recordHeader+v:recordHeader+v+k]
		hint, ok := valid(key, value)
		if !ok {
			r.bad = true
			return
		}
		e.put(key, value, hint)
		r.b = r.b[size:]
	}
}

func validUnitRecord(key, value []byte, nodes uint32) (uint32, bool) {
	if len(value) < unitHeader || len(value) != unitHeader+int(value[5])*copySize {
		return 0, false
	}
	if _, _, ok := fsm.UnitName(key).Split(); !ok {
		return 0, false
	}
	u := decodeUnit(value)
	for c := u.copies; len(c) > 0; c = c[copySize:] {
		if binary.LittleEndian.Uint32(c[1:]) >= nodes {
			return 0, false
		}
	}
	return u.node, u.node < nodes
}
