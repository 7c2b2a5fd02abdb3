package lease

import (
	"fmt"
	"sync"

	"domicile/fsm"
)

// noProcess is a boot that no process has: a grant to it is answered with the
// node's own (412), and never taken.
const noProcess = "-"

// processes says which node each process is. A process that is reached under two
// names (two spellings of an address, a name or an address that was given to
// another machine) is the node that was recorded first; the other one gets no
// grant. One process would otherwise take the lists of both, and count its time by
// either.
type processes struct {
	mu   sync.Mutex
	node map[string]*loop // by boot
}

// claim says that the process boot answers as l's node, and reports whether it is
// that node; else other is the node that it is.
func (p *processes) claim(boot string, l *loop) (other fsm.NodeName, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	has := p.node[boot]
	if has != nil && has != l && has.id < l.id {
		return has.name, false
	}
	if has != l {
		p.give(l)
		if p.node == nil {
			p.node = make(map[string]*loop)
		}
		p.node[boot], l.process = l, boot
	}
	return "", true
}

// leave forgets the process of a node that is recorded no more.
func (p *processes) leave(l *loop) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.give(l)
}

func (p *processes) give(l *loop) {
	if p.node[l.process] == l {
		delete(p.node, l.process)
	}
}

// another tells that the process at the node's address is another node's.
func another(other fsm.NodeName) error {
	return fmt.Errorf("the process at its address is node %s: a node has one name; delete one of the two, or change its addr", other)
}
