package wire

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"coldaisle.dev/shared/reading"
)

// appendData writes a message of topic data. The gateway writes one for each
// reading, with 360 numbers of two decimals at most in its window; written by
// hand, that takes a quarter of encoding/json's time (BenchmarkEncodeData).
func appendData(buf []byte, d Data) ([]byte, error) {
	var err error
	buf = append(buf, `{"message_id":`...)
	buf = appendText(buf, d.Reading.MessageID)
	buf = append(buf, `,"node_id":`...)
	buf = appendText(buf, d.Reading.NodeID)
	buf = append(buf, `,"temperature":`...)
	if buf, err = appendNumber(buf, d.Reading.Temperature); err != nil {
		return nil, err
	}
	buf = append(buf, `,"humidity":`...)
	if buf, err = appendNumber(buf, d.Reading.Humidity); err != nil {
		return nil, err
	}
	if at := reading.TruncateTime(d.Reading.Time); !at.IsZero() {
		buf = append(buf, `,"timestamp":"`...)
		buf = at.AppendFormat(buf, time.RFC3339Nano)
		buf = append(buf, '"')
	}
	if d.Recent.Len() > 0 {
		buf = append(buf, `,"recent":{"age_s":`...)
		if buf, err = appendNumbers(buf, d.Recent.Age); err != nil {
			return nil, err
		}
		buf = append(buf, `,"temperature":`...)
		if buf, err = appendNumbers(buf, d.Recent.Temperature); err != nil {
			return nil, err
		}
		buf = append(buf, `,"humidity":`...)
		if buf, err = appendNumbers(buf, d.Recent.Humidity); err != nil {
			return nil, err
		}
		buf = append(buf, '}')
	}
	return append(buf, '}'), nil
}

// appendText writes a JSON string; identifiers rarely need escaping.
func appendText(buf []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			escaped, _ := json.Marshal(text) //nolint:errchkjson // a string has a JSON form always
			return append(buf, escaped...)
		}
	}
	buf = append(buf, '"')
	buf = append(buf, text...)
	return append(buf, '"')
}

func appendNumbers(buf []byte, values []float64) ([]byte, error) {
	buf = append(buf, '[')
	for i, value := range values {
		if i > 0 {
			buf = append(buf, ',')
		}
		var err error
		if buf, err = appendNumber(buf, value); err != nil {
			return nil, err
		}
	}
	return append(buf, ']'), nil
}

// appendNumber writes a number so that reading it back gives the same one. Those
// of at most two decimals are written as whole hundredths.
func appendNumber(buf []byte, value float64) ([]byte, error) {
	hundredths := math.RoundToEven(value * 100) // one instruction, which Round is not
	if math.Abs(hundredths) >= 1e9 || hundredths/100 != value {
		encoded, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("number %g: %w", value, err)
		}
		return append(buf, encoded...), nil
	}
	n := int32(hundredths)
	if n < 0 {
		buf = append(buf, '-')
		n = -n
	}
	switch whole := n / 100; {
	case whole < 10:
		buf = append(buf, digit(whole))
	case whole < 100:
		buf = append(buf, digit(whole/10), digit(whole%10))
	default:
		buf = strconv.AppendInt(buf, int64(whole), 10)
	}
	if fraction := n % 100; fraction > 0 {
		buf = append(buf, '.', digit(fraction/10))
		if last := fraction % 10; last > 0 {
			buf = append(buf, digit(last))
		}
	}
	return buf, nil
}

// digit is the character of 0 to 9.
func digit(n int32) byte { return byte('0' + n) } //nolint:gosec // it is one digit
