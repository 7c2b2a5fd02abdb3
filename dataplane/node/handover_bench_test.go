package node

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/dataplane/node/store"
)

// BenchmarkHandover gives a unit up to its copy and takes it back, under 1,000 writes a
// second: what is told is how long it is frozen, from the call to its answer.
func BenchmarkHandover(b *testing.B) {
	full := func(c *Config) { c.Store.Sync, c.KeepUnits = store.SyncFull, true }
	p, f := startNode(b, full), startNode(b, full)
	p.tenantWithTable("acme")
	f.admin(200, "POST", "follow", fmt.Sprintf(`{"units":[{"unit":"acme","id":1,"epoch":1,"kind":"target"}],"from":%q,"as":%q,"token":%q,"authority":"c1/global","history":1,"term":1}`, p.url, f.url, adminToken))
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			tick := time.NewTicker(4 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					p.do("POST", "/t/acme/query", insert)
				case <-stop:
					return
				}
			}
		})
	}
	defer writers.Wait()
	defer close(stop)
	units := fmt.Sprintf(`"units":[{"unit":"acme","id":1,"node":"n2","addr":%q}],"authority":"c1/global","history":1,"term":1}`, f.url)
	var took []time.Duration
	job := 0
	for b.Loop() {
		eventually(b, "the copy", func() bool {
			at, ok := p.s.replica.Holds("acme", f.url)
			mark, err := p.s.store.Mark(b.Context(), "acme")
			return ok && err == nil && at.Seq+20 > mark.Position.Seq && len(p.s.replica.Followers("acme")) > 0
		})
		job++
		began := time.Now()
		a := p.admin(200, "POST", "handover", fmt.Sprintf(`{"job":"%d","ms":5000,%s`, job, units))
		took = append(took, time.Since(began))
		if !strings.Contains(a.body, `"released":[{`) {
			b.Fatal(a.body)
		}
		p.admin(200, "POST", "thaw", fmt.Sprintf(`{"job":"%d",%s`, job, units))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
