package learn

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"coldaisle.dev/shared/artifact"
	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/forest"
)

// The prefixes of models: a version and a kind. The length of a JSON header follows, the
// header, and the numbers.
const (
	detectorPrefix   = "coldaisle model\n\x03d"
	forecasterPrefix = "coldaisle model\n\x04f"
)

// seal puts numbers behind their header.
func seal(prefix string, info Info, body []byte) ([]byte, error) {
	header, err := json.Marshal(info)
	if err != nil {
		return nil, fmt.Errorf("encode model %s: %w", info.Name, err)
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(header))) //nolint:gosec // a few hundred bytes
	return artifact.Seal(prefix, slices.Concat(b, header, body)), nil
}

// open reads the header of a model that was trained on certain features.
func open(prefix string, b []byte, names []string) (info Info, r *artifact.Reader, err error) {
	if r, err = artifact.Open(prefix, b); err != nil {
		return info, nil, err
	}
	header := r.Bytes(int(r.Uint32()))
	if err := json.Unmarshal(header, &info); err != nil {
		r.Fail("header: %v", err)
	}
	if !slices.Equal(info.Features, names) {
		r.Fail("trained on other features: %v", info.Features)
	}
	return info, r, r.Err()
}

// MarshalBinary implements [encoding.BinaryMarshaler]: the form that
// [DecodeDetector] reads.
func (d *Detector) MarshalBinary() ([]byte, error) {
	return seal(detectorPrefix, d.Info, d.forest.Append(artifact.AppendFloat64(nil, d.Threshold)))
}

// DecodeDetector reads what [Detector.MarshalBinary] wrote, or returns an
// [artifact.ErrUnusable].
func DecodeDetector(b []byte) (*Detector, error) {
	info, r, err := open(detectorPrefix, b, features.DetectionNames())
	if err != nil {
		return nil, err
	}
	d := &Detector{Info: info, Threshold: r.Float64(), forest: forest.ReadIsolation(r)}
	if d.forest.Columns() != features.DetectionCount || !(d.Threshold >= 0 && d.Threshold <= 1) {
		r.Fail("%d columns, threshold %g", d.forest.Columns(), d.Threshold)
	}
	if err := r.End(); err != nil {
		return nil, err
	}
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
	body := artifact.AppendFloat64([]byte{0}, f.stillTemperature, f.stillHumidity)
	if f.temperature {
		body[0] |= hasTemperature
		body = artifact.AppendFloat64(body, slices.Concat([]float64{f.slopes.constant}, f.slopes.coefficients, f.slopes.least, f.slopes.most)...)
		body = f.residual.Append(body)
	}
	if f.humidity != nil {
		body[0] |= hasHumidity
		body = f.humidity.Append(body)
	}
	return seal(forecasterPrefix, f.Info, body)
}

// DecodeForecaster reads what [Forecaster.MarshalBinary] wrote, or returns an
// [artifact.ErrUnusable].
func DecodeForecaster(b []byte) (*Forecaster, error) {
	info, r, err := open(forecasterPrefix, b, features.ForecastNames())
	if err != nil {
		return nil, err
	}
	has := r.Byte()
	f := &Forecaster{Info: info, stillTemperature: r.Float64(), stillHumidity: r.Float64()}
	if !(f.stillTemperature >= 0 && f.stillHumidity >= 0) || has&^(hasTemperature|hasHumidity) != 0 {
		r.Fail("models %b, nothing changes beneath %g and %g", has, f.stillTemperature, f.stillHumidity)
	}
	if has&hasTemperature != 0 {
		f.slopes, f.residual, f.temperature = readRidge(r), readForest(r), true
	}
	if has&hasHumidity != 0 {
		f.humidity = readForest(r)
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	return f, nil
}

func readForest(r *artifact.Reader) *forest.Regression {
	f := forest.ReadRegression(r)
	if f.Columns() != features.ForecastCount {
		r.Fail("%d columns", f.Columns())
	}
	return f
}

func readRidge(r *artifact.Reader) *ridge {
	const columns = features.ForecastCount
	numbers := make([]float64, 1+3*columns)
	for i := range numbers {
		numbers[i] = r.Finite()
	}
	return &ridge{
		constant: numbers[0], coefficients: numbers[1 : 1+columns],
		least: numbers[1+columns : 1+2*columns], most: numbers[1+2*columns:],
	}
}
