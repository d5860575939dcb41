package learn

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/forest"
)

// ErrArtifact is the fault of bytes that are no model of ours: cut, changed, of
// a later version, or of other features.
var ErrArtifact = errors.New("not a usable model")

// An artifact is its magic, the version of its form, its kind, the length of a
// JSON header, the header, the numbers, and the SHA-256 of all that.
const (
	magic   = "coldaisle model\n"
	version = 2
	// withStill is the version of forecasters that know when nothing changes. Those of
	// version 2 forecast a change always.
	withStill = 3
)

const (
	kindDetector   = 'd'
	kindForecaster = 'f'
)

const prefixLength = len(magic) + 2 + 4

// seal puts a body behind its header and signs both.
func seal(version, kind byte, info Info, body []byte) ([]byte, error) {
	header, err := json.Marshal(info)
	if err != nil {
		return nil, fmt.Errorf("encode model %s: %w", info.Name, err)
	}
	b := append([]byte(magic), version, kind)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(header))) //nolint:gosec // a few hundred bytes
	b = append(append(b, header...), body...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...), nil
}

// open checks an artifact of a version up to the newest and returns its header, its body
// and its version.
func open(newest, kind byte, b []byte, names []string) (Info, []byte, byte, error) {
	fail := func(format string, arguments ...any) (Info, []byte, byte, error) {
		return Info{}, nil, 0, fmt.Errorf("%w: %s", ErrArtifact, fmt.Sprintf(format, arguments...))
	}
	if len(b) < prefixLength+sha256.Size || !bytes.HasPrefix(b, []byte(magic)) {
		return fail("%d bytes without the beginning of one", len(b))
	}
	signed := b[:len(b)-sha256.Size]
	its := b[len(magic)]
	if its < version || its > newest {
		return fail("version %d of the form, this program knows %d to %d", its, version, newest)
	}
	if sum := sha256.Sum256(signed); !bytes.Equal(sum[:], b[len(signed):]) {
		return fail("damaged: its checksum does not fit")
	}
	if got := b[len(magic)+1]; got != kind {
		return fail("of kind %q, want %q", got, kind)
	}
	length := int(binary.LittleEndian.Uint32(b[len(magic)+2:]))
	if length > len(signed)-prefixLength {
		return fail("damaged: a header of %d bytes", length)
	}
	var info Info
	if err := json.Unmarshal(signed[prefixLength:prefixLength+length], &info); err != nil {
		return fail("header: %v", err)
	}
	if !slices.Equal(info.Features, names) {
		return fail("trained on other features: %v", info.Features)
	}
	return info, signed[prefixLength+length:], its, nil
}

// MarshalBinary implements [encoding.BinaryMarshaler]: the form that
// [DecodeDetector] reads.
func (d *Detector) MarshalBinary() ([]byte, error) {
	body := binary.LittleEndian.AppendUint64(nil, math.Float64bits(d.Threshold))
	body, err := d.forest.AppendBinary(body)
	if err != nil {
		return nil, fmt.Errorf("encode model %s: %w", d.Info.Name, err)
	}
	return seal(version, kindDetector, d.Info, body)
}

// DecodeDetector reads what [Detector.MarshalBinary] wrote, or returns an
// [ErrArtifact].
func DecodeDetector(b []byte) (*Detector, error) {
	info, body, _, err := open(version, kindDetector, b, features.DetectionNames())
	if err != nil {
		return nil, err
	}
	if len(body) < 8 {
		return nil, fmt.Errorf("%w: no threshold", ErrArtifact)
	}
	d := &Detector{Info: info, Threshold: math.Float64frombits(binary.LittleEndian.Uint64(body))}
	grown, rest, err := forest.DecodeIsolation(body[8:])
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrArtifact, err)
	case len(rest) > 0 || grown.Columns() != features.DetectionCount || !(d.Threshold >= 0 && d.Threshold <= 1):
		return nil, fmt.Errorf("%w: %d columns, threshold %g, %d bytes too many", ErrArtifact, grown.Columns(), d.Threshold, len(rest))
	}
	d.forest = grown
	return d, nil
}

// What a forecaster has, as bits of its first byte.
const (
	hasTemperature = 1 << iota
	hasHumidity
)

// MarshalBinary implements [encoding.BinaryMarshaler]: the form that
// [DecodeForecaster] reads.
func (f *Forecaster) MarshalBinary() ([]byte, error) {
	body := []byte{0}
	body = binary.LittleEndian.AppendUint64(body, math.Float64bits(f.stillTemperature))
	body = binary.LittleEndian.AppendUint64(body, math.Float64bits(f.stillHumidity))
	var err error
	if f.temperature {
		body[0] |= hasTemperature
		for _, v := range slices.Concat([]float64{f.slopes.constant}, f.slopes.coefficients, f.slopes.least, f.slopes.most) {
			body = binary.LittleEndian.AppendUint64(body, math.Float64bits(v))
		}
		if body, err = f.residual.AppendBinary(body); err != nil {
			return nil, fmt.Errorf("encode model %s: %w", f.Info.Name, err)
		}
	}
	if f.humidity != nil {
		body[0] |= hasHumidity
		if body, err = f.humidity.AppendBinary(body); err != nil {
			return nil, fmt.Errorf("encode model %s: %w", f.Info.Name, err)
		}
	}
	return seal(withStill, kindForecaster, f.Info, body)
}

// DecodeForecaster reads what [Forecaster.MarshalBinary] wrote, or returns an
// [ErrArtifact].
func DecodeForecaster(b []byte) (*Forecaster, error) {
	info, body, its, err := open(withStill, kindForecaster, b, features.ForecastNames())
	if err != nil {
		return nil, err
	}
	if len(body) < 1 {
		return nil, fmt.Errorf("%w: empty", ErrArtifact)
	}
	f, has := &Forecaster{Info: info}, body[0]
	body = body[1:]
	if its == withStill {
		if len(body) < 16 {
			return nil, fmt.Errorf("%w: cut short", ErrArtifact)
		}
		f.stillTemperature = math.Float64frombits(binary.LittleEndian.Uint64(body))
		f.stillHumidity = math.Float64frombits(binary.LittleEndian.Uint64(body[8:]))
		body = body[16:]
		if !(f.stillTemperature >= 0 && f.stillHumidity >= 0) {
			return nil, fmt.Errorf("%w: nothing changes beneath %g and %g", ErrArtifact, f.stillTemperature, f.stillHumidity)
		}
	}
	if has&hasTemperature != 0 {
		if f.slopes, body, err = decodeRidge(body); err == nil {
			f.residual, body, err = decodeForest(body)
		}
		f.temperature = true
	}
	if err == nil && has&hasHumidity != 0 {
		f.humidity, body, err = decodeForest(body)
	}
	if err == nil && (len(body) > 0 || has&^(hasTemperature|hasHumidity) != 0) {
		err = fmt.Errorf("%w: %d bytes too many", ErrArtifact, len(body))
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

func decodeForest(body []byte) (*forest.Regression, []byte, error) {
	grown, rest, err := forest.DecodeRegression(body)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrArtifact, err)
	}
	if grown.Columns() != features.ForecastCount {
		return nil, nil, fmt.Errorf("%w: %d columns", ErrArtifact, grown.Columns())
	}
	return grown, rest, nil
}

func decodeRidge(body []byte) (*ridge, []byte, error) {
	const columns = features.ForecastCount
	const length = 8 * (1 + 3*columns)
	if len(body) < length {
		return nil, nil, fmt.Errorf("%w: cut short", ErrArtifact)
	}
	var numbers []float64
	for at := 0; at < length; at += 8 {
		v := math.Float64frombits(binary.LittleEndian.Uint64(body[at:]))
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, nil, fmt.Errorf("%w: a coefficient of %g", ErrArtifact, v)
		}
		numbers = append(numbers, v)
	}
	r := &ridge{
		constant: numbers[0], coefficients: numbers[1 : 1+columns],
		least: numbers[1+columns : 1+2*columns], most: numbers[1+2*columns:],
	}
	return r, body[length:], nil
}
