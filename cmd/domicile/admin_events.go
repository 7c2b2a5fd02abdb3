package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"domicile/fsm"
)

// adminEvents watches what happens, a line per event, until it is stopped.
type adminEvents struct{}

// Run prints events as they come.
func (adminEvents) Run(a *admin) error {
	for e, err := range a.Events(a.ctx) {
		switch {
		case a.ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case a.json:
			enc := json.NewEncoder(a.out.stdout)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(e); err != nil {
				return err
			}
			continue
		}
		line := []string{fmt.Sprintf("revision %d", e.Revision), string(e.Event)}
		for _, f := range []struct{ key, value string }{{"tenant", string(e.Tenant)}, {"node", string(e.Node)}, {"from", string(e.From)}, {"leader", string(e.Leader)},
			{"move", moveNumber(e.Move)}, {"cause", e.Cause}, {"problem", e.Problem}} {
			if f.value != "" {
				line = append(line, f.key+" "+f.value)
			}
		}
		if e.Region != nil {
			line = append(line, fmt.Sprintf("region %q", *e.Region))
		}
		if _, err := fmt.Fprintln(a.out.stdout, strings.Join(line, "  ")); err != nil {
			return err
		}
	}
	return nil
}

// moveNumber names a move to people; none is "".
func moveNumber(id fsm.JobID) string {
	if id == 0 {
		return ""
	}
	return id.String()
}
