package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"domicile/internal/faultpoint"
	"domicile/internal/history"
	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// who dies at a step of a move between directories, beside the source and the target: the
// leaders of the global group, and of the regions that the tenant leaves and goes to.
const (
	globalDies = "the global leader"
	fromDies   = "the leader that the tenant leaves"
	homeDies   = "the leader that it goes to"
)

// betweenSteps are the labelled points at which somebody dies, to be started again.
var betweenSteps = []struct{ who, label, on string }{
	{globalDies, "ask", "begin-depart"},
	{globalDies, "asked", "begin-depart"},
	{globalDies, "ask", "begin-receive"},
	{globalDies, "asked", "begin-receive"},
	{globalDies, "propose", "AdvanceJob-release"},
	{globalDies, "proposed", "AdvanceJob-release"},
	{globalDies, "ask", "tell-release"},
	{globalDies, "asked", "tell-release"},
	{globalDies, "propose", "AdvanceJob-promote"},
	{globalDies, "proposed", "AdvanceJob-promote"},
	{globalDies, "ask", "tell-arrived"},
	{globalDies, "asked", "tell-arrived"},
	{globalDies, "asked", "tell-departed"},
	{globalDies, "propose", "AdvanceJob-clean"},
	{globalDies, "asked", "tell-settled"},
	{globalDies, "propose", "AdvanceJob-done"},
	{fromDies, "task", "BeginTask"},
	{fromDies, "tasked", "BeginTask"},
	{fromDies, "tasked", "TellTask"},
	{fromDies, "call", "hand-over"},
	{fromDies, "called", "hand-over"},
	{fromDies, "propose", "EndRelease"},
	{fromDies, "proposed", "EndRelease"},
	{fromDies, "called", "remove"},
	{homeDies, "task", "BeginTask"},
	{homeDies, "tasked", "BeginTask"},
	{homeDies, "called", "follow"},
	{homeDies, "task", "TellTask"},
	{homeDies, "tasked", "TellTask"},
	{homeDies, "called", "promote"},
	{homeDies, "propose", "ConfirmPromotion"},
	{homeDies, "proposed", "ConfirmPromotion"},
	{sourceDies, "handover.frozen", faultpoint.Any},
	{sourceDies, "handover.held", faultpoint.Any},
	{sourceDies, "handover.given", faultpoint.Any},
	{targetDies, "store.image", faultpoint.Any},
	{targetDies, "store.record", faultpoint.Any},
	{targetDies, "promote.asked", faultpoint.Any},
	{targetDies, "promote.done", faultpoint.Any},
}

// beginBetween begins a move to another region.
func beginBetween(t *testing.T, r *testcluster.Regions, name, region string) {
	t.Helper()
	beginMove(t, r.Global, name, `{"region":"`+region+`","wait":false}`)
}

// beginUntil begins a move to another region and waits until it has come to where it is to be
// met: anew where it was undone before that, as a region did not answer at once. Who is to
// answer may die before it does.
func beginUntil(t *testing.T, r *testcluster.Regions, name, region, met string, isMet func() error) {
	t.Helper()
	wait.For(t, "a move of "+name+" comes to "+met, func() error {
		err := isMet()
		if err == nil {
			return nil
		}
		if last, told := lastMove(r, name); told == nil && (last.ID == 0 || last.Outcome == "undone") {
			a := r.Do(http.MethodPost, r.Global.Proxies[0].URL+"/_shard/tenants/"+name+"/move", `{"region":"`+region+`","wait":false}`)
			return fmt.Errorf("%w; %+v; begun: %s", err, last, a)
		}
		return err
	})
}

// lastMove tells of a tenant's last move as the global group lists it; zero for none.
func lastMove(r *testcluster.Regions, name string) (last movedLine, err error) {
	var list []movedLine
	a := r.Do(http.MethodGet, r.Global.Proxies[0].URL+"/_shard/moves?tenant="+name, "")
	if a.Status != http.StatusOK || json.Unmarshal(a.Body, &list) != nil {
		return last, fmt.Errorf("%s", a)
	}
	if len(list) > 0 {
		last = list[0]
	}
	return last, nil
}

// moveOf gives the number of a tenant's last move.
func moveOf(t *testing.T, r *testcluster.Regions, name string) (id uint64) {
	t.Helper()
	wait.For(t, "the move of "+name+" is told of", func() error {
		last, err := lastMove(r, name)
		if err == nil && last.ID == 0 {
			err = errors.New("none is listed")
		}
		id = last.ID
		return err
	})
	return id
}

// awaitBetween waits until a move between directories has ended, and gives how.
func awaitBetween(t *testing.T, r *testcluster.Regions, id uint64) (j movedLine) {
	t.Helper()
	wait.For(t, fmt.Sprintf("move %d has ended", id), func() error {
		a := r.Do(http.MethodGet, fmt.Sprintf("%s/_shard/moves/%d", r.Global.AnyControl().URL, id), "")
		if a.Status != http.StatusOK {
			return fmt.Errorf("%s", a)
		}
		if a.Decode(t, &j); j.Outcome == "" {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	return j
}

// TestFaultsM5G6KillAtEveryStepOfAMoveBetweenDirectories: either leader, the global one,
// the source or the target is ended at a step of a move under load. The move is finished or
// undone, the tenant is written in one place, which its home names, nothing that was
// acknowledged is lost, and nothing is left behind.
func TestFaultsM5G6KillAtEveryStepOfAMoveBetweenDirectories(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T) *testcluster.Regions { return moveRegions(t, faultLease, "1") }
	goThrough(t, len(betweenSteps), start, func(t *testing.T, r *testcluster.Regions, i int) {
		step, name := betweenSteps[i], fmt.Sprintf("m%d", i)
		t.Run(fmt.Sprintf("%s at %s %s", step.who, step.label, step.on), func(t *testing.T) {
			createIn(t, r, "us", name)
			rec := history.NewRecorder()
			load := history.Start(history.LoadConfig{Recorder: rec, Units: []string{name}, Proxies: append(proxyURLs(r.Own["us"]), proxyURLs(r.Own["tr"])...), Clients: 2, Pause: loadPause(), Timeout: 10 * time.Second, Reads: true, Seed: uint64(i)})
			func() {
				defer load.Stop()
				awaitProgress(t, rec, 10, name)
				at := map[string][]*testcluster.Process{globalDies: r.Global.Controls, fromDies: r.Own["us"].Controls, homeDies: r.Own["tr"].Controls,
					sourceDies: r.Own["us"].Nodes, targetDies: r.Own["tr"].Nodes}[step.who]
				// Rules are spent over restarts, by what they say: each step has one of its own.
				rule := faultpoint.Rule{Action: faultpoint.Kill, Label: step.label, On: step.on, Times: 1 + i}
				var heal []func()
				for _, p := range at {
					heal = append(heal, p.Fault(rule))
				}
				var killed *testcluster.Process
				beginUntil(t, r, name, "tr", step.label+" "+step.on, func() (err error) {
					killed, err = hasReached(rule, at)
					return err
				})
				for _, f := range heal {
					f()
				}
				for _, p := range at { // more than one may have come to it, and be about to end
					if p.Hits(rule) > 0 {
						wait.For(t, string(p.ID)+" ends", func() error {
							if _, ended := p.Ended(); !ended {
								return errors.New("it has not")
							}
							return nil
						})
						p.Start()
					}
					p.AwaitReady()
				}
				j := awaitBetween(t, r, moveOf(t, r, name))
				t.Logf("%s ended: %+v", killed.ID, j)
				awaitProgress(t, rec, 10, name)
			}()
			if err := history.Check(rec.Ops(), finalLogs(t, r.Global, name), time.Minute); err != nil {
				t.Error(err)
			}
			r.Verify(name)
			deleteTenant(t, r.Global, name)
		})
	})
}

// betweenCuts are links that are lost while the global leader stands at a point of a move
// from us to tr, and how the move has to end.
var betweenCuts = []struct {
	cut, label, on string
	outcome        string   // "": either
	writable       []string // regions through whose proxies the tenant is written while the link is lost
}{
	{"us", "ask", "begin-depart", "undone", []string{"us"}},
	{"tr", "ask", "begin-receive", "undone", []string{"us", "eu"}},
	{"us", "ask", "tell-release", "", []string{"us"}},
	{"tr", "asked", "tell-release", "undone", []string{"us", "eu"}},
	{"us", "asked", "tell-release", "done", []string{"tr", "eu"}},
	{"us", "ask", "tell-departed", "done", []string{"tr", "eu"}},
	{"tr", "propose", "AdvanceJob-clean", "done", []string{"tr"}},
}

// TestG9M5ARegionIsCutOffDuringAMove: before the source has given the tenant up it stays
// writable where it is; afterwards it is written where one of the two regions is reached;
// and once the link is back the move has ended, one way or the other, and nothing is left.
func TestG9M5ARegionIsCutOffDuringAMove(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T) *testcluster.Regions { return moveRegions(t, faultLease, "1") }
	goThrough(t, len(betweenCuts), start, func(t *testing.T, r *testcluster.Regions, i int) {
		c, name := betweenCuts[i], fmt.Sprintf("c%d", i)
		t.Run(fmt.Sprintf("%s is cut off at %s %s", c.cut, c.label, c.on), func(t *testing.T) {
			createIn(t, r, "us", name)
			leader := r.Global.Leader()
			rule := faultpoint.Rule{Action: faultpoint.Hang, Label: c.label, On: c.on, Times: 1 + i}
			goOn := leader.Fault(rule)
			beginUntil(t, r, name, "tr", c.label+" "+c.on, func() error {
				if leader.Hits(rule) == 0 {
					return errors.New("it has not")
				}
				return nil
			})
			id := moveOf(t, r, name)
			r.CutRegion(c.cut)
			goOn()
			for _, region := range c.writable {
				writeThrough(t, r, region, name)
			}
			if c.outcome == "undone" {
				awaitUndoing(t, r, id)
			}
			r.HealRegion(c.cut)
			j := awaitBetween(t, r, id)
			t.Logf("ended: %+v", j)
			if c.outcome != "" && j.Outcome != c.outcome {
				t.Errorf("outcome %q, want %q", j.Outcome, c.outcome)
			}
			for _, region := range []string{"eu", "us", "tr"} {
				writeThrough(t, r, region, name)
			}
			r.Verify(name)
			deleteTenant(t, r.Global, name)
		})
	})
}

// awaitUndoing waits until it is decided that a move is undone.
func awaitUndoing(t *testing.T, r *testcluster.Regions, id uint64) {
	t.Helper()
	wait.For(t, fmt.Sprintf("move %d is being undone", id), func() error {
		var j movedLine
		a := r.Do(http.MethodGet, fmt.Sprintf("%s/_shard/moves/%d", r.Global.AnyControl().URL, id), "")
		if a.Status != http.StatusOK || json.Unmarshal(a.Body, &j) != nil || j.Step != "undoing" && j.Outcome != "undone" {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
}

// writeThrough writes a tenant through a region's proxy, as soon as that can be.
func writeThrough(t *testing.T, r *testcluster.Regions, region, name string) {
	t.Helper()
	wait.For(t, name+" is written through "+region, func() error {
		a := r.Do(http.MethodPost, r.In(region).Proxies[0].URL+"/t/"+name+"/query", `{"sql":"CREATE TABLE IF NOT EXISTS w (n INTEGER)"}`)
		if a.Status != http.StatusOK {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
}
