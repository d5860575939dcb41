package trial

import (
	"math"
	"slices"
	"time"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/reading"
)

// Forecasts are how good the intervals and the warnings of a limit were.
type Forecasts struct {
	Nodes, Covered int // nodes, and those whose intervals of 90 % held 88 to 92 % of the readings
	Hours, Poor    int // hours, and those in which an interval held less than 70 %

	Passed, Warned int     // limits that were passed in a fault, and those warned of before
	Lead           float64 // median, share of the time from the fault's start to the passing that the warning left
	False          float64 // warnings of a node in 30 days in which nothing was wrong, and the limit not passed in [anomaly.Horizon]
	FalseRooms     float64 // the same of a room and day
}

// above is how far over the warmest healthy reading of the past the limits of trials lie, °C.
const above = 3.0

// RampRates bound the classes of ramps, °C a minute.
func RampRates() [5]float64 { return [5]float64{0.1, 0.3, 0.8, 1.5, 3} }

// Ramp counts the ramps of a class that passed the limit, and those of them that were warned of.
type Ramp struct{ Passed, Warned int }

// Ramps lets every node of recorded tracks warm at a steady rate of each class, once in six hours
// from a time on, until it passes the limit that [Forecast] has. A ramp counts where it passes it,
// and two readings lie before.
func Ramps(tracks []Track, seed uint64, from time.Time) (found [4]Ramp) {
	const every = 6 * time.Hour
	rates := RampRates()
	for k, t := range tracks {
		limit, end := limitOf(t, from), t.Readings[len(t.Readings)-1].Time
		for begin := from; begin.Before(end); begin = begin.Add(every) {
			key := uint64(begin.Unix())<<8 ^ uint64(k) //nolint:gosec // keys of random numbers
			for class := range found {
				start := begin.Add(time.Duration(fault.Uniform(seed, key, uint64(class)) * float64(every)))
				rate := rates[class] + (rates[class+1]-rates[class])*fault.Uniform(seed, key, uint64(10+class)) //nolint:gosec // small
				ramp, healthy := rampOf(t.Readings, start, rate, limit)
				if len(ramp)-healthy < 2 {
					continue
				}
				found[class].Passed++
				for i, w := range features.Windows(ramp) {
					if i < healthy {
						continue
					}
					if _, ok := anomaly.Passes(w, ramp[i], limit, 0); ok {
						found[class].Warned++
						break
					}
				}
			}
		}
	}
	return found
}

// rampOf are a node's readings from two hours before a time, from which on it warms, until it reaches
// a limit, and how many are healthy; nil where it never reaches it.
func rampOf(readings []reading.Reading, start time.Time, rate, limit float64) (ramp []reading.Reading, healthy int) {
	for _, r := range readings[indexAt(readings, start.Add(-2*time.Hour)):] {
		minutes := r.Time.Sub(start).Minutes()
		if minutes <= 0 {
			healthy++
		} else if r.Temperature = reading.Round(r.Temperature + rate*minutes); r.Temperature >= limit {
			return ramp, healthy
		}
		ramp = append(ramp, r)
	}
	return nil, 0
}

// limitOf is a little above the warmest healthy reading of a node before a time.
func limitOf(t Track, from time.Time) float64 {
	limit := math.Inf(-1)
	for _, r := range t.Readings {
		if r.Time.Before(from) && !t.wrongAt(r.Time) {
			limit = max(limit, r.Temperature)
		}
	}
	return limit + above
}

// Forecast plays tracks from a time on; the limits are the warmest of what came before, and a little.
func Forecast(tracks []Track, from time.Time) Forecasts {
	var f Forecasts
	var leads []float64
	type halfHour struct {
		room string
		at   int64
	}
	falseAlarms, roomAlarms, rooms, days := 0, map[halfHour]bool{}, map[string]bool{}, 0.0
	for _, t := range tracks {
		rooms[t.Room] = true
		limit := limitOf(t, from)
		warned, watched := f.walk(t, limit, from)
		days += watched.Hours() / 24
		last := time.Time{}
		for _, at := range warned {
			if t.passes(limit, at) || t.wrongAt(at) {
				continue
			}
			if at.Sub(last) > joined {
				falseAlarms++
			}
			last = at
			roomAlarms[halfHour{t.Room, at.Unix() / int64(joined.Seconds())}] = true
		}
		for _, e := range t.Events {
			if e.Kind != fault.Cooling || e.Start.Before(from) {
				continue
			}
			passing := slices.IndexFunc(t.Readings, func(r reading.Reading) bool {
				return r.Temperature >= limit && !r.Time.Before(e.Start) && r.Time.Before(e.End)
			})
			if passing < 0 {
				continue
			}
			f.Passed++
			passed := t.Readings[passing].Time
			for _, at := range warned {
				if !at.Before(e.Start) && at.Before(passed) {
					f.Warned++
					leads = append(leads, float64(passed.Sub(at))/float64(passed.Sub(e.Start)))
					break
				}
			}
		}
	}
	f.Lead = median(leads)
	f.False = float64(falseAlarms) * 30 / max(1, days)
	f.FalseRooms = float64(len(roomAlarms)) / max(1, days/float64(len(tracks))*float64(len(rooms)))
	return f
}

// passes reports whether a temperature is reached within the horizon of a forecast.
func (t Track) passes(limit float64, at time.Time) bool {
	return slices.ContainsFunc(t.Readings, func(r reading.Reading) bool {
		return r.Temperature >= limit && r.Time.After(at) && r.Time.Sub(at).Minutes() <= anomaly.Horizon
	})
}

// wrongAt reports whether something is wrong with a node, or was.
func (t Track) wrongAt(at time.Time) bool {
	return slices.ContainsFunc(t.Events, func(e fault.Fault) bool {
		return !at.Before(e.Start) && at.Before(e.Settled().Add(afterwards))
	})
}

// walk counts what a node's intervals held, from a day after its first reading, and
// returns when it was warned of the limit.
func (f *Forecasts) walk(t Track, limit float64, from time.Time) (warned []time.Time, watched time.Duration) {
	var width anomaly.Width
	inside, all, hourInside, hourAll := 0, 0, 0, 0
	hour := int64(0)
	for i, w := range features.Windows(t.Readings) {
		r := t.Readings[i]
		wider, hit, known := width.Update(w, r)
		width = wider
		if known && r.Time.Sub(t.Readings[0].Time) > 24*time.Hour {
			if now := r.Time.Unix() / 3600; now != hour {
				if hourAll > 0 {
					f.Hours++
					if 10*hourInside < 7*hourAll {
						f.Poor++
					}
				}
				hour, hourInside, hourAll = now, 0, 0
			}
			all++
			hourAll++
			if hit {
				inside++
				hourInside++
			}
		}
		if r.Time.Before(from) {
			continue
		}
		if _, ok := anomaly.Passes(w, r, limit, width); ok {
			warned = append(warned, r.Time)
		}
	}
	if all > 0 {
		f.Nodes++
		if share := float64(inside) / float64(all); share >= 0.88 && share <= 0.92 {
			f.Covered++
		}
	}
	return warned, heard(t.Readings, from)
}
