package main

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"domicile/internal/faultpoint"
	"domicile/internal/history"
	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// movedLine is a move as the admin API tells of it.
type movedLine struct {
	ID      uint64 `json:"id"`
	Step    string `json:"step"`
	Outcome string `json:"outcome"`
	Problem string `json:"problem"`
}

// beginMove begins a move of a tenant, and gives its number. Where the answer is lost
// with a leader it is asked again, under the same key.
func beginMove(t *testing.T, c *testcluster.Cluster, tenant, body string) (id uint64) {
	t.Helper()
	a := awaitChange(t, "the move of "+tenant+" is begun", http.StatusAccepted, func(key string) testcluster.Answer {
		return c.Do(http.MethodPost, c.Proxies[0].URL+"/_shard/tenants/"+tenant+"/move", body, "Idempotency-Key", key)
	})
	var j movedLine
	a.Decode(t, &j)
	return j.ID
}

// awaitMoved waits until nothing more is done for a move, but the removal of what is
// left where nobody answers.
func awaitMoved(t *testing.T, c *testcluster.Cluster, id uint64) (j movedLine) {
	t.Helper()
	wait.For(t, fmt.Sprintf("move %d has ended", id), func() error {
		a := c.Do(http.MethodGet, fmt.Sprintf("%s/_shard/moves/%d", c.Proxies[0].URL, id), "")
		if a.Status != http.StatusOK {
			return fmt.Errorf("%s", a)
		}
		a.Decode(t, &j)
		if j.Outcome == "" && j.Step != "cleaning" {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	return j
}

// who dies at a step of a move.
const (
	leaderDies = "the leader"
	sourceDies = "the source"
	targetDies = "the target"
)

// moveSteps are the labelled points at which somebody dies. Where stays is set the
// process is started again only after the move has ended.
var moveSteps = []struct {
	who, label, on string
	stays          bool
	outcome        string // that it must have; "": either
}{
	{leaderDies, "propose", "AdvanceJob-copy", false, "done"},
	{leaderDies, "proposed", "AdvanceJob-copy", true, "done"},
	{leaderDies, "call", "follow", false, "done"},
	{leaderDies, "called", "follow", true, "done"},
	{leaderDies, "propose", "AdvanceJob-release", false, "done"},
	{leaderDies, "proposed", "AdvanceJob-release", true, "done"},
	{leaderDies, "call", "hand-over", false, "done"},
	{leaderDies, "called", "hand-over", true, "done"},
	{leaderDies, "propose", "EndRelease", false, "done"},
	{leaderDies, "proposed", "EndRelease", true, "done"},
	{leaderDies, "call", "promote", false, "done"},
	{leaderDies, "called", "promote", true, "done"},
	{leaderDies, "propose", "ConfirmPromotion", false, "done"},
	{leaderDies, "proposed", "ConfirmPromotion", true, "done"},
	{leaderDies, "propose", "NoteJob", false, "done"},
	{leaderDies, "call", "remove", true, "done"},
	{leaderDies, "propose", "AdvanceJob-done", false, "done"},
	{sourceDies, "handover.frozen", faultpoint.Any, false, ""},
	{sourceDies, "handover.frozen", faultpoint.Any, true, ""},
	{sourceDies, "handover.held", faultpoint.Any, true, ""},
	{sourceDies, "handover.given", faultpoint.Any, false, ""},
	{sourceDies, "handover.given", faultpoint.Any, true, ""},
	{targetDies, "store.image", faultpoint.Any, false, ""},
	{targetDies, "store.image", faultpoint.Any, true, "undone"},
	{targetDies, "store.rename", faultpoint.Any, false, ""},
	{targetDies, "store.record", faultpoint.Any, false, ""},
	{targetDies, "store.apply", faultpoint.Any, true, "undone"},
	{targetDies, "promote.asked", faultpoint.Any, false, ""}, // it may be back too late
	{targetDies, "promote.asked", faultpoint.Any, true, "undone"},
	{targetDies, "promote.done", faultpoint.Any, false, ""},
	{targetDies, "promote.done", faultpoint.Any, true, ""},
}

// TestFaultsM5KillAtEveryStepOfAMove: the leader, the source or the target is ended at a
// step of a move under load. The move is finished or undone, the tenant is written again,
// nothing that was acknowledged is lost and nothing is left behind.
func TestFaultsM5KillAtEveryStepOfAMove(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T) *testcluster.Cluster { return faultCluster(t, 4, faultLease) }
	goThrough(t, len(moveSteps), start, func(t *testing.T, c *testcluster.Cluster, i int) {
		step, name := moveSteps[i], fmt.Sprintf("m%d", i)
		t.Run(fmt.Sprintf("%s at %s %s, stays %v", step.who, step.label, step.on, step.stays), func(t *testing.T) {
			createReplicated(t, c, "n1", name)
			rec := history.NewRecorder()
			load := history.Start(history.LoadConfig{Recorder: rec, Units: []string{name}, Proxies: proxyURLs(c), Clients: 2, Pause: loadPause(), Timeout: 10 * time.Second, Reads: true, Seed: uint64(i)})
			func() {
				defer load.Stop()
				awaitProgress(t, rec, 10, name)
				at := map[string][]*testcluster.Process{leaderDies: c.Controls, sourceDies: c.Nodes[:1], targetDies: c.Nodes[2:3]}[step.who]
				// Rules are spent over restarts, by what they say: each step has one of its own.
				r := faultpoint.Rule{Action: faultpoint.Kill, Label: step.label, On: step.on, Times: 1 + i}
				heal := faultOnce(r, at)
				id := beginMove(t, c, name, `{"to":"n3","wait":false}`)
				killed := reach(t, r, at)
				heal()
				revive(t, at, killed)
				if !step.stays {
					killed.Start()
				}
				j := awaitMoved(t, c, id)
				t.Logf("%s ended: %+v", killed.ID, j)
				if step.outcome != "" && j.Outcome != step.outcome && (j.Step != "cleaning" || step.outcome != "done") {
					t.Errorf("outcome %q, want %q", j.Outcome, step.outcome)
				}
				awaitProgress(t, rec, 10, name)
				if step.stays {
					killed.Start()
				}
				killed.AwaitReady()
				c.AwaitCopiesInSync(1, name)
				awaitProgress(t, rec, 10, name)
			}()
			if err := history.Check(rec.Ops(), finalLogs(t, c, name), time.Minute); err != nil {
				t.Error(err)
			}
			c.Verify(name)
			deleteTenant(t, c, name)
		})
	})
}

// TestFaultsM5AProxyDiesWhileItHolds: the proxy through which a move was asked for, and
// in which writes are held, is ended in the pause; the other one serves, and the move ends.
func TestFaultsM5AProxyDiesWhileItHolds(t *testing.T) {
	t.Parallel()
	c := faultCluster(t, 3, faultLease)
	createReplicated(t, c, "n1", "p0")
	rec := history.NewRecorder()
	load := history.Start(history.LoadConfig{Recorder: rec, Units: []string{"p0"}, Proxies: proxyURLs(c), Clients: 2, Pause: loadPause(), Timeout: 10 * time.Second, Reads: true, Seed: 1})
	defer load.Stop()
	awaitProgress(t, rec, 10, "p0")
	r := faultpoint.Rule{Action: faultpoint.Hang, Label: "propose", On: "EndRelease", Times: 1}
	var goOn []func()
	for _, p := range c.Controls { // whoever leads by then
		goOn = append(goOn, p.Fault(r))
	}
	id := beginMove(t, c, "p0", `{"to":"n3","wait":false}`)
	wait.For(t, "the source has given the unit up", func() error {
		for _, p := range c.Controls {
			if p.Hits(r) > 0 {
				return nil
			}
		}
		return fmt.Errorf("no leader has come to it")
	})
	c.Proxies[0].Kill()
	for _, f := range goOn {
		f()
	}
	c.Proxies[0].Start()
	c.Proxies[0].AwaitReady()
	if j := awaitMoved(t, c, id); j.Step != "cleaning" && j.Outcome != "done" {
		t.Errorf("%+v", j)
	}
	awaitProgress(t, rec, 10, "p0")
	load.Stop()
	if err := history.Check(rec.Ops(), finalLogs(t, c, "p0"), time.Minute); err != nil {
		t.Error(err)
	}
	c.Verify("p0")
}
