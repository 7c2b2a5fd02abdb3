package proxy

import (
	"encoding/binary"
	"hash/maphash"
	"unsafe"
)

// shards is an immutable map from names to small values, made for a million
// names that change one at a time. It is a tree of two levels over 4096 shards;
// a change copies one shard (some kilobytes) and the two nodes above it. A shard
// is two arrays without pointers, so the garbage collector has nothing to scan.
//
// Beside its value a name has a hint, a number that lies in the hash table
// itself: hint finds it at the cost of one cache miss, where a value takes two.
//
// An editor makes the next map from one; only one editor of a lineage is used at
// a time. Readers need no lock.
type shards struct {
	seed  maphash.Seed
	mask  uint64 // of hashes: all ones, but in tests that want collisions
	root  [fan]*branch
	count int
}

const fan = 64 // of root and of branch: 4096 shards

type branch struct {
	edit   uint64 // editor that made it and may change it until it seals
	slots  [fan][]slot
	shards [fan]*shard
}

// slot is a place in a shard's hash table (open addressing, linear probing).
type slot struct {
	hash uint64
	ref  uint32 // offset/8 + 1 of the record in the arena; 0: free
	hint uint32
}

const (
	tombstone = ^uint32(0)
	// ambiguous marks slots whose whole hash another name of the shard shares:
	// a hint has to compare names then. Otherwise 64 equal bits of a keyed hash
	// are taken for the same name: what a hint finds is checked by the node that
	// it leads to (I6).
	ambiguous = 1 << 31
	refMask   = ambiguous - 1
	minSlots  = 8

	recordHeader = 4
	// maxKey and maxValue are what a record can hold.
	maxKey   = 1<<8 - 1
	maxValue = 1<<16 - 1
)

// shard holds records one after another in arena, each beginning at a multiple
// of 8: key's length (1 byte), nothing (1), value's length (2), value, key.
type shard struct {
	edit  uint64
	slots []slot // the same as the branch's, once sealed
	arena []byte
	live  int // records that slots lead to
	taken int // slots that are not free, tombstones included
	dead  int // bytes of records that no slot leads to
}

func newShards() *shards { return &shards{seed: maphash.MakeSeed(), mask: ^uint64(0)} }

func (s *shards) hash(key []byte) uint64 { return maphash.Bytes(s.seed, key) & s.mask }

// hint gives the number that was put with key. It allocates nothing.
func (s *shards) hint(key []byte) (uint32, bool) {
	h := s.hash(key)
	b := s.root[h>>58]
	if b == nil {
		return 0, false
	}
	slots := b.slots[h>>52&(fan-1)]
	if len(slots) == 0 {
		return 0, false
	}
	for i := h; ; i++ {
		v := &slots[i&uint64(len(slots)-1)]
		if v.hash == h && v.ref != 0 {
			if v.ref&ambiguous == 0 || string(b.shards[h>>52&(fan-1)].key(v.ref)) == string(key) {
				return v.hint, true
			}
		}
		if v.ref == 0 {
			return 0, false
		}
	}
}

// get gives the value of key, nil without one. It is not to be changed. It
// allocates nothing.
func (s *shards) get(key []byte) []byte {
	h := s.hash(key)
	b := s.root[h>>58]
	if b == nil {
		return nil
	}
	sh := b.shards[h>>52&(fan-1)]
	if sh == nil {
		return nil
	}
	if i := sh.find(h, key); i >= 0 {
		return sh.value(sh.slots[i].ref)
	}
	return nil
}

// asBytes views s as bytes, which must not be changed.
func asBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// each calls yield with every key and value, in no order; neither is to be
// changed or kept longer than the map.
func (s *shards) each(yield func(key, value []byte) bool) {
	for _, b := range s.root {
		if b == nil {
			continue
		}
		for _, sh := range b.shards {
			if sh == nil {
				continue
			}
			for _, v := range sh.slots {
				if v.held() && !yield(sh.key(v.ref), sh.value(v.ref)) {
					return
				}
			}
		}
	}
}

// arenas calls yield with the records of each shard, as they lie in memory.
func (s *shards) arenas(yield func(records []byte) bool) {
	for _, b := range s.root {
		if b == nil {
			continue
		}
		for _, sh := range b.shards {
			if sh != nil && len(sh.arena) > 0 && !yield(sh.arena) {
				return
			}
		}
	}
}

// bytes is the memory that the map holds on to.
func (s *shards) bytes() (n int) {
	for _, b := range s.root {
		if b == nil {
			continue
		}
		n += int(unsafe.Sizeof(*b))
		for _, sh := range b.shards {
			if sh != nil {
				n += int(unsafe.Sizeof(*sh)) + int(unsafe.Sizeof(slot{}))*cap(sh.slots) + cap(sh.arena)
			}
		}
	}
	return n
}

func (v slot) held() bool { return v.ref != 0 && v.ref != tombstone }

// find gives the slot of key, or -1.
func (sh *shard) find(h uint64, key []byte) int {
	if len(sh.slots) == 0 {
		return -1
	}
	mask := uint64(len(sh.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		v := sh.slots[i]
		if v.ref == 0 {
			return -1
		}
		if v.hash == h && v.ref != tombstone && string(sh.key(v.ref)) == string(key) {
			return int(i)
		}
	}
}

// record gives the arena from a record on, and the lengths of its key and value.
func (sh *shard) record(ref uint32) (rec []byte, key, value int) {
	rec = sh.arena[uint64(ref&refMask-1)*8:]
	return rec, int(rec[0]), int(binary.LittleEndian.Uint16(rec[2:]))
}

func (sh *shard) key(ref uint32) []byte {
	rec, k, n := sh.record(ref)
	return rec[recordHeader+n : recordHeader+n+k]
}

func (sh *shard) value(ref uint32) []byte {
	rec, _, n := sh.record(ref)
	return rec[recordHeader : recordHeader+n : recordHeader+n]
}

func recordSize(key, value int) int { return (recordHeader + key + value + 7) &^ 7 }
