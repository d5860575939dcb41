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
func appendData(to []byte, d Data) ([]byte, error) {
	var err error
	to = append(to, `{"message_id":`...)
	to = appendText(to, d.Reading.MessageID)
	to = append(to, `,"node_id":`...)
	to = appendText(to, d.Reading.NodeID)
	to = append(to, `,"temperature":`...)
	if to, err = appendNumber(to, d.Reading.Temperature); err != nil {
		return nil, err
	}
	to = append(to, `,"humidity":`...)
	if to, err = appendNumber(to, d.Reading.Humidity); err != nil {
		return nil, err
	}
	if at := reading.Instant(d.Reading.Time); !at.IsZero() {
		to = append(to, `,"timestamp":"`...)
		to = at.AppendFormat(to, time.RFC3339Nano)
		to = append(to, '"')
	}
	if d.Recent.Len() > 0 {
		to = append(to, `,"recent":{"age_s":`...)
		if to, err = appendNumbers(to, d.Recent.Age); err != nil {
			return nil, err
		}
		to = append(to, `,"temperature":`...)
		if to, err = appendNumbers(to, d.Recent.Temperature); err != nil {
			return nil, err
		}
		to = append(to, `,"humidity":`...)
		if to, err = appendNumbers(to, d.Recent.Humidity); err != nil {
			return nil, err
		}
		to = append(to, '}')
	}
	return append(to, '}'), nil
}

// appendText writes a JSON string; identifiers rarely need escaping.
func appendText(to []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			escaped, _ := json.Marshal(text) //nolint:errchkjson // a string has a JSON form always
			return append(to, escaped...)
		}
	}
	to = append(to, '"')
	to = append(to, text...)
	return append(to, '"')
}

func appendNumbers(to []byte, values []float64) ([]byte, error) {
	to = append(to, '[')
	for i, value := range values {
		if i > 0 {
			to = append(to, ',')
		}
		var err error
		if to, err = appendNumber(to, value); err != nil {
			return nil, err
		}
	}
	return append(to, ']'), nil
}

// appendNumber writes a number so that reading it back gives the same one. Those
// of at most two decimals are written as whole hundredths.
func appendNumber(to []byte, value float64) ([]byte, error) {
	hundredths := math.RoundToEven(value * 100) // one instruction, which Round is not
	if math.Abs(hundredths) >= 1e9 || hundredths/100 != value {
		encoded, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("number %g: %w", value, err)
		}
		return append(to, encoded...), nil
	}
	n := int32(hundredths)
	if n < 0 {
		to = append(to, '-')
		n = -n
	}
	switch whole := n / 100; {
	case whole < 10:
		to = append(to, digit(whole))
	case whole < 100:
		to = append(to, digit(whole/10), digit(whole%10))
	default:
		to = strconv.AppendInt(to, int64(whole), 10)
	}
	if fraction := n % 100; fraction > 0 {
		to = append(to, '.', digit(fraction/10))
		if last := fraction % 10; last > 0 {
			to = append(to, digit(last))
		}
	}
	return to, nil
}

// digit is the character of 0 to 9.
func digit(n int32) byte { return byte('0' + n) } //nolint:gosec // it is one digit
