package gateway

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"coldaisle.dev/shared/reading"
)

// nodeMetrics are the nodes' newest readings, under the names of the API's metrics (contract
// 12.8). They are computed for each scrape: a node that is gone leaves no value.
type nodeMetrics struct {
	nodes                                       *nodeTable
	clock                                       func() time.Time
	temperature, humidity, dewPoint, newest, up *prometheus.Desc
}

func newNodeMetrics(nodes *nodeTable, clock func() time.Time) nodeMetrics {
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("coldaisle_"+name, help, []string{"node_id"}, nil)
	}
	return nodeMetrics{
		nodes:       nodes,
		clock:       clock,
		temperature: describe("temperature_celsius", "Temperature. Absent while the node is offline."),
		humidity:    describe("relative_humidity_ratio", "Relative humidity, 0 to 1. Absent while the node is offline."),
		dewPoint:    describe("dew_point_celsius", "Temperature at which water condenses. Absent while the node is offline."),
		newest:      describe("last_reading_timestamp_seconds", "Time of the newest reading, in seconds since 1970."),
		up:          describe("sensor_up", "1 while the node sends readings, 0 when none came for 5 minutes."),
	}
}

// Describe implements [prometheus.Collector].
func (m nodeMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.temperature, m.humidity, m.dewPoint, m.newest, m.up} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (m nodeMetrics) Collect(to chan<- prometheus.Metric) {
	for id, newest := range m.nodes.newest() {
		gauge := func(d *prometheus.Desc, value float64) {
			if reading.Has(value) {
				to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, id)
			}
		}
		at := timeOfMicros(newest.at)
		gauge(m.newest, float64(newest.at)/float64(time.Second/time.Microsecond))
		if m.clock().Sub(at).Abs() >= offlineAfter { // it may have been set back
			gauge(m.up, 0)
			continue
		}
		temperature, humidity := valueOf(newest.temperature), valueOf(newest.humidity)
		gauge(m.up, 1)
		gauge(m.temperature, temperature)
		gauge(m.humidity, humidity/100) //nolint:mnd // percent
		gauge(m.dewPoint, reading.DewPoint(temperature, humidity))
	}
}
