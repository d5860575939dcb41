package outbox

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

func TestRecordSurvivesTheDisk(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		number := func(low, high float64) float64 {
			if value := rapid.Float64Range(low, high).Draw(t, "number"); rapid.Bool().Draw(t, "exact") {
				return value
			}
			return float64(rapid.IntRange(int(low)*100, int(high)*100).Draw(t, "hundredths")) / 100
		}
		micros := rapid.Int64Range(1e15, 4e15)
		want := Record{
			Reading: reading.Reading{
				NodeID:    rapid.StringMatching(`[a-z0-9:-]{1,50}`).Draw(t, "node"),
				MessageID: rapid.StringMatching(`[ -~]{1,64}`).Draw(t, "id"),
				Time:      time.UnixMicro(micros.Draw(t, "time")).UTC(), Temperature: number(-40, 125), Humidity: number(0, 100),
			},
			Enrolment: rapid.String().Draw(t, "enrolment"),
			Uptime:    time.Duration(rapid.Int64Range(0, 1e15).Draw(t, "uptime")) * time.Microsecond,
		}
		copy(want.Boot[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "boot"))
		for range rapid.IntRange(0, 121).Draw(t, "earlier") {
			want.Earlier = append(want.Earlier, Earlier{
				Time:        time.UnixMicro(micros.Draw(t, "time")).UTC(),
				Temperature: rapid.Int16().Draw(t, "temperature"), Humidity: rapid.Int16().Draw(t, "humidity"),
			})
		}
		appended := time.UnixMicro(micros.Draw(t, "appended")).UTC()
		encoded := appendRecord([]byte("before"), want, appended)
		got, end, ok := record(encoded, int64(len("before")))
		if diff := cmp.Diff(want, got.Record); diff != "" || !ok || end != int64(len(encoded)) || got.Appended != appended {
			t.Fatalf("ok %t, ends at %d of %d, appended %s (-want +got):\n%s", ok, end, len(encoded), got.Appended, diff)
		}
		short := slices.Clip(encoded[len("before") : len(encoded)-1])
		_, _, whole := record(short, 0)
		if _, ok = decodeBody(short[headerSize:]); ok || whole {
			t.Fatal("a record without its last byte is one")
		}
	})
}

// TestNumbersAreShort holds that a number with two decimals takes a few bytes, and each keeps its bits.
func TestNumbersAreShort(t *testing.T) {
	t.Parallel()
	for value, size := range map[float64]int{0: 1, math.Copysign(0, -1): 9, 20.5: 2, -40: 2, 1.0 / 3: 9} {
		encoded := appendNumber(nil, value)
		got := (&bodyReader{rest: encoded}).number()
		if len(encoded) != size || math.Float64bits(got) != math.Float64bits(value) {
			t.Errorf("%g takes %d bytes, want %d, and is read as %g", value, len(encoded), size, got)
		}
	}
}

// FuzzBody holds that what is no record of ours is none, whatever its checksum.
func FuzzBody(f *testing.F) {
	f.Add(appendBody(nil, rec("text")))
	f.Add(appendBody(nil, Record{Earlier: make([]Earlier, 3)}))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, ok := decodeBody(body)
		if !ok {
			return
		}
		must.Do(t, r.Reading.Validate())
		again, ok := decodeBody(appendBody(nil, r))
		if diff := cmp.Diff(r, again); !ok || diff != "" {
			t.Fatalf("ok %t (-read +written and read):\n%s", ok, diff)
		}
	})
}
