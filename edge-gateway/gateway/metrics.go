package gateway

import "github.com/prometheus/client_golang/prometheus"

// metrics is what GET /metrics shows of one gateway.
type metrics struct {
	registry  *prometheus.Registry
	accepted  prometheus.Counter
	rejected  *prometheus.CounterVec
	published prometheus.Counter
	failed    prometheus.Counter
	latency   prometheus.Histogram
}

func newMetrics(nodes func() float64) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "gateway", Name: name, Help: help})
	}
	m := &metrics{
		registry:  prometheus.NewRegistry(),
		accepted:  counter("messages_accepted_total", "Valid messages received."),
		published: counter("messages_published_total", "Messages that Pub/Sub has acknowledged."),
		failed:    counter("publish_failures_total", "Messages that could not be published."),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "gateway", Name: "requests_rejected_total", Help: "Requests refused, by reason.",
		}, []string{"reason"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "gateway", Name: "publish_seconds", Help: "Time from a message to Pub/Sub's answer.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}),
	}
	m.registry.MustRegister(m.accepted, m.rejected, m.published, m.failed, m.latency,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "gateway", Name: "nodes", Help: "Nodes known."}, nodes))
	return m
}
