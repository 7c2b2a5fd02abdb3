package testcluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/internal/wait"
)

// RegionsOptions say what a deployment of two levels is made of: the global group, and a
// group for each region that keeps its own directory. Processes of region us have names
// that begin with "us-"; those of the global group, which is in region "eu" and keeps that
// region's nodes where it is given any, have none.
type RegionsOptions struct {
	Global  Options            // Faults and Disks: of the whole deployment
	Regions map[string]Options // by the region's name, three letters at most
}

// Regions is a running deployment of two levels.
type Regions struct {
	Global *Cluster
	Own    map[string]*Cluster // by region: those that keep their own directory

	t       testing.TB
	net     network
	watches *watches
}

// StartRegions starts a deployment of two levels, has the global directory know of each
// region's proxies, and waits until every server and proxy can serve.
func StartRegions(t testing.TB, o RegionsOptions) *Regions {
	t.Helper()
	disks := checkDisks(t, o.Global)
	r := &Regions{t: t, net: newNetwork(t, o.Global), Own: map[string]*Cluster{}}
	dir := folder(t)
	group := func(prefix, region string) *Cluster {
		return &Cluster{t: t, net: r.net, dir: dir, faults: o.Global.Faults, disks: disks, prefix: prefix, region: region}
	}
	r.Global = group("", homeRegion)
	r.Global.startControls(o.Global)
	for _, name := range slices.Sorted(maps.Keys(o.Regions)) {
		c := group(name+"-", name)
		c.groupArgs = []string{"--region", name, "--global", r.Global.ControlURLs()}
		r.Own[name] = c
		c.startControls(o.Regions[name])
	}
	r.startProxies(o)
	for _, name := range slices.Sorted(maps.Keys(o.Regions)) {
		r.Own[name].startNodes(o.Regions[name])
	}
	r.Global.startNodes(o.Global)
	t.Cleanup(r.dumpWhenFailed)
	r.watches = watchAll(r)
	return r
}

// startProxies starts every group's, and records those of the regions.
func (r *Regions) startProxies(o RegionsOptions) {
	r.t.Helper()
	for _, c := range r.groups() {
		options := o.Global
		if c != r.Global {
			options = o.Regions[c.region]
		}
		for range options.Proxies {
			c.AddProxy(append([]string{"--region", c.region}, options.ProxyArgs...)...).AwaitReady()
		}
		if c != r.Global {
			r.RecordRouters(c.region)
		}
	}
	wait.For(r.t, "every server knows every region", func() error {
		for _, p := range slices.Concat(r.Whole().Controls, r.Whole().Proxies) {
			a := r.Do(http.MethodGet, p.URL+"/_shard/regions", "")
			for name := range r.Own {
				if a.Status != http.StatusOK || !strings.Contains(string(a.Body), fmt.Sprintf("%q", name)) {
					return fmt.Errorf("%s answers %s", p, a)
				}
			}
		}
		return nil
	})
}

// RecordRouters has the global directory know of the proxies that a region has.
func (r *Regions) RecordRouters(region string) {
	r.t.Helper()
	var routers []string
	for _, p := range r.Own[region].Proxies {
		routers = append(routers, p.Via)
	}
	body, _ := json.Marshal(map[string][]string{"routers": routers})
	wait.For(r.t, "region "+region+" is recorded", func() error { // it may not have the global directory yet
		a := r.Do(http.MethodPut, r.Global.AnyControl().URL+"/_shard/regions/"+region, string(body))
		if a.Status != http.StatusCreated && a.Status != http.StatusOK {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
}

// groups gives the global group and the regions', by name.
func (r *Regions) groups() []*Cluster {
	all := []*Cluster{r.Global}
	for _, name := range slices.Sorted(maps.Keys(r.Own)) {
		all = append(all, r.Own[name])
	}
	return all
}

// Whole is the deployment as if it were of one group: with the processes that there are now.
func (r *Regions) Whole() *Cluster {
	w := &Cluster{t: r.t, net: r.net}
	for _, c := range r.groups() {
		w.Controls = append(w.Controls, c.Controls...)
		w.Nodes = append(w.Nodes, c.Nodes...)
		w.Proxies = append(w.Proxies, c.Proxies...)
	}
	return w
}

// All are the processes of all groups.
func (r *Regions) All() []*Process { return r.Whole().All() }

// In gives the group that keeps a region's nodes.
func (r *Regions) In(region string) *Cluster {
	if c := r.Own[region]; c != nil {
		return c
	}
	return r.Global
}

// Do is Cluster.Do, for a process of any group.
func (r *Regions) Do(method, url, body string, header ...string) Answer {
	return r.Global.Do(method, url, body, header...)
}

// Must is Cluster.Must.
func (r *Regions) Must(a Answer, status int) Answer {
	r.t.Helper()
	return r.Global.Must(a, status)
}

// inAndOut divides the processes: those of a region, and all others.
func (r *Regions) inAndOut(region string) (in, out []string) {
	for _, c := range r.groups() {
		if c.region == region {
			in = append(in, ids(c.All())...)
		} else {
			out = append(out, ids(c.All())...)
		}
	}
	return in, out
}

// CutRegion loses all that a region's processes and those of other regions send each
// other, silently, until HealRegion. Region "eu" is the global group's, too.
func (r *Regions) CutRegion(region string) {
	in, out := r.inAndOut(region)
	cutBoth(r.net, in, out)
}

// RefuseRegion breaks every connection between a region and the others, and refuses new
// ones, as a firewall does that answers, until HealRegion.
func (r *Regions) RefuseRegion(region string) {
	in, out := r.inAndOut(region)
	r.net.refuse(in, out)
}

// DeafenRegion loses all that other regions' processes send those of a region, until
// HealRegion.
func (r *Regions) DeafenRegion(region string) {
	in, out := r.inAndOut(region)
	r.net.cut(out, in)
}

// MuteRegion loses all that a region's processes send those of other regions, until
// HealRegion.
func (r *Regions) MuteRegion(region string) { r.net.cut(r.inAndOut(region)) }

// CutRegions loses all that the processes of two regions send each other.
func (r *Regions) CutRegions(a, b string) {
	in, _ := r.inAndOut(a)
	of, _ := r.inAndOut(b)
	cutBoth(r.net, in, of)
}

// HealRegion undoes what was done between a region and the others.
func (r *Regions) HealRegion(region string) { r.net.heal(r.inAndOut(region)) }

// Heal undoes everything that was done to the network.
func (r *Regions) Heal() { r.Whole().Heal() }

// DelayRegion holds up for d, each way, all that passes between a region and the others,
// until HealRegion. Only where Bytewise.
func (r *Regions) DelayRegion(region string, d time.Duration) {
	slow := r.Global.bytewise()
	in, out := r.inAndOut(region)
	each(in, out, func(a, b string) {
		slow.delay(a, b, d)
		slow.delay(b, a, d)
	})
}

// Bytewise is Cluster.Bytewise.
func (r *Regions) Bytewise() bool { return r.Global.Bytewise() }

// KillLeader ends the control server that leads a region's group, "" the global one, and
// gives it.
func (r *Regions) KillLeader(region string) *Process {
	r.t.Helper()
	c := r.Global
	if region != "" {
		c = r.Own[region]
	}
	p := c.Leader()
	p.Kill()
	return p
}

func (r *Regions) dumpWhenFailed() {
	for _, c := range r.groups() {
		c.dumpWhenFailed()
	}
}
