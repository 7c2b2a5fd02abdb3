package store

import (
	"errors"
	"slices"
	"sync"

	bolt "go.etcd.io/bbolt"
)

// recordQueue commits changes of the registry. Those that come while one is being
// synced share the next transaction, so that a node which gives up, or makes, many units
// at once pays for two or three and not for one of each unit.
type recordQueue struct {
	mu      sync.Mutex
	busy    bool // somebody commits
	waiting []*recordChange
}

// recordChange is a change that waits for its transaction.
type recordChange struct {
	f    func(*bolt.Tx) error
	err  error
	turn chan bool // gets one word. true: commit what waits; false: err is the outcome
}

// errCutShort is what is left of changes whose committer panicked.
var errCutShort = errors.New("a change of the record panicked, and this one with it")

// commit makes f's change durable, or returns f's error. f may be called more than once:
// where another change of the same transaction is refused those beside it are made again.
func (q *recordQueue) commit(db *bolt.DB, f func(*bolt.Tx) error) error {
	c := &recordChange{f: f, err: errCutShort, turn: make(chan bool, 1)}
	q.mu.Lock()
	q.waiting = append(q.waiting, c)
	if !q.busy {
		q.busy = true
		c.turn <- true
	}
	q.mu.Unlock()
	if !<-c.turn {
		return c.err
	}
	q.mu.Lock()
	batch := q.waiting
	q.waiting = nil
	q.mu.Unlock()
	defer q.next(batch, c)
	commitAll(db, batch)
	return c.err
}

// next tells a batch that it is done, and whoever waits first to commit the next one.
func (q *recordQueue) next(batch []*recordChange, by *recordChange) {
	for _, c := range batch {
		if c != by {
			c.turn <- false
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy = len(q.waiting) > 0; q.busy {
		q.waiting[0].turn <- true
	}
}

// commitAll commits a batch, but for those that refuse, in one transaction.
func commitAll(db *bolt.DB, batch []*recordChange) {
	left := slices.Clone(batch)
	for len(left) > 0 {
		refused := -1
		err := db.Update(func(tx *bolt.Tx) error {
			for i, c := range left {
				if err := c.f(tx); err != nil {
					refused = i
					return err
				}
			}
			return nil
		})
		if refused < 0 {
			for _, c := range left {
				c.err = err
			}
			return
		}
		left[refused].err = err
		left = slices.Delete(left, refused, refused+1)
	}
}
