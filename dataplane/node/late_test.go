package node

import (
	"fmt"
	"strings"
	"testing"
)

// TestALateFollowDemotesNoPrimary: a call to follow that was under way while the copy
// was promoted would have it give up its branch, acknowledged writes included, for that
// of its old source. Promoted and not granted yet, or lapsed, no lease stands in its way.
func TestALateFollowDemotesNoPrimary(t *testing.T) {
	p, f := startPair(t)
	p.want(200, "POST", "/t/acme/query", insert)
	f.admin(200, "POST", "promote", `{"tenants":[{"unit":"acme","id":1}],"epoch":"40","authority":"c1/global","history":1,"term":1}`)
	follow := func(epoch int) answer {
		return f.admin(200, "POST", "follow", fmt.Sprintf(`{"units":[{"unit":"acme","id":1,"epoch":%d}],"from":%q,"as":%q,"token":%q,"authority":"c1/global","history":1,"term":1}`,
			epoch, p.url, f.url, adminToken))
	}
	for _, epoch := range []int{1, 39, 40} {
		if a := follow(epoch); !strings.Contains(a.body, `"following":[]`) || !strings.Contains(a.body, codeWrongState) {
			t.Errorf("epoch %d: %s", epoch, a.body)
		}
	}
	if a := f.admin(200, "GET", "units", ""); !strings.Contains(a.body, `"state":"active"`) || !strings.Contains(a.body, `"position":"40:2"`) {
		t.Errorf("it is no primary any more: %s", a.body)
	}
	if a := follow(41); !strings.Contains(a.body, `"following":["acme"]`) { // an entry that came later
		t.Errorf("%s", a.body)
	}
}
