package clock_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/clock"
	"coldaisle.dev/shared/must"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// machine is a machine whose clocks a test moves.
type machine struct {
	boot   byte
	uptime time.Duration
	wall   time.Time
}

func (m *machine) open(t *testing.T, path string) *clock.Clock {
	t.Helper()
	return must.Get(clock.Open(path, func() time.Time { return m.wall }, clock.Boot{ID: [16]byte{m.boot}, Uptime: func() time.Duration { return m.uptime }}))(t)
}

func (m *machine) pass(d time.Duration) {
	m.uptime += d
	m.wall = m.wall.Add(d)
}

func within(t *testing.T, what string, got, want time.Time, bound time.Duration) {
	t.Helper()
	must.Hold(t, got.Sub(want).Abs() <= bound, "%s: %v, want %v", what, got, want)
}

// TestClock shows contract 8.20.
func TestClock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "clock.json")
	m := &machine{boot: 1, uptime: time.Minute, wall: time.Unix(0, 0)}
	c := m.open(t, path)
	if _, known := c.Offset(); known || !c.Now().Equal(m.wall) {
		t.Errorf("with 1970 at boot the time is %v, known: %v", c.Now(), known)
	}
	m.wall = noon.Add(-time.Hour)
	must.Hold(t, c.Now().Equal(m.wall), "before the API has told the time it is not the system clock's")
	must.Do(t, c.Adjust(m.uptime, m.uptime+2*time.Second, noon))
	m.pass(2 * time.Second)
	within(t, "after a reply that took 2 s", c.Now(), noon, time.Second)

	// A faster reply is better, a slower one tells nothing new.
	must.Do(t, c.Adjust(m.uptime, m.uptime, noon.Add(500*time.Millisecond)))
	within(t, "after a quick reply", c.Now(), noon.Add(500*time.Millisecond), 0)
	must.Do(t, c.Adjust(m.uptime-10*time.Second, m.uptime, noon))
	within(t, "after a slow reply", c.Now(), noon.Add(500*time.Millisecond), 0)

	// The system clock is set, back and forth; the machine is suspended.
	now := c.Now()
	m.wall = noon.Add(-24 * time.Hour)
	within(t, "system clock set", c.Now(), now, 0)
	offset, _ := c.Offset()
	must.Hold(t, offset >= 24*time.Hour, "the offset to a clock that is slow by a day is %v", offset)
	m.pass(8 * time.Hour)
	within(t, "suspended", c.Now(), now.Add(8*time.Hour), 0)

	// The process starts again, then the machine.
	c = m.open(t, path)
	within(t, "process started again", c.Now(), now.Add(8*time.Hour), time.Second)
	m.boot, m.uptime, m.wall = 2, 0, time.Unix(0, 0)
	c = m.open(t, path)
	if _, known := c.Offset(); known {
		t.Errorf("another boot begins at %v", c.Now())
	}
	at, ok := c.Time([16]byte{1}, time.Minute+2*time.Second)
	if !ok {
		t.Fatal("the time of an earlier boot is forgotten")
	}
	within(t, "time in an earlier boot", at, noon, time.Second)
	if _, ok := c.Time([16]byte{2}, 0); ok {
		t.Error("the time of this boot is known though nobody told it")
	}
}

// TestClockFile holds that a clock works without its file.
func TestClockFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "clock.json")
	must.Do(t, os.WriteFile(path, []byte("no json"), 0o600))
	system := func() time.Time { return noon }
	c, err := clock.Open(path, system, clock.Boot{ID: [16]byte{1}, Uptime: func() time.Duration { return 0 }})
	must.Equal(t, "a garbled file is told", true, err != nil)
	must.Do(t, c.Adjust(0, 0, noon.Add(time.Hour)))
	within(t, "after a garbled file", c.Now(), noon.Add(time.Hour), 0)
	c, err = clock.Open(filepath.Join(path, "below-a-file"), system, clock.ThisBoot())
	if err == nil {
		err = c.Adjust(c.Boot().Uptime(), c.Boot().Uptime(), noon.Add(time.Hour))
	}
	must.Equal(t, "a file that cannot be written is told", true, err != nil)
	now := c.Now()
	must.Hold(t, now.Sub(noon.Add(time.Hour)) <= time.Minute, "without its file the clock says %v", now)
}

// TestThisBoot asks the machine that runs the test.
func TestThisBoot(t *testing.T) {
	t.Parallel()
	a, b := clock.ThisBoot(), clock.ThisBoot()
	before := a.Uptime()
	must.Hold(t, a.ID != ([16]byte{}) && before >= 0 && b.Uptime() >= before, "boots %v and %v", a.ID, b.ID)
}
