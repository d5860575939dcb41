package main

import (
	"bytes"
	"os"
	"testing"
	"time"

	"coldaisle.dev/shared/pgtest"
)

// TestSoak is a soak of half a minute in which every chaos event happens once;
// `make soak` is the real one.
func TestSoak(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // the database's account must pass
		t.Fatal(err)
	}
	var output bytes.Buffer
	s := soak{
		duration: 30 * time.Second, chaosEvery: time.Second, outage: time.Second,
		nodes: 100, speed: 30, userCount: 3, seed: 1, dir: dir, out: &output, clock: time.Now,
	}
	err := s.run(t.Context())
	t.Log(output.String())
	pgtest.SkipUnlessAvailable(t, err)
	if s.chaos.count() < 5 {
		t.Errorf("%d chaos events only", s.chaos.count())
	}
}
