package learn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"coldaisle.dev/shared/artifact"
	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/forest"
	"coldaisle.dev/shared/must"
)

// TestHeaderOfAnyLength holds that a wrong length of the header is refused where the checksum is right.
func TestHeaderOfAnyLength(t *testing.T) {
	t.Parallel()
	for _, length := range []uint32{0, 1, 3, math.MaxInt32, math.MaxUint32} {
		b := append(binary.LittleEndian.AppendUint32(nil, length), "{}"...)
		_, err := DecodeDetector(artifact.Seal(detectorPrefix, b))
		must.Fail(t, fmt.Sprintf("a header of %d bytes", length), err, artifact.ErrUnusable)
	}
}

// TestNoChangeBeneathTheTrend reads a forecaster back and asks it about a node whose values
// hardly change, and about one whose values do.
func TestNoChangeBeneathTheTrend(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	rows, targets := make([][]float64, 64), make([]float64, 64)
	for i := range targets {
		targets[i] = random.NormFloat64()
		for range features.ForecastCount {
			rows[i] = append(rows[i], float64(random.IntN(4)))
		}
	}
	regression := forest.GrowRegression(rows, targets, forest.RegressionOptions{Trees: 60, Leaf: 20})
	grown := &Forecaster{Info{Features: features.ForecastNames()}, model{regression, 0.2}, model{regression, 0.3}}
	content := must.Get(grown.MarshalBinary())(t)
	f := must.Get(DecodeForecaster(content))(t)
	row := make([]float64, features.ForecastCount)
	changes := func() []float64 {
		temperature := f.temperature.change(row, features.TemperatureTrend)
		return []float64{temperature, f.humidity.change(row, features.HumidityTrend)}
	}
	must.Equal(t, "still", []float64{0, 0}, changes())
	row[features.TemperatureTrend], row[features.HumidityTrend] = -0.2, 0.3
	c := changes()
	must.Hold(t, c[0] != 0 && c[1] != 0, "moving: %v", c)
	persistence := &Forecaster{Info: f.Info}
	must.Get(DecodeForecaster(must.Get(persistence.MarshalBinary())(t)))(t)
}

func TestClearlyBetter(t *testing.T) {
	t.Parallel()
	for model, want := range map[[blocks]float64]bool{
		{1, 1, 1, 1, 1}: false, {0, 1, 1, 1, 1}: true, {0, 0, 0, 0, 2}: true, {0, 0, 0, 1, 2}: false, {1, 1, 1, 1, 2}: false,
	} {
		_, _, clearly := errorSums{model: model, nothing: [blocks]float64{1, 1, 1, 1, 1}}.compared()
		must.Equal(t, fmt.Sprint(model), want, clearly)
	}
}

// TestStillness holds that no change is forecast beneath the trend from which on forecasts are good, and
// that five spikes, which nobody foresaw, do not decide it.
func TestStillness(t *testing.T) {
	t.Parallel()
	var k known
	for i := range 1000 {
		trend, forecast, truth := 0.0, 0.1, 0.0
		switch {
		case i%200 == 0:
			forecast, truth = 20, 1000
		case i%20 >= 13:
			trend = 2
		case i%20 >= 9:
			trend, forecast, truth = 1, -1, -1
		}
		k.add(slices.Concat([]float64{trend, forecast}, make([]float64, features.ForecastCount-2)), truth)
	}
	for _, k.median = range []bool{false, true} {
		must.Equal(t, "trend", 1.0, k.stillness(func(row []float64, _ int) float64 { return row[1] }))
	}
}

// FuzzDecode tries bodies behind a right checksum: whatever decodes must be safe to use.
func FuzzDecode(f *testing.F) {
	f.Add(false, true, []byte{29, 1, 0, 0, 0})
	f.Add(true, false, []byte{0})
	f.Fuzz(func(t *testing.T, temperature, humidity bool, body []byte) {
		h := header{Info: Info{Features: features.ForecastNames()}, Temperature: temperature, Humidity: humidity}
		sealed, err := seal(forecasterPrefix, h, body)
		must.Do(t, err)
		if model, err := DecodeForecaster(sealed); err == nil {
			model.temperature.change(make([]float64, features.ForecastCount), features.TemperatureTrend)
			model.humidity.change(make([]float64, features.ForecastCount), features.HumidityTrend)
		} else if !errors.Is(err, artifact.ErrUnusable) {
			t.Errorf("refused with %v", err)
		}
		sealed, err = seal(detectorPrefix, header{Info: Info{Features: features.DetectionNames()}}, body)
		must.Do(t, err)
		if model, err := DecodeDetector(sealed); err == nil {
			model.forest.Score(make([]float64, features.DetectionCount))
		} else if !errors.Is(err, artifact.ErrUnusable) {
			t.Errorf("refused with %v", err)
		}
	})
}
