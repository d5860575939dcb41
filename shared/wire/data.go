// Package wire encodes and decodes the JSON messages of the topics data, alerts
// and model-retraining for the gateway, the functions and the API.
//
// Encoders write the canonical form. Decoders also accept id for
// message_id and a missing timestamp (contract 9.2), and refuse everything else
// with an error that names the field; a refused message can never succeed, so
// consumers send it to the dead letter.
package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"coldaisle.dev/shared/reading"
)

// NodeIDAttribute is the Pub/Sub attribute of topic data that names the node.
const NodeIDAttribute = "node_id"

// Data is a message of topic data: a reading and the readings of the same node
// that came before it.
type Data struct {
	Reading reading.Reading
	Recent  reading.Window
}

type readingJSON struct {
	MessageID   string    `json:"message_id,omitzero"`
	ID          string    `json:"id,omitzero"`
	NodeID      string    `json:"node_id"`
	Temperature *float64  `json:"temperature,omitzero"`
	Humidity    *float64  `json:"humidity,omitzero"`
	Timestamp   time.Time `json:"timestamp,omitzero"`
}

type windowJSON struct {
	Age         []float64 `json:"age_s"`
	Temperature column    `json:"temperature"`
	Humidity    column    `json:"humidity"`
}

// column is a list of values, null where one is missing.
type column []float64

// UnmarshalJSON implements [json.Unmarshaler]. A pointer per value would cost every window,
// so only those that lack some are decoded so.
func (c *column) UnmarshalJSON(encoded []byte) error {
	if !bytes.Contains(encoded, []byte("null")) {
		return json.Unmarshal(encoded, (*[]float64)(c)) //nolint:wrapcheck // the window is dropped
	}
	var values []*float64
	err := json.Unmarshal(encoded, &values)
	for _, value := range values {
		*c = append(*c, reading.Value(value))
	}
	return err //nolint:wrapcheck // the window is dropped
}

// of returns the column of a window of n readings, which is absent if it has no value.
func (c column) of(n int) []float64 {
	if c == nil {
		return slices.Repeat([]float64{reading.Missing()}, n)
	}
	return c
}

// EncodeData writes the canonical form of a message of topic data: without the values that
// are missing. It fails only on infinity, which JSON cannot represent.
func EncodeData(d Data) ([]byte, error) {
	d.Reading.Temperature, d.Reading.Humidity = d.Reading.Temperature+0, d.Reading.Humidity+0 // 0 for -0
	encoded, err := json.Marshal(readingJSON{
		MessageID: d.Reading.MessageID, NodeID: d.Reading.NodeID,
		Temperature: reading.Pointer(d.Reading.Temperature), Humidity: reading.Pointer(d.Reading.Humidity), Timestamp: reading.TruncateTime(d.Reading.Time),
	})
	if err == nil && d.Recent.Len() > 0 {
		encoded, err = appendWindow(encoded[:len(encoded)-1], d.Recent)
	}
	if err != nil {
		return nil, fmt.Errorf("encode reading of %s: %w", d.Reading.NodeID, err)
	}
	return encoded, nil
}

// appendWindow appends the window and the closing brace. A window has up to 360 numbers, for
// which encoding/json takes four times as long (BenchmarkEncodeData).
func appendWindow(buf []byte, w reading.Window) (_ []byte, err error) {
	buf = slices.Grow(buf, 64+20*w.Len())
	for i, column := range [][]float64{w.Age, w.Temperature, w.Humidity} {
		if !slices.ContainsFunc(column, reading.Has) {
			continue
		}
		buf = append(buf, [...]string{`,"recent":{"age_s":`, `,"temperature":`, `,"humidity":`}[i]...)
		if buf, err = appendNumbers(buf, column); err != nil {
			return nil, err
		}
	}
	return append(buf, "}}"...), nil
}

// appendNumbers writes a list as encoding/json does, and null for a missing value. Numbers of two decimals, as a window's
// are, are written as whole hundredths.
func appendNumbers(buf []byte, values []float64) ([]byte, error) {
	const digits = "0123456789"
	buf = append(buf, '[')
	for i, value := range values {
		if i > 0 {
			buf = append(buf, ',')
		}
		if !reading.Has(value) {
			buf = append(buf, "null"...)
			continue
		}
		hundredths := math.RoundToEven(value * 100)
		if math.Abs(hundredths) >= 1e9 || hundredths/100 != value {
			encoded, err := json.Marshal(value)
			if err != nil {
				return nil, fmt.Errorf("number %g: %w", value, err)
			}
			buf = append(buf, encoded...)
			continue
		}
		whole := int64(math.Abs(hundredths))
		if hundredths < 0 {
			buf = append(buf, '-')
		}
		buf = strconv.AppendInt(buf, whole/100, 10)
		if fraction := whole % 100; fraction%10 > 0 {
			buf = append(buf, '.', digits[fraction/10], digits[fraction%10])
		} else if fraction > 0 {
			buf = append(buf, '.', digits[fraction/10])
		}
	}
	return append(buf, ']'), nil
}

// DecodeData reads a message of topic data. published is the push message's
// publish time, by which the reading is dated, see [reading.Dated].
func DecodeData(encoded []byte, published time.Time) (Data, error) {
	r, recent, err := DecodeReading(encoded, func(stamped time.Time) (time.Time, error) { return reading.Dated(stamped, published), nil })
	if err != nil {
		return Data{}, err
	}
	return Data{Reading: r, Recent: DecodeWindow(recent)}, nil
}

// DecodeReading decodes a message of topic data without its window, the costly part, which
// [DecodeWindow] decodes. date receives the message's timestamp, zero if it has none.
func DecodeReading(encoded []byte, date func(stamped time.Time) (time.Time, error)) (r reading.Reading, recent json.RawMessage, err error) {
	var in struct {
		readingJSON

		Recent json.RawMessage `json:"recent"`
	}
	if err := json.Unmarshal(encoded, &in); err != nil {
		return reading.Reading{}, nil, fmt.Errorf("decode reading: %w", err)
	}
	r, err = in.reading(date)
	return r, in.Recent, err
}

// DecodeWindow decodes the window of a message. A malformed or invalid window is dropped and
// its reading kept: detection can do without features, but no reading may be lost.
func DecodeWindow(recent json.RawMessage) reading.Window {
	var in windowJSON
	window := func() reading.Window {
		return reading.Window{Age: in.Age, Temperature: in.Temperature.of(len(in.Age)), Humidity: in.Humidity.of(len(in.Age))}
	}
	if len(recent) == 0 || json.Unmarshal(recent, &in) != nil || window().Validate() != nil {
		return reading.Window{}
	}
	return window()
}

// reading validates the decoded fields and fills in time and message id.
func (in readingJSON) reading(date func(stamped time.Time) (time.Time, error)) (reading.Reading, error) {
	at, err := date(in.Timestamp)
	if err != nil {
		return reading.Reading{}, err
	}
	r := reading.Reading{
		NodeID:      in.NodeID,
		MessageID:   in.MessageID,
		Time:        at,
		Temperature: reading.Value(in.Temperature),
		Humidity:    reading.Value(in.Humidity),
	}
	if r.MessageID == "" {
		r.MessageID = in.ID
	}
	if err := r.Validate(); err != nil {
		return reading.Reading{}, fmt.Errorf("decode reading: %w", err)
	}
	return r, nil
}
