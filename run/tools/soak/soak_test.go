package main

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
)

// TestSoak is a soak in which each component breaks once; `make soak` is the real one. A
// busy machine takes longer for that.
func TestSoak(t *testing.T) {
	t.Parallel()
	programs := must.Get(programs())(t)
	missing := []string{"gateway killed", "API hangs", "database crashes", "database unreachable", "uplink stalled", "backend's Pub/Sub refused", "detect hangs", "ingest killed"}
	for duration := 40 * time.Second; len(missing) > 0 && duration < 5*time.Minute; duration *= 3 {
		var output bytes.Buffer
		s := soak{
			duration: duration, chaosEvery: time.Second, outage: time.Second,
			nodes: 100, speed: 30, seed: 1, dir: folder(t), programs: programs, out: &output, clock: time.Now, events: missing,
		}
		err := s.run(t.Context())
		t.Log(output.String())
		pgtest.SkipUnlessAvailable(t, err)
		missing = slices.DeleteFunc(missing, func(name string) bool { return s.chaos.done[name] > 0 })
	}
	if len(missing) > 0 {
		t.Errorf("never happened: %q", missing)
	}
}
