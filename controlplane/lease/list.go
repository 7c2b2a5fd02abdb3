package lease

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"domicile/fsm"
)

// list is what a node may write, as the directory has it at rev. Records are
// shared with the directory.
type list struct {
	rev fsm.Revision
	// name is the epoch by which a grant names the list: the revision and the node's
	// id, so that the lists of two nodes are never taken for each other.
	name  string
	units []*fsm.Placed           // in the order of compareUnits
	addrs map[fsm.NodeName]string // base URLs of the nodes of their copies
}

// listOf gives the present list of a node.
func listOf(state *fsm.State, node fsm.NodeName) *list {
	l := &list{rev: state.ListRevision(node), addrs: make(map[fsm.NodeName]string)}
	if n, ok := state.Node(node); ok {
		l.name = fmt.Sprintf("%d-%d", l.rev, n.ID)
	}
	for p := range state.Grantable(node) {
		l.units = append(l.units, p)
		for _, c := range p.Copies {
			if _, known := l.addrs[c.Node]; known || !c.State.Listed() {
				continue
			}
			if n, ok := state.Node(c.Node); ok {
				l.addrs[c.Node] = baseURL(n.Addr)
			}
		}
	}
	if !slices.IsSortedFunc(l.units, compareUnits) {
		slices.SortFunc(l.units, compareUnits)
	}
	return l
}

// baseURL gives the base URL of a recorded address.
func baseURL(addr string) string {
	if strings.Contains(addr, "://") {
		return addr
	}
	return "http://" + addr
}

// compareUnits orders by the entry that created the units, then by name: that
// is how the directory yields them, but for the buckets of one tenant.
func compareUnits(a, b *fsm.Placed) int {
	if c := cmp.Compare(a.ID, b.ID); c != 0 {
		return c
	}
	return cmp.Compare(a.Unit, b.Unit)
}

// same reports whether a node need not be told of a change from a, in the list
// old, to b, in l: both are the same unit.
func (l *list) same(old *list, a, b *fsm.Placed) bool {
	if a.Epoch != b.Epoch {
		return false
	}
	i := 0
	for _, c := range b.Copies {
		if !c.State.Listed() {
			continue
		}
		for i < len(a.Copies) && !a.Copies[i].State.Listed() {
			i++
		}
		if i == len(a.Copies) || a.Copies[i].Node != c.Node || a.Copies[i].State.Counts() != c.State.Counts() ||
			old.addrs[c.Node] != l.addrs[c.Node] {
			return false
		}
		i++
	}
	return !slices.ContainsFunc(a.Copies[i:], func(c fsm.Copy) bool { return c.State.Listed() })
}

// whole writes the members of a grant that state the list whole.
func (l *list) whole() []byte {
	b := []byte(`"primaries":`)
	b = appendItems(b, l.units)
	return l.appendCopies(b, l.units)
}

// since writes the members of a grant that make l of base.
func (l *list) since(base *list) []byte {
	var add, gone []*fsm.Placed
	was, is := base.units, l.units
	for len(was) > 0 || len(is) > 0 {
		switch {
		case len(is) == 0 || len(was) > 0 && compareUnits(was[0], is[0]) < 0:
			gone, was = append(gone, was[0]), was[1:]
		case len(was) == 0 || compareUnits(was[0], is[0]) > 0:
			add, is = append(add, is[0]), is[1:]
		default:
			if !l.same(base, was[0], is[0]) {
				add = append(add, is[0])
			}
			was, is = was[1:], is[1:]
		}
	}
	if len(add)+len(gone) > len(l.units) {
		return l.whole()
	}
	b := append([]byte(`"base":"`), base.name...)
	b = append(b, '"')
	if len(add) > 0 {
		b = append(b, `,"add":`...)
		b = appendItems(b, add)
	}
	if gone = without(gone, add); len(gone) > 0 {
		b = append(b, `,"remove":`...)
		b = appendItems(b, gone)
	}
	return l.appendCopies(b, add)
}

// without leaves out of gone the units that are added again under their name:
// a node's list holds each name once, and adding replaces.
func without(gone, add []*fsm.Placed) []*fsm.Placed {
	if len(gone) == 0 || len(add) == 0 {
		return gone
	}
	again := make(map[fsm.UnitName]bool, len(add))
	for _, p := range add {
		again[p.Unit] = true
	}
	return slices.DeleteFunc(gone, func(p *fsm.Placed) bool { return again[p.Unit] })
}

func appendItems(b []byte, units []*fsm.Placed) []byte {
	b = append(b, '[')
	for i, p := range units {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"unit":`...)
		b = appendString(b, string(p.Unit))
		b = append(b, `,"id":`...)
		b = strconv.AppendUint(b, uint64(p.ID), 10)
		if p.Epoch != 0 {
			b = append(b, `,"epoch":`...)
			b = strconv.AppendUint(b, p.Epoch, 10)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// appendCopies writes the copies of units: all that an entry may promote, and
// those that count.
func (l *list) appendCopies(b []byte, units []*fsm.Placed) []byte {
	b = l.appendAddresses(b, `,"copies":{`, units, fsm.CopyState.Follows)
	return l.appendAddresses(b, `,"in_sync":{`, units, fsm.CopyState.Counts)
}

func (l *list) appendAddresses(b []byte, head string, units []*fsm.Placed, which func(fsm.CopyState) bool) []byte {
	any := false
	for _, p := range units {
		first := true
		for _, c := range p.Copies {
			addr, ok := l.addrs[c.Node]
			if !ok || !which(c.State) {
				continue
			}
			switch {
			case first && any:
				b = append(b, "],"...)
			case first:
				b = append(b, head...)
			default:
				b = append(b, ',')
			}
			if first {
				b = appendString(b, string(p.Unit))
				b = append(b, ":["...)
			}
			b = appendString(b, addr)
			first, any = false, true
		}
	}
	if any {
		b = append(b, "]}"...)
	}
	return b
}

// appendString writes s as JSON. Names and addresses of the directory need no
// escapes.
func appendString(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // strings do not fail
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
