package nodesim_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/edge-gateway/nodesim"
)

// The values of a run depend on the seed alone, and the ids on the run.
func TestSameSeedSameValues(t *testing.T) {
	t.Parallel()
	values := func(t *testing.T, seed uint64) (map[string][]float64, map[string]bool) {
		t.Helper()
		g := &gateway{}
		pretend(t, g, nodesim.Config{Nodes: 5, Seed: seed}, time.Hour-time.Second)
		series, ids := map[string][]float64{}, map[string]bool{}
		for _, c := range g.calls("message") {
			series[c.NodeID] = append(series[c.NodeID], *c.Temperature, *c.Humidity)
			ids[c.ID] = true
		}
		return series, ids
	}
	synctest.Test(t, func(t *testing.T) {
		first, ids := values(t, 11)
		second, others := values(t, 11)
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("two runs of one seed differ (-first +second):\n%s", diff)
		}
		for id := range others {
			if ids[id] {
				t.Errorf("message id %s came in both runs", id)
			}
		}
		if third, _ := values(t, 12); cmp.Equal(first, third) {
			t.Error("two seeds gave the same values")
		}
	})
}

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

func TestFailCooling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{}
		s, err := nodesim.New(nodesim.Config{
			Gateway: "http://gateway", Transport: g, Clock: time.Now, Nodes: 8, FailureEvery: -1,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		failed := make(chan error, 1)
		time.AfterFunc(5*time.Minute, func() { failed <- s.FailCooling(1) })
		start := time.Now()
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
		hot := map[string]time.Duration{}
		for _, c := range g.calls("message") {
			if _, known := hot[c.NodeID]; !known && *c.Temperature > 50 {
				hot[c.NodeID] = c.At.Sub(start)
			}
		}
		if len(hot) != 4 {
			t.Errorf("passed 50 °C: %v, want the four nodes of one room", hot)
		}
		for id, after := range hot {
			if id[:len("sim-r2")] != "sim-r2" || after < 11*time.Minute || after > 20*time.Minute {
				t.Errorf("%s passed 50 °C after %s", id, after)
			}
		}
		if err := s.FailCooling(2); err == nil {
			t.Error("a room failed that is not there")
		}
	})
}
