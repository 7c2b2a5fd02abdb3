package group

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// streamLayer is streams in the library's terms.
type streamLayer struct{ *streams }

func (s streamLayer) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return s.open(string(addr), timeout)
}

// transport is the library's, with what this server learns from the exchanges
// noted on the way: which servers answered, how far their logs are, and how far
// the leader says that the group's is. It embeds the library's own type, so
// that every optional interface (pre-vote above all) stays.
type transport struct {
	*raft.NetworkTransport
	peers *peers
	out   chan raft.RPC
	done  chan struct{}
	ended chan struct{}
	close func() error

	// leaderCommit is the newest commit index that a leader has told.
	leaderCommit atomic.Uint64
}

// newTransport refuses a library that would run without pre-vote: servers that
// come back from a partition would then unseat a healthy leader.
func newTransport(inner *raft.NetworkTransport, p *peers) (*transport, error) {
	t := &transport{
		NetworkTransport: inner, peers: p, out: make(chan raft.RPC),
		done: make(chan struct{}), ended: make(chan struct{}),
	}
	var asSeen raft.Transport = t
	if _, ok := asSeen.(raft.WithPreVote); !ok {
		return nil, errors.New("the Raft transport does not support pre-vote; this build must not run")
	}
	t.close = sync.OnceValue(func() error {
		err := t.NetworkTransport.Close()
		close(t.done)
		<-t.ended
		return err
	})
	go t.listen()
	return t, nil
}

func (t *transport) listen() {
	defer close(t.ended)
	for {
		select {
		case rpc := <-t.NetworkTransport.Consumer():
			if a, ok := rpc.Command.(*raft.AppendEntriesRequest); ok && a.LeaderCommitIndex > t.leaderCommit.Load() {
				t.leaderCommit.Store(a.LeaderCommitIndex)
			}
			select {
			case t.out <- rpc:
			case <-t.done:
				return
			}
		case <-t.done:
			return
		}
	}
}

func (t *transport) Consumer() <-chan raft.RPC { return t.out }

// Close ends the transport and its connections.
func (t *transport) Close() error { return t.close() }

func (t *transport) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	sent := time.Now()
	err := t.NetworkTransport.AppendEntries(id, to, args, resp)
	if err == nil {
		t.peers.answered(id, sent, args.Term, resp)
	}
	return err
}

func (t *transport) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	t.peers.snapshotSent(id, args.LastLogIndex, time.Now())
	return t.NetworkTransport.InstallSnapshot(id, to, args, resp, data)
}

// peers is what the exchanges told about the other servers.
type peers struct {
	mu      sync.Mutex
	byID    map[raft.ServerID]*peer
	changed chan struct{} // closed at the next answer; nil: nobody waits
}

type peer struct {
	answered time.Time // when the newest answer came
	index    uint64    // end of its log then
	// sent is when the newest exchange began that it answered with success
	// in term: it had no newer leader then.
	term uint64
	sent time.Time

	snapshots []time.Time // sent lately, without its log getting beyond them
	behind    uint64      // index of the newest of them
}

// A server that is sent this many snapshots in this time, without its log
// getting beyond them, will not get there (a known fault of the library).
const (
	snapshotLoop       = 3
	snapshotLoopWithin = 10 * time.Minute
)

func (p *peers) get(id raft.ServerID) *peer {
	e := p.byID[id]
	if e == nil {
		if p.byID == nil {
			p.byID = make(map[raft.ServerID]*peer)
		}
		e = &peer{}
		p.byID[id] = e
	}
	return e
}

func (p *peers) answered(id raft.ServerID, sent time.Time, term uint64, resp *raft.AppendEntriesResponse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.get(id)
	e.answered, e.index = time.Now(), resp.LastLog
	if resp.Success && resp.Term == term && (term > e.term || term == e.term && sent.After(e.sent)) {
		e.term, e.sent = term, sent
	}
	if e.index > e.behind {
		e.snapshots = nil
	}
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

func (p *peers) snapshotSent(id raft.ServerID, index uint64, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.get(id)
	for len(e.snapshots) > 0 && at.Sub(e.snapshots[0]) > snapshotLoopWithin {
		e.snapshots = e.snapshots[1:]
	}
	e.snapshots, e.behind = append(e.snapshots, at), index
}

// look gives what is known of a server.
func (p *peers) look(id raft.ServerID) (e peer, looping bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.byID[id]; known != nil {
		e = *known
	}
	return e, len(e.snapshots) >= snapshotLoop
}

// confirmed counts those of ids that answered, with success in term, an
// exchange that began after since; and gives a channel that is closed at the
// next answer.
func (p *peers) confirmed(ids []raft.ServerID, term uint64, since time.Time) (int, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, id := range ids {
		if e := p.byID[id]; e != nil && e.term == term && e.sent.After(since) {
			n++
		}
	}
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return n, p.changed
}
