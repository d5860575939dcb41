package gateway

import (
	"hash/maphash"
	"math"
	"slices"
	"time"

	"coldaisle.dev/shared/reading"
)

// measurement is what a node sent.
type measurement struct {
	id                    string
	temperature, humidity float64 // °C, % relative humidity
}

// print tells measurements apart: two of one node's last hour have the same one
// by a chance of 1 in 10^17. It is kept in place of the measurement, since there
// are 121 of them for each node in memory. seed is the process's.
func (m measurement) print(seed maphash.Seed) uint64 { return maphash.Comparable(seed, m) }

// taken is a measurement and what became of it, without a pointer, so that the
// garbage collector has nothing to do here.
type taken struct {
	print                 uint64
	at                    int64 // the reading's time, in microseconds since 1970
	temperature, humidity int16 // in hundredths of a °C and of a % relative humidity
	kept                  bool  // it is, or was, in the outbox
}

func newTaken(m measurement, print uint64, at int64) taken {
	return taken{print: print, at: at, temperature: hundredths(m.temperature), humidity: hundredths(m.humidity)}
}

// hundredths is a value as a window carries it; the ranges of the hardware fit.
func hundredths(value float64) int16 { return int16(math.Round(value * 100)) }

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
	print  uint64
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
//
// What came before it is written into room.
func (w *window) take(m measurement, print uint64, now time.Time, room *columns) stamped {
	at := now.UnixMicro()
	for i := len(w.entries) - 1; i >= 0; i-- {
		if known := &w.entries[i]; known.print == print && recently(known.at, at) {
			return stamped{at: instant(known.at), recent: w.before(i, room), print: print, kept: known.kept}
		}
	}
	if n := len(w.entries); n > 0 {
		last := w.entries[n-1].at
		if at <= last && last-at < steady.Microseconds() {
			at = last + 1
		}
	}
	w.add(newTaken(m, print, at))
	return stamped{at: instant(at), recent: w.before(len(w.entries)-1, room), print: print}
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
func (w *window) restore(m measurement, print uint64, at time.Time) {
	t := newTaken(m, print, at.UnixMicro())
	t.kept = true
	if !slices.Contains(w.entries, t) {
		w.add(t)
	}
}

// keep notes that a measurement is in the outbox.
func (w *window) keep(s stamped) {
	for i := range w.entries {
		if w.entries[i].print == s.print && w.entries[i].at == s.at.UnixMicro() {
			w.entries[i].kept = true
		}
	}
}

// columns is room for a full window, which only lives until its message is
// written and then serves the next one: half of what a reading would otherwise
// leave to the garbage collector.
type columns [3][reading.MaxWindow]float64

// before returns the entries ahead of entry i that are at most an hour older,
// oldest first. What a clock that was set back has left in the future, or out of
// order, is left out.
func (w *window) before(i int, room *columns) reading.Window {
	ages, temperatures, humidities := &room[0], &room[1], &room[2]
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
		temperatures[first] = float64(e.temperature) / 100
		humidities[first] = float64(e.humidity) / 100
	}
	if first == i {
		return reading.Window{}
	}
	return reading.Window{Age: ages[first:i], Temperature: temperatures[first:i], Humidity: humidities[first:i]}
}
