package learn

import (
	"encoding/json"
	"fmt"
	"slices"

	"coldaisle.dev/shared/artifact"
	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/forest"
)

// The prefixes of models: a version and a kind. The length of a JSON header follows, the
// header, and the forests.
const (
	detectorPrefix   = "coldaisle model\n\x03d"
	forecasterPrefix = "coldaisle model\n\x04f"
)

// header is a model without its forests.
type header struct {
	Info      Info    `json:"info"`
	Threshold float64 `json:"threshold,omitzero"` // of a detector
	// Which forests a forecaster has.
	Temperature      bool    `json:"temperature,omitempty"`
	Humidity         bool    `json:"humidity,omitempty"`
	StillTemperature float64 `json:"still_temperature,omitzero"`
	StillHumidity    float64 `json:"still_humidity,omitzero"`
}

// seal puts forests behind their header.
func seal(prefix string, h header, forests []byte) ([]byte, error) {
	encoded, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("encode model %s: %w", h.Info.Name, err)
	}
	return artifact.Seal(prefix, slices.Concat(artifact.Append(nil, uint32(len(encoded))), encoded, forests)), nil //nolint:gosec // a few kilobytes
}

// open reads the header of a model that must have been trained on the named features.
func open(prefix string, b []byte, names []string) (h header, r *artifact.Reader, err error) {
	if r, err = artifact.Open(prefix, b); err != nil {
		return h, nil, err
	}
	encoded := r.Bytes(int(artifact.Read[uint32](r)))
	if err := json.Unmarshal(encoded, &h); err != nil {
		r.Fail("header: %v", err)
	}
	if !slices.Equal(h.Info.Features, names) {
		r.Fail("trained on other features: %v", h.Info.Features)
	}
	return h, r, r.Err()
}

// MarshalBinary returns the form that [DecodeDetector] reads.
func (d *Detector) MarshalBinary() ([]byte, error) {
	return seal(detectorPrefix, header{Info: d.Info, Threshold: d.Threshold}, d.forest.Append(nil))
}

// DecodeDetector reads what MarshalBinary wrote. Error: [artifact.ErrUnusable].
func DecodeDetector(b []byte) (*Detector, error) {
	h, r, err := open(detectorPrefix, b, features.DetectionNames())
	if err != nil {
		return nil, err
	}
	d := &Detector{Info: h.Info, Threshold: h.Threshold, forest: forest.ReadIsolation(r, features.DetectionCount)}
	if !(d.Threshold >= 0 && d.Threshold <= 1) {
		r.Fail("threshold %g", d.Threshold)
	}
	return d, r.End()
}

// MarshalBinary returns the form that [DecodeForecaster] reads.
func (f *Forecaster) MarshalBinary() ([]byte, error) {
	h := header{
		Info: f.Info, Temperature: f.temperature.forest != nil, Humidity: f.humidity.forest != nil,
		StillTemperature: f.temperature.still, StillHumidity: f.humidity.still,
	}
	var forests []byte
	for _, m := range []model{f.temperature, f.humidity} {
		if m.forest != nil {
			forests = m.forest.Append(forests)
		}
	}
	return seal(forecasterPrefix, h, forests)
}

// DecodeForecaster reads what MarshalBinary wrote. Error: [artifact.ErrUnusable].
func DecodeForecaster(b []byte) (*Forecaster, error) {
	h, r, err := open(forecasterPrefix, b, features.ForecastNames())
	if err != nil {
		return nil, err
	}
	f := &Forecaster{Info: h.Info, temperature: readModel(r, h.Temperature, h.StillTemperature), humidity: readModel(r, h.Humidity, h.StillHumidity)}
	return f, r.End()
}

func readModel(r *artifact.Reader, grown bool, still float64) model {
	m := model{still: still}
	if grown {
		m.forest = forest.ReadRegression(r, features.ForecastCount)
	}
	if !(still >= 0) {
		r.Fail("nothing changes beneath %g", still)
	}
	return m
}
