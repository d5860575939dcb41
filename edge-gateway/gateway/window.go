package gateway

import (
	"time"

	"coldaisle.dev/shared/reading"
)

// measurement is what a node sent.
type measurement struct {
	id                    string
	temperature, humidity float64 // °C, % relative humidity
}

// taken is a measurement and the time it was given.
type taken struct {
	measurement

	time time.Time
}

// window is a node's last hour: the newest measurement and up to
// [reading.MaxWindow] before it, oldest first.
type window struct {
	entries []taken
}

// take gives a measurement its time and returns it with the window of what came
// before.
//
// A node that heard of a failure sends the same measurement under the same id
// again: that one gets the time it had, so that it stays the same reading. The
// same id with other values is another reading, of a node that counts its
// messages from one after each boot.
func (w *window) take(m measurement, now time.Time) (time.Time, reading.Window) {
	now = reading.Instant(now)
	for i, known := range w.entries {
		if known.measurement == m && now.Sub(known.time).Seconds() <= reading.MaxWindowAge {
			return known.time, w.before(i, known.time)
		}
	}
	if n := len(w.entries); n > 0 && !now.After(w.entries[n-1].time) {
		// The clock stood still or was set back by less than an hour. Readings of
		// a node keep their order all the same.
		if w.entries[n-1].time.Sub(now) < time.Hour {
			now = w.entries[n-1].time.Add(reading.Precision)
		} else {
			w.entries = w.entries[:0]
		}
	}
	if len(w.entries) > reading.MaxWindow {
		w.entries = append(w.entries[:0], w.entries[1:]...)
	}
	w.entries = append(w.entries, taken{measurement: m, time: now})
	return now, w.before(len(w.entries)-1, now)
}

// before returns the entries ahead of entry i that are at most an hour older.
func (w *window) before(i int, at time.Time) reading.Window {
	first := 0
	for first < i && at.Sub(w.entries[first].time).Seconds() > reading.MaxWindowAge {
		first++
	}
	first = max(first, i-reading.MaxWindow)
	n := i - first
	if n == 0 {
		return reading.Window{}
	}
	columns := make([]float64, 3*n)
	recent := reading.Window{Age: columns[:n:n], Temperature: columns[n : 2*n : 2*n], Humidity: columns[2*n:]}
	for j, e := range w.entries[first:i] {
		recent.Age[j] = reading.RoundAge(at.Sub(e.time).Seconds())
		recent.Temperature[j] = reading.Round(e.temperature)
		recent.Humidity[j] = reading.Round(e.humidity)
	}
	return recent
}
