package rest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/v1"

	"coldaisle.dev/shared/strictjson"
)

func jsonFormat() huma.Format {
	return huma.Format{Marshal: writeJSON, Unmarshal: readJSON}
}

// writeJSON writes a value and a line end; '<', '>' and '&' stay readable.
func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// Encode is writeJSON into memory, without the line end.
func Encode(value any) ([]byte, error) {
	var buffer bytes.Buffer
	if err := writeJSON(&buffer, value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), nil
}

// malformedJSON is the prefix of the detail for a body that is not JSON.
const malformedJSON = "malformed JSON"

// readJSON reads a body. huma reads each twice, first as a plain value to
// validate it and then into the operation's type. Its errors name the field and
// the rule that it breaks, and never a type of ours.
func readJSON(data []byte, into any) error {
	if whole, ok := into.(*any); ok {
		return readPlain(data, whole)
	}
	err := strictjson.Unmarshal(data, into)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		// encoding/json rejects 1.0 and 1e2 as integers, but writes them as 1 and 100.
		var plain any
		_ = json.Unmarshal(data, &plain)  // it was read before
		spelled, _ := json.Marshal(plain) // it comes from JSON
		err = strictjson.Unmarshal(spelled, into)
	}
	if typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s: unexpected %s", indexes.ReplaceAllString(typeErr.Field, ""), typeErr.Value)
	}
	return malformed(err)
}

// indexes matches list indexes in the path of a field, which is reported without them.
var indexes = regexp.MustCompile(`\.\d+\b`)

// readPlain reads a body as maps, lists, texts and numbers. It refuses what encoding/json
// would replace or lose.
func readPlain(data []byte, into *any) error {
	err := strictjson.Unmarshal(data, into, strictjson.Unicode())
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return errors.New("request body: number is out of range")
	}
	if errors.Is(err, strictjson.ErrUnicode) {
		return fmt.Errorf("request body: %w", err)
	}
	return malformed(err)
}

// malformed marks an error of a body's syntax, unless the error names a field.
func malformed(err error) error {
	if err == nil || errors.Is(err, strictjson.ErrTwice) {
		return err
	}
	return fmt.Errorf(malformedJSON+": %w", err)
}

// Time is a time in an answer: RFC 3339 in UTC, with six fractional digits, or none for a
// whole second (contract 1.1).
type Time struct{ time.Time }

// UTC returns a time for an answer.
func UTC(at time.Time) Time { return Time{at.UTC()} }

// OrNull is null for a zero value.
func OrNull[T comparable](value T) *T {
	if value == *new(T) {
		return nil
	}
	return &value
}

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
