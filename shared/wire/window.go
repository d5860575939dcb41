package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"coldaisle.dev/shared/reading"
)

// The compact form of a window, in base64 within the message, is the number of its readings
// in a byte, and then bits, the most significant first:
//
//   - 32 bits: the median interval between two readings, in microseconds;
//   - ages, temperatures, humidities, each a column. Ages are in microseconds, their steps
//     are less the interval.
//
// A column of values begins with a bit that says whether values are missing, and if so with a
// bit for each reading that says whether it has the value; then a bit that says whether all
// are whole tenths, else they are hundredths.
//
// A column is the steps from one number to the next, from the newest reading back and from 0
// on, in a Rice code (Rice and Plaunt, IEEE Transactions on Communications 19, 1971): five
// bits say how many low bits of a step are written as they are; the rest is so many ones and
// a zero. [escape] ones are followed by the whole step. A node that sends every 30 seconds,
// 10 ms early or late, and whose values change by a few tenths takes three bytes a reading.
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
	var scratch [2 * reading.MaxWindow]int64
	steps, sorted := scratch[:0:n], scratch[reading.MaxWindow:][:0:n]
	before := int64(0)
	for _, age := range slices.Backward(w.Age) {
		micros := math.Round(age * 1e6)
		if micros >= 1<<(escapeBits-2) {
			return nil, fmt.Errorf("%w: age %g", reading.ErrWindow, age)
		}
		steps = append(steps, int64(micros)-before)
		before = int64(micros)
	}
	sorted = append(sorted, steps...)
	slices.Sort(sorted)
	interval := min(sorted[n/2], math.MaxUint32)
	for i := range steps {
		steps[i] -= interval
	}
	b := bitWriter{bytes: append(make([]byte, 0, 4*n), byte(n))} //nolint:gosec // at most MaxWindow
	b.write(uint64(interval), 32)                                //nolint:gosec // not negative
	b.writeSteps(steps)
	for _, column := range [][]float64{w.Temperature, w.Humidity} {
		b.writeValues(column, steps[:0])
	}
	return b.bytes, nil
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

// decodeWindow is the inverse of [encodeWindow]. What is malformed is no valid window.
func decodeWindow(encoded []byte) (w reading.Window) {
	if len(encoded) == 0 || encoded[0] == 0 || encoded[0] > reading.MaxWindow {
		return w
	}
	n := int(encoded[0])
	b := bitReader{bytes: encoded[1:]}
	columns := make([]float64, 3*n) //nolint:mnd // of a window
	w.Age, w.Temperature, w.Humidity = columns[:n:n], columns[n:2*n:2*n], columns[2*n:]
	interval, micros := int64(b.read(32)), int64(0) //nolint:gosec // of 32 bits
	low := int(b.read(5))                           //nolint:gosec // of 5 bits
	for i := n - 1; i >= 0; i-- {
		micros += b.readStep(low) + interval
		w.Age[i] = float64(micros) / 1e6
	}
	b.readValues(w.Temperature)
	b.readValues(w.Humidity)
	if b.failed {
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
	bytes []byte
	free  int // bits of the last byte that are not used
}

// write appends the lowest n bits of a number.
func (b *bitWriter) write(number uint64, n int) {
	for n > 0 {
		if b.free == 0 {
			b.bytes, b.free = append(b.bytes, 0), 8
		}
		part := min(n, b.free)
		n -= part
		b.free -= part
		b.bytes[len(b.bytes)-1] |= byte(number>>n&(1<<part-1)) << b.free //nolint:gosec // of at most 8 bits
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
			b.write(1<<(high+1)-2, int(high)+1)
			b.write(number, low)
		} else {
			b.write(1<<escape-1, escape)
			b.write(number, escapeBits)
		}
	}
}

func zigzag(step int64) uint64 { return uint64(step)<<1 ^ uint64(step>>63) } //nolint:gosec // bits

// bitReader takes bits from bytes. Behind the end it has failed, and reads zeros.
type bitReader struct {
	bytes  []byte
	at     int // in bits
	failed bool
}

func (b *bitReader) read(n int) (number uint64) {
	if b.at+n > 8*len(b.bytes) {
		b.failed = true
		return 0
	}
	for n > 0 {
		free := 8 - b.at%8
		part := min(n, free)
		number = number<<part | uint64(b.bytes[b.at/8]>>(free-part)&(1<<part-1))
		b.at += part
		n -= part
	}
	return number
}

func (b *bitReader) readStep(low int) int64 {
	high := uint64(0)
	for high < escape && b.read(1) == 1 {
		high++
	}
	var number uint64
	if high < escape {
		number = high<<low | b.read(low)
	} else {
		number = b.read(escapeBits)
	}
	return int64(number>>1) ^ -int64(number&1) //nolint:gosec // the inverse of zigzag
}

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
func DecodeWindow(recent json.RawMessage) (w reading.Window) {
	var compact []byte
	var verbose verboseWindow
	if len(recent) > 0 && recent[0] == '"' {
		if json.Unmarshal(recent, &compact) == nil {
			w = decodeWindow(compact)
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
