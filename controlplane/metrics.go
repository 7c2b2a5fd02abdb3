package controlplane

import (
	"net/http"
	"runtime"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"domicile/fsm"
	"domicile/internal/httpserve"
)

// meters are what this server counts (spec §2.6). No label names a tenant.
type meters struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	refused  prometheus.Counter
}

// register makes the metrics of a server.
func (s *Server) register() error {
	s.meters = meters{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "domicile_requests_total",
			Help: "Requests answered, by route and class of status."}, []string{"route", "class"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "domicile_request_duration_seconds",
			Help:    "Time to answer a request; streams are not observed.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}}, []string{"route"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "domicile_refused_tokens_total",
			Help: "Requests refused for their token."}),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "domicile_build_info",
		Help: "1, with the build in its labels."}, []string{"version", "goversion"})
	build.WithLabelValues(s.config.Build, runtime.Version()).Set(1)
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "domicile_streams",
			Help: "Streams of the directory and of events that are being served."}, func() float64 { return float64(s.streams.Load()) }),
		s.meters.requests, s.meters.duration, s.meters.refused, build, s.group, &directoryCollector{state: s.group.State},
	} {
		if err := s.config.Registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// count counts a request that was answered.
func (m *meters) count(served httpserve.Served) {
	route := served.Route
	if route == "" {
		route = "unknown"
	}
	m.requests.WithLabelValues(route, strconv.Itoa(served.Status/100)+"xx").Inc()
	if served.Status == http.StatusUnauthorized {
		m.refused.Inc()
	}
	if route != "events" && route != "subscribe" {
		m.duration.WithLabelValues(route).Observe(served.Took.Seconds())
	}
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) error {
	promhttp.HandlerFor(s.config.Registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

// directoryCollector reads the directory when it is scraped.
type directoryCollector struct{ state func() *fsm.State }

var (
	descNodes = prometheus.NewDesc("domicile_nodes",
		"Nodes recorded, by state.", []string{"state"}, nil)
	descTenants = prometheus.NewDesc("domicile_tenants",
		"Units whose primary is placed on a node.", []string{"node"}, nil)
	descReplicas = prometheus.NewDesc("domicile_replicas",
		"Units that a node holds a copy of.", []string{"node"}, nil)
	descUnreplicated = prometheus.NewDesc("domicile_unreplicated_units",
		"Units that should have a copy and have none.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *directoryCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descNodes, descTenants, descReplicas, descUnreplicated} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *directoryCollector) Collect(out chan<- prometheus.Metric) {
	state := c.state()
	states := map[string]int{"unleased": 0}
	copies, units := 0, 0
	for n := range state.Nodes() {
		states[string(nodeState(n))]++
		held, copied := state.NodeHolds(n.Name)
		units, copies = units+held, copies+copied
		out <- gauge(descTenants, held, string(n.Name))
		out <- gauge(descReplicas, copied, string(n.Name))
	}
	for name, count := range states {
		out <- gauge(descNodes, count, name)
	}
	out <- gauge(descUnreplicated, countUnreplicated(state, units, copies))
}

// countUnreplicated counts units without a copy. Where there are no copies at
// all that is every unit, and a directory of a million need not be walked.
func countUnreplicated(state *fsm.State, units, copies int) int {
	if state.Settings().Replicas == 0 {
		return 0
	}
	if copies == 0 {
		return units
	}
	count := 0
	for t := range state.Tenants("", "") {
		for p := range state.TenantUnits(t.Name) {
			if len(p.Copies) == 0 {
				count++
			}
		}
	}
	return count
}

func gauge(d *prometheus.Desc, value int, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
}
