package leasemodel

import (
	"fmt"
	"io"
	"strings"
)

var leaderNames = [2]string{"the old leader", "the new leader"}

var listNames = [4]string{"no list", "a list without the unit", "a list with the unit, no copies", "a list with the unit and its copy"}

func (m message) String() string {
	if m.isAnswer() {
		s := fmt.Sprintf("the answer to grant %d", m.number())
		if m.inSync() {
			s += " (the copy is in sync)"
		}
		return s
	}
	how := "by name"
	if m.whole() {
		how = "whole"
	}
	return fmt.Sprintf("grant %d (acked %d, boot %d, %s, %s)", m.number(), m.acked(), m.boot(), listNames[m.list()], how)
}

var stepTexts = [...]string{
	StepTick:     "a tick passes",
	StepSlow:     "a tick passes that the primary's clock does not see",
	StepElect:    "a new leader is elected; the old one does not know it",
	StepInherit:  "a new leader is elected, with the entry of the old one's, which does not know it",
	StepSend:     "%l sends %m",
	StepGrant:    "the primary receives %m from %l",
	StepRepeat:   "the primary receives %m from %l, and will once more",
	StepHear:     "the primary hears the new leader by another call",
	StepAnswer:   "%l sees %m",
	StepLapse:    "%l takes the primary for lapsed",
	StepApply:    "the entry that flips the unit is applied",
	StepRefuse:   "the entry that flips the unit is refused",
	StepRecord:   "an entry records the copy",
	StepFollow:   "the copy follows the primary",
	StepRelease:  "the primary releases the unit",
	StepGiven:    "the entry that flips the released unit is applied",
	StepPromote:  "the copy is asked to be promoted",
	StepAsk:      "the primary asks the copy for a promise",
	StepPromise:  "the copy receives the request for a promise",
	StepPromised: "the primary sees the promise",
	StepRestart:  "the primary restarts",
	StepRestartB: "the copy restarts",
	StepWrite:    "the primary lets a write in",
	StepWritten:  "the primary answers the write",
}

// Print writes a trace, a line for each step with what the nodes may do after
// it.
func (m *Model) Print(w io.Writer, trace []Found) {
	for i, f := range trace {
		text := "the beginning"
		if i > 0 {
			text = stepTexts[f.Step.Kind]
			text = strings.ReplaceAll(text, "%l", leaderNames[f.Step.Leader])
			text = strings.ReplaceAll(text, "%m", f.Step.Msg.String())
		}
		s := &f.State
		may := "may not write"
		if s.mayWrite(&m.Rule, &m.Bounds) {
			may = "may write"
		}
		copyIs := fmt.Sprintf("promises %d", s.Promised)
		if s.Promoted != 0 {
			copyIs = "promoted"
		}
		fmt.Fprintf(w, "%3d  %-100s  primary: lease %d, promise %d, %s; until lapsed: %d, %d; copy: %s\n", i, text, s.deadline(), s.Window, may, s.Until[0], s.Until[1], copyIs)
	}
}
