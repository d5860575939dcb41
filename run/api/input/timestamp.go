package input

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Timestamp is a time that a caller gives: ISO 8601, UTC where it has no offset
// (contract 1.1).
type Timestamp struct {
	time.Time

	malformed bool // in a body; Resolve says so, and of which field
}

var errTimestamp = errors.New("must be a time in ISO 8601, such as 2026-03-01T12:00:00Z")

// Schema describes a time. It has no format date-time: that would demand an
// offset.
func (Timestamp) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type:        huma.TypeString,
		MaxLength:   new(40),
		Description: "Time in ISO 8601; UTC where it has no offset.",
		Examples:    []any{"2026-03-01T12:00:00Z"},
	}
}

// UnmarshalText reads a time of a query.
func (m *Timestamp) UnmarshalText(text []byte) error {
	parsed, err := parseTimestamp(string(text))
	if err != nil {
		return err
	}
	m.Time = parsed
	return nil
}

// UnmarshalJSON reads a time of a body. Resolve reports a malformed one: an error here
// would not name the field, and the fields after it would not be read.
func (m *Timestamp) UnmarshalJSON(data []byte) error {
	var text string
	m.malformed = json.Unmarshal(data, &text) != nil || m.UnmarshalText([]byte(text)) != nil
	return nil
}

// Resolve rejects a malformed time of a body.
func (m *Timestamp) Resolve(_ huma.Context, path *huma.PathBuffer) []error {
	if !m.malformed {
		return nil
	}
	return []error{&huma.ErrorDetail{Location: path.String(), Message: errTimestamp.Error()}}
}

// The extended and the basic form of ISO 8601. Seconds and minutes may be left out. A
// second may have a fraction, after a point or a comma.
const (
	extendedDate, basicDate = "2006-01-02", "20060102"
	extendedTimes           = "15:04:05 15:04 15"
	basicTimes              = "150405 1504 15"
	offsets                 = "Z07:00 Z0700 Z07"
)

func parseTimestamp(text string) (time.Time, error) {
	// RFC 3339 §5.6 has t and z mean T and Z, and a space in place of the T.
	text = strings.ToUpper(text)
	day, clock, timed := strings.Cut(text, "T")
	if !timed {
		day, clock, timed = strings.Cut(text, " ")
	}
	form, times := extendedDate, extendedTimes
	if !strings.Contains(day, "-") {
		form, times = basicDate, basicTimes
	}
	date, err := time.Parse(form, day)
	if err != nil {
		return time.Time{}, errTimestamp
	}
	if !timed {
		return date, nil
	}
	// A plus sign that a caller forgot to escape in a query arrives as a space.
	clock = strings.Replace(clock, " ", "+", 1)
	// The end of a day is the begin of the next.
	end := strings.HasPrefix(clock, "24")
	if end {
		clock = "00" + clock[2:]
	}
	for form := range strings.FieldsSeq(times) {
		for offset := range strings.FieldsSeq(offsets) {
			for _, layout := range []string{form, form + offset} {
				since, err := time.ParseInLocation(layout, clock, time.UTC)
				if err != nil {
					continue
				}
				if _, offset := since.Zone(); max(offset, -offset) >= 24*60*60 {
					return time.Time{}, errTimestamp // package time takes +24:00
				}
				return atTime(date, since, end)
			}
		}
	}
	return time.Time{}, errTimestamp
}

// atTime puts a date and a time of day, with its offset, together. The end of a
// day has no minutes after it.
func atTime(date, clock time.Time, end bool) (time.Time, error) {
	at := time.Date(date.Year(), date.Month(), date.Day(), clock.Hour(), clock.Minute(), clock.Second(), clock.Nanosecond(), clock.Location())
	if end {
		if clock.Minute() > 0 || clock.Second() > 0 || clock.Nanosecond() > 0 {
			return time.Time{}, errTimestamp
		}
		at = at.AddDate(0, 0, 1)
	}
	at = at.UTC()
	// RFC 3339 has no form for other years, so no answer could say them.
	if at.Year() < 0 || at.Year() > 9999 {
		return time.Time{}, errTimestamp
	}
	return at, nil
}

// CheckRange refuses the range of a query that ends before it starts. A time that
// is not given bounds nothing.
func CheckRange(start, end Timestamp) []error {
	if start.IsZero() || end.IsZero() || !end.Before(start.Time) {
		return nil
	}
	return []error{&huma.ErrorDetail{Location: "query.end_time", Message: "must not be before start_time"}}
}
