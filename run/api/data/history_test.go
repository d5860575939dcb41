package data

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// TestCSVCells writes the identifiers and numbers that a spreadsheet could take
// for formulas. Contract 5.4.
func TestCSVCells(t *testing.T) {
	t.Parallel()
	rows := readingRows("-2:A1", true, false)
	text := string(rows.Append([]byte(rows.Begin), reading.Reading{Time: time.Unix(0, 0), Temperature: -12.5, Humidity: 1e-7}))
	records := must.Get(csv.NewReader(strings.NewReader(text)).ReadAll())(t)
	if got := records[1]; got[0] != "'-2:A1" || got[2] != "-12.5" || got[3] != "0.0000001" {
		t.Errorf("cells %q", got)
	}
	buckets := bucketRows("node-1", true)
	text = string(buckets.Append([]byte(buckets.Begin), readings.Bucket{Stats: readings.Stats{Count: 2}}))
	must.Equal(t, text, 2, len(must.Get(csv.NewReader(strings.NewReader(text)).ReadAll())(t)))
}

func BenchmarkHistoryEncoding(b *testing.B) {
	rows := readingRows("node-1", false, false)
	r := reading.Reading{Time: time.Date(2026, 3, 1, 12, 0, 0, 250_000_000, time.UTC), Temperature: 24.31, Humidity: 41.27}
	b.Run("append", func(b *testing.B) {
		var buffer []byte
		b.ReportAllocs()
		for b.Loop() {
			buffer = rows.Append(buffer[:0], r)
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		encoder := json.NewEncoder(io.Discard)
		b.ReportAllocs()
		for b.Loop() {
			must.Do(b, encoder.Encode(readingOf(r)))
		}
	})
}
