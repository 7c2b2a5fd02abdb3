package testcluster

import (
	"os"
	"strings"
	"sync"

	"domicile/internal/faultpoint"
)

// points are the rules that a process's labelled points follow.
type points struct {
	file  string // "": the program has no points
	mu    sync.Mutex
	rules []faultpoint.Rule
}

// Fault has the process fail, stop or end at a labelled point from now on, until
// the function that it gives is called. It may be called while the process is
// down.
func (p *Process) Fault(r faultpoint.Rule) (heal func()) {
	p.t.Helper()
	if p.points.file == "" {
		p.t.Fatalf("%s has no labelled points: the deployment was started without Options.Faults", p.Name)
	}
	p.changeRules(func(rules []faultpoint.Rule) []faultpoint.Rule { return append(rules, r) })
	return func() {
		p.changeRules(func(rules []faultpoint.Rule) []faultpoint.Rule {
			for i, have := range rules {
				if have == r {
					return append(rules[:i], rules[i+1:]...)
				}
			}
			return rules
		})
	}
}

// Hits is how often a rule took effect in the process, over its restarts.
func (p *Process) Hits(r faultpoint.Rule) int { return faultpoint.Hits(p.points.file)[r] }

// changeRules writes the file anew, in one step for who reads it.
func (p *Process) changeRules(change func([]faultpoint.Rule) []faultpoint.Rule) {
	p.t.Helper()
	p.points.mu.Lock()
	defer p.points.mu.Unlock()
	p.points.rules = change(p.points.rules)
	var text strings.Builder
	for _, r := range p.points.rules {
		text.WriteString(r.String() + "\n")
	}
	next := p.points.file + ".next"
	err := os.WriteFile(next, []byte(text.String()), 0o600)
	if err == nil {
		err = os.Rename(next, p.points.file)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}
