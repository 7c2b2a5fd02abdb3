package loops

import (
	"fmt"
	"strings"
	"testing"

	"domicile/fsm"
)

// recRegion is a region as a recovery of the global directory finds it.
type recRegion struct {
	silent bool
	heard  uint64 // the newest history that it has heard
	claims []fsm.Claim
	// recovered, once it has been read: its own directory is of another history then.
	recovered func()
	history   uint64
	reads     int
}

// tell answers a reading of a region.
func (s *recoverySim) tell(c RegionCall) RegionAnswer {
	g, scope := s.regions[c.Region], fsm.Scope{}
	scope, _ = s.state.Scope()
	switch {
	case g.silent:
		return RegionAnswer{Outcome: Silent, Refusal: &fsm.Refusal{Code: fsm.CodeRegionUnreachable, Text: "no router of it answers"}}
	case g.heard > scope.History:
		return RegionAnswer{Outcome: Refused, Refusal: &fsm.Refusal{Code: fsm.CodeStale, Text: "newer"}, Heard: g.heard}
	}
	if g.reads > 0 && g.recovered != nil {
		g.recovered()
		g.history, g.recovered = g.history+1, nil
	}
	if g.heard = scope.History; c.Again {
		return RegionAnswer{Outcome: Done, History: g.history}
	}
	g.reads++
	return RegionAnswer{Outcome: Done, Claims: g.claims, History: g.history}
}

// newGlobalRecovery is the global directory, with its own nodes n1 and n2, the regions us
// and tr, and tenants in us, that was begun to be recovered after before was done to it.
func newGlobalRecovery(t *testing.T, before func(s *recoverySim), homed ...fsm.TenantName) *recoverySim {
	s := &recoverySim{t: t, state: fsm.New(), now: 10_000, term: 2, nodes: make(map[fsm.NodeName]*recNode), regions: make(map[fsm.RegionName]*recRegion)}
	member := fsm.Member{ID: "s1", Raft: "a:1", Version: fsm.Version}
	s.apply(&fsm.Bootstrap{Scope: fsm.Scope{Cluster: "c1", History: 1}, Settings: fsm.Settings{Replicas: 1, AutoFailover: 3000}})
	s.apply(&fsm.PutMember{Member: member})
	for i, name := range []fsm.NodeName{"n1", "n2"} {
		addr, token, region := fmt.Sprintf("127.0.0.1:%d", 8081+i), "t", fsm.RegionName("eu")
		s.apply(&fsm.PutNode{Name: name, Addr: &addr, Token: &token, Region: &region})
		s.nodes[name] = &recNode{heard: 1, read: NodeRead{Leased: true}}
	}
	for _, name := range []fsm.RegionName{"us", "tr"} {
		s.apply(&fsm.PutRegion{Region: fsm.Region{Name: name, Routers: []string{"http://" + string(name) + ":1"}}})
		s.regions[name] = &recRegion{heard: 1}
	}
	us := fsm.RegionName("us")
	for _, name := range homed {
		s.apply(&fsm.AdvanceJob{ID: s.apply(&fsm.CreateTenant{Name: name, Region: &us}).Job, From: fsm.StepMake, To: fsm.StepDone})
	}
	before(s)
	if err := s.state.Recover(fsm.RecoverRestored, 2, member, s.now); err != nil {
		t.Fatal(err)
	}
	s.m = NewMemory(s.state.Revision())
	s.news.WaitedOut = true
	return s
}

// own makes a tenant on n1.
func (s *recoverySim) own(name fsm.TenantName) {
	home := fsm.NodeName("n1")
	s.apply(&fsm.AdvanceJob{ID: s.apply(&fsm.CreateTenant{Name: name, Node: &home}).Job, From: fsm.StepMake, To: fsm.StepDone})
}

func (s *recoverySim) claims(region fsm.RegionName, name fsm.TenantName, id fsm.UnitID, how fsm.Claimed, epoch uint64) {
	s.regions[region].claims = append(s.regions[region].claims, fsm.Claim{Tenant: name, ID: id, How: how, Epoch: epoch})
}

// moves has a region claim a tenant that a job brings to it, or takes from it.
func (s *recoverySim) moves(region fsm.RegionName, name fsm.TenantName, id fsm.UnitID, how fsm.Claimed, epoch uint64, job fsm.JobID, other fsm.RegionName) {
	s.regions[region].claims = append(s.regions[region].claims, fsm.Claim{Tenant: name, ID: id, How: how, Epoch: epoch, Job: job, Other: other})
}

func (s *recoverySim) claim(name fsm.TenantName) fsm.UnitID {
	t, _ := s.state.Tenant(name)
	if t.HasHome {
		return t.Claim
	}
	return s.id(fsm.UnitName(name)).ID
}

func (s *recoverySim) home(name fsm.TenantName) string {
	t, ok := s.state.Tenant(name)
	switch {
	case !ok:
		return "nowhere"
	case t.HasHome:
		return fmt.Sprintf("%s id %d", t.Home, t.Claim)
	}
	return s.where(fsm.UnitName(name))
}

func (s *recoverySim) wantHomes(want map[fsm.TenantName]string) {
	s.t.Helper()
	for name, is := range want {
		if got := s.home(name); got != is {
			s.t.Errorf("%s is of %s, want %s", name, got, is)
		}
	}
}

const gen = 1 << 50 // an epoch of the next generation

// TestI1WhereATenantLivesIsWhatTheRegionsSay, and the nodes: in a recovery of the global
// directory, for each way in which the directory can be behind.
func TestI1WhereATenantLivesIsWhatTheRegionsSay(t *testing.T) {
	s := newGlobalRecovery(t, func(s *recoverySim) {
		for _, name := range []fsm.TenantName{"own-moved", "own-received", "own-stays", "own-over", "own-back"} {
			s.own(name)
		}
	}, "stays", "moved", "gone", "again", "came", "leftover", "sent", "flipped", "both", "chain", "stale")
	id := func(name fsm.TenantName) fsm.UnitID { return s.claim(name) }
	s.claims("us", "stays", id("stays"), fsm.ClaimOwn, 1)
	s.claims("tr", "moved", id("moved"), fsm.ClaimOwn, gen|9)
	s.claims("tr", "again", 9000, fsm.ClaimOwn, 1)
	s.claims("us", "new", 9001, fsm.ClaimOwn, 1)
	s.claims("us", "own-moved", id("own-moved"), fsm.ClaimOwn, gen|9)
	s.moves("us", "own-received", id("own-received"), fsm.ClaimReceiving, 1, 700, "eu")
	s.claims("us", "own-over", 9002, fsm.ClaimOwn, 1)
	s.holds("n1", primary(s.id("own-moved"), 1, 5))
	s.holds("n1", primary(s.id("own-received"), 1, 5))
	s.holds("n1", primary(s.id("own-stays"), 1, 5))
	// It came here since: the region was not told so yet, or has forgotten it.
	s.moves("us", "came", id("came"), fsm.ClaimSent, 7, 701, "eu")
	s.holds("n2", primary(fsm.UnitRef{Unit: "came", ID: id("came")}, gen|9, 5))
	// A copy that a move makes is as old as its source.
	s.claims("us", "leftover", id("leftover"), fsm.ClaimOwn, 7)
	s.holds("n2", replica(fsm.UnitRef{Unit: "leftover", ID: id("leftover")}, 7, 5, "http://127.0.0.1:8081"))
	s.moves("us", "sent", id("sent"), fsm.ClaimSent, 7, 702, "tr")
	s.moves("tr", "sent", id("sent"), fsm.ClaimReceiving, 7, 702, "us")
	s.moves("us", "flipped", id("flipped"), fsm.ClaimDeparted, 7, 703, "tr")
	s.moves("tr", "flipped", id("flipped"), fsm.ClaimReceiving, 7, 703, "us")
	s.moves("us", "both", id("both"), fsm.ClaimSent, 7, 704, "tr")
	s.claims("tr", "both", id("both"), fsm.ClaimOwn, gen|7)
	s.moves("us", "chain", id("chain"), fsm.ClaimReceiving, 2*gen|7, 706, "tr")
	s.moves("tr", "chain", id("chain"), fsm.ClaimDeparted, 2*gen|7, 706, "us")
	s.moves("us", "chain-2", 9003, fsm.ClaimReceiving, 7, 707, "tr") // whose source is no more
	// A region that was recovered from before the tenant left, and one of before a name was
	// made again.
	s.claims("tr", "stale", id("stale"), fsm.ClaimOwn, 7)
	s.moves("us", "stale", id("stale"), fsm.ClaimSent, gen|7, 708, "eu")
	s.claims("us", "own-stays", 3, fsm.ClaimOwn, 1)
	s.moves("us", "own-back", id("own-back"), fsm.ClaimSent, 7, 709, "eu")
	s.holds("n1", primary(s.id("own-back"), gen|7, 5))
	want := map[fsm.TenantName]string{
		"own-back": "n1 n2:syncing", "stale": fmt.Sprintf("us id %d", id("stale")),
		"stays": fmt.Sprintf("us id %d", id("stays")), "moved": fmt.Sprintf("tr id %d", id("moved")), "gone": fmt.Sprintf("us id %d", id("gone")), "again": "tr id 9000", "new": "us id 9001",
		"own-moved": fmt.Sprintf("us id %d", id("own-moved")), "own-received": "n1 n2:syncing", "own-stays": "n1 n2:syncing", "own-over": "us id 9002",
		"came": "n2", "leftover": fmt.Sprintf("us id %d", id("leftover")), "sent": fmt.Sprintf("us id %d", id("sent")), "flipped": fmt.Sprintf("tr id %d", id("flipped")),
		"both": fmt.Sprintf("tr id %d", id("both")), "chain": fmt.Sprintf("us id %d", id("chain")), "chain-2": "nowhere",
	}
	s.run(40)
	s.wants(true, nil)
	s.wantHomes(want)
}

// TestO6ARecoveryOfTheGlobalDirectoryWaitsForRegions until they answer, or are written off:
// then what only they can have keeps its name.
func TestO6ARecoveryOfTheGlobalDirectoryWaitsForRegions(t *testing.T) {
	s := newGlobalRecovery(t, func(*recoverySim) {}, "a", "b", "left", "back")
	us := map[fsm.TenantName]string{}
	for _, name := range []fsm.TenantName{"a", "b", "left", "back"} {
		us[name] = s.home(name)
	}
	s.regions["us"].silent = true
	s.moves("tr", "b", s.claim("b"), fsm.ClaimReceiving, 7, 700, "us")
	s.moves("tr", "new", 9000, fsm.ClaimReceiving, 7, 701, "us")
	s.holds("n1", Found{UnitRef: fsm.UnitRef{Unit: "left", ID: s.claim("left")}, Epoch: 7, Seq: 1, Usable: true}) // released
	s.holds("n1", primary(fsm.UnitRef{Unit: "back", ID: s.claim("back")}, 7, 1))
	s.run(40)
	v, _ := s.m.Recovery(s.state, s.now)
	if fmt.Sprint(v.Regions) != "[{tr read 2 } {us to_be_read 0 no router of it answers}]" {
		t.Errorf("it shows %v", v.Regions)
	}
	s.wants(false, nil)
	s.apply(&fsm.ForgoNode{Recovery: s.state.Recovery().ID, Region: "us"})
	if v, _ := s.m.Recovery(s.state, s.now); fmt.Sprint(v.Regions) != "[{tr read 2 } {us written_off 0 }]" {
		t.Errorf("it shows %v", v.Regions)
	}
	us["new"], us["back"] = "us id 9000", "n1"
	s.run(40)
	s.wants(true, nil)
	s.wantHomes(us)
}

// TestI1ARegionThatIsRecoveredAfterItWasReadIsReadAgain before the recovery ends: it has
// forgotten that it heeds nothing of the former history, and lost what it had told of.
func TestI1ARegionThatIsRecoveredAfterItWasReadIsReadAgain(t *testing.T) {
	s := newGlobalRecovery(t, func(s *recoverySim) { s.own("own") }, "a", "b")
	s.holds("n1", primary(s.id("own"), 1, 5))
	s.claims("us", "a", s.claim("a"), fsm.ClaimOwn, 1)
	s.claims("us", "b", s.claim("b"), fsm.ClaimOwn, 1)
	s.claims("tr", "b", s.claim("b"), fsm.ClaimOwn, gen|9)
	s.regions["us"].recovered = func() {
		s.regions["us"].heard = 1
		s.claims("us", "c", 9000, fsm.ClaimOwn, 1)
	}
	s.regions["tr"].recovered = func() { s.regions["tr"].claims = nil }
	want := map[fsm.TenantName]string{"a": s.home("a"), "b": s.home("b"), "c": "us id 9000", "own": "n1 n2:syncing"}
	s.run(60)
	s.wants(true, nil)
	s.wantHomes(want)
	for name, g := range s.regions {
		if g.heard != 2 || g.reads != 2 || g.recovered != nil {
			t.Errorf("%s has heard of history %d, and was read %d times", name, g.heard, g.reads)
		}
	}
}

// TestO6ARegionThatDoesNotTellWhetherItWasRecoveredIsNotWaitedForTwice: it was read, and if it
// is recovered it asks what this recovery has found.
func TestO6ARegionThatDoesNotTellWhetherItWasRecoveredIsNotWaitedForTwice(t *testing.T) {
	s := newGlobalRecovery(t, func(*recoverySim) {}, "a")
	s.claims("us", "a", s.claim("a"), fsm.ClaimOwn, 1)
	for s.regions["us"].reads == 0 {
		s.round()
	}
	s.wants(false, nil)
	s.regions["us"].silent = true
	s.run(40)
	s.wants(true, nil)
}

// TestO6TheHistoryIsRaisedAboveOneThatARegionHasHeard, as for nodes.
func TestO6TheHistoryIsRaisedAboveOneThatARegionHasHeard(t *testing.T) {
	s := newGlobalRecovery(t, func(*recoverySim) {}, "a")
	s.claims("us", "a", s.claim("a"), fsm.ClaimOwn, 1)
	s.regions["us"].heard = 4
	s.run(40)
	s.wants(true, nil)
	if len(s.raised) != 1 || s.raised[0] != 5 || s.regions["tr"].heard != 5 || !strings.HasPrefix(s.home("a"), "us ") {
		t.Errorf("raised to %v, tr has heard %d, a is of %s", s.raised, s.regions["tr"].heard, s.home("a"))
	}
}
