package wire

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

// TestNumbersAreWhatEncodingJSONWrites compares hundredths, tenths and other numbers, byte
// by byte.
func TestNumbersAreWhatEncodingJSONWrites(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOf(rapid.OneOf(
			rapid.Map(rapid.IntRange(-12500, 12500), func(n int) float64 { return float64(n) / 100 }),
			rapid.Map(rapid.IntRange(-1250, 1250), func(n int) float64 { return float64(n) / 10 }),
			rapid.Map(rapid.Float64(), func(v float64) float64 { return v + 0 }), // 0 for -0
		)).Draw(t, "values")
		want, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		if values == nil {
			want = []byte("[]")
		}
		got, err := appendNumbers(nil, values)
		if err != nil || string(got) != string(want) {
			t.Fatalf("%s, %v, want %s", got, err, want)
		}
	})
}

// BenchmarkEncodeData writes a message with a full window.
func BenchmarkEncodeData(b *testing.B) {
	d := Data{Reading: reading.Reading{
		NodeID: "esp32-a4cf12", MessageID: "9f3c01aa", Time: time.Date(2026, 11, 20, 3, 0, 0, 123456000, time.UTC), Temperature: 24.5, Humidity: 41.2,
	}}
	for i := range reading.MaxWindow {
		d.Recent.Age = append(d.Recent.Age, float64(3600-30*i))
		d.Recent.Temperature = append(d.Recent.Temperature, 20+float64(i%97)/10)
		d.Recent.Humidity = append(d.Recent.Humidity, 40+float64(i%89)/100)
	}
	b.ReportAllocs()
	for b.Loop() {
		must.Get(EncodeData(d))(b)
	}
}
