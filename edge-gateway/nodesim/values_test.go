package nodesim_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/shared/must"
)

// For a demonstration the first room turns hot when it is told to, at any speed.
func TestHotAfter(t *testing.T) {
	t.Parallel()
	for _, speed := range []float64{1, 10, 60} {
		t.Run(fmt.Sprintf("speed %g", speed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				g := &gateway{}
				pretend(t, g, nodesim.Config{Nodes: 8, Speed: speed, FailureEvery: -1, HotAfter: 25 * time.Second}, 2*time.Minute)
				var over time.Duration
				for _, c := range g.calls("message") {
					if *c.Temperature <= 50 {
						continue
					}
					if over == 0 {
						over = c.At.Sub(start)
					}
					if c.NodeID[:len("sim-r1")] != "sim-r1" {
						t.Fatalf("%s of another room is at %g °C", c.NodeID, *c.Temperature)
					}
				}
				// Noise moves the first reading over the limit by half a minute of the ramp.
				earliest := 25*time.Second - time.Duration(float64(30*time.Second)/speed)
				if over < max(time.Nanosecond, earliest) || over > time.Minute {
					t.Errorf("50 °C passed after %s, want about 25 s and at most an interval more", over)
				}
			})
		})
	}
}

// The cooling of every room fails once in each time of FailureEvery, all of its nodes pass
// the default threshold, and are themselves again an hour after.
func TestCoolingFailsByChance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const every, times, nodes = 12 * time.Hour, 6, 8
		start := time.Now()
		g := &gateway{}
		pretend(t, g, nodesim.Config{Nodes: nodes, FailureEvery: every}, times*every)
		hot := map[string][]time.Duration{} // first over 50 °C in each failure
		last := map[string]time.Duration{}
		for _, c := range g.calls("message") {
			if *c.Temperature <= 50 {
				continue
			}
			at := c.At.Sub(start)
			if before, ok := last[c.NodeID]; !ok || at-before > time.Hour {
				hot[c.NodeID] = append(hot[c.NodeID], at)
			}
			last[c.NodeID] = at
		}
		for node, failures := range hot {
			if len(failures) != times || failures[0] < every/5 {
				t.Errorf("%s passed 50 °C at %v, want once in each %s and not at once", node, failures, every)
			}
		}
		must.Equal(t, "nodes that passed 50 °C", nodes, len(hot))
	})
}
