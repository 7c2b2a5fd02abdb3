package controlplane

import (
	"fmt"
	"sync"

	"domicile/controlplane/loops"
	"domicile/fsm"
	"domicile/proto"
)

// changes collects, while this server leads, what changed in the directory
// since its planners looked last, as the group's Feed tells it, and what
// operators ask of them.
type changes struct {
	mu      sync.Mutex
	on      bool
	all     bool
	units   []fsm.UnitName
	nodes   []fsm.NodeName
	hurry   fsm.Millis
	hurried chan struct{}
}

// changesKept is how many units may wait: beyond that all are looked at.
const changesKept = 100_000

func newChanges() *changes { return &changes{hurried: make(chan struct{}, 1)} }

// collect begins or ends to collect. A new leader looks at everything anyway.
func (c *changes) collect(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.on, c.all, c.units, c.nodes, c.hurry = on, false, nil, nil, 0
}

// publish takes what a change of the directory tells; before is the state before it,
// nil where it is not known.
func (c *changes) publish(before *fsm.State, events []fsm.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.on {
		return
	}
	for i := range events {
		switch e := &events[i]; {
		case e.Unit != nil:
			c.units = append(c.units, e.Unit.Unit)
		case e.Node != nil && onlyLost(before, e.Node):
			c.nodes = append(c.nodes, e.Node.Name)
		case e.Node != nil, e.NodeGone != "":
			c.all = true
		}
	}
	if len(c.units) > changesKept {
		c.all, c.units = true, nil
	}
}

// everything says that what changed is not known, or concerns all units.
func (c *changes) everything() {
	c.mu.Lock()
	c.all = true
	c.mu.Unlock()
	c.wake()
}

// node says that the units of a node are to be looked at.
func (c *changes) node(n fsm.NodeName) {
	c.mu.Lock()
	c.nodes = append(c.nodes, n)
	c.mu.Unlock()
	c.wake()
}

// repair has copies repaired without a grace until a time.
func (c *changes) repair(until fsm.Millis) {
	c.mu.Lock()
	c.hurry = max(c.hurry, until)
	c.mu.Unlock()
	c.wake()
}

func (c *changes) wake() {
	select {
	case c.hurried <- struct{}{}:
	default:
	}
}

// tell hands over what was collected.
func (c *changes) tell(m *loops.Memory) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range c.units {
		m.Changed(u)
	}
	for _, n := range c.nodes {
		m.ChangedNode(n)
	}
	if c.all {
		m.ChangedAll()
	}
	if c.hurry != 0 {
		m.Hurry(c.hurry)
	}
	c.all, c.units, c.nodes, c.hurry = false, c.units[:0], nil, 0
}

// knowledge is what the executor learned in its term that answers to operators
// tell: why a node did not do something for a unit, and what was lost.
type knowledge struct {
	mu      sync.Mutex
	trouble map[fsm.UnitName]string
	lost    map[fsm.UnitName]proto.PositionRange
	moves   map[fsm.JobID]MoveProgress
	told    map[string]bool // what was lost, as this process told it in any term
	// receives is how far units from other directories are, and between whom relocations
	// go; changed is closed when one of the former is news.
	receives map[fsm.JobID]loops.Receiving
	between  map[fsm.JobID]loops.Between
	changed  chan struct{}
}

// knowledgeKept bounds each map; what is beyond is not told.
const knowledgeKept = 100_000

func (k *knowledge) clear() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.trouble, k.lost = make(map[fsm.UnitName]string), make(map[fsm.UnitName]proto.PositionRange)
	k.moves = make(map[fsm.JobID]MoveProgress)
	k.receives, k.between = make(map[fsm.JobID]loops.Receiving), make(map[fsm.JobID]loops.Between)
}

// note keeps what stands in the way of a call's units, or that nothing does.
func (k *knowledge) note(a loops.Action, answer loops.Answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, i := range a.Units {
		failure, failed := answer.Failed[i.Unit]
		switch {
		case answer.Outcome == loops.Done && !failed:
			delete(k.trouble, i.Unit)
			continue
		case len(k.trouble) >= knowledgeKept:
		case failed:
			k.trouble[i.Unit] = "node " + string(a.Target.Node) + ": " + failure.Why
		case answer.Refusal != nil:
			k.trouble[i.Unit] = answer.Refusal.Text
		}
	}
}

func (k *knowledge) why(u fsm.UnitName) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.trouble[u]
}

func (k *knowledge) found(u fsm.UnitName, lost proto.PositionRange) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.lost) < knowledgeKept {
		k.lost[u] = lost
	}
}

// first reports whether a finding was not told by this process yet.
func (k *knowledge) first(f *loops.Finding) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := fmt.Sprint(f.Node, f.Unit, f.From, f.To, f.Files)
	if k.told[key] {
		return false
	}
	if k.told == nil {
		k.told = make(map[string]bool)
	}
	if len(k.told) < knowledgeKept {
		k.told[key] = true
	}
	return true
}

// lostOf gives what a unit's former primary had acknowledged alone, once known.
func (k *knowledge) lostOf(u fsm.UnitName) *proto.PositionRange {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r, ok := k.lost[u]; ok {
		return &r
	}
	return nil
}
