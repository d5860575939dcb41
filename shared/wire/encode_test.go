package wire

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coldaisle.dev/shared/reading"
)

// reflected is what encoding/json makes of a message.
func reflected(d Data) ([]byte, error) {
	out := dataJSON{readingJSON: readingJSON{
		MessageID: d.Reading.MessageID, NodeID: d.Reading.NodeID,
		Temperature: &d.Reading.Temperature, Humidity: &d.Reading.Humidity, Timestamp: reading.TruncateTime(d.Reading.Time),
	}}
	if d.Recent.Len() > 0 {
		out.Recent = &windowJSON{Age: d.Recent.Age, Temperature: d.Recent.Temperature, Humidity: d.Recent.Humidity}
	}
	return json.Marshal(out)
}

// TestEncodeDataIsWhatEncodingJSONWrites holds the encoder written by hand to
// the library's, byte by byte.
func TestEncodeDataIsWhatEncodingJSONWrites(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(
			rapid.Map(rapid.IntRange(-12500, 12500), func(n int) float64 { return float64(n) / 100 }),
			rapid.Map(rapid.IntRange(-1250, 1250), func(n int) float64 { return float64(n) / 10 }),
			rapid.Map(rapid.Float64(), func(v float64) float64 { return v + 0 }), // + 0 makes -0 a 0
		)
		count := rapid.IntRange(0, 4).Draw(t, "count")
		column := rapid.SliceOfN(number, count, count)
		d := Data{
			Reading: reading.Reading{
				NodeID: rapid.String().Draw(t, "node"), MessageID: rapid.StringN(1, 64, -1).Draw(t, "message"),
				Time:        time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, "time")),
				Temperature: number.Draw(t, "temperature"), Humidity: number.Draw(t, "humidity"),
			},
			Recent: reading.Window{Age: column.Draw(t, "ages"), Temperature: column.Draw(t, "temperatures"), Humidity: column.Draw(t, "humidities")},
		}
		want, err := reflected(d)
		if err != nil {
			t.Fatal(err)
		}
		got, err := EncodeData(d)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Fatalf("(-encoding/json +ours):\n%s", diff)
		}
	})
}

func TestEncodeDataRefusesWhatIsNoNumber(t *testing.T) {
	t.Parallel()
	for _, value := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		d := fullData()
		d.Recent.Humidity[7] = value
		if encoded, err := EncodeData(d); err == nil {
			t.Errorf("%g was written as %s", value, encoded)
		}
		if encoded, err := EncodeData(Data{Reading: reading.Reading{Temperature: value}}); err == nil {
			t.Errorf("%g was written as %s", value, encoded)
		}
	}
}

func fullData() Data {
	d := Data{Reading: reading.Reading{
		NodeID: "esp32-a4cf12", MessageID: "9f3c01aa", Time: time.Date(2026, 11, 20, 3, 0, 0, 123456000, time.UTC), Temperature: 24.5, Humidity: 41.2,
	}}
	for i := range reading.MaxWindow {
		d.Recent.Age = append(d.Recent.Age, float64(3600-30*i))
		d.Recent.Temperature = append(d.Recent.Temperature, 20+float64(i%97)/10)
		d.Recent.Humidity = append(d.Recent.Humidity, 40+float64(i%89)/100)
	}
	return d
}

// BenchmarkEncodeData writes a message with a full window, by hand and by
// encoding/json.
func BenchmarkEncodeData(b *testing.B) {
	d := fullData()
	b.Run("by hand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := EncodeData(d); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := reflected(d); err != nil {
				b.Fatal(err)
			}
		}
	})
}
