package proxy

import (
	"io"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"domicile/dataplane/proxy/http1"
)

// metrics publishes the counters that the proxy keeps anyway (spec §2.6).
type metrics struct {
	p        *Proxy
	registry *prometheus.Registry
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("domicile_"+name, help, labels, nil)
}

var (
	descRequests  = desc("requests_total", "Requests answered, by what they asked for and the class of the status.", "route", "class")
	descDuration  = desc("request_duration_seconds", "From a request's head being there until its answer was sent.", "route")
	descUpstream  = desc("upstream_duration_seconds", "From sending a request on until the head of its answer.")
	descErrors    = desc("upstream_errors_total", "Requests that failed on the way to a node.", "node")
	descHeld      = desc("held_requests_total", "Requests that a node refused without effect, by what became of them.", "outcome")
	descHeldNow   = desc("held_requests", "Requests that wait for their unit to change nodes.")
	descHeldBytes = desc("held_bytes", "Memory that they keep.")
	descHeldUnits = desc("held_units", "Units whose requests wait, or are being released.")
	descTokens    = desc("refused_tokens_total", "Answers 401.")
	descRevision  = desc("directory_revision", "Revision of the proxy's copy of the directory; 0 without one.")
	descAge       = desc("directory_age_seconds", "How long ago the copy was known to be the newest.")
	descGlobalRev = desc("global_directory_revision", "Revision of the proxy's copy of the global directory, where its own is a region's; 0 without one.")
	descGlobalAge = desc("global_directory_age_seconds", "How long ago that copy was known to be the newest.")
	descRelays    = desc("relays_total", "Attempts to send requests to other regions, by what became of them.", "region", "outcome")
	descConns     = desc("client_connections", "Clients' connections.")
	descBuildInfo = desc("build_info", "1, labelled by the version.", "version", "goversion", "part")
)

// classes are the values of domicile_requests_total{class}, as http1 counts
// them; the first is of requests that ended without an answer.
var classes = [6]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

func newMetrics(p *Proxy) (*metrics, error) {
	m := &metrics{p: p, registry: prometheus.NewRegistry()}
	for _, c := range []prometheus.Collector{
		m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := m.registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descRequests, descDuration, descUpstream, descErrors, descHeld, descHeldNow, descHeldBytes, descHeldUnits, descTokens, descRevision, descAge, descGlobalRev, descGlobalAge, descRelays, descConns, descBuildInfo,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := m.p.server.Stats()
	for route, name := range routeNames {
		for class, text := range classes {
			counter(descRequests, s.Requests[route][class].Load(), name, text)
		}
		histogram(ch, descDuration, &s.Duration[route], name)
	}
	histogram(ch, descUpstream, &s.UpstreamDuration)
	m.upstreams(counter)
	holds := m.p.holds
	for o, name := range outcomeNames {
		counter(descHeld, holds.counts[o].Load(), name)
	}
	gauge(descHeldNow, float64(holds.now.Load()))
	gauge(descHeldBytes, float64(holds.bytes.Load()))
	gauge(descHeldUnits, float64(holds.open.Load()))
	counter(descTokens, m.p.refusals.total.Load())
	at := m.p.revisions()
	gauge(descRevision, float64(at.own))
	gauge(descAge, m.p.dir.age(time.Now()).Seconds())
	if m.p.global.follower.Load() != nil {
		gauge(descGlobalRev, float64(at.global))
		gauge(descGlobalAge, m.p.global.age(time.Now()).Seconds())
	}
	gauge(descConns, float64(s.Connections.Load()))
	gauge(descBuildInfo, 1, m.p.cfg.Version, runtime.Version(), "proxy")
}

// upstreams tells what became of requests on the way to nodes and other regions.
func (m *metrics) upstreams(counter func(*prometheus.Desc, uint64, ...string)) {
	failed := m.p.dir.nodes.errors()
	for node, n := range m.p.global.nodes.errors() {
		failed[node] += n
	}
	for node, n := range failed {
		counter(descErrors, n, string(node))
	}
	for _, d := range []*directory{m.p.dir, m.p.global} {
		for _, r := range d.regions.all() {
			counter(descErrors, r.errors(), routerPrefix+string(r.name))
			for o, name := range relayOutcomeNames {
				counter(descRelays, r.counts[o].Load(), string(r.name), name)
			}
		}
	}
}

func histogram(ch chan<- prometheus.Metric, d *prometheus.Desc, h *http1.Histogram, labels ...string) {
	counts, sum := h.Snapshot()
	buckets := make(map[float64]uint64, len(counts))
	total := uint64(0)
	for i, bound := range http1.HistogramBuckets() {
		total += counts[i]
		buckets[bound.Seconds()] = total
	}
	total += counts[len(counts)-1]
	ch <- prometheus.MustNewConstHistogram(d, total, sum.Seconds(), buckets, labels...)
}

// write writes all metrics in Prometheus' text format, version 0.0.4.
func (m *metrics) write(w io.Writer) error {
	families, err := m.registry.Gather()
	if err != nil {
		return err
	}
	enc := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return err
		}
	}
	return nil
}
