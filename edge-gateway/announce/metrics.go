package announce

import "github.com/prometheus/client_golang/prometheus"

// Collectors are the announcer's metrics.
func (a *Announcer) Collectors() (all []prometheus.Collector) {
	for _, role := range []Role{RoleActive, RoleStandby, RoleConflict} {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gateway_role", Help: "1 for the role of this gateway in its network: active, standby or conflict.",
			ConstLabels: prometheus.Labels{"role": string(role)},
		}, func() float64 {
			if a.State().Role == role {
				return 1
			}
			return 0
		}))
	}
	return all
}
