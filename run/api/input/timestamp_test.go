package input

import (
	"encoding/json"
	"regexp"
	"testing"
	"time"
)

// TestTimestamp shows contract 1.1.
func TestTimestamp(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-03-01T12:00:00Z":           noon,
		"2026-03-01T12:00:00":            noon,
		"2026-03-01T13:00:00+01:00":      noon,
		"2026-03-01":                     noon.Add(-12 * time.Hour),
		"2026-03-01T12:00:00.25Z":        noon.Add(250 * time.Millisecond),
		"2026-03-01T12:00:00.25":         noon.Add(250 * time.Millisecond),
		"2026-03-01T12:00:00.000001Z":    noon.Add(time.Microsecond),
		"2026-02-28T23:00:00.5-13:00":    noon.Add(500 * time.Millisecond),
		"2026-03-01T12:00:00.000000000Z": noon,
		"2026-07-01T12:00:00+02:00":      time.Date(2026, 7, 1, 10, 0, 0, 0, time.UTC),
		"2026-03-02T11:59:00+23:59":      noon,
		"0000-01-01T00:00:00Z":           time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC),
		"9999-12-31T23:59:59Z":           time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	} {
		got, local, err := parseTimestamp(text)
		if offset := regexp.MustCompile(`Z|[-+]\d\d:\d\d$`).MatchString(text); err != nil || !got.Equal(want) || local == offset {
			t.Errorf("%q: %v, local %t, %v, want %v", text, got, local, err, want)
		}
	}
	for _, text := range []string{
		"", "yesterday", "1772366400", "2026-13-01", "2026-02-30T00:00:00Z", "2026-03-01T25:00:00Z", "2026-03-01T12:00:00Zjunk",
		"2026-03-01T24:00:00Z", "2026-03-01T12:00Z", "2026-03-01T12Z", "20260301T120000Z", "20260301", "2026-03-01T", "2026-03-01 ",
		"2026-03-01 12:00:00Z", "2026-03-01t12:00:00z", "2026-03-01T12:00:00+0100", "2026-03-01T12:00:00+01", "2026-03-01T13:00:00 01:00",
		"9999-12-31T23:59:59-12:00", "2026-03-01T12:00:00+24:00", "2026-03-01T12:00:00-24:00", "0000-01-01T00:00:00+14:00", "2026-03-01ZT00:00:00Z",
	} {
		if got, _, err := parseTimestamp(text); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}

func FuzzTimestamp(f *testing.F) {
	f.Add("2026-03-01T12:00:00Z")
	f.Fuzz(func(t *testing.T, text string) {
		parsed, _, err := parseTimestamp(text)
		if err != nil {
			return
		}
		encoded, err := json.Marshal(parsed)
		if err != nil {
			t.Fatalf("%q is taken, and cannot be answered: %v", text, err)
		}
		var again Timestamp
		if err := json.Unmarshal(encoded, &again); err != nil || !again.Equal(parsed) {
			t.Errorf("%q reads as %v, which reads as %v (%v)", text, parsed, again, err)
		}
	})
}
