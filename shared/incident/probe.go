package incident

import "time"

// The probe is a reading that is published each ProbeInterval. While the newest that
// can be read is later than MaxProbeLateness, the service is late.
const (
	ProbeInterval    = time.Minute
	MaxProbeLateness = time.Minute
)

// Probe is the state of the service by the readings of its probe. The zero value, before
// the first of them, counts as on time.
type Probe struct {
	Published time.Time // the newest that can be read
	// LateAt is when one was last received late, or after a gap: readings published
	// before it may still be in transit.
	LateAt time.Time
}

// Lateness is how long the next reading of the probe is overdue.
func (p Probe) Lateness(now time.Time) time.Duration {
	if p.Published.IsZero() {
		return 0
	}
	return max(0, now.Sub(p.Published)-ProbeInterval)
}

// Late reports whether the service is late: then no node counts as silent.
func (p Probe) Late(now time.Time) bool { return p.Lateness(now) > MaxProbeLateness }

// Silent reports whether a node is silent, by its newest reading and usual interval. For a
// node that may have sent while the service was late, [SilentFrom] counts from LateAt.
func (p Probe) Silent(newest time.Time, interval time.Duration, now time.Time) bool {
	if p.LateAt.After(newest) {
		newest = p.LateAt
	}
	return !p.Late(now) && !now.Before(SilentFrom(newest, interval))
}
