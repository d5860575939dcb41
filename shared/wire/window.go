package wire

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/go-json-experiment/json/v1"

	"coldaisle.dev/shared/reading"
)

// The compact form of a window, in base64 within the message, is the number of its readings
// in a byte, and then bits, the most significant first:
//
//   - 32 bits: the usual interval between two readings, in microseconds;
//   - ages, temperatures, humidities, each a column. Ages are in microseconds, their steps
//     are less the interval.
//
// A column of values begins with a bit that says whether values are missing, and if so with a
// bit for each reading that says whether it has the value; then a bit that says whether all
// are whole tenths, else they are hundredths.
//
// A column is the differences from one number to the next, beginning with 0 and the newest
// reading, in a Rice code (Rice and Plaunt, IEEE Transactions on Communications 19, 1971):
// five bits say how many low bits of a difference are written as they are; the rest is
// written as that many ones and a zero. [escape] ones are followed by the whole difference. A
// node that sends every 30 seconds, 10 ms early or late, and whose values change by a few
// tenths takes three bytes a reading.
const (
	escape     = 16
	escapeBits = 40
)

// tenth is a tenth in hundredths.
const tenth = 10

// encodeWindow returns the compact form, nil for an empty window.
func encodeWindow(w reading.Window) ([]byte, error) {
	if w.Len() == 0 {
		return nil, nil
	}
	if err := w.Validate(); err != nil {
		return nil, err //nolint:wrapcheck // the caller does
	}
	n := w.Len()
	var scratch [reading.MaxWindow]int64
	steps, before := scratch[:0:n], int64(0)
	for _, age := range slices.Backward(w.Age) {
		micros := math.Round(age * 1e6)
		if micros >= 1<<(escapeBits-2) {
			return nil, fmt.Errorf("%w: age %g", reading.ErrWindow, age)
		}
		steps = append(steps, int64(micros)-before)
		before = int64(micros)
	}
	interval := usual(steps)
	for i := range steps {
		steps[i] -= interval
	}
	b := bitWriter{bytes: append(make([]byte, 0, 4*n), byte(n))} //nolint:gosec // at most MaxWindow
	b.write(uint64(interval), 32)                                //nolint:gosec // not negative
	b.writeSteps(steps)
	for _, column := range [][]float64{w.Temperature, w.Humidity} {
		b.writeValues(column, steps[:0])
	}
	b.write(0, -b.pending&7) //nolint:mnd // to the end of a byte
	return b.bytes, nil
}

// usual returns the median of the newest intervals. For most nodes it is that of all, which
// would take a third of the encoding to sort.
func usual(steps []int64) int64 {
	var newest [9]int64
	n := copy(newest[:], steps)
	slices.Sort(newest[:n])
	return min(newest[n/2], math.MaxUint32)
}

// writeValues writes a column of values. steps is scratch space.
func (b *bitWriter) writeValues(column []float64, steps []int64) {
	missing, tenths := slices.ContainsFunc(column, math.IsNaN), true
	b.writeBool(missing)
	for _, value := range slices.Backward(column) {
		if missing {
			b.writeBool(reading.Has(value))
		}
		if reading.Has(value) {
			hundredths := int64(math.Round(value * 100))
			tenths = tenths && hundredths%tenth == 0
			steps = append(steps, hundredths)
		}
	}
	b.writeBool(tenths)
	before := int64(0)
	for i, value := range steps {
		if tenths {
			value /= tenth
		}
		steps[i], before = value-before, value
	}
	b.writeSteps(steps)
}

// decodeWindow is the inverse of [encodeWindow]. A malformed window does not pass Validate.
func decodeWindow(encoded []byte) (w reading.Window) {
	if len(encoded) == 0 || encoded[0] == 0 || encoded[0] > reading.MaxWindow {
		return w
	}
	n := int(encoded[0])
	b := bitReader{bytes: append(encoded, make([]byte, wordBytes)...), at: 8} //nolint:mnd // behind n
	columns := make([]float64, 3*n)                                           //nolint:mnd // of a window
	w.Age, w.Temperature, w.Humidity = columns[:n:n], columns[n:2*n:2*n], columns[2*n:]
	interval, micros := int64(b.read(32)), int64(0) //nolint:gosec // of 32 bits
	low := int(b.read(5))                           //nolint:gosec // of 5 bits
	for i := n - 1; i >= 0; i-- {
		micros += b.readStep(low) + interval
		w.Age[i] = float64(micros) / 1e6
	}
	b.readValues(w.Temperature)
	b.readValues(w.Humidity)
	if b.next(); b.failed {
		return reading.Window{}
	}
	return w
}

func (b *bitReader) readValues(column []float64) {
	if b.read(1) == 1 {
		for i := range slices.Backward(column) {
			if b.read(1) == 0 {
				column[i] = reading.Missing()
			}
		}
	}
	unit := 100.0
	if b.read(1) == 1 {
		unit /= tenth
	}
	low, value := int(b.read(5)), int64(0) //nolint:gosec // of 5 bits
	for i, before := range slices.Backward(column) {
		if reading.Has(before) {
			value += b.readStep(low)
			column[i] = float64(value) / unit
		}
	}
}

// bitWriter appends bits to bytes.
type bitWriter struct {
	bytes   []byte
	bits    uint64 // the lowest pending ones are no whole byte yet
	pending int
}

// write appends the lowest n bits of a number, at most 56.
func (b *bitWriter) write(number uint64, n int) {
	b.bits = b.bits<<n | number&(1<<n-1)
	for b.pending += n; b.pending >= 8; {
		b.pending -= 8
		b.bytes = append(b.bytes, byte(b.bits>>b.pending)) //nolint:gosec // the lowest 8
	}
}

func (b *bitWriter) writeBool(value bool) {
	if value {
		b.write(1, 1)
	} else {
		b.write(0, 1)
	}
}

// writeSteps writes the steps of a column: zigzag, which puts the sign into the lowest bit,
// and then Rice's code.
func (b *bitWriter) writeSteps(steps []int64) {
	sum := 0
	for _, step := range steps {
		sum += bits.Len64(zigzag(step))
	}
	low := min(sum/max(len(steps), 1), 31)
	b.write(uint64(low), 5) //nolint:gosec // 0 to 31
	for _, step := range steps {
		number := zigzag(step)
		if high := number >> low; high < escape {
			b.write((1<<(high+1)-2)<<low|number&(1<<low-1), int(high)+1+low)
		} else {
			b.write((1<<escape-1)<<escapeBits|number, escape+escapeBits)
		}
	}
}

func zigzag(step int64) uint64 { return uint64(step)<<1 ^ uint64(step>>63) } //nolint:gosec // bits

// bitReader reads bits from bytes, of which the last [wordBytes] are padding. Beyond the end it
// has failed, and reads zeros.
type bitReader struct {
	bytes  []byte
	at     int // in bits
	failed bool
}

const wordBytes = 8

// next returns at least the next 57 bits, the first of them the highest, and consumes none.
func (b *bitReader) next() uint64 {
	if b.failed = b.failed || b.at > 8*(len(b.bytes)-wordBytes); b.failed {
		return 0
	}
	return binary.BigEndian.Uint64(b.bytes[b.at/8:]) << (b.at % 8)
}

// read consumes n bits, 1 to 57.
func (b *bitReader) read(n int) uint64 {
	number := b.next() >> (64 - n) //nolint:mnd // bits of a word
	b.at += n
	return number
}

func (b *bitReader) readStep(low int) int64 {
	high := min(bits.LeadingZeros64(^b.next()), escape)
	if b.at += high; high == escape {
		return unzigzag(b.read(escapeBits))
	}
	b.at++                        // the zero
	number := uint64(high) << low //nolint:gosec // not negative
	if low > 0 {
		number |= b.read(low)
	}
	return unzigzag(number)
}

func unzigzag(number uint64) int64 { return int64(number>>1) ^ -int64(number&1) } //nolint:gosec // bits

// verboseWindow is the form in which gateways of the version before send a window.
type verboseWindow struct {
	Age         []float64  `json:"age_s"`
	Temperature []*float64 `json:"temperature"`
	Humidity    []*float64 `json:"humidity"`
}

// column returns a column of n readings: a missing value is null, a column of them absent.
func column(values []*float64, n int) []float64 {
	if values == nil {
		values = make([]*float64, n)
	}
	all := make([]float64, len(values))
	for i, value := range values {
		all[i] = reading.Value(value)
	}
	return all
}

// DecodeWindow decodes the window of a message. A malformed or invalid window is dropped and
// its reading kept: detection can do without features, but no reading may be lost.
func DecodeWindow(recent []byte) (w reading.Window) {
	var verbose verboseWindow
	if n := len(recent) - len(`""`); n >= 0 && recent[0] == '"' {
		compact := make([]byte, base64.StdEncoding.DecodedLen(n), base64.StdEncoding.DecodedLen(n)+wordBytes)
		if n, err := base64.StdEncoding.Decode(compact, recent[1:n+1]); err == nil { // no encoder of ours escapes it
			w = decodeWindow(compact[:n])
		}
	} else if len(recent) > 0 && json.Unmarshal(recent, &verbose) == nil {
		n := len(verbose.Age)
		w = reading.Window{Age: verbose.Age, Temperature: column(verbose.Temperature, n), Humidity: column(verbose.Humidity, n)}
	}
	if w.Validate() != nil {
		return reading.Window{}
	}
	return w
}
