package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"domicile/internal/faultpoint"
)

// logCache is how many of the newest entries are kept in memory.
const logCache = 512

// Keys of the stable store that the Raft library uses.
var (
	keyCurrentTerm = []byte("CurrentTerm")
	keyVoteTerm    = []byte("LastVoteTerm")
	keyVoteCand    = []byte("LastVoteCand")
	keyVote        = []byte("Vote") // ours: both of them in one record
)

// openBolt opens raft.db and locks it. The freelist is not written with each
// commit: a burst would make every later commit slow.
func openBolt(f *folder) (*raftboltdb.BoltStore, error) {
	store, err := raftboltdb.New(raftboltdb.Options{
		Path: f.path(raftFile),
		BoltOptions: &bbolt.Options{
			Timeout:        2 * time.Second,
			NoFreelistSync: true,
			FreelistType:   bbolt.FreelistMapType,
		},
		MsgpackUseNewTimeFormat: true, // as in the transport; never change one
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, f.refuse("another process uses it (it holds the lock on %s); stop that one first", raftFile)
	}
	if err != nil {
		return nil, f.refuse("its log %s cannot be opened: %v", raftFile, err)
	}
	return store, nil
}

// voteStore is the stable store. The library writes the term of a vote and its
// candidate one after the other; a crash in between would leave the new term
// with the old candidate, who would then be granted a vote in it without a look
// at its log. Here both go in one record, when the candidate arrives.
type voteStore struct {
	raft.StableStore
	closing atomic.Bool

	mu      sync.Mutex
	pending []byte // term of the vote that is being written
}

func (s *voteStore) SetUint64(key []byte, v uint64) error {
	switch string(key) {
	case string(keyVoteTerm):
		s.mu.Lock()
		s.pending = binary.BigEndian.AppendUint64(nil, v)
		s.mu.Unlock()
		return nil
	case string(keyCurrentTerm):
		return s.setTerm(v)
	}
	return s.StableStore.SetUint64(key, v)
}

// setTerm goes on until the term is written: the library panics on an error. A
// server that cannot write its term (a full disk) is silent meanwhile, votes
// for nobody and acknowledges nothing, and goes on once it can. While closing
// it gives up, and the term is lost like in a crash: no answer that depends on
// it can be given, since votes and entries fail from then on.
func (s *voteStore) setTerm(v uint64) error {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		err := faultpoint.At("raft.term", "")
		if err == nil {
			err = s.StableStore.SetUint64(keyCurrentTerm, v)
		}
		if err == nil || s.closing.Load() {
			return nil
		}
		time.Sleep(wait)
	}
}

func (s *voteStore) Set(key, v []byte) error {
	if string(key) != string(keyVoteCand) {
		return s.StableStore.Set(key, v)
	}
	if s.closing.Load() {
		return ErrClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending == nil {
		return errors.New("a vote's candidate without its term")
	}
	err := faultpoint.At("raft.vote", "")
	if err == nil {
		err = s.StableStore.Set(keyVote, append(s.pending, v...))
	}
	s.pending = nil
	return err
}

func (s *voteStore) GetUint64(key []byte) (uint64, error) {
	if string(key) != string(keyVoteTerm) {
		return s.StableStore.GetUint64(key)
	}
	vote, err := s.vote()
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(vote), nil
}

func (s *voteStore) Get(key []byte) ([]byte, error) {
	if string(key) != string(keyVoteCand) {
		return s.StableStore.Get(key)
	}
	vote, err := s.vote()
	if err != nil {
		return nil, err
	}
	return vote[8:], nil
}

func (s *voteStore) vote() ([]byte, error) {
	vote, err := s.StableStore.Get(keyVote)
	if err != nil {
		return nil, err
	}
	if len(vote) < 8 {
		return nil, fmt.Errorf("the record of the last vote is damaged (%d bytes)", len(vote))
	}
	return vote, nil
}

// logStore is the log on disk, with its health watched.
type logStore struct {
	raft.LogStore
	closing atomic.Bool
	fsync   func(time.Duration)   // told of each append's duration
	failure atomic.Pointer[error] // of the newest append that failed: the library keeps its text alone
}

func (s *logStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s *logStore) StoreLogs(logs []*raft.Log) error {
	if s.closing.Load() {
		return ErrClosed
	}
	begin := time.Now()
	err := faultpoint.At("raft.log", "")
	if err == nil {
		err = s.LogStore.StoreLogs(logs)
	}
	if err != nil {
		s.failure.Store(&err)
		return err
	}
	s.fsync(time.Since(begin))
	return nil
}

// checkContiguous finds out whether log and snapshots belong together: a
// directory that lacks entries must not be served.
func checkContiguous(f *folder, logs raft.LogStore, snapshot uint64) error {
	first, err := logs.FirstIndex()
	if err != nil {
		return f.refuse("its log cannot be read: %v", err)
	}
	if first > snapshot+1 {
		return f.refuse("its log begins at entry %d but the newest snapshot ends at %d: a snapshot was lost; empty the folder, remove the server from its group, and let it join again", first, snapshot)
	}
	return nil
}
