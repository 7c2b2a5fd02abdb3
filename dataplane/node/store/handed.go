package store

import (
	"encoding/json"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// units.bolt, bucket "node": a JSON Handed under handedKey, made with the first hand-over.

var handedKey = []byte("handed")

// Handed is what a node keeps of its ways from one authority to another.
type Handed struct {
	// Jobs are the newest by which each authority gave the node away: a call that is
	// repeated late, after the node has come back, is known by it.
	Jobs map[string]uint64 `json:"jobs"`
	// Calls of To with a number below Call were sent before the node came to it, in an
	// earlier time under it.
	To   Holder `json:"to"`
	Call uint64 `json:"call,omitempty"`
}

// maxHanded bounds the authorities that a node remembers: the global one, and a region's.
const maxHanded = 16

// Handed gives what is known of the node's hand-overs.
func (s *Store) Handed() Handed {
	if h := s.handed.Load(); h != nil {
		return *h
	}
	return Handed{}
}

// HandOver makes next the node's holder if the holder is still old, by the job of old's
// authority; ErrConflict if it is another. Calls of next with a number below call are late.
func (s *Store) HandOver(old, next Holder, job, call uint64) error {
	was := s.Handed()
	now := Handed{Jobs: map[string]uint64{}, To: next, Call: call}
	for authority, j := range was.Jobs {
		if len(was.Jobs) < maxHanded || authority == next.Authority {
			now.Jobs[authority] = j
		}
	}
	now.Jobs[old.Authority] = max(job, was.Jobs[old.Authority])
	return s.setHolder(old, next, &now)
}

func (s *Store) putHanded(tx *bolt.Tx, h *Handed) error {
	raw, err := json.Marshal(h)
	if err != nil {
		return err
	}
	tx.OnCommit(func() { s.handed.Store(h) })
	return tx.Bucket(nodeBucket).Put(handedKey, raw)
}

func (s *Store) loadHanded() error {
	return s.db.View(func(tx *bolt.Tx) error {
		raw := tx.Bucket(nodeBucket).Get(handedKey)
		if raw == nil {
			return nil
		}
		h := new(Handed)
		if err := json.Unmarshal(raw, h); err != nil {
			return fmt.Errorf("read the node's hand-overs: %w", err)
		}
		s.handed.Store(h)
		return nil
	})
}
