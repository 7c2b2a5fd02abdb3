package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"domicile/fsm"
	"domicile/internal/boottime"
)

// world is one node under leaders that come and go. Whenever a leader takes the
// node for lapsed, an entry gives its unit to another node; from that entry on
// the node must not write it.
type world struct {
	*testLog
	rules rules
	rand  *rand.Rand // of the world's own goroutine
	node  *testNode
	clock boottime.Clock
	unit  fsm.UnitName // that the node has now, or had last
	given int          // entries that gave it away
	bad   string
}

const theNode fsm.NodeName = "n1"

func newWorld(t *testing.T, seed uint64, r rules) *world {
	w := &world{testLog: newTestLog(t, 1000, leased(theNode)), rules: r, clock: boottime.NewRuntime(),
		rand: rand.New(rand.NewPCG(seed, 1))}
	w.node = newTestNode(w.clock)
	w.node.slow = 1.09
	w.node.onTake = func() { w.check("a grant was taken") }
	w.giveBack()
	return w
}

// giveBack lets the node have a unit that no other has had.
func (w *world) giveBack() {
	w.change(func(r *records, rev fsm.Revision) {
		w.unit = fsm.UnitName(fmt.Sprint("u", rev))
		clear(r.units)
		r.units[w.unit] = unit(string(w.unit), uint64(rev), theNode)
	}, theNode)
}

func (w *world) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bad != ""
}

// check fails when the node may write a unit that the log gives to another one.
// The node's mu is held.
func (w *world) check(when string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for u := range w.node.list {
		if _, has := w.now.units[u]; !has && w.node.mayWrite(u) && w.bad == "" {
			w.bad = fmt.Sprintf("%v: %s: the node writes %s for %v more, and it was given away", w.clock.Now(), when, u, max(w.node.deadline, w.node.former)-w.clock.Now())
		}
	}
}

// leader is a term: its keeper, and the planner that acts on lapses.
type leader struct {
	*member
	k    *Keeper
	net  *network
	stop func()
}

func (w *world) elect() *leader {
	w.mu.Lock()
	w.term++
	term := w.term
	w.mu.Unlock()
	own := rand.New(rand.NewPCG(w.rand.Uint64(), term))
	l := &leader{member: &member{testLog: w.testLog, term: term}, net: newNetwork(map[string]*testNode{string(theNode) + ":1": w.node})}
	l.net.rand = own
	l.confirm = func(ctx context.Context) error {
		l.net.mu.Lock()
		before, after := time.Duration(own.IntN(4000))*time.Microsecond, time.Duration(0)
		if own.IntN(3) == 0 {
			before, after = 0, time.Duration(own.IntN(800))*time.Millisecond
		}
		l.net.mu.Unlock()
		time.Sleep(before)
		led := l.leads() // the majority answers
		time.Sleep(after)
		if !led {
			return errDeposed
		}
		return ctx.Err()
	}
	l.k = New(Config{Group: l.member, Clock: w.clock, Logger: quiet(), rules: w.rules, lines: l.net.line})
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { l.k.Run(ctx, term) })
	seed := w.rand.Uint64()
	work.Go(func() { w.plan(ctx, l, rand.New(rand.NewPCG(seed, term))) })
	l.stop = func() {
		cancel()
		work.Wait()
		l.net.work.Wait()
	}
	return l
}

// plan gives away what a lapsed node has, some time after it saw that.
func (w *world) plan(ctx context.Context, l *leader, own *rand.Rand) {
	for ctx.Err() == nil {
		changed := l.k.Changed()
		if s, _ := l.k.Node(theNode); s.Lapsed {
			if !pause(ctx, time.Duration(own.IntN(1500))*time.Millisecond) {
				return
			}
			w.give(l)
			l.k.Resume(theNode, s.Lapse)
		}
		if own.IntN(4) == 0 && l.k.MaySettle() {
			w.settle(l)
		}
		select {
		case <-changed:
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// give applies the entry, if l leads.
func (w *world) give(l *leader) {
	w.node.mu.Lock()
	defer w.node.mu.Unlock()
	w.mu.Lock()
	if w.term == l.term {
		w.apply(func(r *records, _ fsm.Revision) { clear(r.units) }, theNode)
		w.given++
	}
	w.mu.Unlock()
	w.check("the entry was applied")
}

func (w *world) settle(l *leader) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.term == l.term {
		w.apply(func(r *records, _ fsm.Revision) { r.settings.LongestLease = r.settings.AutoFailover })
	}
}

// live lets d pass with everything that can go wrong.
func (w *world) live(d time.Duration) {
	leaders := []*leader{w.elect()}
	for end := w.clock.Now() + d; w.clock.Now() < end && !w.failed(); {
		time.Sleep(time.Duration(w.rand.IntN(1200)) * time.Millisecond)
		newest := leaders[len(leaders)-1]
		switch w.rand.IntN(8) {
		case 0: // a new leader; the old one may not notice for long
			w.mu.Lock()
			newest.cut = w.state
			w.mu.Unlock()
			leaders = append(leaders, w.elect())
			if len(leaders) > 3 {
				leaders[0].stop()
				leaders = leaders[1:]
			}
		case 1:
			w.node.restart()
		case 2, 3: // one leader does not reach the node for a while, or does again
			l := leaders[w.rand.IntN(len(leaders))]
			l.net.mu.Lock()
			l.net.cut = !l.net.cut
			l.net.mu.Unlock()
		case 4:
			length := []fsm.Millis{300, 1000, 2500}[w.rand.IntN(3)]
			w.change(func(r *records, _ fsm.Revision) {
				r.settings.AutoFailover = length
				r.settings.LongestLease = max(r.settings.LongestLease, length)
			})
		default:
			w.mu.Lock()
			has := len(w.now.units) > 0
			w.mu.Unlock()
			if !has {
				w.giveBack()
			}
		}
		w.node.mu.Lock()
		w.check("time has passed")
		w.node.mu.Unlock()
	}
	for _, l := range leaders {
		l.stop()
	}
}

// TestI1NodeIsSilentOnceItsUnitsAreGiven lets leaders, messages and the node go
// wrong at random: no node writes what an entry has given to another on the word
// of a keeper (I1, L3, architecture §3.5).
func TestI1NodeIsSilentOnceItsUnitsAreGiven(t *testing.T) {
	given := 0
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, seed, rules{})
			w.live(60 * time.Second)
			given += w.given
			if w.bad != "" {
				t.Errorf("seed %d: %s", seed, w.bad)
			}
		})
	}
	if given < 100 {
		t.Errorf("units were given away %d times; the walk does not meet what it is for", given)
	}
}

// TestI1EachClauseIsNeeded leaves out one rule at a time: the same walk finds
// two writers then.
func TestI1EachClauseIsNeeded(t *testing.T) {
	for name, r := range map[string]rules{
		"a grant confirms itself (clause 2)":                  {confirmAtOnce: true},
		"an answer confirms without a check (clause 4)":       {trustAnswers: true},
		"a check confirms what it did not begin after (4)":    {trustUnderWay: true},
		"a new leader waits for nobody (clause 5)":            {noElectionWait: true},
		"clocks do not drift (clause 3)":                      {noTenth: true},
		"grants go on before the entry (clause 3)":            {grantWhileTaken: true},
		"a longer grant counts for as long as now (clause 3)": {presentLength: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(300) {
				bad := ""
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, seed, r)
					w.live(60 * time.Second)
					bad = w.bad
				})
				if bad != "" {
					t.Logf("seed %d: %s", seed, bad)
					return
				}
			}
			t.Error("the walk finds no second writer without this rule")
		})
	}
}
