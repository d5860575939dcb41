package announce

import "github.com/prometheus/client_golang/prometheus"

func description() *prometheus.Desc {
	return prometheus.NewDesc("gateway_role", "1 for the part that this gateway has among those of its network: active, standby or conflict.", []string{"role"}, nil)
}

// Describe implements [prometheus.Collector].
func (*Announcer) Describe(to chan<- *prometheus.Desc) { to <- description() }

// Collect implements [prometheus.Collector].
func (a *Announcer) Collect(to chan<- prometheus.Metric) {
	current := a.State().Role
	for _, role := range []Role{RoleActive, RoleStandby, RoleConflict} {
		value := 0.0
		if role == current {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(description(), prometheus.GaugeValue, value, string(role))
	}
}
