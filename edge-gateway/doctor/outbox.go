package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"coldaisle.dev/edge-gateway/outbox"
)

// slowWrite is a durable write at which nodes would notice that Pub/Sub is away.
const slowWrite = 500 * time.Millisecond

// outbox examines the place of readings that Pub/Sub has not taken.
func (c Config) outbox(r *Report) {
	const subject = "outbox"
	held, err := outbox.Inspect(c.OutboxDir)
	if errors.Is(err, fs.ErrNotExist) {
		r.warn(subject, "start the gateway once, or check OUTBOX_DIR", "%s is not there yet; a gateway makes it", c.OutboxDir)
		c.space(r, subject, 0)
		return
	}
	if errors.Is(err, fs.ErrPermission) {
		r.problem(subject, "run the doctor with sudo", "%s cannot be examined: %v", c.OutboxDir, err)
		return
	}
	if err != nil {
		r.problem(subject, "the card or disk may be failing: replace it", "%s: %v", c.OutboxDir, err)
		return
	}
	took, err := outbox.Probe(c.OutboxDir, c.Clock)
	switch {
	case err != nil:
		r.problem(subject, "readings are lost while Pub/Sub is away: check the folder's owner, and whether the disk is full or read-only", "%s cannot be written: %v", c.OutboxDir, err)
	case took > slowWrite:
		r.warn(subject, "nodes wait as long while Pub/Sub is away: use a better card or disk", "%s: a durable write takes up to %s", c.OutboxDir, took.Round(time.Millisecond))
	default:
		r.ok(subject, "%s: a durable write takes up to %s", c.OutboxDir, took.Round(100*time.Microsecond))
	}
	waiting := fmt.Sprintf("%s, %s of at most %s taken", plural(held.Pending, "reading")+" waiting", size(held.Bytes), size(c.OutboxMaxBytes))
	if held.Bytes > c.OutboxMaxBytes/10*9 && held.Pending > 0 {
		r.warn(subject, "bring the uplink back, or raise OUTBOX_MAX_BYTES", "nearly full: %s", waiting)
	} else {
		r.ok(subject, "%s", waiting)
	}
	if held.Damaged > 0 {
		r.warn(subject, "what can be read is delivered; a card that loses data should be replaced", "%s cannot be read", plural(held.Damaged, "place"))
	}
	if held.TornSegments > 0 {
		r.ok(subject, "%s with half a message at the end, as a power failure leaves it; nothing that was promised is missing", plural(held.TornSegments, "segment"))
	}
	c.space(r, subject, held.Bytes)
}

// CheckDisk is the same question for the gateway itself: the error is that the outbox
// cannot be written, or only slowly, or cannot grow to its bound.
func (c Config) CheckDisk(context.Context) error {
	took, err := outbox.Probe(c.OutboxDir, c.Clock)
	if err != nil {
		return err
	}
	if took > slowWrite {
		return fmt.Errorf("a durable write takes %s", took.Round(time.Millisecond))
	}
	held, err := outbox.Size(c.OutboxDir)
	if err != nil {
		return err
	}
	free, err := freeSpace(nearestExisting(c.OutboxDir))
	if wanted := c.OutboxMaxBytes - held; err == nil && free < wanted {
		return fmt.Errorf("%s are free; the outbox may need %s more", size(free), size(wanted))
	}
	return nil
}

// space looks whether the outbox can grow to its bound.
func (c Config) space(r *Report, subject string, taken int64) {
	free, err := freeSpace(nearestExisting(c.OutboxDir))
	if err != nil {
		r.warn(subject, "", "free space of the disk: %v", err)
		return
	}
	if wanted := c.OutboxMaxBytes - taken; free < wanted {
		r.warn(subject, "free some, or lower OUTBOX_MAX_BYTES", "%s of the disk are free; the outbox may need %s more", size(free), size(wanted))
		return
	}
	r.ok(subject, "%s of the disk are free", size(free))
}

// nearestExisting is a folder, or the nearest one above it that is there.
func nearestExisting(dir string) string {
	if absolute, err := filepath.Abs(dir); err == nil {
		dir = absolute
	}
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
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
