package gateway

import (
	"hash/maphash"
	"math"
	"slices"
	"time"

	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/reading"
)

// fingerprint is a hash of a measurement with the process's seed. It is kept
// instead of the measurement to save memory: 121 entries per node. Two different
// measurements of a node's last hour have equal fingerprints once in about 10^17.
// The time is left out: it differs when the node sends the measurement again.
func fingerprint(seed maphash.Seed, r reading.Reading) uint64 {
	return maphash.Comparable(seed, struct {
		id                    string
		temperature, humidity uint64 // as bits: no two hashes of a NaN are equal
	}{r.MessageID, math.Float64bits(r.Temperature + 0), math.Float64bits(r.Humidity + 0)})
}

// windowEntry is a measurement without a pointer, so that the garbage collector skips
// the windows.
type windowEntry struct {
	fingerprint           uint64
	at                    int64 // the reading's time, in microseconds since 1970
	temperature, humidity int16 // in hundredths of a °C and of a % relative humidity, see [hundredths]
	kept                  bool  // it is, or was, in the outbox
	inEarlier             bool  // a record of the outbox has it, as its reading or among its Earlier
	sent                  bool  // Pub/Sub has it
}

func newWindowEntry(r reading.Reading, print uint64) windowEntry {
	return windowEntry{fingerprint: print, at: r.Time.UnixMicro(), temperature: hundredths(r.Temperature), humidity: hundredths(r.Humidity)}
}

// hundredths converts a value to a window's unit; the ranges of the hardware fit.
func hundredths(value float64) int16 {
	if !reading.Has(value) {
		return math.MinInt16
	}
	return int16(math.Round(value * 100))
}

// valueOf is the inverse of [hundredths].
func valueOf(hundredths int16) float64 {
	if hundredths == math.MinInt16 {
		return reading.Missing()
	}
	return float64(hundredths) / 100
}

// maxClockStepBack is the largest step back of the clock that is ignored: readings
// keep their order. After a larger step back the new time is used, because a
// reading's time is the gateway's clock at receipt.
const maxClockStepBack = time.Second

// window is a node's last hour: the newest measurement and up to
// [reading.MaxWindow] before it, in the order of receipt.
type window struct {
	entries []windowEntry
}

// timedReading is a reading with its time.
type timedReading struct {
	reading.Reading

	data   []byte // with the window before it, as topic data
	print  uint64
	kept   bool          // it is, or was, in the outbox
	sent   bool          // Pub/Sub has it
	age    time.Duration // when it arrived
	uptime time.Duration // of the machine at the time of the reading
}

// record dates a measurement that is age old.
//
// A node that got an error sends the same measurement under the same id again,
// which gets the time it had, so that it stays the same reading. The same id with
// other values is another reading, of a node that counts its messages from one
// after each boot. Two of those within one tick of the clock would still share
// node, id and time; so each reading of a node is at least a microsecond later
// than the one before.
//
// A measurement with an age is inserted by its time, made unique by microseconds.
// One that has a time already keeps it: its id distinguishes it from others of that time.
func (w *window) record(r reading.Reading, age time.Duration, print uint64, now time.Time) (timed timedReading, recent reading.Window) {
	at := now.Add(-age).UnixMicro()
	dated := !r.Time.IsZero()
	if dated {
		at = r.Time.UnixMicro()
	}
	for i := len(w.entries) - 1; i >= 0; i-- {
		if known := &w.entries[i]; known.fingerprint == print && withinWindow(known.at, at) {
			r.Time = timeOfMicros(known.at)
			return timedReading{Reading: r, print: print, kept: known.kept, sent: known.sent}, w.before(i)
		}
	}
	if n := len(w.entries); n > 0 && age == 0 && !dated {
		last := w.entries[n-1].at
		if at <= last && last-at < maxClockStepBack.Microseconds() {
			at = last + 1
		}
	}
	i := len(w.entries)
	if dated {
		i = w.position(at)
	} else if age > 0 {
		for slices.ContainsFunc(w.entries, func(e windowEntry) bool { return e.at == at }) {
			at++
		}
		i = w.position(at)
	}
	r.Time = timeOfMicros(at)
	i = w.insert(i, newWindowEntry(r, print))
	return timedReading{Reading: r, print: print}, w.before(i)
}

// position returns the index for an entry of a time, after those of the same time.
func (w *window) position(at int64) int {
	i := len(w.entries)
	for i > 0 && w.entries[i-1].at > at {
		i--
	}
	return i
}

// withinWindow reports whether two times are within the hour of a window, whichever
// way the clock was set in between.
func withinWindow(a, b int64) bool {
	return max(a-b, b-a) <= int64(reading.MaxWindowAge*1e6)
}

func timeOfMicros(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// insert inserts an entry at an index and returns the index that it has then: a full
// window loses its oldest entry.
func (w *window) insert(i int, added windowEntry) int {
	if len(w.entries) > reading.MaxWindow {
		w.entries = append(w.entries[:0], w.entries[1:]...)
		i = max(0, i-1)
	}
	w.entries = slices.Insert(w.entries, i, added)
	return i
}

// restore adds a record of the outbox to the window, which a restart lost.
func (w *window) restore(r outbox.Record, print uint64) {
	for _, e := range r.Earlier {
		w.include(windowEntry{at: e.Time.UnixMicro(), temperature: e.Temperature, humidity: e.Humidity, inEarlier: true})
	}
	kept := newWindowEntry(r.Reading, print)
	kept.kept = true
	w.include(kept)
}

// include inserts an entry by its time. An equal one that is there already is replaced
// if the new one is in the outbox.
func (w *window) include(added windowEntry) {
	same := func(e windowEntry) bool {
		return e.at == added.at && e.temperature == added.temperature && e.humidity == added.humidity
	}
	if i := slices.IndexFunc(w.entries, same); i >= 0 {
		if added.kept {
			w.entries[i] = added
		}
		return
	}
	i := w.position(added.at)
	if i == 0 && len(w.entries) > reading.MaxWindow {
		return // older than all of a full window
	}
	w.insert(i, added)
}

// mark records that a measurement was sent, or that it is kept in the outbox.
func (w *window) mark(s timedReading, result outcome) {
	if i := w.find(s); i < len(w.entries) {
		e := &w.entries[i]
		e.kept, e.sent = e.kept || result == kept, e.sent || result == sent
	}
}

// takeEarlier returns the measurements before s that are not in a record of the outbox yet. They
// and s then count as being there, so that further records of a batch do not repeat them.
func (w *window) takeEarlier(s timedReading) []outbox.Earlier {
	var earlier []outbox.Earlier
	found := w.find(s)
	for i := range w.entries[:min(found+1, len(w.entries))] {
		e := &w.entries[i]
		if i < found && !e.kept && !e.inEarlier && withinWindow(e.at, s.Time.UnixMicro()) {
			earlier = append(earlier, outbox.Earlier{Time: timeOfMicros(e.at), Temperature: e.temperature, Humidity: e.humidity})
		}
		e.inEarlier = true
	}
	return earlier
}

// find returns the index of a measurement, or the number of entries when it is gone.
func (w *window) find(s timedReading) int {
	for i := range w.entries {
		if w.entries[i].fingerprint == s.print && w.entries[i].at == s.Time.UnixMicro() {
			return i
		}
	}
	return len(w.entries)
}

// before returns the entries before entry i that are at most an hour older, oldest first. It
// leaves out entries that lie in the future or out of order, because the clock was set back.
func (w *window) before(i int) reading.Window {
	recent := reading.Window{Age: make([]float64, 0, i), Temperature: make([]float64, 0, i), Humidity: make([]float64, 0, i)}
	at := w.entries[i].at
	next := at
	for _, e := range slices.Backward(w.entries[:i]) {
		if e.at > next || !withinWindow(e.at, at) {
			continue
		}
		next = e.at
		recent.Age = append(recent.Age, float64(at-e.at)/1e6)
		recent.Temperature = append(recent.Temperature, valueOf(e.temperature))
		recent.Humidity = append(recent.Humidity, valueOf(e.humidity))
	}
	slices.Reverse(recent.Age)
	slices.Reverse(recent.Temperature)
	slices.Reverse(recent.Humidity)
	return recent
}
