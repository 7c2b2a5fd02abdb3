package replica

import (
	"context"
	"fmt"
	"time"
)

// Promise asks the follower at addr, over its connection, not to be promoted
// for any of the units for d. It gives those that it refused; an error where
// there is no connection or no answer: nothing is to be built on it then.
func (r *Replicator) Promise(ctx context.Context, addr string, units []string, d time.Duration) (refused []string, err error) {
	r.mu.Lock()
	s := r.sessions[addr]
	r.mu.Unlock()
	if s == nil {
		return nil, fmt.Errorf("the copy at %s is not connected", addr)
	}
	size := 0
	for _, u := range units {
		size += 1 + len(u)
	}
	if size > maxNames-maxSmall || d > maxPromise {
		return nil, fmt.Errorf("a promise for %d units and %v is too much for one request", len(units), d)
	}
	answer := make(chan promise, 1)
	s.mu.Lock()
	if s.asked == nil {
		s.mu.Unlock()
		return nil, fmt.Errorf("the copy at %s has just disconnected", addr)
	}
	s.number++
	number := s.number
	s.asked[number] = answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.asked, number)
		s.mu.Unlock()
	}()
	s.w.send(framePromise, 0, (&promise{number, uint64(d.Milliseconds()), units}).encode())
	select {
	case a, ok := <-answer:
		if !ok {
			return nil, fmt.Errorf("the copy at %s disconnected before it answered", addr)
		}
		return a.names, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("the copy at %s has not answered: %w", addr, context.Cause(ctx))
	}
}

func (s *session) promised(f frame) error {
	m, err := decodePromise(f.kind, f.payload)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.asked[m.seq]; c != nil {
		c <- m
		delete(s.asked, m.seq)
	}
	return nil
}
