package main

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"domicile/internal/testcluster"
)

// regionFaultKinds are drawn beside faultKinds where there are two levels.
var regionFaultKinds = []string{
	"cut region", "cut region", "refuse region", // silently, or by an answer
	"deafen region", "mute region", // one way
	"cut regions",                               // from each other alone
	"kill leader", "kill leader", "kill leader", // of a region's group
}

// drawRegion draws what a fault of a region needs.
func (f *fault) drawRegion(r *rand.Rand, regions []string) {
	f.on, f.region = nil, regions[r.IntN(len(regions))]
	if f.kind == "kill leader" {
		return
	}
	if f.kind == "cut regions" {
		others := slices.DeleteFunc(slices.Clone(regions), func(s string) bool { return s == f.region })
		f.far = others[r.IntN(len(others))]
	}
}

// beginRegion makes a fault of a region and gives what undoes it: its links are healed once
// no fault wants them cut, or earlier, where those of another region or process are.
func (x *faultRun) beginRegion(f fault) (undo func()) {
	switch f.kind {
	case "cut region":
		x.r.CutRegion(f.region)
	case "refuse region":
		x.r.RefuseRegion(f.region)
	case "deafen region":
		x.r.DeafenRegion(f.region)
	case "mute region":
		x.r.MuteRegion(f.region)
	case "cut regions":
		x.r.CutRegions(f.region, f.far)
	case "kill leader":
		return x.killLeader(f)
	default:
		x.t.Fatalf("nobody makes a fault of the kind %q", f.kind)
	}
	x.made[f.kind]++
	x.cut[f.region]++
	return func() {
		if x.cut[f.region]--; x.cut[f.region] == 0 {
			x.r.HealRegion(f.region)
		}
	}
}

// killLeader ends the server that leads a region's group, where one says that it does.
func (x *faultRun) killLeader(f fault) (undo func()) {
	leader := x.leads(x.r.In(f.region))
	if leader == nil {
		return func() {}
	}
	x.made[f.kind]++
	f.on = leader
	return x.bringDown(f, func() func() { f.on.Kill(); return nil })
}

// leads gives the server that says that it leads its group; nil for none that answers at once.
func (x *faultRun) leads(c *testcluster.Cluster) *testcluster.Process {
	for _, p := range c.Controls {
		var g struct{ ID, Leader string }
		if x.down[p] > 0 {
			continue
		}
		a := c.DoWithin(time.Second, http.MethodGet, p.URL+"/_shard/group", "")
		if a.Status == http.StatusOK && json.Unmarshal(a.Body, &g) == nil && g.ID != "" && g.ID == g.Leader {
			return p
		}
	}
	return nil
}
