package input

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/shared/maintenance"
	"coldaisle.dev/shared/reading"
)

// Timestamp is a time that a caller gives: RFC 3339, with or without an offset, or a date
// (contract 1.1). Time is the instant, UTC where the text has no offset.
type Timestamp struct {
	time.Time

	local bool  // it has no offset
	err   error // in a body; Resolve reports it with the field
}

var (
	errTimestamp = errors.New("must be a time in ISO 8601, such as 2026-03-01T12:00:00Z")
	errCalendar  = errors.New("must lie between the years 2000 and 2100")
)

// On returns the time in a zone. A time without an offset is the zone's local time; shown reports
// whether the zone's clocks do not skip it.
func (m *Timestamp) On(zone *time.Location) (t time.Time, shown bool) {
	if !m.local {
		return m.In(zone), true
	}
	return maintenance.ByClocks(m.Time, zone)
}

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
	parsed, local, err := parseTimestamp(string(text))
	m.Time, m.local = parsed, local
	return err
}

// UnmarshalJSON reads a time of a body, which is stored and so lies in the calendar. Resolve reports
// one that is not: an error here would not name the field, and the fields after it would not be read.
func (m *Timestamp) UnmarshalJSON(data []byte) error {
	var text string
	switch {
	case json.Unmarshal(data, &text) != nil || m.UnmarshalText([]byte(text)) != nil:
		m.err = errTimestamp
	case !reading.InCalendar(m.Time):
		m.err = errCalendar
	}
	return nil
}

// Refused reports whether Resolve refuses the time of a body.
func (m *Timestamp) Refused() bool { return m.err != nil }

// Resolve refuses the time of a body that is malformed or outside the calendar.
func (m *Timestamp) Resolve(_ huma.Context, path *huma.PathBuffer) []error {
	if m.err == nil {
		return nil
	}
	return []error{&huma.ErrorDetail{Location: path.String(), Message: m.err.Error()}}
}

// parseTimestamp reads a time and reports whether it has no offset.
func parseTimestamp(text string) (at time.Time, local bool, err error) {
	if len(text) == len(time.DateOnly) {
		text += "T00:00:00"
	}
	if err := at.UnmarshalText([]byte(text)); err != nil {
		local = true
		if err := at.UnmarshalText([]byte(text + "Z")); err != nil {
			return time.Time{}, false, errTimestamp
		}
	}
	_, offset := at.Zone()
	at = at.UTC()
	// RFC 3339 has no form for other years, so no answer could have them, and no offset of a day.
	if at.Year() < 0 || at.Year() > 9999 || max(offset, -offset) >= 24*60*60 {
		return time.Time{}, false, errTimestamp
	}
	return at, local, nil
}

// CheckRange refuses the range of a query that ends before it starts. A missing time is no
// bound.
func CheckRange(start, end Timestamp) []error {
	valid := start.IsZero() || end.IsZero() || !end.Before(start.Time)
	return Check(valid, "query.end_time", "must not be before start_time")
}
