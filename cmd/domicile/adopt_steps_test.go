package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"domicile/internal/faultpoint"
	"domicile/internal/history"
	"domicile/internal/testcluster"
	"domicile/internal/wait"
	"domicile/proto"
)

// who dies at a step of a hand-over of a region: the leader of the group that gives it, or of
// the one that takes it.
const (
	giverDies = "the giver's leader"
	takerDies = "the taker's leader"
)

// handSteps are the labelled points of a hand-over, in an order of which every fourth is of
// either group.
var handSteps = []struct{ who, label, on string }{
	{giverDies, "proposed", "GiveRegion"},
	{takerDies, "intake", "StageRegion"},
	{giverDies, "propose", "GiveRegion"},
	{takerDies, "taken", "StageRegion"},
	{takerDies, "taken", "ArriveRegion"},
	{giverDies, "call", "holder"},
	{takerDies, "intake", "ArriveRegion"},
	{giverDies, "propose", "AdvanceJob-clean"},
	{giverDies, "called", "holder"},
	{takerDies, "intake", "CloseIntake"},
	{giverDies, "proposed", "AdvanceJob-clean"},
	{giverDies, "propose", "AdvanceJob-done"},
	{takerDies, "taken", "CloseIntake"},
	{giverDies, "proposed", "AdvanceJob-done"},
}

// handed is a deployment with region us, whose two nodes are in its own directory or, while
// back is true, in the global one.
type handed struct {
	*testcluster.Regions
	t     *testing.T
	us    *testcluster.Cluster
	names []string
	back  bool
	rec   *history.Recorder // of all that was done to the tenants
	loads int
}

func startHanded(t *testing.T, controls int) *handed {
	group := testcluster.Options{Controls: controls, Nodes: 2, Proxies: 1, ControlArgs: faultControlArgs(faultLease), NodeArgs: []string{"--lease"}}
	global := group
	global.Nodes, global.Faults = 1, true
	r := testcluster.StartRegions(t, testcluster.RegionsOptions{Global: global, Regions: map[string]testcluster.Options{"us": group}})
	h := &handed{Regions: r, t: t, us: r.Own["us"], names: tenantNames("h", 2), rec: history.NewRecorder()}
	createAtHome(t, h.us, "us", "us-n1", h.names...)
	return h
}

// next is the direction in which the region can be handed over now, with who gives it and who
// takes it.
func (h *handed) next() (how string, giver, taker *testcluster.Cluster) {
	if !h.back {
		return proto.HandOverReturn, h.us, h.Global
	}
	h.RecordRouters("us")
	return proto.HandOverAdopt, h.Global, h.us
}

// begin begins a hand-over, which is to come to a rule's point in a process: that may die
// before it answers.
func (h *handed) begin(how string, giver *testcluster.Cluster, at *testcluster.Process, r faultpoint.Rule) {
	h.t.Helper()
	awaitChange(h.t, "the hand-over has begun: "+how, http.StatusAccepted, func(key string) testcluster.Answer {
		a := h.Do(http.MethodPost, giver.Proxies[0].URL+"/_shard/regions/us/"+how, "", "Idempotency-Key", key)
		if at.Hits(r) > 0 {
			a.Status, a.Err = http.StatusAccepted, nil
		}
		return a
	})
}

// job is the last hand-over, as a group tells it.
func (h *handed) job(how string, of *testcluster.Cluster) (j proto.RegionHandOver, err error) {
	a := h.Do(http.MethodGet, of.Proxies[0].URL+"/_shard/regions/us/"+how, "")
	if a.Status != http.StatusOK || json.Unmarshal(a.Body, &j) != nil {
		return j, fmt.Errorf("%s", a)
	}
	return j, nil
}

// ended waits until the hand-over has ended, and has it done anew where it was undone.
func (h *handed) ended(how string, giver *testcluster.Cluster) {
	h.t.Helper()
	for {
		var j proto.RegionHandOver
		wait.For(h.t, "the hand-over has ended: "+how, func() (err error) {
			if j, err = h.job(how, h.Global); err == nil && j.Outcome == "" {
				err = fmt.Errorf("%+v", j)
			}
			return err
		})
		if h.t.Logf("%s: %+v", how, j); j.Outcome == "done" {
			h.back = !h.back
			return
		}
		if !strings.HasSuffix(string(j.Code), "_unreachable") {
			h.t.Errorf("the hand-over was undone: %+v", j)
		}
		awaitChange(h.t, "the hand-over has begun: "+how, http.StatusAccepted, func(key string) testcluster.Answer {
			return h.Do(http.MethodPost, giver.Proxies[0].URL+"/_shard/regions/us/"+how, "", "Idempotency-Key", key)
		})
	}
}

// whole checks that the region is in one directory, that its nodes obey that one's group, and
// that the tenants are there, whole.
func (h *handed) whole() {
	h.t.Helper()
	if err := history.Check(h.rec.Ops(), finalLogs(h.t, h.Global, h.names...), time.Minute); err != nil {
		h.t.Error(err)
	}
	h.Verify(h.names...)
	has, lacks, group := h.us, h.Global, "/us"
	if h.back {
		has, lacks, group = h.Global, h.us, "/global"
	}
	for _, n := range h.us.Nodes {
		if a := has.Do(http.MethodGet, has.AnyControl().URL+"/_shard/nodes?consistent=1", ""); !strings.Contains(string(a.Body), n.ID) {
			h.t.Errorf("%s is not in its directory: %s", n.ID, a)
		}
		if a := lacks.Do(http.MethodGet, lacks.AnyControl().URL+"/_shard/nodes?consistent=1", ""); strings.Contains(string(a.Body), n.ID) {
			h.t.Errorf("%s is in two directories: %s", n.ID, a)
		}
		if now := holderOf(h.t, n); !strings.HasSuffix(now.Authority, group) {
			h.t.Errorf("%s is held by %+v", n.ID, now)
		}
	}
}

// underLoad does something while the tenants are written through every proxy, waits until they
// are written again, and checks the whole.
func (h *handed) underLoad(do func()) {
	h.t.Helper()
	h.loads++
	load := history.Start(history.LoadConfig{Recorder: h.rec, Units: h.names, Proxies: proxyURLs(h.Whole()), Clients: 2, Pause: loadPause(), Timeout: 10 * time.Second, Reads: true,
		Seed: uint64(h.loads), FirstID: int64(h.loads) * 1_000_000, FirstClient: 10 * h.loads})
	func() {
		defer load.Stop()
		awaitProgress(h.t, h.rec, 10, h.names...)
		do()
		awaitProgress(h.t, h.rec, 10, h.names...)
	}()
	h.whole()
}

// TestFaultsG2KillAtEveryStepOfAHandOver: the leader of either group is ended at a step of a
// hand-over under load, in either direction. It is finished, or undone and then done; one
// directory has the region, its nodes obey that one's group, and nothing that was acknowledged
// is lost. An ordinary run takes every fourth step.
func TestFaultsG2KillAtEveryStepOfAHandOver(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T) *handed { return startHanded(t, 1) }
	every := 4
	if longRun() {
		every = 1
	}
	goThrough(t, (len(handSteps)+every-1)/every, start, func(t *testing.T, h *handed, i int) {
		step := handSteps[i*every]
		for direction := range 2 {
			how, giver, taker := h.next()
			t.Run(fmt.Sprintf("%s at %s %s of %s", step.who, step.label, step.on, how), func(t *testing.T) {
				h.t = t
				at := map[string]*testcluster.Cluster{giverDies: giver, takerDies: taker}[step.who].Controls[0]
				h.underLoad(func() {
					rule := faultpoint.Rule{Action: faultpoint.Kill, Label: step.label, On: step.on, Times: 1 + 2*i + direction}
					heal := at.Fault(rule)
					h.begin(how, giver, at, rule)
					reach(t, rule, []*testcluster.Process{at})
					heal()
					at.AwaitRevived(func(int) {})
					h.ended(how, giver)
				})
			})
		}
	})
}

// TestG2ANodeIsDownDuringAHandOver: its units are failed over by the group that has taken the
// region, which the job says it waits for; back, it is told, and the job ends.
func TestG2ANodeIsDownDuringAHandOver(t *testing.T) {
	t.Parallel()
	h := startHanded(t, 1)
	for range 2 {
		how, giver, _ := h.next()
		h.underLoad(func() {
			down := h.primary()
			leader := giver.Leader()
			rule := faultpoint.Rule{Action: faultpoint.Hang, Label: "call", On: "holder", Times: 2} // those of both nodes
			goOn := leader.Fault(rule)
			h.begin(how, giver, leader, rule)
			h.hangs(leader, rule)
			down.Kill()
			goOn()
			wait.For(t, "the job says which node it waits for", func() error {
				j, err := h.job(how, giver)
				if err == nil && (j.Step != "nodes" || !strings.Contains(j.Problem, down.ID)) {
					err = fmt.Errorf("%+v", j)
				}
				return err
			})
			awaitProgress(t, h.rec, 10, h.names...)
			down.Start()
			h.ended(how, giver)
		})
	}
}

// primary is the node on which the tenants are.
func (h *handed) primary() (on *testcluster.Process) {
	h.t.Helper()
	wait.For(h.t, "the tenants are on one node", func() error {
		var at struct{ Node string }
		a := h.Do(http.MethodGet, h.Global.Proxies[0].URL+"/_shard/tenants/"+h.names[0]+"?consistent=1", "")
		if a.Status != http.StatusOK || json.Unmarshal(a.Body, &at) != nil {
			return fmt.Errorf("%s", a)
		}
		for _, n := range h.us.Nodes {
			if n.ID == at.Node {
				on = n
				return nil
			}
		}
		return fmt.Errorf("%s", a)
	})
	return on
}

func (h *handed) hangs(p *testcluster.Process, r faultpoint.Rule) {
	h.t.Helper()
	wait.For(h.t, p.Name+" comes to "+r.Label+" "+r.On, func() error {
		if p.Hits(r) == 0 {
			return errors.New("it has not")
		}
		return nil
	})
}

// notReached is how the giver says that the other group is cut off.
var notReached = regexp.MustCompile(`is not reached|no (server|router) of .* is reached`)

// TestG9G2TheLinkIsCutDuringAHandOver: before the region was given all stays as it was, and
// the hand-over is undone; afterwards nobody else takes it, and it is taken over once the link
// is back.
func TestG9G2TheLinkIsCutDuringAHandOver(t *testing.T) {
	t.Parallel()
	h := startHanded(t, 1)
	for i, c := range []struct {
		ofTaker   bool // the point is in the taker
		label, on string
		undone    bool
	}{{true, "intake", "StageRegion", true}, {true, "intake", "StageRegion", true}, {false, "propose", "GiveRegion", false}, {false, "propose", "GiveRegion", false}} {
		if !longRun() && i%2 == 1 {
			continue
		}
		how, giver, taker := h.next()
		h.underLoad(func() {
			at := giver.Leader()
			if c.ofTaker {
				at = taker.Leader()
			}
			rule := faultpoint.Rule{Action: faultpoint.Hang, Label: c.label, On: c.on, Times: 1 + i}
			goOn := at.Fault(rule)
			h.begin(how, giver, at, rule)
			h.hangs(at, rule)
			h.CutRegion("us")
			goOn()
			if c.undone {
				for _, name := range h.names {
					writeThrough(t, h.Regions, "us", name)
				}
			}
			wait.For(t, "the giver says what it waits for", func() error {
				j, err := h.job(how, giver)
				if err == nil && (!notReached.MatchString(j.Problem+j.Error) || c.undone && j.Step != "undoing") {
					err = fmt.Errorf("%+v", j)
				}
				return err
			})
			h.HealRegion("us")
			h.ended(how, giver)
		})
	}
}

// TestFaultsI1G2AGiverThatStandsStillSaysNothingLate: the leader that gives a region is stopped
// before its entry, or after; the next leader hands the region over, and what the first still
// says as it goes on again changes nothing.
func TestFaultsI1G2AGiverThatStandsStillSaysNothingLate(t *testing.T) {
	if !longRun() {
		t.Skip("two groups of three servers; the faults at random pause leaders, too")
	}
	t.Parallel()
	h := startHanded(t, 3)
	for i, point := range []struct{ label, on string }{{"propose", "GiveRegion"}, {"propose", "GiveRegion"}, {"proposed", "GiveRegion"}, {"proposed", "GiveRegion"}} {
		how, giver, _ := h.next()
		h.underLoad(func() {
			leader := giver.Leader()
			rule := faultpoint.Rule{Action: faultpoint.Pause, Label: point.label, On: point.on, Times: 1 + i}
			heal := leader.Fault(rule)
			h.begin(how, giver, leader, rule)
			h.hangs(leader, rule)
			heal()
			wait.For(t, "another leader hands the region over", func() error {
				for _, p := range giver.Controls {
					var j proto.RegionHandOver
					if p == leader {
						continue
					}
					if a := h.Global.DoWithin(moverPatience, http.MethodGet, p.URL+"/_shard/regions/us/"+how, ""); a.Status == http.StatusOK && json.Unmarshal(a.Body, &j) == nil && j.Outcome == "done" {
						return nil
					}
				}
				return errors.New("none has")
			})
			leader.Resume()
			h.ended(how, giver)
		})
	}
}
