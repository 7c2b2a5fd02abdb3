package http1

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"
)

// idSource makes request ids of 16 hex digits that do not repeat within a
// server and, most likely, not between servers: a counter under a mixing
// function, from a random start. They are labels, not secrets.
type idSource struct {
	next atomic.Uint64
	key  uint64
}

func (s *idSource) seed() {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	s.next.Store(binary.LittleEndian.Uint64(b[:]))
	s.key = binary.LittleEndian.Uint64(b[8:])
}

func (s *idSource) id(b *[maxGeneratedID]byte) {
	// The finaliser of SplitMix64: a bijection, so no two counts collide.
	x := s.next.Add(1) ^ s.key
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	x ^= x >> 31
	const digits = "0123456789abcdef"
	for i := range b {
		b[i] = digits[x>>60]
		x <<= 4
	}
}
