package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// moment is a time that a caller gives: ISO 8601, UTC where it has no offset.
type moment struct{ time.Time }

var errMoment = errors.New("must be a time in ISO 8601, such as 2026-03-01T12:00:00Z")

// Schema describes a time. It has no format date-time: that would demand an
// offset.
func (moment) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type:        huma.TypeString,
		MaxLength:   new(40),
		Description: "Time in ISO 8601; UTC where it has no offset.",
		Examples:    []any{"2026-03-01T12:00:00Z"},
	}
}

// UnmarshalText reads a time of a query.
func (m *moment) UnmarshalText(text []byte) error {
	parsed, err := parseMoment(string(text))
	if err != nil {
		return err
	}
	m.Time = parsed
	return nil
}

// UnmarshalJSON reads a time of a body.
func (m *moment) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("%w", errMoment)
	}
	return m.UnmarshalText([]byte(text))
}

func parseMoment(text string) (time.Time, error) {
	// A plus sign that a caller forgot to escape in a query arrives as a space.
	if date, clock, ok := strings.Cut(text, "T"); ok && strings.Count(clock, " ") == 1 {
		text = date + "T" + strings.Replace(clock, " ", "+", 1)
	}
	for _, layout := range [...]string{
		time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04Z07:00", "2006-01-02T15:04",
		"2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05Z07", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05", "2006-01-02",
	} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, errMoment
}

// ordered refuses the range of a query that ends before it starts. A time that
// is not given bounds nothing.
func ordered(start, end moment) []error {
	if start.IsZero() || end.IsZero() || !end.Before(start.Time) {
		return nil
	}
	return []error{&huma.ErrorDetail{Location: "query.end_time", Message: "must not be before start_time"}}
}
