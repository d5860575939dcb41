package nodesim_test

import (
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/edge-gateway/nodesim/fault"
)

// What the gateway receives is what the faults say, at the times that they say.
func TestFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		from, to := start.Add(10*time.Minute), start.Add(20*time.Minute)
		g := &gateway{}
		pretend(t, g, nodesim.Config{Nodes: 8, FailureEvery: -1, Faults: []fault.Fault{
			{Kind: fault.Excursion, Room: "sim-r1", Node: "sim-r1-n1", Peak: 55, Start: from, End: to},
			{Kind: fault.Stuck, Room: "sim-r1", Node: "sim-r1-n2", Start: from, End: to},
			{Kind: fault.Cut, Room: "sim-r2", Start: from, End: to},
		}}, 30*time.Minute)
		hot, cut, stuck := 0, 0, map[[2]float64]bool{}
		for _, c := range g.calls("message") {
			if during := !c.At.Before(from) && c.At.Before(to); !during {
				if *c.Temperature > 50 {
					t.Errorf("%s is at %g °C at %s", c.NodeID, *c.Temperature, c.At)
				}
				continue
			}
			switch {
			case c.NodeID[:6] == "sim-r2":
				cut++
			case c.NodeID == "sim-r1-n2":
				stuck[[2]float64{*c.Temperature, *c.Humidity}] = true
			case *c.Temperature > 54 && c.NodeID == "sim-r1-n1":
				hot++
			case *c.Temperature > 50 && c.NodeID != "sim-r1-n1":
				t.Errorf("%s is at %g °C", c.NodeID, *c.Temperature)
			}
		}
		if hot < 15 || cut != 0 || len(stuck) != 1 {
			t.Errorf("%d hot readings, want at least 15; %d of the room that is cut; %d values of the node that is stuck", hot, cut, len(stuck))
		}
		for _, c := range g.calls("heartbeat") {
			if c.NodeID[:6] == "sim-r2" && !c.At.Before(from) && c.At.Before(to) {
				t.Errorf("%s is cut and sends a heartbeat at %s", c.NodeID, c.At)
			}
		}
	})
}
