package readings

import (
	"iter"
	"math"
	"time"

	"coldaisle.dev/shared/reading"
)

// FoldWithin is the time after a reading within which an equal one is its copy.
const FoldWithin = 10 * time.Minute

// Fold leaves out the copies of readings. A copy has the channel, node, message id
// and measured values of one less than [FoldWithin] before it: a node that got no answer
// has sent its reading through a second gateway, which dated it again. The readings
// come node after node, oldest first. Those before start are not yielded; readings
// from FoldWithin before start on are needed to fold the first ones.
func Fold(all iter.Seq2[reading.Reading, error], start time.Time) iter.Seq2[reading.Reading, error] {
	return func(yield func(reading.Reading, error) bool) {
		seen := map[reading.Reading]time.Time{} // by all but the time
		var node string
		var swept time.Time
		for r, err := range all {
			if err != nil {
				yield(reading.Reading{}, err)
				return
			}
			if r.NodeID != node || r.Time.Sub(swept) > 2*FoldWithin || r.Time.Before(swept) {
				for key, at := range seen {
					if r.NodeID != node || r.Time.Sub(at) >= FoldWithin {
						delete(seen, key)
					}
				}
				node, swept = r.NodeID, r.Time
			}
			key := r.AsMeasured() // copies may lie on both sides of the begin of a correction
			key.Time = time.Time{}
			for _, value := range []*float64{&key.Temperature, &key.Humidity} {
				if !reading.Has(*value) {
					*value = math.Inf(1) // a NaN is no key of a map
				}
			}
			before, ok := seen[key]
			seen[key] = r.Time
			if ok && r.Time.Sub(before) < FoldWithin || r.Time.Before(start) {
				continue
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}
