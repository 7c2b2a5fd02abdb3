package proxy

import (
	"crypto/sha256"
	"sync"
)

// maxSpent is the number of spent marks that a proxy remembers: those of 270 refused tokens
// a second for as long as a mark is taken.
const maxSpent = 1 << 14

// markSum is the last field of a mark: random bytes, and the HMAC.
type markSum [nonceSize + sha256.Size]byte

// parseSum reads the last field of a mark.
func parseSum(text []byte) (sum markSum, ok bool) {
	if len(text) != markEncoding.EncodedLen(len(sum)) {
		return sum, false
	}
	n, err := markEncoding.Decode(sum[:], text)
	return sum, err == nil && n == len(sum)
}

// spentMarks remembers the marks whose requests were refused a token, the last maxSpent of
// them. A mark has one request, which is refused once: where it comes again, somebody who
// has seen it tries other tokens in the name of its client, at whose proxy nobody waits for
// them (R6). Asked for refused tokens alone.
type spentMarks struct {
	mu   sync.Mutex
	seen map[markSum]struct{}
	ring []markSum // the same, the oldest at next once it is full
	next int
}

// spend remembers a mark that verify took, and tells whether it was spent already.
func (s *spentMarks) spend(value []byte) (again bool) {
	_, text := cutSum(value)
	sum, _ := parseSum(text) // verify has read it
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, again = s.seen[sum]; again {
		return true
	}
	if s.seen == nil {
		s.seen = map[markSum]struct{}{}
	}
	s.seen[sum] = struct{}{}
	if len(s.ring) < maxSpent {
		s.ring = append(s.ring, sum)
		return false
	}
	delete(s.seen, s.ring[s.next])
	s.ring[s.next] = sum
	s.next = (s.next + 1) % maxSpent
	return false
}
