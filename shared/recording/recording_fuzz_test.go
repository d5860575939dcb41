package recording

import (
	"math"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

// FuzzReadSeries reads any file: what comes out is what a node may send, in the
// order of its time, and no row is counted twice or forgotten.
func FuzzReadSeries(f *testing.F) {
	f.Add("node_id,timestamp,temperature,humidity,label\na,2026-03-01T12:00:00Z,20.5,40,0\na,2026-03-01 11:00:00,21,NaN,1\n", true)
	f.Add("\xef\xbb\xbftimestamp,TEMPERATURE, node_id \n2026-03-01,1e308,x\n", false)
	f.Add("node_id,timestamp,temperature\n\"a\nb\",2026-03-01,20\n", true)
	f.Fuzz(func(t *testing.T, file string, filled bool) {
		var humidity *float64
		if filled {
			value := 40.0
			humidity = &value
		}
		r, err := Read(strings.NewReader(file), humidity)
		if err != nil {
			return
		}
		rows := 0
		for node, of := range r.Rows {
			rows += len(of)
			for i, row := range of {
				must.Hold(t, reading.ValidateNodeID(node) == nil && row.NodeID == node,
					"a row of %q in those of %q", row.NodeID, node)
				if math.IsNaN(row.Temperature) || math.IsInf(row.Temperature, 0) || math.IsNaN(row.Humidity) || math.IsInf(row.Humidity, 0) {
					t.Errorf("%g °C and %g %%", row.Temperature, row.Humidity)
				}
				must.Hold(t, i == 0 || !row.Time.Before(of[i-1].Time), "%s comes after %s", row.Time, of[i-1].Time)
			}
		}
		if rows+r.WithoutTemperature+r.WithoutHumidity != r.Total || len(r.Nodes) != len(r.Rows) {
			t.Errorf("%d rows, %d and %d left out, of %d; %d nodes, %d of them with rows",
				rows, r.WithoutTemperature, r.WithoutHumidity, r.Total, len(r.Nodes), len(r.Rows))
		}
	})
}
