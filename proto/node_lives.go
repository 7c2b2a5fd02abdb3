package proto

import (
	"fmt"
	"strings"

	"domicile/fsm"
)

// UnitPosition answers GET /_admin/tenants/<unit>/position: where the unit stands, and
// the branches that its history went through, oldest first.
type UnitPosition struct {
	Position string     `json:"position"`
	ID       fsm.UnitID `json:"id"`
	Branches []Branch   `json:"branches"`
}

// Branch is a part of a unit's history: commits after number From have positions of
// Epoch.
type Branch struct {
	Epoch uint64 `json:"epoch"`
	From  uint64 `json:"from"`
}

// Lives is the text of HeaderLives: the position, then each branch as <epoch>:<from>,
// with spaces between. Of a long history the oldest branches are left out.
func (p *UnitPosition) Lives() string {
	const named = 100
	text := p.Position
	for _, b := range p.Branches[max(len(p.Branches)-named, 0):] {
		text += fmt.Sprintf(" %d:%d", b.Epoch, b.From)
	}
	return text
}

// ParseLives reads the text of HeaderLives: positions, the first one where the unit
// stands, each other one where a branch begins.
func ParseLives(text string) []string { return strings.Fields(text) }
