package node

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"domicile/dataplane/node/lease"
	"domicile/dataplane/node/store"
)

// routeLabel is the label route of the metrics.
type routeLabel uint8

const (
	routeOther routeLabel = iota
	routeInfo
	routeQuery
	routeBatch
	routePipeline
	routeCursor
	routeChanges
	routeAdmin
	routeHealth
	routeReady
	routeMetrics
	routeCount
)

var routeNames = [routeCount]string{
	routeOther: "other", routeInfo: "info", routeQuery: "query", routeBatch: "batch", routePipeline: "pipeline",
	routeCursor: "cursor", routeChanges: "changes", routeAdmin: "admin", routeHealth: "health",
	routeReady: "ready", routeMetrics: "metrics",
}

var classes = [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}

// metrics are those of one server (spec §2.6). No label names a tenant.
type metrics struct {
	requests [routeCount][len(classes)]prometheus.Counter
	duration [routeCount]prometheus.Observer
	sync     prometheus.Observer
	panics   prometheus.Counter
	registry *prometheus.Registry
	handler  fasthttp.RequestHandler
}

func newMetrics(version string, stats func() store.Stats) *metrics {
	m := &metrics{}
	reg := prometheus.NewRegistry()
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "domicile_requests_total", Help: "Requests answered, by route and class of status.",
	}, []string{"route", "class"})
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "domicile_request_duration_seconds", Help: "Time from a request's head to its answer; of a stream, to its beginning.",
		Buckets: prometheus.ExponentialBuckets(0.00005, 2.5, 16), // 50 µs to 46 s
	}, []string{"route"})
	syncs := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "domicile_fsync_duration_seconds", Help: "Time of each sync of a unit's WAL.",
		Buckets: prometheus.ExponentialBuckets(0.00005, 2.5, 12),
	})
	m.panics = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "domicile_panics_total", Help: "Requests whose handler panicked. Each is a fault in the program.",
	})
	for r := range routeCount {
		m.duration[r] = duration.WithLabelValues(routeNames[r])
		for c, class := range classes {
			if c != 0 && c != 2 { // 1xx and 3xx are never answered
				m.requests[r][c] = requests.WithLabelValues(routeNames[r], class)
			}
		}
	}
	m.sync = syncs
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "domicile_build_info", Help: "1, labelled with the version.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version(), "part": "node"},
	}, func() float64 { return 1 })
	reg.MustRegister(requests, duration, syncs, m.panics, build,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "domicile_open_units", Help: "Units that are open.",
		}, func() float64 { return float64(stats().OpenUnits) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "domicile_commits_total", Help: "Transactions committed in all units.",
		}, func() float64 { return float64(stats().Commits) }),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry = reg
	m.handler = fasthttpadaptor.NewFastHTTPHandler(promhttp.HandlerFor(reg, promhttp.HandlerOpts{DisableCompression: true}))
	return m
}

// copies adds what there is to tell of copies and of the lease, nil without --lease.
func (m *metrics) copies(lag func() map[string]time.Duration, l *lease.Lease) {
	m.registry.MustRegister(lagCollector{lag, prometheus.NewDesc("domicile_replica_lag_seconds",
		"How far this node's copies are behind, by the address of the node that they follow.", []string{"node"}, nil)})
	if l == nil {
		return
	}
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "domicile_lease_left_seconds", Help: "Time left of this node's lease; 0 once it has lapsed, and before the first.",
		}, func() float64 { return l.State().Left.Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "domicile_lease_units", Help: "Units that this node's lease names.",
		}, func() float64 { return float64(l.State().Units) }))
}

// lagCollector reads the lag when it is asked: nodes that are followed come and go.
type lagCollector struct {
	lag  func() map[string]time.Duration
	desc *prometheus.Desc
}

func (c lagCollector) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

func (c lagCollector) Collect(to chan<- prometheus.Metric) {
	for node, lag := range c.lag() {
		to <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, lag.Seconds(), node)
	}
}

// done counts an answered request.
func (m *metrics) done(route routeLabel, status int, took time.Duration) {
	if c := status/100 - 1; c >= 0 && c < len(classes) && m.requests[route][c] != nil {
		m.requests[route][c].Inc()
	}
	m.duration[route].Observe(took.Seconds())
}
