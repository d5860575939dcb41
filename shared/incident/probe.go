package incident

import (
	"time"

	"coldaisle.dev/shared/reading"
)

// The probe is a reading that is published every ProbeInterval. The service is late while
// the next readable probe is overdue by more than MaxProbeLateness.
const (
	ProbeInterval    = time.Minute
	MaxProbeLateness = time.Minute
)

// Probe is the service's timeliness as measured by its probe. The zero value, before the
// first probe reading, counts as on time.
type Probe struct {
	Published time.Time // of the newest readable probe reading
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

// Silent reports whether a node is silent, given its newest reading and usual interval. For
// a node that may have sent while the service was late, the time counts from LateAt.
func (p Probe) Silent(newest time.Time, interval time.Duration, now time.Time) bool {
	return !p.Late(now) && !now.Before(SilentFrom(reading.Later(newest, p.LateAt), interval))
}
