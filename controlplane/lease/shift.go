package lease

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"domicile/fsm"
	"domicile/proto"
)

// shift is one term of a Keeper.
type shift struct {
	k        *Keeper
	term     uint64
	began    time.Duration // the term counts from here
	confirms *confirmer
	procs    processes
	over     chan struct{} // closed when the term has ended
	left     sync.Once     // that the group was recovered without this server is told once
	work     sync.WaitGroup
	// tail is what each grant has behind its list and before its numbers.
	tail atomic.Pointer[tail]

	mu     sync.Mutex
	loops  map[fsm.NodeName]*loop
	longer time.Duration // latest expiry of nodes that are recorded no more
}

// tail is what all grants say alike.
type tail struct {
	holder  proto.Holder
	servers []string
	text    string
}

func newShift(k *Keeper, term uint64) *shift {
	s := &shift{k: k, term: term, began: k.config.Clock.Now(), over: make(chan struct{}), loops: make(map[fsm.NodeName]*loop)}
	s.confirms = newConfirmer(s.confirm, func() time.Duration { return millis(s.lease()) / 10 })
	return s
}

// numbered is the level from which on the directory numbers the lists of nodes.
const numbered = 2

// lease is how long grants are now; 0: nodes are not leased.
func (s *shift) lease() fsm.Millis { return leaseIn(s.k.config.Group.State()) }

func leaseIn(state *fsm.State) fsm.Millis {
	if state.Level() < numbered {
		return 0 // two lists could have the same name
	}
	if state.Recovering() {
		return 0 // architecture §3.8.3
	}
	return state.Settings().AutoFailover
}

func (s *shift) confirm(ctx context.Context) error {
	term, err := s.k.config.Group.Confirm(ctx)
	if err == nil && term != s.term {
		err = fmt.Errorf("the term is %d, not %d", term, s.term)
	}
	return err
}

func (s *shift) run(ctx context.Context) {
	defer s.work.Wait()
	s.work.Go(func() { s.confirms.run(ctx) })
	was := fsm.Millis(-1)
	for ctx.Err() == nil {
		state := s.k.config.Group.State()
		began := time.Now()
		s.setTail(state)
		lease := leaseIn(state)
		s.watchNodes(ctx, state, was != lease)
		was = lease
		// It costs at most a tenth of a core, however fast the directory changes.
		if !pause(ctx, 9*time.Since(began)) {
			return
		}
		if err := s.k.config.Group.WaitRevision(ctx, state.Revision()+1); err != nil && ctx.Err() == nil {
			s.k.config.Logger.Error("the directory cannot be watched; changes reach nodes with their next renewal", "term", s.term, "err", err)
			<-ctx.Done()
		}
	}
}

// pause waits for d, and reports false when ctx ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// watchNodes starts and ends loops as nodes are recorded and deleted, and has
// those look for which something has changed.
func (s *shift) watchNodes(ctx context.Context, state *fsm.State, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := 0
	news := false
	for n := range state.Nodes() {
		l, ok := s.loops[n.Name]
		if ok && l.record.Load().ID != n.ID {
			s.end(n.Name, l)
			ok = false
		}
		if !ok {
			l, news = s.start(ctx, n, state.Settings()), true
		}
		seen++
		list := uint64(state.ListRevision(n.Name))
		if moved := l.record.Swap(n) != n; moved || l.list.Swap(list) != list || all {
			l.look()
		}
	}
	if seen < len(s.loops) {
		news = true
		for name, l := range s.loops {
			if _, ok := state.Node(name); !ok {
				s.end(name, l)
			}
		}
	}
	if news {
		s.k.tell()
	}
}

func (s *shift) start(ctx context.Context, n *fsm.Node, settings fsm.Settings) *loop {
	ctx, cancel := context.WithCancel(ctx)
	from := s.k.config.Clock.Now()
	longest := millis(max(settings.LongestLease, settings.AutoFailover))
	l := newLoop(s, n, newLedger(from, longest, s.k.config.rules), cancel)
	s.loops[n.Name] = l
	s.work.Go(func() { l.run(ctx) })
	return l
}

// end stops the loop of a node that is recorded no more. Its call under way
// ends, and its answer is not seen.
func (s *shift) end(name fsm.NodeName, l *loop) {
	l.cancel()
	delete(s.loops, name)
	s.procs.leave(l)
	s.longer = max(s.longer, l.close())
}

func (s *shift) find(node fsm.NodeName) (*loop, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.loops[node]
	return l, ok
}

// maySettle: see Keeper.MaySettle. Leases that end no later than one that would
// be granted now are no longer than AutoFailover, to a leader that comes later.
func (s *shift) maySettle() bool {
	state := s.k.config.Group.State()
	settings := state.Settings()
	if settings.LongestLease <= settings.AutoFailover {
		return false
	}
	now := s.k.config.Clock.Now()
	end := now + withTenth(millis(settings.AutoFailover))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began+withTenth(millis(settings.LongestLease)) > end || s.longer > end {
		return false
	}
	for _, l := range s.loops {
		if !l.settled(end, millis(settings.AutoFailover)) {
			return false
		}
	}
	return true
}

// waitedOut: see Keeper.WaitedOut.
func (s *shift) waitedOut() bool {
	settings := s.k.config.Group.State().Settings()
	longest := millis(max(settings.LongestLease, settings.AutoFailover))
	return s.k.config.Clock.Now() >= s.began+withTenth(longest)
}

// setTail renders what all grants say alike, if it has changed.
func (s *shift) setTail(state *fsm.State) {
	scope, _ := state.Scope()
	t := &tail{holder: proto.Holder{Authority: scope.Authority(), History: scope.History, Term: s.term},
		servers: s.k.config.Servers()}
	b := []byte(`,"authority":`)
	b = appendString(b, t.holder.Authority)
	b = append(b, `,"history":`...)
	b = strconv.AppendUint(b, t.holder.History, 10)
	b = append(b, `,"term":`...)
	b = strconv.AppendUint(b, t.holder.Term, 10)
	for i, server := range t.servers {
		if i == 0 {
			b = append(b, `,"servers":[`...)
		} else {
			b = append(b, ',')
		}
		b = appendString(b, server)
	}
	if len(t.servers) > 0 {
		b = append(b, ']')
	}
	t.text = string(b)
	s.tail.Store(t)
}
