package hrana

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Config is what Streams needs.
type Config struct {
	// Secret is what the key of batons is derived from: the replication token. Nodes
	// with the same one take each other's stateless batons. Empty: a random key.
	Secret []byte
	// TransactionTimeout is how long an open transaction waits for its stream's next
	// request before it is rolled back. Default 5s.
	TransactionTimeout time.Duration
	// IdleTimeout is how long a stream without a transaction may be idle. Default 5m.
	IdleTimeout time.Duration
	// MaxResponse is the size in bytes beyond which a result fails with
	// RESPONSE_TOO_LARGE. Default 10 MiB, as sqld's. A cursor's rows do not count.
	MaxResponse int
	// MaxStreams is how many streams may hold a transaction or stored statements at
	// once. One more is closed with its request. Default 10,000.
	MaxStreams int
}

// Limits of what one stream, and all of them, may store. sqld's are 50 texts of 5 KB.
const (
	maxStored      = 200
	maxStoredText  = 64 << 10
	maxStoredTotal = 128 << 20
)

func (c Config) withDefaults() Config {
	if c.TransactionTimeout == 0 {
		c.TransactionTimeout = 5 * time.Second
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = 5 * time.Minute
	}
	if c.MaxResponse == 0 {
		c.MaxResponse = 10 << 20
	}
	if c.MaxStreams == 0 {
		c.MaxStreams = 10_000
	}
	return c
}

// Streams runs requests and keeps what is left between them. It is used by many
// goroutines.
type Streams struct {
	cfg    Config
	signer *signer
	wg     sync.WaitGroup // the timers' functions

	mu     sync.Mutex
	kept   map[uint64]*stream // by id
	bytes  int                // of all stored statements in kept
	closed bool
}

// stream is one stream for the time of a request, and between requests where it has
// something to keep. Busy, it belongs to the request; otherwise to Streams.mu.
type stream struct {
	unit   string
	sess   Session // nil where none was needed yet
	stored map[int32]string

	// Of a kept one, guarded by Streams.mu.
	id      uint64 // 0: not kept
	seq     uint64
	busy    bool
	ended   bool // EndUnit came while it was busy
	counted int  // its part of Streams.bytes
	timer   *time.Timer
}

// New returns Streams without any stream.
func New(cfg Config) (*Streams, error) {
	signer, err := newSigner(cfg.Secret)
	if err != nil {
		return nil, err
	}
	return &Streams{cfg: cfg.withDefaults(), signer: signer, kept: make(map[uint64]*stream)}, nil
}

// Close rolls back every transaction that waits for a request and refuses to keep
// more. Requests under way should have ended.
func (s *Streams) Close() {
	s.mu.Lock()
	s.closed = true
	dropped := s.dropIdleLocked(func(*stream) bool { return true })
	s.mu.Unlock()
	closeAll(dropped)
	s.wg.Wait()
}

// EndUnit rolls back and forgets every stream of the unit: it is frozen for a move,
// or deleted. A stream whose request is under way ends with the request.
func (s *Streams) EndUnit(unit string) {
	s.mu.Lock()
	dropped := s.dropIdleLocked(func(st *stream) bool { return st.unit == unit })
	s.mu.Unlock()
	closeAll(dropped)
}

// Kept is how many streams hold a transaction or stored statements.
func (s *Streams) Kept() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.kept)
}

func (s *Streams) dropIdleLocked(which func(*stream) bool) []Session {
	var dropped []Session
	for _, st := range s.kept {
		if !which(st) {
			continue
		}
		if st.busy {
			st.ended = true
			continue
		}
		s.forgetLocked(st)
		dropped = append(dropped, st.sess)
	}
	return dropped
}

func closeAll(sessions []Session) {
	for _, sess := range sessions {
		if sess != nil {
			sess.Close()
		}
	}
}

// take gives the stream that the baton names to the caller, who gives it back with
// finish or drop. blank is used where the stream is new.
func (s *Streams) take(unit string, text []byte, blank *stream) (*stream, error) {
	*blank = stream{unit: unit}
	if len(text) == 0 {
		return blank, nil
	}
	b, ok := s.signer.parse(text, unit)
	if !ok {
		return nil, errInvalidBaton
	}
	if b.kind == batonStateless {
		if time.Since(time.Unix(int64(b.a), 0)) > s.cfg.IdleTimeout {
			return nil, ErrExpired
		}
		return blank, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.kept[b.a]
	switch {
	case st == nil:
		// The signature is ours, so it was a stream once: here, before a restart, or on
		// the node that had the unit before.
		return nil, ErrExpired
	case st.busy || st.seq != b.b:
		return nil, errUsedBaton
	}
	st.timer.Stop()
	st.busy = true
	st.seq++
	return st, nil
}

// keep gives the stream an id, so that a baton can name it. It tells false where the
// node keeps no more.
func (s *Streams) keep(st *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.kept) >= s.cfg.MaxStreams {
		return false
	}
	for st.id == 0 || s.kept[st.id] != nil {
		st.id = rand.Uint64()
	}
	st.busy = true
	s.kept[st.id] = st
	return true
}

// finish ends the stream's request. Where the stream goes on it returns the baton of
// the next one; ok is false where it is closed. always keeps it although there is
// nothing to keep: a baton that names it is out.
func (s *Streams) finish(st *stream, always bool) (b baton, ok bool) {
	open := st.sess != nil && !st.sess.Autocommit()
	if !open && st.sess != nil {
		st.sess.Close()
		st.sess = nil
	}
	if !open && len(st.stored) == 0 && !always {
		s.drop(st)
		return stateless(), true
	}
	if st.id == 0 && !s.keep(st) {
		s.drop(st)
		return baton{}, false
	}
	timeout := s.cfg.IdleTimeout
	if open {
		timeout = s.cfg.TransactionTimeout
	}
	if !s.park(st, timeout) {
		s.drop(st)
		return baton{}, false
	}
	return baton{kind: batonKept, a: st.id, b: st.seq}, true
}

func stateless() baton {
	return baton{kind: batonStateless, a: uint64(time.Now().Unix()), b: rand.Uint64()}
}

// park makes the stream idle and starts its clock.
func (s *Streams) park(st *stream, timeout time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := 0
	for _, sql := range st.stored {
		size += len(sql)
	}
	s.bytes += size - st.counted
	st.counted = size
	if s.closed || st.ended || s.bytes > maxStoredTotal {
		return false
	}
	st.busy = false
	seq := st.seq
	st.timer = time.AfterFunc(timeout, func() { s.expire(st, seq) })
	return true
}

// expire is the timer's function.
func (s *Streams) expire(st *stream, seq uint64) {
	s.mu.Lock()
	if s.closed || s.kept[st.id] != st || st.busy || st.seq != seq {
		s.mu.Unlock()
		return
	}
	s.forgetLocked(st)
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	if st.sess != nil {
		st.sess.Close()
	}
}

// drop closes a stream that the caller holds.
func (s *Streams) drop(st *stream) {
	if st.id != 0 {
		s.mu.Lock()
		s.forgetLocked(st)
		s.mu.Unlock()
	}
	if st.sess != nil {
		st.sess.Close()
		st.sess = nil
	}
}

func (s *Streams) forgetLocked(st *stream) {
	if s.kept[st.id] != st {
		return
	}
	delete(s.kept, st.id)
	s.bytes -= st.counted
	st.counted = 0
	if st.timer != nil {
		st.timer.Stop()
	}
}
