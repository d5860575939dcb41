package wire_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// hour is a reading with the last hour of a node that sends every 30 seconds, so many
// microseconds early or late, and whose values have a number of decimals.
func hour(jitter int64, decimals float64) wire.Data {
	random := rand.New(rand.NewPCG(1, 2))
	round := func(value float64) float64 { return reading.Round(float64(int64(value*decimals)) / decimals) }
	d := wire.Data{Reading: reading.Reading{
		NodeID: "esp32-a4cf12", MessageID: "9f3c01aa", Time: time.Date(2026, 11, 20, 3, 0, 0, 123456000, time.UTC), Temperature: 24.5, Humidity: 41.2,
	}}
	temperature, humidity := 24.5, 41.2
	for i := range reading.MaxWindow {
		temperature, humidity = temperature+random.NormFloat64()*0.1, humidity+random.NormFloat64()*0.3
		age := int64(reading.MaxWindow-i)*30_000_000 - jitter/2 + random.Int64N(jitter)
		d.Recent.Age = append(d.Recent.Age, float64(age)/1e6)
		d.Recent.Temperature, d.Recent.Humidity = append(d.Recent.Temperature, round(temperature)), append(d.Recent.Humidity, round(humidity))
	}
	return d
}

// TestAnHourFitsAMessage holds the sizes of messages with 120 readings, without attributes.
func TestAnHourFitsAMessage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		jitter   int64
		decimals float64
		bytes    int
	}{{20_000, 10, 620}, {200_000, 10, 690}, {20_000, 100, 750}} {
		d := hour(c.jitter, c.decimals)
		encoded := must.Get(wire.EncodeData(d))(t)
		must.Equal(t, "after a round trip", d, must.Get(wire.DecodeData(encoded, d.Reading.Time))(t))
		must.Hold(t, len(encoded) <= c.bytes,
			"%d µs, %g: %d bytes, want at most %d", c.jitter, c.decimals, len(encoded), c.bytes)
	}
}

// TestAnyWindowIsExact holds that a valid window, in hundredths and microseconds, comes back
// as it was.
func TestAnyWindowIsExact(t *testing.T) {
	t.Parallel()
	value := func(low, high int) *rapid.Generator[float64] {
		return rapid.OneOf(
			rapid.Just(reading.Missing()),
			rapid.Map(rapid.IntRange(low*10, high*10), func(n int) float64 { return float64(n) / 10 }),
			rapid.Map(rapid.IntRange(low*100, high*100), func(n int) float64 { return float64(n) / 100 }),
		)
	}
	rapid.Check(t, func(t *rapid.T) {
		micros := int64(0)
		var want reading.Window
		for range rapid.IntRange(0, reading.MaxWindow).Draw(t, "readings") {
			micros += rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(29_990_000, 30_010_000), rapid.Int64Range(0, 1<<31)).Draw(t, "µs")
			temperature, humidity := value(-40, 125).Draw(t, "°C"), value(0, 100).Draw(t, "%")
			if !reading.Has(temperature) && !reading.Has(humidity) {
				humidity = 40
			}
			want.Age = append([]float64{float64(micros) / 1e6}, want.Age...)
			want.Temperature, want.Humidity = append([]float64{temperature}, want.Temperature...), append([]float64{humidity}, want.Humidity...)
		}
		d := wire.Data{Reading: reading.Reading{NodeID: "n1", MessageID: "ab", Time: published, Temperature: 20, Humidity: 40}, Recent: want}
		encoded, err := wire.EncodeData(d)
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.DecodeData(encoded, published)
		if diff := cmp.Diff(d, got, cmpopts.EquateNaNs()); err != nil || diff != "" {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
	})
}

// TestAgeOfAWindow: an age is written in 38 bits of a microsecond.
func TestAgeOfAWindow(t *testing.T) {
	t.Parallel()
	for age, fits := range map[float64]bool{float64(1<<38-1) / 1e6: true, float64(1<<38) / 1e6: false} {
		_, err := wire.EncodeData(wire.Data{
			Reading: reading.Reading{NodeID: "n1", MessageID: "ab", Time: published, Temperature: 20, Humidity: 40},
			Recent:  reading.Window{Age: []float64{age}, Temperature: []float64{20}, Humidity: []float64{40}},
		})
		must.Equal(t, fmt.Sprintf("%g s fits", age), fits, err == nil)
	}
}

// TestDamagedWindowIsDropped cuts a window short at each byte.
func TestDamagedWindowIsDropped(t *testing.T) {
	t.Parallel()
	d := hour(20_000, 10)
	encoded := string(must.Get(wire.EncodeData(d))(t))
	begin := strings.Index(encoded, `"recent":"`) + len(`"recent":"`)
	for end := begin; end < len(encoded)-6; end += 4 { // whole groups of base64, but for the last
		got := must.Get(wire.DecodeData([]byte(encoded[:end]+`"}`), d.Reading.Time))(t)
		if !got.Reading.Equal(d.Reading) || got.Recent.Len() > 0 {
			t.Fatalf("%d characters became %+v", end-begin, got)
		}
	}
}

// FuzzDecodeWindow holds that whatever is accepted is valid, and means the same after another
// trip through the codec.
func FuzzDecodeWindow(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte(`{"age_s":[60,30],"temperature":[20.5,null],"humidity":[null,41]}`))
	encoded := must.Get(wire.EncodeData(hour(20_000, 10)))(f)
	_, window, _ := bytes.Cut(encoded, []byte(`"recent":`))
	f.Add(bytes.TrimSuffix(window, []byte("}")))
	f.Fuzz(func(t *testing.T, recent []byte) {
		w := wire.DecodeWindow(recent)
		must.Do(t, w.Validate())
		again, err := wire.EncodeData(wire.Data{Reading: reading.Reading{NodeID: "n1", MessageID: "ab", Time: published, Temperature: 20}, Recent: w})
		if err != nil {
			return // ages of weeks, which a message may claim
		}
		got := must.Get(wire.DecodeData(again, published))(t)
		if got.Recent.Len() != w.Len() {
			t.Fatalf("%d readings became %d", w.Len(), got.Recent.Len())
		}
	})
}
