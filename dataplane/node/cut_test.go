package node

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"domicile/internal/boottime"
	"domicile/internal/wait"
)

// TestL10WritesGoOnWithoutAControlPlane: over real connections, a primary that reaches
// no control server writes on while its copy promises, and the copy is promoted only
// once the promise has run out.
func TestL10WritesGoOnWithoutAControlPlane(t *testing.T) {
	real := func(c *Config) { c.Clock, c.KeepUnits = boottime.System{}, true }
	p, f := &leasedNode{next: 1, term: 1}, &leasedNode{next: 1, term: 1}
	for _, n := range []*leasedNode{p, f} {
		n.testNode = startNode(t, func(c *Config) { c.Lease = true; real(c) })
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0") // an address at which nobody listens
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + closed.Addr().String()
	closed.Close()
	p.create("acme", 1)
	grant := func() {
		t.Helper()
		p.admin(200, "POST", "lease", fmt.Sprintf(`{"ms":1000,"epoch":"5","primaries":[{"unit":"acme","id":1}],"copies":{"acme":[%[1]q]},"in_sync":{"acme":[%[1]q]},"servers":[%[2]q],"grant":%[3]d,"acked":%[4]d,"authority":"c1/global","history":1,"term":1}`,
			f.url, nobody, p.next, p.next-1))
		p.next++
	}
	f.admin(200, "POST", "follow", fmt.Sprintf(`{"units":[{"unit":"acme","id":1,"epoch":1}],"from":%q,"as":%q,"token":%q,"authority":"c1/global","history":1,"term":1}`,
		p.url, f.url, adminToken))
	wait.For(t, "a write under the lease", func() error {
		grant()
		if a := p.do("POST", "/t/acme/query", `{"sql":"create table if not exists t (id integer primary key, v text)"}`); a.status != 200 {
			return fmt.Errorf("%s", a.body)
		}
		return nil
	})
	wait.For(t, "the lease to lapse", func() error {
		if left := p.admin(200, "GET", "lease", "").body; !strings.Contains(left, `"left_ms":0`) {
			return fmt.Errorf("%s", left)
		}
		p.want(200, "POST", "/t/acme/query", insert) // all the while
		return nil
	})
	p.want(200, "POST", "/t/acme/query", insert)

	promote := `{"tenants":[{"unit":"acme","id":1}],"epoch":"40","authority":"c1/global","history":1,"term":2}`
	if a := f.admin(200, "POST", "promote", promote); !strings.Contains(a.body, `"code":"promised","left_ms":`) {
		t.Fatalf("%s", a.body)
	}
	a := f.admin(503, "POST", "tenants/acme/promote", `{"epoch":"40","authority":"c1/global","history":1,"term":2}`)
	if a.code() != "promised" || a.header.Get("Retry-After") == "" {
		t.Errorf("%s", a.body)
	}
	wait.For(t, "the promotion", func() error {
		if a := f.admin(200, "POST", "promote", promote); !strings.Contains(a.body, `"promoted":[{`) {
			return fmt.Errorf("%s", a.body)
		}
		return nil
	})
	a = p.do("POST", "/t/acme/query", insert)
	if a.status != 503 || a.code() != "lease_lapsed" {
		t.Errorf("the primary writes beside the copy that was promoted: %d %s", a.status, a.body)
	}
}
