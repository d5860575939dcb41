package main

import (
	"bytes"
	"os"
	"testing"
	"time"

	"coldaisle.dev/shared/pgtest"
)

// TestSoak is a soak of half a minute in which every fault comes about once;
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
	var said bytes.Buffer
	s := soak{
		lasting: 30 * time.Second, killEvery: time.Second, outage: time.Second,
		nodes: 100, speed: 30, dashboards: 3, seed: 1, dir: dir, out: &said, clock: time.Now,
	}
	err := s.run(t.Context())
	t.Log(said.String())
	pgtest.SkipUnlessAvailable(t, err)
	if s.faults.count() < 5 {
		t.Errorf("%d faults only", s.faults.count())
	}
}
