package lease

import "domicile/fsm"

// held knows which list a node holds, so that a grant carries no more of the
// present one than the node lacks. What is rendered for a change is rendered
// once.
type held struct {
	base   *list   // the node has answered that it holds it; nil: not known
	whole  bool    // the node has said that it holds none that is known here
	recent []*list // lists that were sent last and not answered, oldest first
	// text leads from textBase, nil for the whole, to textOf.
	text             []byte
	textBase, textOf *list
}

// maxRecent bounds held.recent: a node that holds an older one gets the whole.
const maxRecent = 3

// next gives the members of a grant that lead to list now: none where the node
// holds it, or may.
func (h *held) next(now *list) []byte {
	if len(h.recent) == 0 || h.recent[len(h.recent)-1] != now {
		if len(h.recent) == maxRecent {
			h.recent = append(h.recent[:0], h.recent[1:]...)
		}
		h.recent = append(h.recent, now)
	}
	switch {
	case h.whole:
		if h.textOf != now || h.textBase != nil {
			h.text, h.textBase, h.textOf = now.whole(), nil, now
		}
	case h.base == nil || h.base.rev == now.rev:
		return nil
	case h.textOf != now || h.textBase != h.base:
		h.text, h.textBase, h.textOf = now.since(h.base), h.base, now
	}
	return h.text
}

// took notes that the node has answered that it holds the list sent last.
func (h *held) took() {
	*h = held{base: h.recent[len(h.recent)-1]}
}

// lacks notes that the node does not hold what the last grant built on, but the
// list that epoch names. It returns false when it was sent whole, which needs
// nothing to build on.
func (h *held) lacks(epoch string) bool {
	if h.whole {
		return false
	}
	for _, l := range append([]*list{h.base}, h.recent...) {
		if l != nil && l != h.base && l.name == epoch {
			h.base = l
			return true
		}
	}
	h.base, h.whole = nil, true
	return true
}

// forget makes the next grant carry the list whole: another process answers.
func (h *held) forget() { *h = held{whole: true, recent: h.recent} }

// lists finds the present list of a node, anew only when it has changed.
func (l *loop) present(state *fsm.State) *list {
	if l.now == nil || l.now.rev != state.ListRevision(l.name) {
		l.now = listOf(state, l.name)
	}
	return l.now
}
