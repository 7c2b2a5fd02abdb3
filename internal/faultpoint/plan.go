package faultpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Env names the file of a process's rules.
const Env = "DOMICILE_FAULTPOINTS"

// Action is what happens at a point.
type Action string

// Actions.
const (
	Fail  Action = "fail"  // the call fails with EIO
	Full  Action = "full"  // the call fails with ENOSPC
	Hang  Action = "hang"  // the call waits until its rule is taken out
	Pause Action = "pause" // the process stops itself (SIGSTOP)
	Kill  Action = "kill"  // the process ends itself (SIGKILL)
)

// Any is an On that every point of the label has.
const Any = "*"

// Rule says what happens at a point.
type Rule struct {
	Action Action
	Label  string // of the point
	On     string // what the point is about there: a unit, a command; Any
	Times  int    // how often; 0: as long as the rule is there
}

// String is the rule's line.
func (r Rule) String() string {
	return fmt.Sprintf("%s %s %s %d", r.Action, r.Label, r.On, r.Times)
}

// Parse reads lines of rules.
func Parse(text []byte) (rules []Rule, err error) {
	for line := range bytes.Lines(text) {
		f := strings.Fields(string(line))
		if len(f) != 4 {
			return nil, fmt.Errorf("rule %q: want action, label, on, times", line)
		}
		r := Rule{Action: Action(f[0]), Label: f[1], On: f[2]}
		if r.Times, err = strconv.Atoi(f[3]); err != nil {
			return nil, fmt.Errorf("rule %q: %w", line, err)
		}
		switch r.Action {
		case Fail, Full, Hang, Pause, Kill:
		default:
			return nil, fmt.Errorf("rule %q: unknown action %s", line, r.Action)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// Hits counts how often each rule of a file took effect.
func Hits(file string) map[Rule]int {
	text, _ := os.ReadFile(file + ".hits") // none yet: nothing took effect
	rules, err := Parse(text)
	if err != nil {
		panic(err) // nobody else writes that file
	}
	hits := map[Rule]int{}
	for _, r := range rules {
		hits[r]++
	}
	return hits
}

// Plan is a file of rules as a process follows it.
type Plan struct {
	file string
	mu   sync.Mutex // of the file of hits
}

// Open gives the plan in a file, which may not be there; "" has no rules.
func Open(file string) *Plan { return &Plan{file: file} }

// At does what the first rule for a point says, if there is one.
func (p *Plan) At(label, on string) error {
	r, ok := p.take(label, on)
	if !ok {
		return nil
	}
	switch r.Action {
	case Fail:
		return fmt.Errorf("fault at %s %s: %w", label, on, syscall.EIO)
	case Full:
		return fmt.Errorf("fault at %s %s: %w", label, on, syscall.ENOSPC)
	case Pause:
		return syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case Kill:
		return errors.Join(syscall.Kill(os.Getpid(), syscall.SIGKILL), errors.New("still alive"))
	default:
		for p.has(r) {
			time.Sleep(time.Millisecond)
		}
		return nil
	}
}

// take finds the rule for a point and notes that it takes effect.
func (p *Plan) take(label, on string) (Rule, bool) {
	if p.file == "" {
		return Rule{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules() {
		if r.Label != label || r.On != on && r.On != Any || r.Times > 0 && Hits(p.file)[r] >= r.Times {
			continue
		}
		f, err := os.OpenFile(p.file+".hits", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err == nil {
			_, err = fmt.Fprintln(f, r)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			panic(err) // a fault that nobody would know of
		}
		return r, true
	}
	return Rule{}, false
}

func (p *Plan) has(r Rule) bool {
	for _, have := range p.rules() {
		if have == r {
			return true
		}
	}
	return false
}

func (p *Plan) rules() []Rule {
	text, err := os.ReadFile(p.file)
	if err != nil {
		return nil // not written yet, or taken out
	}
	rules, err := Parse(text)
	if err != nil {
		panic(err) // a plan that is not followed would pass every test
	}
	return rules
}
