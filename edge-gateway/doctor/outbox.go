package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"coldaisle.dev/edge-gateway/outbox"
)

// slowWrite is a durable write at which nodes would notice that Pub/Sub is unavailable.
const slowWrite = 500 * time.Millisecond

const subjectOutbox = "outbox"

// outbox examines the outbox's folder. The number of waiting readings is the running gateway's:
// on a disk that has become read-only, sent ones are still in the folder.
func (c Config) outbox(r *Report, running health) {
	held, err := outbox.Inspect(c.OutboxDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.warn(subjectOutbox, "start the gateway once, or check OUTBOX_DIR", "%s is not there yet; a gateway makes it", c.OutboxDir)
		c.space(r)
		return
	case errors.Is(err, fs.ErrPermission):
		r.problem(subjectOutbox, "run the doctor with sudo", "%s cannot be examined: %v", c.OutboxDir, err)
		return
	case err != nil:
		r.problem(subjectOutbox, "the card or disk may be failing: replace it", "%s: %v", c.OutboxDir, err)
		return
	}
	if running.Status != "" {
		held.Pending = running.Outbox.Readings
	}
	waiting := fmt.Sprintf("%s, %s of at most %s taken", plural(held.Pending, "reading")+" waiting", size(held.Bytes), size(c.OutboxMaxBytes))
	if held.Bytes > c.OutboxMaxBytes/10*9 && held.Pending > 0 {
		r.warn(subjectOutbox, "bring the uplink back, or raise OUTBOX_MAX_BYTES", "nearly full: %s", waiting)
	} else {
		r.ok(subjectOutbox, "%s", waiting)
	}
	if held.Damaged > 0 {
		r.warn(subjectOutbox, "what can be read is delivered; a card that loses data should be replaced", "%s cannot be read", plural(held.Damaged, "place"))
	}
	c.disk(r)
}

// CheckDisk is the gateway's own check. It returns an error if the outbox cannot be written,
// or only slowly, or cannot grow to its bound.
func (c Config) CheckDisk(context.Context) error {
	r := &Report{}
	c.disk(r)
	return r.err(Warning)
}

// disk measures a durable write, and checks that the outbox can grow to its bound.
func (c Config) disk(r *Report) {
	took, err := outbox.Probe(c.OutboxDir, c.Clock)
	switch {
	case err != nil:
		r.problem(subjectOutbox, "readings are lost while Pub/Sub is away: check the folder's owner, and whether the disk is full or read-only", "%s cannot be written: %v", c.OutboxDir, err)
	case took > slowWrite:
		r.warn(subjectOutbox, "nodes wait as long while Pub/Sub is away: use a better card or disk", "%s: a durable write takes up to %s", c.OutboxDir, took.Round(time.Millisecond))
	default:
		r.ok(subjectOutbox, "%s: a durable write takes up to %s", c.OutboxDir, took.Round(100*time.Microsecond))
	}
	c.space(r)
}

// space checks that the outbox, and that of the withheld readings, can grow to their bounds.
func (c Config) space(r *Report) {
	kept, _ := outbox.Size(c.OutboxDir)
	withheld, _ := outbox.Size(filepath.Join(c.OutboxDir, outbox.Withheld)) // most gateways have none
	var disk unix.Statfs_t
	dir, _ := filepath.Abs(c.OutboxDir)
	err := unix.Statfs(dir, &disk)
	for errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) { // a gateway makes the folder
		dir = filepath.Dir(dir)
		err = unix.Statfs(dir, &disk)
	}
	if err != nil {
		r.warn(subjectOutbox, "", "free space of the disk: %v", err)
		return
	}
	free := int64(disk.Bavail) * int64(disk.Bsize) //nolint:gosec // no disk has 2^63 bytes
	bound := min(c.OutboxMaxBytes, math.MaxInt64/2)
	if wanted := max(bound-kept, 0) + max(bound-withheld, 0); free < wanted {
		r.warn(subjectOutbox, "free some, or lower OUTBOX_MAX_BYTES", "%s of the disk are free; kept and withheld readings may need %s more", size(free), size(wanted))
		return
	}
	r.ok(subjectOutbox, "%s of the disk are free", size(free))
}

func size(bytes int64) string {
	const kib, mib, gib = 1 << 10, 1 << 20, 1 << 30
	switch {
	case bytes >= gib:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/gib)
	case bytes >= mib:
		return fmt.Sprintf("%.0f MiB", float64(bytes)/mib)
	default:
		return fmt.Sprintf("%d KiB", (bytes+kib-1)/kib)
	}
}
