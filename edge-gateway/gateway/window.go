package gateway

import (
	"hash/maphash"
	"math"
	"slices"
	"time"

	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/reading"
)

// measurement is what a node sent.
type measurement struct {
	id                    string
	temperature, humidity float64       // °C, % relative humidity
	age                   time.Duration // for which the node had kept it
}

// fingerprint is a hash of a measurement with the process's seed. It is kept
// instead of the measurement to save memory: 121 entries per node. Two different
// measurements of a node's last hour have equal fingerprints once in about 10^17.
// The age is left out: it is another one when the node sends the measurement again.
func (m measurement) fingerprint(seed maphash.Seed) uint64 {
	m.age = 0
	return maphash.Comparable(seed, m)
}

// windowEntry is a measurement and what became of it, without a pointer, so that the
// garbage collector has nothing to do here.
type windowEntry struct {
	fingerprint           uint64
	at                    int64 // the reading's time, in microseconds since 1970
	temperature, humidity int16 // in hundredths of a °C and of a % relative humidity
	kept                  bool  // it is, or was, in the outbox
	mentioned             bool  // a record of the outbox has it among its Earlier
}

func newWindowEntry(m measurement, print uint64, at int64) windowEntry {
	return windowEntry{fingerprint: print, at: at, temperature: hundredths(m.temperature), humidity: hundredths(m.humidity)}
}

// hundredths is a value as a window carries it; the ranges of the hardware fit.
func hundredths(value float64) int16 { return int16(math.Round(value * 100)) }

// maxClockStepBack is the largest step back of the clock that is ignored: readings
// keep their order. After a larger step back the new time is taken, because a
// reading's time is the gateway's clock at receipt.
const maxClockStepBack = time.Second

// window is a node's last hour: the newest measurement and up to
// [reading.MaxWindow] before it, in the order of receipt.
type window struct {
	entries []windowEntry
}

// timedReading is a measurement's time and what came before it.
type timedReading struct {
	at     time.Time
	recent reading.Window
	print  uint64
	kept   bool

	reading reading.Reading
	age     time.Duration // of the reading when it arrived
	uptime  time.Duration // of the machine at the time of the reading
}

// record gives a measurement its time.
//
// A node that heard of a failure sends the same measurement under the same id
// again: that one gets the time it had, so that it stays the same reading. The
// same id with other values is another reading, of a node that counts its
// messages from one after each boot. Two of those within one tick of the clock
// would still share node, id and time; so time moves on by at least a
// microsecond from one reading of a node to the next.
//
// A measurement that its node had kept is put among the others by its time, which is
// no other one's.
//
// The readings before it are written into scratch.
func (w *window) record(m measurement, print uint64, now time.Time, scratch *windowBuffer) timedReading {
	at := now.Add(-m.age).UnixMicro()
	for i := len(w.entries) - 1; i >= 0; i-- {
		if known := &w.entries[i]; known.fingerprint == print && withinWindow(known.at, at) {
			return timedReading{at: timeOfMicros(known.at), recent: w.before(i, scratch), print: print, kept: known.kept}
		}
	}
	if n := len(w.entries); n > 0 && m.age == 0 {
		last := w.entries[n-1].at
		if at <= last && last-at < maxClockStepBack.Microseconds() {
			at = last + 1
		}
	}
	place := len(w.entries)
	if m.age > 0 {
		place, at = w.placeOf(at)
	}
	place = w.insert(place, newWindowEntry(m, print, at))
	return timedReading{at: timeOfMicros(at), recent: w.before(place, scratch), print: print}
}

// placeOf returns where an entry of an earlier time belongs, and the first time from
// that one on that no entry has.
func (w *window) placeOf(at int64) (place int, free int64) {
	for slices.ContainsFunc(w.entries, func(e windowEntry) bool { return e.at == at }) {
		at++
	}
	place = len(w.entries)
	for place > 0 && w.entries[place-1].at > at {
		place--
	}
	return place, at
}

// withinWindow says whether two times are within the hour of a window, whichever
// way the clock was set in between.
func withinWindow(a, b int64) bool {
	return max(a-b, b-a) <= int64(reading.MaxWindowAge*1e6)
}

func timeOfMicros(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// insert puts an entry at a place and returns where it is then: a full window loses
// its oldest entry.
func (w *window) insert(place int, added windowEntry) int {
	if len(w.entries) > reading.MaxWindow {
		w.entries = append(w.entries[:0], w.entries[1:]...)
		place = max(0, place-1)
	}
	w.entries = slices.Insert(w.entries, place, added)
	return place
}

// restore adds what a record of the outbox tells, for a node whose window was lost
// with an earlier process.
func (w *window) restore(r outbox.Record, print uint64) {
	for _, e := range r.Earlier {
		w.include(windowEntry{at: e.Time.UnixMicro(), temperature: e.Temperature, humidity: e.Humidity, mentioned: true})
	}
	m := measurement{temperature: r.Reading.Temperature, humidity: r.Reading.Humidity}
	kept := newWindowEntry(m, print, r.Reading.Time.UnixMicro())
	kept.kept = true
	w.include(kept)
}

// includeWindow adds the window that a record of the outbox's first format carries.
func (w *window) includeWindow(at time.Time, recent reading.Window) {
	for i, age := range recent.Age {
		m := measurement{temperature: recent.Temperature[i], humidity: recent.Humidity[i]}
		w.include(newWindowEntry(m, 0, at.Add(-time.Duration(age*float64(time.Second))).UnixMicro()))
	}
}

// include puts an entry among the others by its time. One that is
// there already takes the place of the other.
func (w *window) include(added windowEntry) {
	same := func(e windowEntry) bool {
		return e.at == added.at && e.temperature == added.temperature && e.humidity == added.humidity
	}
	if place := slices.IndexFunc(w.entries, same); place >= 0 {
		if added.kept {
			w.entries[place] = added
		}
		return
	}
	place := len(w.entries)
	for place > 0 && w.entries[place-1].at > added.at {
		place--
	}
	if place == 0 && len(w.entries) > reading.MaxWindow {
		return // older than all of a full window
	}
	w.insert(place, added)
}

// markInOutbox notes that a measurement is in the outbox, and with it what came before.
func (w *window) markInOutbox(s timedReading) {
	place := w.find(s)
	for i := range place {
		w.entries[i].mentioned = true
	}
	if place < len(w.entries) {
		w.entries[place].kept = true
	}
}

// earlierThan returns what a record of a measurement must tell of those before it.
func (w *window) earlierThan(s timedReading) []outbox.Earlier {
	var earlier []outbox.Earlier
	for _, e := range w.entries[:w.find(s)] {
		if !e.kept && !e.mentioned && withinWindow(e.at, s.at.UnixMicro()) {
			earlier = append(earlier, outbox.Earlier{Time: timeOfMicros(e.at), Temperature: e.temperature, Humidity: e.humidity})
		}
	}
	return earlier
}

// find returns the place of a measurement; the number of entries where it is gone.
func (w *window) find(s timedReading) int {
	for i := range w.entries {
		if w.entries[i].fingerprint == s.print && w.entries[i].at == s.at.UnixMicro() {
			return i
		}
	}
	return len(w.entries)
}

// windowBuffer is a reusable scratch buffer for one full window. Reusing it halves
// the bytes allocated per reading.
type windowBuffer [3][reading.MaxWindow]float64

// before returns the entries ahead of entry i that are at most an hour older,
// oldest first. What a clock that was set back has left in the future, or out of
// order, is left out.
func (w *window) before(i int, scratch *windowBuffer) reading.Window {
	ages, temperatures, humidities := &scratch[0], &scratch[1], &scratch[2]
	at := w.entries[i].at
	next, first := at, i
	for j := i - 1; j >= 0; j-- {
		e := &w.entries[j]
		if e.at > next || !withinWindow(e.at, at) {
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
