package store

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Position is a point in a unit's history: the number of commits in the
// branch named by Epoch. The zero Position is before everything.
type Position struct {
	Epoch uint64
	Seq   uint64
}

// String gives "<epoch>:<seq>" in decimal.
func (p Position) String() string {
	return strconv.FormatUint(p.Epoch, 10) + ":" + strconv.FormatUint(p.Seq, 10)
}

// Compare orders positions as pairs: epoch first.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Epoch, q.Epoch), cmp.Compare(p.Seq, q.Seq))
}

// IsZero reports whether p is before everything.
func (p Position) IsZero() bool { return p == Position{} }

// ParsePosition reads what String wrote. It takes no other form.
func ParsePosition(s string) (Position, error) {
	e, q, ok := strings.Cut(s, ":")
	epoch, err1 := strconv.ParseUint(e, 10, 64)
	seq, err2 := strconv.ParseUint(q, 10, 64)
	p := Position{Epoch: epoch, Seq: seq}
	if !ok || err1 != nil || err2 != nil || p.String() != s {
		return Position{}, fmt.Errorf("bad position %q: want <epoch>:<seq>, two decimal numbers", s)
	}
	return p, nil
}
