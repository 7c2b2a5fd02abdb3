package node

import (
	"fmt"
	"strings"
	"testing"

	"domicile/internal/wait"
)

// TestM3AUnitIsGivenUpOnlyOnceItsWritesAreAnswered: a write that waits for a copy which
// is silent has no answer yet. Were the unit given to its target meanwhile, nobody could
// tell the client any more what became of it.
func TestM3AUnitIsGivenUpOnlyOnceItsWritesAreAnswered(t *testing.T) {
	p, f := startPair(t)
	target := startLeased(t, nil)
	target.admin(200, "POST", "follow", fmt.Sprintf(`{"units":[{"unit":"acme","id":1,"epoch":1,"kind":"target"}],"from":%q,"as":%q,"token":%q,"authority":"c1/global","history":1,"term":1}`,
		p.url, target.url, adminToken))
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan answer, 1)
	go func() { answered <- p.do("POST", "/t/acme/query", insert) }()
	handOver := fmt.Sprintf(`{"job":"7","ms":300,"units":[{"unit":"acme","id":1,"node":"n3","addr":%q}],"authority":"c1/global","history":1,"term":1}`, target.url)
	wait.For(t, "the write to be there, and the target to have it", func() error {
		if a := target.admin(200, "GET", "tenants/acme/position", ""); !strings.Contains(a.body, `"position":"1:2"`) {
			return fmt.Errorf("%s", a.body)
		}
		return nil
	})
	if a := p.admin(200, "POST", "handover", handOver); !strings.Contains(a.body, `"released":[]`) {
		t.Errorf("it was given up while a write waited: %s", a.body)
	}
	if a := p.admin(200, "GET", "units", ""); !strings.Contains(a.body, `"role":"primary"`) || strings.Contains(a.body, `"sent"`) {
		t.Errorf("%s", a.body)
	}
	// The leader takes the silent copy out; the write is answered, and the unit may go.
	p.admin(200, "POST", "lease", fmt.Sprintf(`{"ms":60000,"epoch":"7","grant":%d,"acked":%d,"authority":"c1/global","history":1,"term":1,"primaries":[{"unit":"acme","id":1}],"copies":{"acme":[%q]},"in_sync":{"acme":[]}}`, p.next, p.next-1, f.url))
	if a := <-answered; a.status != 200 {
		t.Errorf("the write: %d %s", a.status, a.body)
	}
	if a := p.admin(200, "POST", "handover", strings.Replace(handOver, `"7"`, `"8"`, 1)); !strings.Contains(a.body, `"tenant":"acme"`) || strings.Contains(a.body, "why") {
		t.Errorf("%s", a.body)
	}
}
