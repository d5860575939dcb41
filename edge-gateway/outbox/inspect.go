package outbox

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"
)

// Inspect examines an outbox without a lock or a write, so that a gateway may have it open.
// While one consumes, it counts about a second's worth of messages too many. The error is
// [fs.ErrNotExist] if there is no folder yet.
func Inspect(dir string) (Stats, error) {
	o := &Outbox{dir: dir, options: Options{disk: osDisk{}}}
	err := o.loadCursor()
	if err == nil {
		err = o.load(math.MaxInt64)
	}
	if err != nil {
		return Stats{}, fmt.Errorf("inspect outbox %s: %w", dir, err)
	}
	return o.Stats(), nil
}

// Size returns how many bytes the segments in a folder take.
func Size(dir string) (int64, error) {
	o := &Outbox{dir: dir, options: Options{disk: osDisk{}}}
	if err := o.list(); err != nil {
		return 0, fmt.Errorf("size of outbox: %w", err)
	}
	return o.bytes(), nil
}

// probes is how often Probe writes, because cards are slow now and then.
const probes = 5

// Probe returns the slowest of several durable writes in the folder of an outbox, without
// opening the outbox: it writes and syncs a file of its own.
func Probe(dir string, clock func() time.Time) (slowest time.Duration, err error) {
	// A name of its own: a gateway and its doctor may probe at once, and root follows no link here.
	left, _ := filepath.Glob(filepath.Join(dir, "probe[0-9]*")) // by probes that were killed; others go on without the name
	for _, path := range left {
		_ = os.Remove(path)
	}
	f, err := os.CreateTemp(dir, "probe")
	if err != nil {
		return 0, fmt.Errorf("outbox folder: %w", err)
	}
	for range probes {
		started := clock()
		if _, err = f.Write(make([]byte, blockSize)); err == nil {
			err = f.Sync()
		}
		if err != nil {
			break
		}
		slowest = max(slowest, clock().Sub(started))
	}
	_ = os.Remove(f.Name())
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, fmt.Errorf("outbox folder: %w", err)
	}
	return slowest, nil
}
