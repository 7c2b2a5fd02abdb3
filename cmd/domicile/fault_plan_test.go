package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/internal/faultpoint"
	"domicile/internal/testcluster"
)

// fault is one thing that goes wrong for a while.
type fault struct {
	at, lasts time.Duration // since the beginning of the round
	kind      string        // one of faultKinds
	on, from  *testcluster.Process
	point     string        // what fails, ends or stops its process: a labelled point
	delay     time.Duration // delay
	rate      int64         // slow: bytes a second

	region, far string // of two levels: whose link, and, of some, to which other region
}

// faultKinds are drawn as often as they stand here.
var faultKinds = []string{
	"kill", "kill", "pause", "pause", // the process, from outside
	"kill at", "pause at", "hang at", // a labelled point
	"isolate", "isolate", "cut", "cut", "one way", "one way",
	"delay", "slow", "garble",
	"full", "fail at", // its disk
}

// Labelled points of nodes and control servers where a disk fails, and more
// where a process may end or stop.
var (
	nodeDisk    = []string{"store.sync", "store.sync", "store.apply", "store.apply", "store.commit", "store.commit", "store.position", "store.record", "store.image", "store.rename", "store.checkpoint", "store.remove", "store.aside"}
	controlDisk = []string{"raft.log", "raft.term", "raft.vote"}
	leaderSteps = []string{"call", "called", "propose", "proposed"}
)

func (f fault) String() string {
	s := fmt.Sprintf("%v %s", f.at.Round(time.Millisecond), f.kind)
	if f.on != nil {
		s += " " + f.on.ID
	}
	if f.region != "" {
		s += " " + strings.TrimSpace(f.region+" "+f.far)
	}
	if f.from != nil {
		s += " from " + f.from.ID
	}
	if f.point != "" {
		s += " " + f.point
	}
	if f.delay > 0 {
		s += fmt.Sprintf(" by %v", f.delay.Round(time.Millisecond))
	}
	if f.rate > 0 {
		s += fmt.Sprintf(" to %d KB/s", f.rate>>10)
	}
	return s + fmt.Sprintf(" for %v", f.lasts.Round(time.Millisecond))
}

// faultPlan draws the faults of one round: one after another or two at a time.
// It draws the same for the same r and processes, whatever the machine can do. Regions are
// those that keep directories, of a deployment of two levels.
func faultPlan(r *rand.Rand, c *testcluster.Cluster, lasts time.Duration, regions ...string) (plan []fault) {
	kinds := faultKinds
	if len(regions) > 0 {
		kinds = slices.Concat(faultKinds, regionFaultKinds)
	}
	all := c.All()
	for at := time.Duration(r.Int64N(int64(time.Second))); at < lasts; at += time.Duration(r.Int64N(int64(2 * time.Second))) {
		f := fault{at: at, kind: kinds[r.IntN(len(kinds))], on: all[r.IntN(len(all))],
			lasts: 200*time.Millisecond + time.Duration(r.Int64N(int64(3*faultLease)))}
		if r.IntN(2) == 0 { // nodes most of all
			f.on = c.Nodes[r.IntN(len(c.Nodes))]
		}
		if slices.Contains(regionFaultKinds, f.kind) {
			f.drawRegion(r, regions)
		}
		f.lasts = min(f.lasts, max(lasts-at, 200*time.Millisecond))
		if f.on != nil {
			f.draw(r, c)
		}
		plan = append(plan, f)
	}
	return plan
}

// draw draws what a fault of its kind needs, and another process where it cannot
// be on the one that it is on.
func (f *fault) draw(r *rand.Rand, c *testcluster.Cluster) {
	if slices.Contains(c.Proxies, f.on) && slices.Contains([]string{"kill at", "pause at", "hang at", "full", "fail at"}, f.kind) {
		f.on = c.Controls[r.IntN(len(c.Controls))] // a proxy keeps nothing
	}
	points := nodeDisk
	if slices.Contains(c.Controls, f.on) {
		points = controlDisk
	}
	switch f.kind {
	case "kill at", "pause at":
		if slices.Contains(c.Controls, f.on) {
			points = slices.Concat(controlDisk, leaderSteps)
		}
		f.point = points[r.IntN(len(points))]
	case "fail at", "hang at":
		f.point = points[r.IntN(len(points))]
	case "garble":
		f.on = c.Nodes[r.IntN(len(c.Nodes))]
		f.from = another(r, c.Nodes, f.on)
	case "cut", "one way", "delay", "slow":
		f.from = another(r, c.All(), f.on)
	}
	switch f.kind {
	case "delay":
		f.delay = time.Millisecond + time.Duration(r.Int64N(int64(faultLease)))
	case "slow":
		f.rate = 1 << (10 + r.IntN(8))
	}
}

func another(r *rand.Rand, among []*testcluster.Process, than *testcluster.Process) *testcluster.Process {
	for {
		if p := among[r.IntN(len(among))]; p != than {
			return p
		}
	}
}

// possible reports whether the machine can make the fault: a network of
// namespaces can only lose bytes, and a disk of one's own takes root.
func (f fault) possible(c *testcluster.Cluster) bool {
	switch f.kind {
	case "delay", "slow", "garble":
		return c.Bytewise()
	case "full":
		return f.on.HasDisk()
	}
	return true
}

// faultRun makes the faults of a plan.
type faultRun struct {
	t    *testing.T
	c    *testcluster.Cluster
	r    *testcluster.Regions         // of two levels; c is the whole of it
	down map[*testcluster.Process]int // faults that have it ended or stopped
	net  int                          // faults of the network under way, but for those of a region
	cut  map[string]int               // by region: faults of its links
	full map[*testcluster.Process]int
	made map[string]int // by kind: faults that took place
	over int            // faults that this machine cannot make
}

func newFaultRun(t *testing.T, c *testcluster.Cluster) *faultRun {
	return &faultRun{t: t, c: c, down: map[*testcluster.Process]int{}, cut: map[string]int{}, full: map[*testcluster.Process]int{}, made: map[string]int{}}
}

// run makes the faults of a plan and undoes each when its time is over; those of
// the network are undone all at once when none of them lasts. In the end all
// processes are up.
func (x *faultRun) run(plan []fault) {
	type event struct {
		at    time.Duration
		fault int
		ends  bool
	}
	var events []event
	for i, f := range plan {
		if !f.possible(x.c) {
			x.over++
			continue
		}
		events = append(events, event{f.at, i, false}, event{f.at + f.lasts, i, true})
	}
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	undo := make([]func(), len(plan))
	begin := time.Now()
	for _, e := range events {
		pass(e.at - time.Since(begin))
		if e.ends {
			undo[e.fault]()
			continue
		}
		undo[e.fault] = x.begin(plan[e.fault])
	}
	for _, p := range x.c.All() {
		p.AwaitRevived(func(code int) { // it gave up on its disk, or came to its point at the last moment
			if code == panicked {
				x.t.Errorf("%s panicked:\n%s", p.Name, p.Log())
			}
		})
	}
}

// panicked is the exit status of a Go program that did.
const panicked = 2

// begin makes a fault and gives what undoes it.
func (x *faultRun) begin(f fault) (undo func()) {
	switch f.kind {
	case "kill":
		x.made[f.kind]++
		return x.bringDown(f, func() func() { f.on.Kill(); return nil })
	case "pause":
		x.made[f.kind]++
		return x.bringDown(f, func() func() { f.on.Pause(); return nil })
	case "kill at":
		return x.bringDown(f, func() func() { return x.at(f, faultpoint.Kill, 1) })
	case "pause at":
		return x.bringDown(f, func() func() { return x.at(f, faultpoint.Pause, 1) })
	case "hang at":
		return x.at(f, faultpoint.Hang, 0)
	case "fail at":
		return x.at(f, faultpoint.Fail, 0)
	case "full":
		x.made[f.kind]++
		x.full[f.on]++
		f.on.FillDisk()
		return func() {
			if x.full[f.on]--; x.full[f.on] == 0 {
				f.on.FreeDisk()
			}
		}
	}
	if f.region != "" {
		return x.beginRegion(f)
	}
	x.made[f.kind]++
	x.net++
	switch f.kind {
	case "isolate":
		x.c.Isolate(f.on)
	case "cut":
		x.c.Cut(f.on, f.from)
	case "one way":
		x.c.CutOneWay(f.from, f.on)
	case "delay":
		x.c.Delay(f.from, f.on, f.delay)
	case "slow":
		x.c.Slow(f.from, f.on, f.rate)
	case "garble":
		x.c.Garble(f.from, f.on)
	}
	return func() {
		if x.net--; x.net == 0 {
			x.c.Heal()
		}
	}
}

// at has what a labelled point of a process is about happen there.
func (x *faultRun) at(f fault, action faultpoint.Action, times int) (undo func()) {
	r := faultpoint.Rule{Action: action, Label: f.point, On: faultpoint.Any}
	before := f.on.Hits(r)
	if times > 0 {
		r.Times = before + times
		before = 0
	}
	heal := f.on.Fault(r)
	return func() {
		heal()
		if f.on.Hits(r) > before {
			x.made[f.kind]++
		}
	}
}

// bringDown has a process end or stop, unless another fault has already, and
// undoes that once no fault wants it down.
func (x *faultRun) bringDown(f fault, begin func() (undo func())) func() {
	var undo func()
	if x.down[f.on]++; x.down[f.on] == 1 {
		undo = begin()
	}
	return func() {
		if undo != nil {
			undo()
		}
		if x.down[f.on]--; x.down[f.on] > 0 {
			return
		}
		if _, ended := f.on.Ended(); ended {
			f.on.Start()
		} else {
			f.on.Resume()
		}
	}
}
