package outbox

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"
)

// Contents is what is in the folder of an outbox.
type Contents struct {
	Pending      int   // messages that wait, about a second's worth too many beside a gateway at work
	Bytes        int64 // on disk
	Damaged      int   // places that must be stepped over
	TornSegments int   // segments that end in half a message, as a power failure leaves them
}

// Inspect looks at an outbox from outside: it takes no lock and writes nothing,
// so that a gateway may have it open. The error is [fs.ErrNotExist] where there
// is no folder yet.
func Inspect(dir string) (Contents, error) {
	if _, err := os.Stat(dir); err != nil {
		return Contents{}, fmt.Errorf("inspect outbox: %w", err)
	}
	o := &Outbox{dir: dir, options: Options{disk: readOnly{}}, codec: newCodec()}
	defer o.codec.close()
	err := o.readCursors()
	if err == nil {
		err = o.load(math.MaxInt64)
	}
	if err != nil {
		return Contents{}, fmt.Errorf("inspect outbox %s: %w", dir, err)
	}
	found := Contents{Pending: o.pending(), Bytes: o.bytes(), Damaged: o.damaged}
	for _, s := range o.segments {
		if !s.compressed && s.onDisk > s.size {
			found.TornSegments++
		}
	}
	return found, nil
}

// Size is how many bytes the segments in a folder take.
func Size(dir string) (int64, error) {
	o := &Outbox{dir: dir, options: Options{disk: readOnly{}}}
	if err := o.list(); err != nil {
		return 0, fmt.Errorf("size of outbox: %w", err)
	}
	return o.bytes(), nil
}

// readOnly is the real file system for someone who only looks.
type readOnly struct{ osDisk }

// Remove leaves everything to the gateway.
func (readOnly) Remove(string) error { return nil }

// probes is how often Probe writes; cards are slow now and then.
const probes = 5

// Probe says how long a durable write takes in the folder of an outbox, at the
// slowest of some, without opening it: by making and syncing a file beside it.
func Probe(dir string, clock func() time.Time) (slowest time.Duration, err error) {
	path := filepath.Join(dir, fmt.Sprintf("probe-%d", os.Getpid()))
	f, err := osDisk{}.Create(path)
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
	if err = errors.Join(err, f.Close(), os.Remove(path)); err != nil {
		return 0, fmt.Errorf("outbox folder: %w", err)
	}
	return slowest, nil
}
