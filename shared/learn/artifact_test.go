package learn

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/forest"
)

// smallArtifacts are models of a few leaves, whose every byte can be tried.
func smallArtifacts(t *testing.T) (detector, forecaster []byte) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	rows := func(columns int) forest.Matrix {
		m := forest.Matrix{Columns: columns}
		for range 64 * columns {
			m.Data = append(m.Data, float64(random.IntN(4)))
		}
		return m
	}
	grown, err := forest.GrowIsolation(rows(features.DetectionCount), forest.IsolationOptions{Trees: 2, Sample: 8, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	info := Info{Name: "anomaly_v20260301T120000Z", Created: time.Unix(1e9, 0).UTC(), Features: features.DetectionNames()}
	if detector, err = (&Detector{Info: info, Threshold: 0.5, forest: grown}).MarshalBinary(); err != nil {
		t.Fatal(err)
	}
	ahead, targets := rows(features.ForecastCount), make([]float64, 64)
	for i := range targets {
		targets[i] = random.NormFloat64()
	}
	slopes, err := fitRidge(ahead, targets)
	if err != nil {
		t.Fatal(err)
	}
	trees, err := forest.GrowRegression(ahead, targets, forest.RegressionOptions{Trees: 2, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	info.Name, info.Features = "forecasting_v20260301T120000Z", features.ForecastNames()
	f := &Forecaster{Info: info, slopes: slopes, residual: trees, temperature: true, humidity: trees, stillTemperature: 0.2, stillHumidity: 0.3}
	if forecaster, err = f.MarshalBinary(); err != nil {
		t.Fatal(err)
	}
	return detector, forecaster
}

// TestEveryByteOfAnArtifact changes each byte of a model, in every bit, and cuts
// it at each.
func TestEveryByteOfAnArtifact(t *testing.T) {
	t.Parallel()
	detector, forecaster := smallArtifacts(t)
	for name, c := range map[string]struct {
		whole  []byte
		decode func([]byte) error
	}{
		"detector":   {detector, func(b []byte) error { _, err := DecodeDetector(b); return err }},
		"forecaster": {forecaster, func(b []byte) error { _, err := DecodeForecaster(b); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := c.decode(c.whole); err != nil {
				t.Fatalf("whole: %v", err)
			}
			changed := slices.Clone(c.whole)
			for at := range c.whole {
				for bit := range 8 {
					changed[at] ^= 1 << bit
					if err := c.decode(changed); !errors.Is(err, ErrArtifact) {
						t.Fatalf("bit %d of byte %d changed: %v", bit, at, err)
					}
					changed[at] ^= 1 << bit
				}
				if err := c.decode(c.whole[:at]); !errors.Is(err, ErrArtifact) {
					t.Fatalf("cut at %d: %v", at, err)
				}
			}
		})
	}
}

// TestSignedHeaderOfAnyLength holds that a wrong length of the header is refused where the
// checksum is right.
func TestSignedHeaderOfAnyLength(t *testing.T) {
	t.Parallel()
	whole, _ := smallArtifacts(t)
	signed := len(whole) - sha256.Size
	for _, length := range []int{0, 1, signed - prefixLength, signed, signed + prefixLength, math.MaxUint32} {
		b := slices.Clone(whole[:signed:signed])
		binary.LittleEndian.PutUint32(b[len(magic)+2:], uint32(length))
		sum := sha256.Sum256(b)
		if _, err := DecodeDetector(append(b, sum[:]...)); !errors.Is(err, ErrArtifact) {
			t.Errorf("a header of %d bytes: %v", length, err)
		}
	}
}

// TestForecasterOfBefore reads a forecaster of version 2, which has no bounds beneath which
// nothing changes.
func TestForecasterOfBefore(t *testing.T) {
	t.Parallel()
	_, forecaster := smallArtifacts(t)
	newer, err := DecodeForecaster(forecaster)
	if err != nil {
		t.Fatal(err)
	}
	info, body, _, err := open(withStill, kindForecaster, forecaster, features.ForecastNames())
	if err != nil {
		t.Fatal(err)
	}
	before, err := seal(version, kindForecaster, info, slices.Concat(body[:1], body[17:]))
	if err != nil {
		t.Fatal(err)
	}
	older, err := DecodeForecaster(before)
	if err != nil {
		t.Fatal(err)
	}
	still, lively := make([]float64, features.ForecastCount), make([]float64, features.ForecastCount)
	lively[features.TemperatureTrend], lively[features.HumidityTrend] = -0.2, 0.3
	for _, row := range [][]float64{still, lively} {
		temperature, humidity := older.change(row)
		if temperature == 0 || humidity == 0 {
			t.Errorf("of before: no change of %v", row)
		}
		t2, h2 := newer.change(row)
		if moving := row[features.TemperatureTrend] != 0; (t2 == temperature) != moving || (h2 == humidity) != moving || (t2 == 0) == moving || (h2 == 0) == moving {
			t.Errorf("forecast %g and %g, before %g and %g", t2, h2, temperature, humidity)
		}
	}
}

// FuzzBody tries bodies behind a right checksum: whatever decodes must be safe
// to use.
func FuzzBody(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte{hasHumidity, 29, 0, 0})
	f.Fuzz(func(t *testing.T, body []byte) {
		sealed, err := seal(withStill, kindForecaster, Info{Features: features.ForecastNames()}, body)
		if err != nil {
			t.Fatal(err)
		}
		if model, err := DecodeForecaster(sealed); err == nil {
			model.change(make([]float64, features.ForecastCount))
		} else if !errors.Is(err, ErrArtifact) {
			t.Errorf("refused with %v", err)
		}
		if sealed, err = seal(version, kindDetector, Info{Features: features.DetectionNames()}, body); err != nil {
			t.Fatal(err)
		}
		if model, err := DecodeDetector(sealed); err == nil {
			model.forest.Score(make([]float64, features.DetectionCount))
		} else if !errors.Is(err, ErrArtifact) {
			t.Errorf("refused with %v", err)
		}
	})
}
