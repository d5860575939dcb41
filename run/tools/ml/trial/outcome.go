package trial

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/shared/reading"
)

// Budgets are the false alarms per node and month that detectors are compared at.
func Budgets() []float64 { return []float64{1, 4, 30} }

const (
	// joined is how far alarms of one episode lie apart.
	joined = 30 * time.Minute
	// afterwards is how long after a fault's effect is gone alarms are neither right nor wrong: a value that
	// comes back is a change too.
	afterwards = 2 * time.Hour
	// month is the time that budgets are for.
	month = 30 * 24 * time.Hour
)

// Tally counts what was found of some events.
type Tally struct {
	Name           string
	Events, Caught int
	Right          int // of those caught, whose first reason fits
	Lost, InTime   int // with [Event.Lost], and of these told until then

	delays []time.Duration // of those caught
}

// Share of the events that were caught.
func (t Tally) Share() float64 { return float64(t.Caught) / float64(max(1, t.Events)) }

// Delay is the median of those caught.
func (t Tally) Delay() time.Duration { return median(t.delays) }

// Within is the share of the events that were caught in so long.
func (t Tally) Within(long time.Duration) float64 {
	late := slices.DeleteFunc(slices.Clone(t.delays), func(d time.Duration) bool { return d <= long })
	return float64(t.Caught-len(late)) / float64(max(1, t.Events))
}

// add counts an event that was caught at a time.
func (t *Tally) add(e Event, first time.Time, fit bool) {
	t.Events++
	if !e.Lost.IsZero() {
		t.Lost++
	}
	if first.IsZero() {
		return
	}
	if !e.Lost.IsZero() && !first.After(e.Lost) {
		t.InTime++
	}
	t.Caught++
	t.delays = append(t.delays, first.Sub(e.Start))
	if fit {
		t.Right++
	}
}

// Outcome is what a detector found at one threshold.
type Outcome struct {
	Tally

	False float64 // episodes per node and month
}

// fits reports whether the name of an alarm's reason names a kind of fault rightly.
func fits(kind fault.Kind, by string) bool {
	of := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.Contains(by, n) })
	}
	switch kind {
	case fault.Spike, fault.Dropout: // of either quantity
		return of("roughness", "temperature_change", "dew_point")
	case fault.Noise:
		return of("roughness")
	case fault.Stuck:
		return of("unchanged")
	case fault.Leak, fault.Humidity:
		return of("dew_point")
	case fault.Cooling, fault.Slow, fault.Nightly:
		return of("temperature", "cooling", "warmest", "slow_change")
	case fault.Drift, fault.Step, fault.Door, fault.Oscillation: // the dew point that is computed moves with it
		return of("temperature", "cooling", "warmest", "coldest", "slow_change", "dew_point", "roughness")
	default:
		return true
	}
}

// Measure compares scores above a threshold with the events from a time on.
func Measure(tracks []Track, scores []Scores, threshold float64, from time.Time) Outcome {
	var o Outcome
	watched := time.Duration(0)
	episodes := 0
	for i, t := range tracks {
		for _, e := range t.Events {
			if e.Start.Before(from) {
				continue
			}
			event := Event{Fault: e, Tracks: []int{i}}
			first, fit := event.caught(tracks, scores, threshold)
			o.add(event, first, fit)
		}
		var last time.Time
		for j, r := range t.Readings {
			if r.Time.Before(from) || float64(scores[i].Score[j]) <= threshold || t.wrongAt(r.Time) {
				continue
			}
			if r.Time.Sub(last) > joined {
				episodes++
			}
			last = r.Time
		}
		watched += heard(t.Readings, from)
	}
	o.False = float64(episodes) * float64(month) / float64(max(1, watched))
	return o
}

// median sorts values, and returns that in the middle, the upper one of two; zero of none.
func median[T cmp.Ordered](values []T) (middle T) {
	if slices.Sort(values); len(values) > 0 {
		middle = values[len(values)/2]
	}
	return middle
}

// heard is how long a node was heard from a time on: without its silences.
func heard(readings []reading.Reading, from time.Time) time.Duration {
	silence := 5 * time.Minute
	if len(readings) > 1 { // of rare readings three intervals, by the mean
		silence = max(silence, 3*readings[len(readings)-1].Time.Sub(readings[0].Time)/time.Duration(len(readings)-1))
	}
	sum := time.Duration(0)
	for i := 1; i < len(readings); i++ {
		begin, end := readings[i-1].Time, readings[i].Time
		if end.After(from) && end.Sub(begin) <= silence {
			sum += end.Sub(reading.Later(begin, from))
		}
	}
	return sum
}

// PRAUC is the area under the curve of precision over recall of the readings from a time
// on: average precision.
func PRAUC(tracks []Track, scores []Scores, from time.Time) float64 {
	var all []Judged
	positives := 0
	for i, t := range tracks {
		for j, r := range t.Readings {
			if r.Time.Before(from) {
				continue
			}
			wrong := slices.ContainsFunc(t.Events, func(e fault.Fault) bool { return e.Active(r.Time) })
			if wrong {
				positives++
			}
			all = append(all, Judged{float64(scores[i].Score[j]), wrong})
		}
	}
	if positives == 0 {
		return math.NaN()
	}
	area, before := 0.0, 0
	Sweep(all, func(_ float64, flagged, right int) {
		area += float64(right-before) / float64(positives) * float64(right) / float64(flagged)
		before = right
	})
	return area
}

// Judged is the score of a reading, and whether something was wrong.
type Judged struct {
	Score float64
	Wrong bool
}

// Sweep sorts readings, the strangest first, and says of each score how many have it or a higher one, and of how many of
// these something was wrong.
func Sweep(all []Judged, of func(score float64, flagged, right int)) {
	slices.SortFunc(all, func(a, b Judged) int { return cmp.Compare(b.Score, a.Score) })
	right := 0
	for i, j := range all {
		if j.Wrong {
			right++
		}
		if i+1 == len(all) || all[i+1].Score != j.Score {
			of(j.Score, i+1, right)
		}
	}
}

// Learned is the threshold that a score must exceed for so many false alarms per node
// and month, by the largest scores of the hours before a time.
func Learned(tracks []Track, scores []Scores, budget float64, before time.Time) float64 {
	var largest []float64
	for i, t := range tracks {
		hour, most := time.Time{}, math.Inf(-1)
		for j, r := range t.Readings {
			if !r.Time.Before(before) {
				break
			}
			if at := r.Time.Truncate(time.Hour); !at.Equal(hour) {
				if !hour.IsZero() {
					largest = append(largest, most)
				}
				hour, most = at, math.Inf(-1)
			}
			most = max(most, float64(scores[i].Score[j]))
		}
	}
	if len(largest) == 0 {
		return math.Inf(1)
	}
	slices.Sort(largest)
	return largest[int(float64(len(largest)-1)*(1-budget/month.Hours()))]
}
