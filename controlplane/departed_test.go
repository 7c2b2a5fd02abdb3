package controlplane

import (
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/fsm"
	"domicile/internal/netfault"
	"domicile/proto"
)

// moving are regions us and tr and eu in the global directory, with a leased node each, and a
// tenant acme in us. What a tenant leaves behind stays for an hour.
func moving(t *testing.T) (r *testRegions, nodes map[fsm.NodeName]*fakeNode) {
	r = startRegionsWith(t, 1, func(c *Config) {
		c.Settings = fsm.Settings{AutoFailover: 1000, RepairAfter: 200, RemoveAfter: 3_600_000}
	}, "us", "tr")
	nodes = map[fsm.NodeName]*fakeNode{}
	for _, n := range newFakeNodes(t, true, "eu1", "us1", "tr1") {
		nodes[n.name] = n
		region := fsm.RegionName(n.name[:2])
		s := r.global.leader()
		if g, own := r.of[region]; own {
			s = g.leader()
		}
		s.addNode(n, string(region), "a")
	}
	r.create("us", "acme")
	r.settled()
	return r, nodes
}

// behind lets no region's copy of the global directory get news, until the end of the test or
// until it is called again.
func (r *testRegions) behind(yes bool) {
	do := (*netfault.Way).Heal
	if yes {
		do = (*netfault.Way).Cut
	}
	for _, s := range r.global.servers {
		do(r.links[s].Way)
	}
}

// TestT3G6ATenantThatHasLeftIsToldOfWhereItWent, by servers whose copy of the global directory has it
// where it was: by the region that it has left, which knows where it went, and by those that
// ask that one.
func TestT3G6ATenantThatHasLeftIsToldOfWhereItWent(t *testing.T) {
	for _, c := range []struct{ to, at string }{{"tr", "tr1"}, {"eu", "eu1"}} {
		t.Run("to "+c.to, func(t *testing.T) {
			r, _ := moving(t)
			global, us, tr := r.global.leader(), r.of["us"].leader(), r.of["tr"].leader()
			r.behind(true)
			global.want(global.move("acme", `{"region":"`+c.to+`"}`), 200, "")
			us.until("has been told that it has left", func() bool { return departed(us.group.State(), "acme") != nil })
			for _, s := range []*testServer{us, tr} {
				if where, _ := s.home(s.group.State(), "acme"); where.Region != "us" {
					t.Fatalf("the copy of %s is not behind: %+v", s.config.ID, where)
				}
				one := s.want(s.ask("GET", "/_shard/tenants/acme", ""), 200, "")
				list := names(t, s.ask("GET", "/_shard/tenants", ""))
				want := []string{"acme@" + c.to + "/" + c.at}
				if c.to == "eu" { // the link to the global group is cut
					if one.body["state"] != proto.TenantUnknown || one.body["region"] != "eu" || one.body["unreachable"] != true || one.header.Get(proto.HeaderUnreachable) != proto.GlobalScope {
						t.Errorf("%s says %s, %v", s.config.ID, one.text, one.header)
					}
					want[0] = "acme@us/moving"
				} else if one.body["node"] != c.at || one.body["region"] != c.to || one.body["state"] != "active" {
					t.Errorf("%s says %s", s.config.ID, one.text)
				}
				if !slices.Equal(list, want) {
					t.Errorf("%s lists %v, want %v", s.config.ID, list, want)
				}
			}
			r.behind(false)
			for _, s := range r.all() {
				s.until("tells of it where it is", func() bool {
					one := s.ask("GET", "/_shard/tenants/acme", "")
					return one.body["node"] == c.at && slices.Equal(names(t, s.ask("GET", "/_shard/tenants", "")), []string{"acme@" + c.to + "/" + c.at})
				})
			}
		})
	}
}

// TestM1ATenantComesBackOnceWhatItLeftIsGone, into a region of either directory: until when
// that is, is said by the move that waits for it, which goes on then.
func TestM1ATenantComesBackOnceWhatItLeftIsGone(t *testing.T) {
	r, _ := moving(t)
	global, us := r.global.leader(), r.of["us"].leader()
	global.want(global.ask("PUT", "/_shard/tenants/hooli", `{"region":"eu"}`), 201, "")
	global.want(global.move("acme", `{"region":"tr"}`), 200, "")
	global.want(global.move("hooli", `{"region":"tr"}`), 200, "")
	for name, c := range map[fsm.TenantName]struct {
		left *testServer
		to   string
	}{"acme": {us, "us"}, "hooli": {global, "eu"}} {
		var until string
		c.left.until("knows when "+string(name)+" is gone", func() bool {
			left := departed(c.left.group.State(), name)
			if left == nil || left.Since == 0 {
				return false
			}
			until = timeOf(left.Since + 3_600_000).Format(time.RFC3339)
			return true
		})
		id := numberOf(global.want(global.move(string(name), `{"region":"`+c.to+`","wait":false}`), 202, ""))
		global.until("says for what it waits", func() bool {
			waiting, _ := global.ask("GET", "/_shard/moves/"+id, "").body["waiting"].(string)
			return strings.Contains(waiting, until) && strings.Contains(waiting, "remove-after")
		})
		settings := c.left.group.State().Settings()
		settings.RemoveAfter = 1
		c.left.propose(&fsm.SetSettings{Settings: settings})
		global.until("has it back", func() bool {
			one := global.ask("GET", "/_shard/tenants/"+string(name), "").body
			return one["region"] == c.to && one["state"] == "active"
		})
	}
}
