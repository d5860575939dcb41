package incident

import "time"

// The probe is a reading that is published each ProbeInterval. While the newest that
// can be read is later than MaxProbeLateness, the service is late.
const (
	ProbeInterval    = time.Minute
	MaxProbeLateness = time.Minute
)

// Probe is what the readings of the probe tell of the service. The zero value is that of
// a service which has never received one, and is taken for one in time.
type Probe struct {
	Published time.Time // the newest that can be read
	// LateAt is when one was last received late, or after a gap: what was published
	// before it may still be on its way.
	LateAt time.Time
}

// Lateness is how long ago a reading of the probe should have been readable that is not.
func (p Probe) Lateness(now time.Time) time.Duration {
	if p.Published.IsZero() {
		return 0
	}
	return max(0, now.Sub(p.Published)-ProbeInterval)
}

// Late reports whether the service is late: then no node is blamed for its silence.
func (p Probe) Late(now time.Time) bool { return p.Lateness(now) > MaxProbeLateness }

// Silent reports whether a node is silent, of its newest reading and usual interval. A
// node that may have sent while the service was late gets the time of [SilentFrom] anew.
func (p Probe) Silent(newest time.Time, interval time.Duration, now time.Time) bool {
	if p.LateAt.After(newest) {
		newest = p.LateAt
	}
	return !p.Late(now) && !now.Before(SilentFrom(newest, interval))
}
