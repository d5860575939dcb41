package gateway

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// metrics are the counters of a gateway and the registry behind GET /metrics.
type metrics struct {
	registry  *prometheus.Registry
	accepted  prometheus.Counter
	rejected  *prometheus.CounterVec
	published prometheus.Counter
	faults    *prometheus.CounterVec
	dropped   *prometheus.CounterVec
	batches   *prometheus.CounterVec
	latency   prometheus.Histogram
}

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "gateway", Name: name, Help: help})
	}
	by := func(labels []string, name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "gateway", Name: name, Help: help}, labels)
	}
	reason := []string{"reason"}
	return &metrics{
		registry:  prometheus.NewRegistry(),
		accepted:  counter("messages_accepted_total", "Valid messages received."),
		published: counter("messages_published_total", "Live messages that Pub/Sub has acknowledged."),
		faults:    by(reason, "publish_faults_total", "Failed publishes, live ones and backlog, by cause."),
		dropped:   by(reason, "outbox_dropped_total", "Readings that the outbox could not keep, by reason."),
		rejected:  by(reason, "requests_rejected_total", "Requests refused, by reason."),
		batches:   by([]string{"source", "result"}, "batch_readings_total", "Readings that came in batches, by source and what became of them."),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "gateway", Name: "publish_seconds", Help: "Time from a live message to Pub/Sub's answer.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}),
	}
}

func (m *metrics) register(g *Gateway) {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "gateway", Name: name, Help: help}, value)
	}
	m.registry.MustRegister(
		m.faults, m.accepted, m.rejected, m.published, m.latency, m.dropped, m.batches,
		gauge("nodes", "Nodes known.", func() float64 { return float64(g.nodes.count()) }),
		gauge("publishing", "1 while Pub/Sub answers, 0 while readings go into the outbox.", func() float64 {
			if g.sender.uplink.isDown() {
				return 0
			}
			return 1
		}),
		gauge("state", "0 while healthy, 1 while degraded, 2 while failing.", func() float64 {
			state, _ := g.monitor.state()
			return float64(slices.Index([]string{stateHealthy, stateDegraded, stateFailing}, state))
		}),
		gauge("outbox_readings", "Readings that wait in the outbox.", func() float64 { return float64(g.sender.outbox.Stats().Pending) }),
		gauge("withheld_readings", "Readings that are kept and may not be published.", func() float64 { return float64(g.drain.withheldCount()) }),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.registry.MustRegister(g.config.Collectors...)
	if g.config.NodeMetrics {
		m.registry.MustRegister(newNodeMetrics(g.nodes, g.sender.clock))
	}
	for _, reason := range []string{"full", "share", "disk"} {
		m.dropped.WithLabelValues(reason)
	}
}
