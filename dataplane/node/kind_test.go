package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"domicile/internal/wait"
)

// followAs has f follow p for the unit of startPair, as a copy of that kind.
func (n *leasedNode) followAs(p *leasedNode, kind string) {
	n.t.Helper()
	body := strings.Replace(n.follows(p, 1), `"epoch":1`, fmt.Sprintf(`"epoch":1,"kind":%q`, kind), 1)
	if a := n.admin(200, "POST", "follow", body); !strings.Contains(a.body, `"following":["acme"]`) {
		n.t.Fatal(a.body)
	}
}

// awaitUnit waits until GET units says all that of the unit acme.
func (n *leasedNode) awaitUnit(says ...string) {
	n.t.Helper()
	wait.For(n.t, "the unit's line", func() error {
		a := n.admin(200, "GET", "units", "").body
		for _, want := range says {
			if !strings.Contains(a, want) {
				return errors.New("no " + want + " in " + a)
			}
		}
		return nil
	})
}

// TestM2ATargetIsFilledAndNeitherReadNorWritten: it is a copy in all but what it answers,
// becomes an ordinary one, and a target again, without being copied again, and is promoted.
func TestM2ATargetIsFilledAndNeitherReadNorWritten(t *testing.T) {
	p, f := startPair(t)
	images := f.s.replica.Images()
	f.followAs(p, "target")
	refused := func() {
		t.Helper()
		for _, headers := range [][]string{nil, {"Domicile-Mode", "read"}} {
			for _, sql := range []string{`{"sql":"select 1"}`, insert} {
				if a := f.want(503, "POST", "/t/acme/query", sql, headers...); a.code() != "transfer_in_progress" || a.header.Get("Retry-After") == "" {
					t.Errorf("%s", a.body)
				}
			}
		}
	}
	refused()
	p.want(200, "POST", "/t/acme/query", insert)
	f.awaitUnit(`"state":"receiving","role":"replica","position":"1:2"`, `"kind":"target"`)
	f = f.again()
	refused()
	f.followAs(p, "target") // from the address that it has now
	f.awaitUnit(`"state":"receiving","role":"replica","position":"1:2"`)
	f.followAs(p, "")
	f.awaitUnit(`"state":"following"`)
	f.want(200, "POST", "/t/acme/query", `{"sql":"select 1"}`, "Domicile-Mode", "read")
	f.followAs(p, "target")
	refused()
	if got := f.s.replica.Images(); images > 1 || got != 0 {
		t.Errorf("%d images, then %d: it was copied again", images, got)
	}
	if a := f.admin(200, "POST", "promote", `{"tenants":[{"unit":"acme","id":1}],"epoch":"40","authority":"c1/global","history":1,"term":1}`); !strings.Contains(a.body, `"position":"40:2"`) {
		t.Errorf("%s", a.body)
	}
	f.awaitUnit(`"state":"active","role":"primary","position":"40:2"`)
}

// TestC8AReaderIsNeverPromoted: nor does its source ask for a promise of it, or its
// acknowledgement; one that becomes a copy is promoted once its source has heard so.
func TestC8AReaderIsNeverPromoted(t *testing.T) {
	p, f := startPair(t)
	promote := `{"tenants":[{"unit":"acme","id":1}],"epoch":"40","authority":"c1/global","history":1,"term":1}`
	refused := func(why string) {
		t.Helper()
		if a := f.admin(200, "POST", "promote", strings.Replace(promote, `"40"`, `"1"`, 1)); !strings.Contains(a.body, `"promoted":[]`) || !strings.Contains(a.body, `"code":"wrong_state"`) || !strings.Contains(a.body, why) {
			t.Errorf("%s", a.body)
		}
		if a := f.admin(409, "POST", "tenants/acme/promote", `{"epoch":"1","authority":"c1/global","history":1,"term":1}`); a.code() != "wrong_state" {
			t.Errorf("%s", a.body)
		}
	}
	f.followAs(p, "reader")
	refused("read replica")
	f.awaitUnit(`"state":"following"`, `"kind":"reader"`)
	wait.For(t, "the source to hear of it", func() error {
		if l := p.s.replica.FollowersSince("acme", time.Time{}); len(l) != 0 {
			return fmt.Errorf("%v", l)
		}
		return nil
	})
	f.want(200, "POST", "/t/acme/query", `{"sql":"select 1"}`, "Domicile-Mode", "read")
	f = f.again()
	refused("read replica")
	f.followAs(p, "reader")
	f.followAs(p, "")
	f.awaitUnit(`"state":"following"`)
	wait.For(t, "it to be promoted", func() error {
		if a := f.admin(200, "POST", "promote", promote); !strings.Contains(a.body, `"promoted":[{`) {
			return errors.New(a.body)
		}
		return nil
	})
	// One whose source does not hear it is not.
	p, f = startPair(t)
	f.followAs(p, "reader")
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	f.followAs(p, "")
	refused("has not heard")
	f.admin(400, "POST", "follow", strings.Replace(f.follows(p, 1), `"epoch":1`, `"epoch":1,"kind":"what"`, 1))
	f.admin(400, "POST", "tenants/acme/follow", fmt.Sprintf(`{"kind":"what","id":1,"from":%q,"authority":"c1/global","history":1,"term":1}`, p.url))
}
