package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// story is what the demonstration does, in its order. Each step tells what it does and what
// came of it, and fails where that is not what the product says.
type story struct {
	*deployment
	ctx     context.Context
	tenants map[string][]string // by home
	lost    string              // the node that is killed
	rows    map[string]int      // that were acknowledged
	started time.Time
}

func (s *story) tell() error {
	s.started, s.rows = time.Now(), map[string]int{}
	s.tenants = map[string][]string{"eu": {"berlin", "paris"}, "us": {"boston", "denver", "tampa", "austin", "omaha", "fargo"}, "tr": {"izmir", "ankara"}}
	for _, step := range []func() error{s.up, s.create, s.fromEverywhere, s.cutOff, s.nodeLost, s.refused, s.goesOn, s.healed, s.goThrough, s.nothingLost} {
		if err := step(); err != nil {
			return err
		}
		if s.ctx.Err() != nil {
			return s.ctx.Err()
		}
	}
	s.title("Done. Namespaces and processes are taken away.")
	return nil
}

func (s *story) title(format string, args ...any) {
	fmt.Printf("\n== "+format+"\n", args...)
}

func (s *story) say(format string, args ...any) {
	fmt.Printf("   "+format+"\n", args...)
}

// want tells of an answer, and fails where it is another than the one that should come.
func (s *story) want(what string, a answer, status int, code string) error {
	if !a.is(status, code) {
		return fmt.Errorf("%s: got %s, want %d %s", what, a, status, code)
	}
	text := a.String()
	if len(text) > 110 {
		text = text[:107] + "..."
	}
	s.say("%-58s %6.1f ms  %s", what, float64(a.took.Microseconds())/1000, text)
	return nil
}

// write adds a row to a tenant, which is remembered when it is acknowledged.
func (s *story) write(proxy, tenant string) answer {
	a := s.query(proxy, tenant, fmt.Sprintf("insert or ignore into visits values (%d)", s.rows[tenant]+1))
	if a.is(http.StatusOK, "") {
		s.rows[tenant]++
		a.body = []byte("written")
	}
	return a
}

func (s *story) up() error {
	s.title("Starting %d processes in %d regions, of deploy/compose.yaml", len(s.file.Services)-1, len(s.net.regions))
	s.say("each region: 3 control servers of its own directory, 2 proxies, 2 zones of 2 nodes; the global directory: a server in each")
	if err := s.start(s.ctx); err != nil {
		return err
	}
	s.say("all of them are ready, and regions and nodes are recorded, after %.1f s", time.Since(s.started).Seconds())
	return nil
}

func (s *story) create() error {
	s.title("Creating tenants in each region, all through a proxy of eu")
	for _, region := range s.net.regions {
		for _, tenant := range s.tenants[region] {
			var a answer
			err := until(s.ctx, time.Minute, func() error { // nodes that were just recorded get their leases
				a = s.ask(http.MethodPut, "eu-p1", "/_shard/tenants/"+tenant, `{"region":"`+region+`","schema":"create table visits (n integer primary key)"}`, "create "+tenant)
				if !a.is(http.StatusCreated, "") {
					return fmt.Errorf("create %s: %s", tenant, a)
				}
				return nil
			})
			if err != nil {
				return err
			}
			p, _ := s.where("eu-p1", tenant)
			s.say("%-8s lives in %s, on %s", tenant, p.Region, p.Node)
			if p.Region != region || !strings.HasPrefix(p.Node, region+"-") {
				return fmt.Errorf("%s is in %q on %q", tenant, p.Region, p.Node)
			}
		}
	}
	return s.awaitReplicas("us-p1", s.tenants["us"])
}

// awaitReplicas waits until each tenant has a copy in sync: then a node may be lost.
func (s *story) awaitReplicas(proxy string, tenants []string) error {
	for _, tenant := range tenants {
		err := until(s.ctx, time.Minute, func() error {
			a := s.ask(http.MethodGet, proxy, "/_shard/tenants/"+tenant+"/explain?for=replica", "", "")
			if !strings.Contains(string(a.body), `"in_sync"`) {
				return fmt.Errorf("%s has no copy in sync: %s", tenant, a)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	s.say("each tenant of us has a copy in sync, in the other zone")
	return nil
}

func (s *story) fromEverywhere() error {
	s.title("Each tenant has one URL, and answers from everywhere")
	for _, region := range s.net.regions {
		for _, home := range s.net.regions {
			tenant := s.tenants[home][0]
			if err := s.want("a client in "+region+" writes to "+tenant+" in "+home, s.write(region+"-p1", tenant), http.StatusOK, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *story) cutOff() error {
	s.title("The links of us go down: what is sent is lost, and nothing says so")
	begin := time.Now()
	if err := s.net.cut("us"); err != nil {
		return err
	}
	// The first requests find out that nobody answers, within the connect timeout of each router.
	if a := s.write("eu-p1", "boston"); !a.is(http.StatusBadGateway, "region_unreachable") {
		s.say("the first request finds it out: %s", a)
	}
	var a answer
	err := until(s.ctx, 30*time.Second, func() error {
		a = s.write("eu-p1", "boston")
		if !a.is(http.StatusBadGateway, "region_unreachable") {
			return fmt.Errorf("a client in eu writes to boston in us: %s", a)
		}
		if a.took > 100*time.Millisecond && time.Since(begin) < 3*time.Second {
			return fmt.Errorf("it went to ask whether the region is back: %s", a)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, ask := range []struct {
		what, proxy, tenant, code string
		status                    int
	}{
		{"a client in eu writes to boston in us", "eu-p1", "boston", "region_unreachable", http.StatusBadGateway},
		{"a client in eu writes to berlin in eu", "eu-p1", "berlin", "", http.StatusOK},
		{"a client in eu writes to izmir in tr", "eu-p1", "izmir", "", http.StatusOK},
		{"a client in us writes to boston in us", "us-p1", "boston", "", http.StatusOK},
	} {
		if err := s.want(ask.what, s.write(ask.proxy, ask.tenant), ask.status, ask.code); err != nil {
			return err
		}
	}
	return nil
}

// nodeLost kills the node of boston while the region is cut off.
func (s *story) nodeLost() error {
	p, a := s.where("us-p1", "boston")
	if a.err != nil {
		return a.err
	}
	var lost []string
	for _, tenant := range s.tenants["us"] {
		if at, _ := s.where("us-p1", tenant); at.Node == p.Node {
			lost = append(lost, tenant)
		}
	}
	s.title("Inside us the node %s is lost, with %s", p.Node, strings.Join(lost, ", "))
	s.kill(p.Node)
	s.lost = p.Node
	begin := time.Now()
	for _, tenant := range lost {
		err := until(s.ctx, 30*time.Second, func() error {
			if a = s.write("us-p1", tenant); !a.is(http.StatusOK, "") {
				return fmt.Errorf("%s: %s", tenant, a)
			}
			return nil
		})
		if err != nil {
			return err
		}
		at, _ := s.where("us-p1", tenant)
		s.say("%-8s is written again after %.2f s (leases are of 3 s), on %s", tenant, time.Since(begin).Seconds(), at.Node)
	}
	return nil
}

// change is one that needs both sides of the link.
type change struct {
	what, proxy, method, path, body string
	done                            int // its status once the link is back
}

func (s *story) changes() []change {
	return []change{
		{"create reno in us, asked in eu", "eu-p1", http.MethodPut, "/_shard/tenants/reno", `{"region":"us","schema":"create table visits (n integer primary key)"}`, http.StatusCreated},
		{"create salem, asked in us", "us-p1", http.MethodPut, "/_shard/tenants/salem", `{"region":"us","schema":"create table visits (n integer primary key)"}`, http.StatusCreated},
		{"delete fargo in us, asked in eu", "eu-p1", http.MethodDelete, "/_shard/tenants/fargo", "", http.StatusNoContent},
		{"delete omaha, asked in us", "us-p1", http.MethodDelete, "/_shard/tenants/omaha", "", http.StatusNoContent},
		{"move berlin from eu to us, asked in eu", "eu-p1", http.MethodPost, "/_shard/tenants/berlin/move", `{"region":"us"}`, http.StatusOK},
		{"move denver from us to eu, asked in us", "us-p1", http.MethodPost, "/_shard/tenants/denver/move", `{"region":"eu"}`, http.StatusOK},
	}
}

func (s *story) refused() error {
	s.title("What needs both sides is refused, and changes nothing")
	for _, c := range s.changes() {
		a := s.ask(c.method, c.proxy, c.path, c.body, "")
		if err := s.want(c.what, a, http.StatusServiceUnavailable, ""); err != nil {
			return err
		}
	}
	for tenant, proxy := range map[string]string{"fargo": "us-p1", "omaha": "us-p1", "denver": "us-p1", "berlin": "eu-p1"} {
		var a answer
		err := until(s.ctx, 15*time.Second, func() error { // a move that was begun is undone
			if a = s.write(proxy, tenant); !a.is(http.StatusOK, "") {
				return fmt.Errorf("%s is not where it was: %s", tenant, a)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	s.say("berlin, denver, fargo and omaha are where they were, and written")
	return nil
}

func (s *story) goesOn() error {
	s.title("What does not need us goes on")
	for _, c := range []change{
		{"create madrid in eu", "eu-p1", http.MethodPut, "/_shard/tenants/madrid", `{"region":"eu","schema":"create table visits (n integer primary key)"}`, http.StatusCreated},
		{"create bursa in tr, asked in eu", "eu-p1", http.MethodPut, "/_shard/tenants/bursa", `{"region":"tr","schema":"create table visits (n integer primary key)"}`, http.StatusCreated},
	} {
		if err := s.want(c.what, s.ask(c.method, c.proxy, c.path, c.body, ""), c.done, ""); err != nil {
			return err
		}
	}
	p, _ := s.where("us-p1", "tampa")
	to := ""
	for _, n := range []string{"us-n1", "us-n2", "us-n3", "us-n4"} {
		if s.running(n) && n != p.Node && (to == "" || to == p.Replica) {
			to = n
		}
	}
	return s.want("move tampa from "+p.Node+" to "+to+" in us, asked in us", s.ask(http.MethodPost, "us-p1", "/_shard/tenants/tampa/move", `{"to":"`+to+`"}`, ""), http.StatusOK, "")
}

func (s *story) healed() error {
	s.title("The links are back")
	begin := time.Now()
	if err := s.net.heal("us"); err != nil {
		return err
	}
	var a answer
	err := until(s.ctx, 30*time.Second, func() error {
		if a = s.write("eu-p1", "boston"); !a.is(http.StatusOK, "") {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.say("a client in eu writes to boston %.2f s after, where the failover put it", time.Since(begin).Seconds())
	if err := s.begin(s.lost); err != nil {
		return err
	}
	s.say("%s is started again", s.lost)
	return s.awaitReady(s.ctx, s.lost)
}

func (s *story) goThrough() error {
	s.title("Asked again, the refused changes go through")
	for _, c := range s.changes() {
		var a answer
		err := until(s.ctx, 30*time.Second, func() error { // a name may be reserved until its job has ended
			if a = s.ask(c.method, c.proxy, c.path, c.body, "again: "+c.what); !a.is(c.done, "") {
				return fmt.Errorf("%s: %s", c.what, a)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := s.want(c.what, a, c.done, ""); err != nil {
			return err
		}
	}
	return nil
}

// nothingLost counts what was acknowledged, from another region than the one that it was
// written in.
func (s *story) nothingLost() error {
	s.title("Every acknowledged write is there once")
	delete(s.rows, "fargo")
	delete(s.rows, "omaha")
	for _, tenant := range sorted(s.rows) {
		a := s.query("tr-p2", tenant, "select count(*), count(distinct n) from visits")
		if want := fmt.Sprintf(`"rows":[[%d,%d]]`, s.rows[tenant], s.rows[tenant]); !strings.Contains(string(a.body), want) {
			return fmt.Errorf("%s: %s, want %s", tenant, a, want)
		}
		p, _ := s.where("tr-p2", tenant)
		s.say("%-8s has its %2d rows, in %s on %s", tenant, s.rows[tenant], p.Region, p.Node)
	}
	return nil
}
