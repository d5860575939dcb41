package anomaly_test

import (
	"fmt"
	"runtime"
	"testing"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/must"
)

// A calibration takes the memory that docs/learning.md says.
func TestMemoryOfCalibration(t *testing.T) { //nolint:paralleltest // it measures the heap
	const nodes, most = 2_000, 600.0
	past := fleet(nodes, 25)
	for i := range past {
		past[i].Node = fmt.Sprintf("node-%06d", i)
		for k := range anomaly.MaxNeighbours {
			past[i].Neighbours = append(past[i].Neighbours, fmt.Sprintf("node-%06d", (i+k+1)%nodes))
		}
	}
	content := must.Get(anomaly.Calibrate(past).MarshalBinary())(t)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	c := must.Get(anomaly.DecodeCalibration(content))(t)
	each := float64(heap()-before) / nodes
	if each > most || len(c.Neighbours("node-000000")) != anomaly.MaxNeighbours {
		t.Errorf("%.0f bytes for each node, want at most %g", each, most)
	}
	t.Logf("%.0f bytes for each node, %.0f MB for 100,000", each, each/10)
	runtime.KeepAlive(content)
	runtime.KeepAlive(past)
	runtime.KeepAlive(c)
}
