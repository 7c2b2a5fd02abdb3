package proxy

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// editor makes the next map of a lineage.
type editor struct {
	next  *shards
	id    uint64 // of no earlier editor of the lineage
	dirty []dirtyShard
}

type dirtyShard struct {
	b  *branch
	i  uint64
	sh *shard
}

func (s *shards) edit(id uint64) *editor {
	next := *s
	return &editor{next: &next, id: id}
}

// put records a value, which is copied, and a hint. The key is 1 to maxKey
// bytes, the value at most maxValue.
func (e *editor) put(key, value []byte, hint uint32) {
	h := e.next.hash(key)
	sh := e.own(h, recordSize(len(key), len(value)))
	if i := sh.find(h, key); i >= 0 {
		if old := sh.value(sh.slots[i].ref); len(old) == len(value) {
			copy(old, value)
			sh.slots[i].hint = hint
			return
		}
		sh.unlink(i)
		e.next.count--
	}
	sh.insert(h, key, value, hint)
	e.next.count++
}

// remove takes a key out, if it is there.
func (e *editor) remove(key []byte) {
	if e.next.get(key) == nil {
		return
	}
	h := e.next.hash(key)
	sh := e.own(h, 0)
	sh.unlink(sh.find(h, key))
	e.next.count--
}

// seal gives the map, which from now on does not change.
func (e *editor) seal() *shards {
	for _, d := range e.dirty {
		d.sh.pack()
		d.b.slots[d.i] = d.sh.slots
	}
	e.dirty = nil
	return e.next
}

// own gives the shard of h, the editor's own from now on, with room for more
// bytes.
func (e *editor) own(h uint64, more int) *shard {
	b := e.next.root[h>>58]
	if b == nil {
		b = &branch{edit: e.id}
	} else if b.edit != e.id {
		c := *b
		c.edit = e.id
		b = &c
	}
	e.next.root[h>>58] = b
	i := h >> 52 & (fan - 1)
	sh := b.shards[i]
	if sh != nil && sh.edit == e.id {
		return sh
	}
	if sh == nil {
		sh = &shard{edit: e.id}
	} else {
		c := *sh
		c.edit = e.id
		c.slots = slices.Clone(sh.slots)
		c.arena = append(make([]byte, 0, len(sh.arena)+more), sh.arena...)
		sh = &c
	}
	b.shards[i] = sh
	e.dirty = append(e.dirty, dirtyShard{b, i, sh})
	return sh
}

// insert adds a record whose key is not there.
func (sh *shard) insert(h uint64, key, value []byte, hint uint32) {
	if (sh.taken+1)*4 > len(sh.slots)*3 {
		sh.rehash(sh.live + 1)
	}
	at := len(sh.arena)
	if at/8 >= refMask-1 {
		panic("BUG: a shard of the table holds 16 GB")
	}
	sh.arena = append(sh.arena, byte(len(key)), 0, 0, 0)
	binary.LittleEndian.PutUint16(sh.arena[at+2:], uint16(len(value)))
	sh.arena = append(append(sh.arena, value...), key...)
	for len(sh.arena)%8 != 0 {
		sh.arena = append(sh.arena, 0)
	}
	sh.link(slot{hash: h, ref: uint32(at/8 + 1), hint: hint})
	sh.live++
}

func (sh *shard) link(v slot) {
	mask := uint64(len(sh.slots) - 1)
	i := v.hash & mask
	for ; sh.slots[i].ref != 0; i = (i + 1) & mask {
		if o := &sh.slots[i]; o.hash == v.hash && o.held() {
			o.ref |= ambiguous
			v.ref |= ambiguous
		}
	}
	sh.slots[i] = v
	sh.taken++
}

func (sh *shard) unlink(i int) {
	_, k, n := sh.record(sh.slots[i].ref)
	sh.dead += recordSize(k, n)
	// The hash stays out of a hint's way.
	sh.slots[i] = slot{hash: ^sh.slots[i].hash, ref: tombstone}
	sh.live--
}

// rehash gives the shard slots for n records, without tombstones.
func (sh *shard) rehash(n int) {
	old := sh.slots
	sh.slots = make([]slot, max(minSlots, 1<<bits.Len(uint(n*4/3))))
	sh.taken = 0
	for _, v := range old {
		if v.held() {
			v.ref &= refMask
			sh.link(v)
		}
	}
}

// pack rebuilds the shard without dead records and spare room.
func (sh *shard) pack() {
	if sh.dead == 0 {
		if cap(sh.arena) > len(sh.arena)+len(sh.arena)/8 {
			sh.arena = append(make([]byte, 0, len(sh.arena)), sh.arena...)
		}
		return
	}
	next := shard{edit: sh.edit, arena: make([]byte, 0, len(sh.arena)-sh.dead)}
	next.rehash(sh.live)
	for _, v := range sh.slots {
		if v.held() {
			next.insert(v.hash, sh.key(v.ref), sh.value(v.ref), v.hint)
		}
	}
	*sh = next
}
