package incident

import "time"

// A node is silent when no reading came for the longer of minSilence and
// missedReadings of its usual intervals.
const (
	minSilence     = 5 * time.Minute
	missedReadings = 3
)

// SilentFrom returns when a node counts as silent if nothing newer comes: the time
// of its newest reading, and the longer of five minutes and three of its usual
// intervals after it. The interval is zero while it is not known.
func SilentFrom(newest time.Time, interval time.Duration) time.Time {
	return newest.Add(max(minSilence, missedReadings*interval))
}

// DescribeSilence says in words that a node is silent: "No reading for 12 min,
// usually one every 30 s".
func DescribeSilence(newest time.Time, interval time.Duration, now time.Time) string {
	text := "No reading for " + inWords(now.Sub(newest))
	if interval > 0 {
		text += ", usually one every " + inWords(interval)
	}
	return text
}
