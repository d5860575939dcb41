package announce

import "github.com/prometheus/client_golang/prometheus"

// metrics describes what /metrics shows of the names.
type metrics struct{ role, conflicts, peers *prometheus.Desc }

func newMetrics() metrics {
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("gateway_"+name, help, labels, nil)
	}
	counter := gauge
	return metrics{
		role:      gauge("role", "1 for the part that this gateway has among those of its network: active, standby or conflict.", "role"),
		conflicts: counter("name_conflicts_total", "Claims of the gateway's names by others."),
		peers:     gauge("pair_peers", "Other gateways of the same enrolment on an interface.", "interface"),
	}
}

// Describe implements [prometheus.Collector].
func (a *Announcer) Describe(to chan<- *prometheus.Desc) {
	to <- a.metrics.role
	to <- a.metrics.conflicts
	to <- a.metrics.peers
}

// Collect implements [prometheus.Collector].
func (a *Announcer) Collect(to chan<- prometheus.Metric) {
	state := a.State()
	for _, role := range []Role{RoleActive, RoleStandby, RoleConflict} {
		value := 0.0
		if role == state.Role {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(a.metrics.role, prometheus.GaugeValue, value, string(role))
	}
	to <- prometheus.MustNewConstMetric(a.metrics.conflicts, prometheus.CounterValue, float64(state.Conflicts))
	for _, l := range state.Links {
		to <- prometheus.MustNewConstMetric(a.metrics.peers, prometheus.GaugeValue, float64(len(l.Peers)), l.Interface)
	}
}
