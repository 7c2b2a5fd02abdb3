package group

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// meters are the durations that a group measures.
type meters struct {
	commit   prometheus.Histogram // from Propose to its answer
	append   prometheus.Histogram // one write to the log on disk
	snapshot prometheus.Histogram
}

func newMeters() *meters {
	histogram := func(name, help string, from float64, count int) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(from, 2, count),
		})
	}
	return &meters{
		commit:   histogram("domicile_commit_duration_seconds", "Time from a proposal to its committed answer.", 0.0002, 16),
		append:   histogram("domicile_raft_append_duration_seconds", "Time of one durable write to the Raft log.", 0.0001, 16),
		snapshot: histogram("domicile_snapshot_duration_seconds", "Time to write a snapshot of the directory.", 0.001, 16),
	}
}

func (m *meters) tookSnapshot(d time.Duration) { m.snapshot.Observe(d.Seconds()) }
func (m *meters) tookAppend(d time.Duration)   { m.append.Observe(d.Seconds()) }

var (
	termDesc     = prometheus.NewDesc("domicile_raft_term", "Current Raft term.", nil, nil)
	leaderDesc   = prometheus.NewDesc("domicile_raft_leader", "1 while this server leads its group.", nil, nil)
	commitDesc   = prometheus.NewDesc("domicile_raft_commit_index", "Index up to which the log is committed, as known here.", nil, nil)
	pendingDesc  = prometheus.NewDesc("domicile_raft_pending_proposals", "Proposals that wait for their outcome.", nil, nil)
	revisionDesc = prometheus.NewDesc("domicile_directory_revision", "Revision of the directory that was applied.", nil, nil)
	loopDesc     = prometheus.NewDesc("domicile_raft_snapshot_loops", "Servers that are sent snapshots again and again and do not follow.", nil, nil)
)

// Describe and Collect make a Group a prometheus.Collector.
func (g *Group) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{termDesc, leaderDesc, commitDesc, pendingDesc, revisionDesc, loopDesc} {
		out <- d
	}
	g.machine.meters.commit.Describe(out)
	g.machine.meters.append.Describe(out)
	g.machine.meters.snapshot.Describe(out)
}

// Collect implements prometheus.Collector.
func (g *Group) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	leads := 0.0
	if g.leads() {
		leads = 1
	}
	loops := 0.0
	for _, s := range g.servers() {
		if s.SnapshotLoop {
			loops++
		}
	}
	gauge(termDesc, float64(g.raft.CurrentTerm()))
	gauge(leaderDesc, leads)
	gauge(commitDesc, float64(g.raft.CommitIndex()))
	gauge(pendingDesc, float64(g.pending.count()))
	gauge(revisionDesc, float64(g.State().Revision()))
	gauge(loopDesc, loops)
	g.machine.meters.commit.Collect(out)
	g.machine.meters.append.Collect(out)
	g.machine.meters.snapshot.Collect(out)
}
