package incident

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"coldaisle.dev/shared/reading"
)

// A node is silent when no reading has arrived for MinSilence or for MissedReadings of its
// usual intervals, whichever is longer. An enrolled gateway reports its status each minute;
// one that has not reported for maxStatusAge is silent itself.
const (
	MinSilence     = 5 * time.Minute
	MissedReadings = 3
	maxStatusAge   = 3 * time.Minute
)

// SilentFrom returns when a node counts as silent if nothing newer comes: the time
// of its newest reading, and the longer of five minutes and three of its usual
// intervals after it. The interval is zero while it is not known.
func SilentFrom(newest time.Time, interval time.Duration) time.Time {
	return newest.Add(max(MinSilence, MissedReadings*interval))
}

// UsualInterval estimates the usual interval of a node from the times between its newest readings, which it sorts; it
// is zero without any. It is longer than most of them: some nodes send several readings at once. It is no longer
// than all but a fifth: there may have been outages.
func UsualInterval(gaps []time.Duration) time.Duration {
	if len(gaps) == 0 {
		return 0
	}
	slices.Sort(gaps)
	return gaps[(len(gaps)-1)*4/5]
}

// SilenceCause says where a silent node's readings stop, according to its enrolled gateway.
type SilenceCause string

// The causes.
const (
	CauseUnknown   SilenceCause = ""                   // no enrolled gateway has sent its readings
	NodeSilent     SilenceCause = "node_silent"        // the gateway does not hear the node
	NodeAlive      SilenceCause = "node_sends_nothing" // the gateway hears heartbeats, and no readings
	UplinkDown     SilenceCause = "uplink_down"        // the gateway has readings that have not come
	GatewaySilence SilenceCause = "gateway_silent"
)

// GatewayReport is an enrolled gateway's last report of itself and of a node. Times
// are zero when there was none.
type GatewayReport struct {
	Seen                       time.Time
	LastHeartbeat, LastReading time.Time // of the node
}

// Cause returns where a silent node's readings stop, given the time of its newest stored
// reading.
func (r GatewayReport) Cause(newest, now time.Time) SilenceCause {
	switch {
	case r.Seen.IsZero():
		return CauseUnknown
	case now.Sub(r.Seen) > maxStatusAge:
		return GatewaySilence
	case r.LastReading.Sub(newest) >= MinSilence:
		return UplinkDown
	case r.LastHeartbeat.After(newest) && now.Before(SilentFrom(r.LastHeartbeat, 0)):
		return NodeAlive
	default:
		return NodeSilent
	}
}

func (c SilenceCause) words() string {
	return map[SilenceCause]string{
		NodeSilent: "; its gateway does not hear it", NodeAlive: "; the node is alive and sends nothing",
		UplinkDown: "; its gateway is alive, the uplink is down", GatewaySilence: "; its gateway is silent",
	}[c]
}

// DescribeSilence describes a silent node in words: "No reading for more than 10 min,
// usually one every 30 s; its gateway is silent".
func DescribeSilence(newest time.Time, interval time.Duration, cause SilenceCause, now time.Time) string {
	text := "No reading for " + silentFor(now.Sub(newest))
	switch { // the interval is a mean, which InWords would cut
	case interval >= 2*time.Minute:
		text += ", usually one every " + InWords(interval.Round(time.Minute))
	case interval >= time.Second:
		text += fmt.Sprintf(", usually one every %.0f s", interval.Seconds())
	}
	return text + cause.words()
}

// DescribeGatewaySilence describes a gateway whose nodes are all silent.
func DescribeGatewaySilence(gateway string, nodes int, newest time.Time, cause SilenceCause, now time.Time) string {
	state := cmp.Or(map[SilenceCause]string{GatewaySilence: "silent", UplinkDown: "alive, uplink down"}[cause], "alive")
	noun := "nodes"
	if nodes == 1 {
		noun = "node"
	}
	return fmt.Sprintf("Gateway %s %s, no reading from its %d %s for %s", gateway, state, nodes, noun, silentFor(now.Sub(newest)))
}

// silentFor rounds, so that the description does not change with every poll. The page shows
// the time of the newest reading beside it.
func silentFor(d time.Duration) string {
	step := 24 * time.Hour
	switch {
	case d < 10*time.Minute:
		step = MinSilence
	case d < time.Hour:
		step = 10 * time.Minute
	case d < 24*time.Hour:
		step = time.Hour
	}
	return "more than " + InWords(d.Truncate(step))
}

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

// Missed reports whether a program that calls the service has not done so for a time in which it
// could. While the service is late, it may have been away since the newest probe, unless the
// program has called since. While probes come late, it is not away: they say nothing of calls.
func (p Probe) Missed(last time.Time, after time.Duration, now time.Time) bool {
	from, comesLate := reading.Later(last, p.LateAt), p.LateAt.Sub(p.Published) > MaxProbeLateness
	if comesLate {
		from = last
	}
	if (comesLate || p.Late(now)) && !p.Late(last) {
		now = p.Published
	}
	return now.Sub(from) >= after
}
