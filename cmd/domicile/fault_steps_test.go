package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"domicile/internal/faultpoint"
	"domicile/internal/history"
	"domicile/internal/testcluster"
	"domicile/internal/wait"
)

// reach waits until one of the processes came to a labelled point and ended there.
func reach(t *testing.T, r faultpoint.Rule, among []*testcluster.Process) (killed *testcluster.Process) {
	t.Helper()
	wait.For(t, fmt.Sprintf("a process comes to %s %s", r.Label, r.On), func() (err error) {
		killed, err = hasReached(r, among)
		return err
	})
	return killed
}

// faultOnce has a rule take effect in the first of the processes that comes to its point, and
// in no other that leads after it: who begins what leads there may wait for the answer.
func faultOnce(r faultpoint.Rule, among []*testcluster.Process) (heal func()) {
	var heals []func()
	for _, p := range among {
		heals = append(heals, p.Fault(r))
	}
	all := sync.OnceFunc(func() {
		for _, f := range heals {
			f()
		}
	})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for !slices.ContainsFunc(among, func(p *testcluster.Process) bool { return p.Hits(r) > 0 }) {
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
		all()
	}()
	return func() {
		close(stop)
		<-done
		all()
	}
}

// hasReached gives a process that came to a labelled point and ended there.
func hasReached(r faultpoint.Rule, among []*testcluster.Process) (killed *testcluster.Process, err error) {
	for _, p := range among {
		if _, ended := p.Ended(); ended && p.Hits(r) > 0 {
			return p, nil
		}
	}
	return nil, errors.New("none has")
}

// revive waits until processes can do their work, and starts those again that were killed. A
// rule that was taken out may have met one more: where the test is slow, the next leader.
func revive(t *testing.T, among []*testcluster.Process, but ...*testcluster.Process) {
	t.Helper()
	for _, p := range among {
		if slices.Contains(but, p) {
			continue
		}
		p.AwaitRevived(func(code int) {
			if code != bySignal {
				t.Errorf("%s ended with status %d:\n%s", p.Name, code, p.Log())
			}
		})
	}
}

// bySignal is the exit status of a process that a signal ended.
const bySignal = -1

// lanes is in how many deployments at a time the steps of a test are gone through.
const lanes = 2

// goThrough takes the steps of a test one after another, each lane every second one in a
// deployment of its own, until one fails.
func goThrough[D any](t *testing.T, steps int, start func(*testing.T) D, take func(t *testing.T, in D, step int)) {
	for lane := range lanes {
		t.Run(fmt.Sprintf("lane %d", lane), func(t *testing.T) {
			t.Parallel()
			in := start(t)
			for i := lane; i < steps && !t.Failed(); i += lanes {
				take(t, in, i)
			}
		})
	}
}

// TestFaultsL5KillAtEveryStepOfAFailover: whoever leads is ended at a step of a
// failover, or the node that is promoted is; the next leader goes on, the units
// are written again, and nothing that was acknowledged is lost.
func TestFaultsL5KillAtEveryStepOfAFailover(t *testing.T) {
	t.Parallel()
	c := faultCluster(t, 3, faultLease)
	steps := []struct {
		label, on string
		nodes     bool // the point is in nodes
	}{
		{"propose", "FailOver", false}, {"proposed", "FailOver", false},
		{"call", "promote", false}, {"called", "promote", false},
		{"propose", "ConfirmPromotion", false}, {"proposed", "ConfirmPromotion", false},
		{"store.record", faultpoint.Any, true},
	}
	for i, step := range steps {
		names := tenantNames(fmt.Sprintf("s%d-", i), 2)
		createReplicated(t, c, "n1", names...)
		rec := history.NewRecorder()
		load := history.Start(history.LoadConfig{Recorder: rec, Units: names, Proxies: proxyURLs(c), Clients: 2, Pause: loadPause(), Timeout: 10 * time.Second, Reads: true, Seed: uint64(i)})
		func() {
			defer load.Stop()
			awaitProgress(t, rec, 10, names...)
			at := c.Controls
			if step.nodes {
				at = c.Nodes[1:]
			}
			r := faultpoint.Rule{Action: faultpoint.Kill, Label: step.label, On: step.on, Times: 1}
			c.Nodes[0].Kill()
			var heal []func()
			for _, p := range at {
				heal = append(heal, p.Fault(r))
			}
			killed := reach(t, r, at)
			for _, f := range heal {
				f()
			}
			t.Logf("%s %s: %s ended", step.label, step.on, killed.ID)
			revive(t, at, killed)
			if step.nodes { // the unit's only other place
				killed.Start()
			}
			awaitProgress(t, rec, 10, names...)
			revive(t, c.All())
			c.AwaitCopiesInSync(1, names...)
			awaitProgress(t, rec, 10, names...)
		}()
		if err := history.Check(rec.Ops(), finalLogs(t, c, names...), time.Minute); err != nil {
			t.Errorf("%s %s: %v", step.label, step.on, err)
		}
		c.Verify(names...)
		for _, name := range names {
			deleteTenant(t, c, name)
		}
	}
}
