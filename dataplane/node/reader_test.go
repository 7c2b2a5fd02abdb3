package node

import (
	"strings"
	"testing"
)

// TestC8ACopyThatHoldsNothingYetAnswersNoRead: its primary does, as the refusal has no
// effect; an empty database would be a wrong answer.
func TestC8ACopyThatHoldsNothingYetAnswersNoRead(t *testing.T) {
	p, f := startPair(t)
	// What p does not hold never comes.
	body := strings.Replace(strings.Replace(f.follows(p, 1), `"acme"`, `"bare"`, 1), `"epoch":1`, `"epoch":1,"kind":"reader"`, 1)
	if a := f.admin(200, "POST", "follow", body); !strings.Contains(a.body, `"following":["bare"]`) {
		t.Fatal(a.body)
	}
	for _, headers := range [][]string{
		{"Domicile-Mode", "read"},
		{"Domicile-Mode", "read", "Domicile-Prefer", "replica", "Domicile-Route", "bare 7 copy"},
		{"Domicile-Mode", "read", "Domicile-After", "1:1"},
	} {
		for _, path := range []string{"/t/bare/query", "/t/bare/v2/pipeline", "/t/bare/v3/cursor"} {
			if a := f.want(503, "POST", path, `{"sql":"select 1","requests":[],"batch":{"steps":[]}}`, headers...); a.code() != "transfer_in_progress" || a.header.Get("Retry-After") == "" {
				t.Errorf("%s %v: %s", path, headers, a.body)
			}
		}
	}
}
