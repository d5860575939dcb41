package main

import (
	"bytes"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
)

// TestSoak is a soak of half a minute in which every chaos event happens once;
// `make soak` is the real one. A machine that is busy takes longer for as many.
func TestSoak(t *testing.T) {
	t.Parallel()
	programs := must.Get(programs())(t)
	events := 0
	for duration := 30 * time.Second; events < 5 && duration < 5*time.Minute; duration *= 3 {
		var output bytes.Buffer
		s := soak{
			duration: duration, chaosEvery: time.Second, outage: time.Second,
			nodes: 100, speed: 30, userCount: 3, seed: 1, dir: folder(t), programs: programs, out: &output, clock: time.Now,
		}
		err := s.run(t.Context())
		t.Log(output.String())
		pgtest.SkipUnlessAvailable(t, err)
		events = s.chaos.count()
	}
	if events < 5 {
		t.Errorf("%d chaos events only", events)
	}
}
