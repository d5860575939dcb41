package recording_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/recording"
)

// A byte order mark, columns in any order, times with and without offset, and values that are missing.
func TestRead(t *testing.T) {
	t.Parallel()
	file := "\xef\xbb\xbftimestamp,humidity,node_id,temperature,extra\n" +
		"2024-01-01T00:00:10Z,40,a,21.5,x\n" +
		"2024-01-01 00:00:00,,a,20.5,x\n" +
		"2024-01-01T00:00:00+01:00,NaN,b,20,x\n" +
		"2024-01-01T00:00:05Z,41,b,,x\n" +
		"2024-01-01T00:00:06Z,41,b,130,x\n"
	half := 50.0
	for _, c := range []struct {
		humidity *float64
		without  int
		order    []float64 // of a's temperatures
	}{{nil, 2, []float64{21.5}}, {&half, 0, []float64{20.5, 21.5}}} {
		r := must.Get(recording.Read(strings.NewReader(file), c.humidity))(t)
		if r.Total != 5 || r.WithoutTemperature != 1 || r.WithoutHumidity != c.without || len(r.Nodes) != 2 || len(r.Rows["a"]) != len(c.order) {
			t.Fatalf("%+v", r)
		}
		for i, want := range c.order {
			must.Equal(t, fmt.Sprintf("temperature %d of a", i), want, r.Rows["a"][i].Temperature)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	const header = "node_id,timestamp,temperature,humidity\n"
	for name, c := range map[string]struct{ file, want string }{
		"empty file":        {"", "header"},
		"no such column":    {"node_id,time,temperature\n", "timestamp"},
		"time":              {header + "a,yesterday,20,40\n", "line 2"},
		"temperature":       {header + "a,2024-01-01T00:00:00Z,20,40\na,2024-01-01T00:00:00Z,warm,40\n", "line 3"},
		"infinite humidity": {header + "a,2024-01-01T00:00:00Z,20,+Inf\n", "line 2"},
		"node id":           {header + "rack 7,2024-01-01T00:00:00Z,20,40\n", "line 2"},
		"missing field":     {header + "a,2024-01-01T00:00:00Z,20\n", "line 2"},
	} {
		if _, err := recording.Read(strings.NewReader(c.file), nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one about %q", name, err, c.want)
		}
	}
}

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
		r, err := recording.Read(strings.NewReader(file), humidity)
		if err != nil {
			return
		}
		rows := 0
		for node, of := range r.Rows {
			rows += len(of)
			inOrder := slices.IsSortedFunc(of, func(a, b recording.Row) int { return a.Time.Compare(b.Time) })
			must.Hold(t, inOrder, "rows of %s are not in order of time: %+v", node, of)
			for _, row := range of {
				must.Hold(t, reading.ValidateNodeID(node) == nil && row.NodeID == node,
					"a row of %q in those of %q", row.NodeID, node)
				if math.IsNaN(row.Temperature) || math.IsInf(row.Temperature, 0) || math.IsNaN(row.Humidity) || math.IsInf(row.Humidity, 0) {
					t.Errorf("%g °C and %g %%", row.Temperature, row.Humidity)
				}
			}
		}
		if rows+r.WithoutTemperature+r.WithoutHumidity != r.Total || len(r.Nodes) != len(r.Rows) {
			t.Errorf("%d rows, %d and %d left out, of %d; %d nodes, %d of them with rows",
				rows, r.WithoutTemperature, r.WithoutHumidity, r.Total, len(r.Nodes), len(r.Rows))
		}
	})
}
