package rest

import (
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Time is a time in an answer: RFC 3339 in UTC, with six fractional digits, or none for a
// whole second (contract 1.1).
type Time struct{ time.Time }

// UTC returns a time for an answer.
func UTC(at time.Time) Time { return Time{at.UTC()} }

// OptionalUTC returns a time for an answer that may be missing.
func OptionalUTC(at *time.Time) *Time {
	if at == nil {
		return nil
	}
	return new(UTC(*at))
}

// Date returns a day for a field with the format date; nil if there is none.
func Date(at *time.Time) *string {
	if at == nil {
		return nil
	}
	return new(at.Format(time.DateOnly))
}

// Schema describes a time.
func (Time) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time"}
}

// MarshalJSON implements [json.Marshaler].
func (t Time) MarshalJSON() ([]byte, error) {
	return append(AppendTime(append(make([]byte, 0, len(`"2006-01-02T15:04:05.000000Z"`)), '"'), t.Time), '"'), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (t *Time) UnmarshalJSON(data []byte) error {
	return t.Time.UnmarshalJSON(data) //nolint:wrapcheck // stands for the time itself
}

// AppendTime writes a time as [Time] does.
func AppendTime(b []byte, at time.Time) []byte {
	layout := "2006-01-02T15:04:05.000000Z"
	if at.Nanosecond() < int(time.Microsecond) {
		layout = "2006-01-02T15:04:05Z"
	}
	return at.UTC().AppendFormat(b, layout)
}
