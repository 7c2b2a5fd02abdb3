package controlplane

import (
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"domicile/controlplane/lease"
	"domicile/fsm"
	"domicile/internal/httpserve"
	"domicile/proto"
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
		Help: "1, with the build in its labels."}, []string{"version", "goversion", "part"})
	build.WithLabelValues(s.config.Build, runtime.Version(), "control").Set(1)
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "domicile_streams",
			Help: "Streams of the directory and of events that are being served."}, func() float64 { return float64(s.streams.Load()) }),
		s.meters.requests, s.meters.duration, s.meters.refused, build, s.group, s.moves.outcomes, s.moves.duration, s.moves.pause, s.jobs.meters.outcomes, s.jobs.meters.duration, s.jobs.meters.unpromoted,
		&directoryCollector{state: s.group.State, keeper: s.keeper},
	} {
		if err := s.config.Registry.Register(c); err != nil {
			return err
		}
	}
	return s.registerCopy()
}

// registerCopy makes the metrics of a region's copy of the global directory, under the
// names that proxies have for theirs.
func (s *Server) registerCopy() error {
	if s.global == nil {
		return nil
	}
	for _, c := range []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "domicile_global_directory_revision",
			Help: "Revision of the copy of the global directory, of a region's server; 0 without one."}, func() float64 {
			if d := s.globalCopy(); d != nil {
				return float64(d.Revision())
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "domicile_global_directory_age_seconds",
			Help: "How long ago that copy was known to be the newest."}, func() float64 {
			if s.globalCopy() == nil {
				return 0
			}
			return s.global.Age().Seconds()
		}),
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

// directoryCollector reads the directory, and what the keeper of leases knows,
// when it is scraped.
type directoryCollector struct {
	state  func() *fsm.State
	keeper *lease.Keeper

	mu    sync.Mutex
	walk  walked
	at    time.Time
	valid bool
}

// walked is what takes a walk over every unit.
type walked struct {
	revision     fsm.Revision
	unreplicated int
	sameZone     map[fsm.RegionName]int
}

// walkEvery is how often every unit is walked at most: scrapes may come faster.
const walkEvery = 10 * time.Second

var (
	descNodes = prometheus.NewDesc("domicile_nodes",
		"Nodes recorded, by state.", []string{"state"}, nil)
	descTenants = prometheus.NewDesc("domicile_tenants",
		"Units whose primary is placed on a node.", []string{"node"}, nil)
	descReplicas = prometheus.NewDesc("domicile_replicas",
		"Units that a node follows, or is to follow.", []string{"node"}, nil)
	descUnreplicated = prometheus.NewDesc("domicile_unreplicated_units",
		"Units that should have a copy and have none in sync; at most ten seconds old.", nil, nil)
	descSameZone = prometheus.NewDesc("domicile_same_zone_copies",
		"Copies in the zone of their primary, by region; at most ten seconds old.", []string{"region"}, nil)
	descRecovering = prometheus.NewDesc("domicile_recovering",
		"1 while the directory is being recovered: nothing is granted then.", nil, nil)
	descHistory = prometheus.NewDesc("domicile_history",
		"The directory's history, which each recovery raises.", nil, nil)
	descLeaseAge = prometheus.NewDesc("domicile_lease_age_seconds",
		"Time since a node's newest answered grant, as the leader counts it; only on the leader, and only of nodes that take leases.", []string{"node"}, nil)
)

// Describe implements prometheus.Collector.
func (c *directoryCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descNodes, descTenants, descReplicas, descUnreplicated, descSameZone, descRecovering, descHistory, descLeaseAge} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *directoryCollector) Collect(out chan<- prometheus.Metric) {
	state := c.state()
	states := make(map[proto.NodeState]int)
	for _, s := range []proto.NodeState{proto.NodeUp, proto.NodeLapsed, proto.NodeLost, proto.NodeUnleased, proto.NodeUnknown, proto.NodeDraining} {
		states[s] = 0
	}
	regions := make(map[fsm.RegionName]bool)
	for n := range state.Nodes() {
		status, leads := c.keeper.Node(n.Name)
		states[nodeState(state, n, status, leads)]++
		regions[n.Region] = true
		held, copied := state.NodeHolds(n.Name)
		out <- gauge(descTenants, held, string(n.Name))
		out <- gauge(descReplicas, copied, string(n.Name))
		if leads && status.Lease == fsm.LeaseTaken {
			out <- prometheus.MustNewConstMetric(descLeaseAge, prometheus.GaugeValue, float64(status.AgeMS)/1000, string(n.Name))
		}
	}
	for name, count := range states {
		out <- gauge(descNodes, count, string(name))
	}
	recovering, scope := 0, fsm.Scope{}
	if scope, _ = state.Scope(); state.Recovering() {
		recovering = 1
	}
	out <- gauge(descRecovering, recovering)
	out <- gauge(descHistory, int(scope.History))
	w := c.walked(state)
	out <- gauge(descUnreplicated, w.unreplicated)
	for region := range regions {
		out <- gauge(descSameZone, w.sameZone[region], string(region))
	}
}

// walked counts over all units, seldom enough that a directory of a million
// costs little.
func (c *directoryCollector) walked(state *fsm.State) walked {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.valid && (c.walk.revision == state.Revision() || time.Since(c.at) < walkEvery && state.CountTenants() > walkAlways) {
		return c.walk
	}
	began := time.Now()
	c.walk = walkUnits(state)
	c.valid, c.at = true, began
	return c.walk
}

// walkAlways is how many tenants are walked at each scrape.
const walkAlways = 10_000

func walkUnits(state *fsm.State) walked {
	w := walked{revision: state.Revision(), sameZone: make(map[fsm.RegionName]int)}
	for t := range state.Tenants("", "") {
		for p := range state.TenantUnits(t.Name) {
			if p.State != fsm.UnitActive && p.State != fsm.UnitMoving {
				continue
			}
			synced := false
			for _, c := range p.Copies {
				synced = synced || c.State == fsm.CopyInSync
				if c.State.Replica() && sameZone(state, p.Unit, c.Node) {
					home, _ := state.Node(p.Node)
					w.sameZone[home.Region]++
				}
			}
			if !synced && state.CopiesWanted(p) > 0 {
				w.unreplicated++
			}
		}
	}
	return w
}

func gauge(d *prometheus.Desc, value int, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
}
