package outbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
)

// swept counts what an outbox writes and syncs. The nth fails, or is done and reported as failed.
type swept struct {
	nth   int64
	lost  bool
	count atomic.Int64
}

func (d *swept) hook(o operation, run func() error) error {
	switch {
	case o.kind == "read at", o.kind == "open" && o.flags == toRead, d.count.Add(1) != d.nth:
		return run()
	case d.lost:
		return errors.Join(run(), syscall.EIO)
	default:
		return syscall.EIO
	}
}

// TestEveryDiskOperation lets each write, sync, truncation, creation and removal of a life of the outbox
// fail alone, and be done with its answer lost: start, messages over several segments, half of them sent,
// a restart, the rest. What was accepted comes out in order, and again only if it could not be noted as
// sent.
func TestEveryDiskOperation(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		steps := int64(1) // until a life has fewer
		for nth := int64(1); nth <= steps; nth++ {
			steps = max(nth, live(t, nth, lost))
		}
		if steps < 30 {
			t.Errorf("a life has %d operations; the test needs more", steps)
		}
		t.Logf("%d operations failed, lost %t", steps, lost)
	}
}

// live is a life of an outbox whose nth operation fails. It returns how many there were.
func live(t *testing.T, nth int64, lost bool) int64 {
	t.Helper()
	d := &swept{nth: nth, lost: lost}
	o := Options{MaxBytes: 1 << 20, Clock: time.Now, disk: hooked{hook: d.hook}} // segments of 64 KiB
	folder := t.TempDir()
	start := func() *Outbox {
		box, err := Open(folder, o)
		if err != nil { // the program starts again
			box, err = Open(folder, o)
		}
		must.Do(t, err)
		return box
	}
	var accepted, out []string
	unnoted := false // whether a message could not be noted as sent
	add := func(box *Outbox, from, to int) {
		for i := from; i < to; i++ {
			m := fmt.Sprintf("%02d %s", i, strings.Repeat("x", 20_000))
			err := box.Append(rec(m))
			if err != nil { // the node sends it again
				err = box.Append(rec(m))
			}
			must.Do(t, err)
			accepted = append(accepted, m)
		}
	}
	send := func(box *Outbox, all int) {
		for range all {
			messages := must.Get(box.Next(1))(t)
			for _, m := range messages {
				out = append(out, m.Enrolment)
			}
			if err := box.Consume(messages); err != nil {
				unnoted = true
			}
		}
	}
	box := start()
	add(box, 0, 8)
	send(box, 6)
	unnoted = box.Close() != nil || unnoted
	box = start()
	add(box, 8, 10)
	send(box, 30)
	if left := box.Stats().Pending; left > 0 {
		t.Errorf("operation %d, lost %t: %d messages wait", nth, lost, left)
	}
	_ = box.Close()
	once := slices.Clone(out)
	slices.Sort(once)
	once = slices.Compact(once)
	must.Equal(t, fmt.Sprintf("operation %d, lost %t: of %d messages %d came out", nth, lost, len(accepted), len(once)), accepted, once)
	// One whose append failed may have been written all the same.
	if again := len(out) - len(once); again > 1 && !unnoted {
		t.Errorf("operation %d, lost %t: %d messages came a second time", nth, lost, again)
	}
	return d.count.Load()
}
