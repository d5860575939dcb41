package gateway

import (
	"slices"
	"time"

	"coldaisle.dev/shared/reading"
)

// measurement is what a node sent.
type measurement struct {
	id                    string
	temperature, humidity float64 // °C, % relative humidity
}

// taken is a measurement and what became of it. There are up to 121 of each
// node in memory.
type taken struct {
	measurement

	at   int64 // the reading's time, in microseconds since 1970
	kept bool  // it is, or was, in the outbox
}

// steady is how far the clock may seem to go back while readings are still
// stamped in their order. A clock that is set back further is believed: a
// reading's time is the gateway's at receipt.
const steady = time.Second

// window is a node's last hour: the newest measurement and up to
// [reading.MaxWindow] before it, in the order of receipt.
type window struct {
	entries []taken
}

// stamped is a measurement's time and what came before it.
type stamped struct {
	at     time.Time
	recent reading.Window
	kept   bool
}

// take gives a measurement its time.
//
// A node that heard of a failure sends the same measurement under the same id
// again: that one gets the time it had, so that it stays the same reading. The
// same id with other values is another reading, of a node that counts its
// messages from one after each boot. Two of those within one tick of the clock
// would still share node, id and time; so time moves on by at least a
// microsecond from one reading of a node to the next.
func (w *window) take(m measurement, now time.Time) stamped {
	at := now.UnixMicro()
	for i := len(w.entries) - 1; i >= 0; i-- {
		if known := &w.entries[i]; known.measurement == m && recently(known.at, at) {
			return stamped{at: instant(known.at), recent: w.before(i), kept: known.kept}
		}
	}
	if n := len(w.entries); n > 0 {
		last := w.entries[n-1].at
		if at <= last && last-at < steady.Microseconds() {
			at = last + 1
		}
	}
	w.add(taken{measurement: m, at: at})
	return stamped{at: instant(at), recent: w.before(len(w.entries) - 1)}
}

// recently says whether two times are within the hour of a window, whichever
// way the clock was set in between.
func recently(a, b int64) bool {
	return max(a-b, b-a) <= int64(reading.MaxWindowAge*1e6)
}

func instant(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

func (w *window) add(t taken) {
	if len(w.entries) > reading.MaxWindow {
		w.entries = append(w.entries[:0], w.entries[1:]...)
	}
	w.entries = append(w.entries, t)
}

// restore adds a reading that the outbox holds or held, for a node whose window
// was lost with an earlier process.
func (w *window) restore(r reading.Reading) {
	t := taken{measurement: measurement{r.MessageID, r.Temperature, r.Humidity}, at: r.Time.UnixMicro(), kept: true}
	if !slices.Contains(w.entries, t) {
		w.add(t)
	}
}

// keep notes that the measurement of a time is in the outbox.
func (w *window) keep(id string, at time.Time) {
	for i := range w.entries {
		if w.entries[i].id == id && w.entries[i].at == at.UnixMicro() {
			w.entries[i].kept = true
		}
	}
}

// before returns the entries ahead of entry i that are at most an hour older,
// oldest first. What a clock that was set back has left in the future, or out of
// order, is left out.
func (w *window) before(i int) reading.Window {
	if i == 0 {
		return reading.Window{}
	}
	columns := make([]float64, 3*i)
	ages, temperatures, humidities := columns[:i], columns[i:2*i], columns[2*i:]
	at := w.entries[i].at
	next, first := at, i
	for j := i - 1; j >= 0; j-- {
		e := &w.entries[j]
		if e.at > next || !recently(e.at, at) {
			continue
		}
		next = e.at
		first--
		ages[first] = reading.RoundAge(float64(at-e.at) / 1e6)
		temperatures[first] = reading.Round(e.temperature)
		humidities[first] = reading.Round(e.humidity)
	}
	first = max(first, i-reading.MaxWindow)
	if first == i {
		return reading.Window{}
	}
	return reading.Window{Age: ages[first:], Temperature: temperatures[first:], Humidity: humidities[first:]}
}
