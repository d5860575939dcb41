// Package clock is the clock of an enrolled gateway: it is set by the API and runs on the
// machine's uptime. Readings keep their times when the system clock is set, and a reading
// from before the first reply is dated after it.
//
// Before the API's first reply in a boot the clock is the system's.
package clock

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"coldaisle.dev/edge-gateway/statefile"
)

// Limit is how far the system clock may be off. Beyond it certificates and tokens are
// refused, so that nothing can be published.
const Limit = 5 * time.Minute

const (
	// maxBoots bounds the boots in the file: an outbox has records of fewer.
	maxBoots = 256
	// saveThreshold is the smallest change after which the file is written again.
	saveThreshold = time.Second
)

// Clock is safe for concurrent use.
type Clock struct {
	system func() time.Time
	boot   Boot
	path   string

	mu    sync.Mutex
	boots []bootStart // oldest first
	known bool        // the last of boots is this one
	saved time.Time   // the start of this boot in the file
}

// bootStart is the time at which a boot's uptime was zero.
type bootStart struct {
	Boot string    `json:"boot"`
	At   time.Time `json:"started_at"`
}

// Open returns a clock that stores the start of this boot and of earlier ones in a file, for a
// restarted process.
func Open(path string, system func() time.Time, boot Boot) (*Clock, error) {
	c := &Clock{system: system, boot: boot, path: path}
	content, err := os.ReadFile(path) //nolint:gosec // in the folder that the settings name
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &c.boots)
	}
	if err != nil {
		c.boots = nil
		return c, fmt.Errorf("read %s: %w", path, err)
	}
	if n := len(c.boots); n > 0 && c.boots[n-1].Boot == name(boot.ID) {
		c.known, c.saved = true, c.boots[n-1].At
	}
	return c, nil
}

// FastBy describes a clock's offset, such as "fast by 2s" or "slow by 2s".
func FastBy(ahead time.Duration) string {
	if ahead < 0 {
		return fmt.Sprintf("slow by %s", -ahead.Round(time.Second))
	}
	return fmt.Sprintf("fast by %s", ahead.Round(time.Second))
}

func name(boot [16]byte) string { return hex.EncodeToString(boot[:]) }

// Boot is the boot that the clock runs in.
func (c *Clock) Boot() Boot { return c.boot }

// Now is the time in UTC, until the API's first reply the system clock's.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return c.system().UTC()
	}
	return c.boots[len(c.boots)-1].At.Add(c.boot.Uptime())
}

// Offset is the difference to the system clock, and whether it is known.
func (c *Clock) Offset() (offset time.Duration, known bool) {
	now := c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return 0, false
	}
	return now.Sub(c.system().Round(0)), true
}

// Time converts an uptime within a boot to a time. It returns false if the time never became
// known in that boot.
func (c *Clock) Time(boot [16]byte, uptime time.Duration) (at time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, known := range slices.Backward(c.boots) {
		if known.Boot == name(boot) {
			return known.At.Add(uptime), true
		}
	}
	return time.Time{}, false
}

// Adjust sets the clock by a server's time, given the uptimes of the request and of the
// reply. It moves the clock only as far as into those bounds, so that the fastest reply
// determines the precision. After an error the clock is set, but the file is not written.
func (c *Clock) Adjust(asked, answered time.Duration, server time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The boot began between server - answered and server - asked.
	earliest, latest := server.Add(-answered).UTC(), server.Add(-asked).UTC()
	if !c.known {
		c.known = true
		c.boots = append(c.boots, bootStart{name(c.boot.ID), earliest.Add(latest.Sub(earliest) / 2)})
		c.boots = c.boots[max(0, len(c.boots)-maxBoots):]
	}
	this := &c.boots[len(c.boots)-1]
	if this.At.Before(earliest) {
		this.At = earliest
	} else if this.At.After(latest) {
		this.At = latest
	}
	if this.At.Sub(c.saved).Abs() < saveThreshold {
		return nil
	}
	content, err := json.Marshal(c.boots)
	if err == nil {
		err = statefile.Write(c.path, content)
	}
	if err != nil {
		return fmt.Errorf("save the time of this boot: %w", err)
	}
	c.saved = this.At
	return nil
}
