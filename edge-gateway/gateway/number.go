package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// number is a JSON number, or a string that holds one in plain decimals, as ESPHome
// sends it. It keeps its fault until [messageRequest.problem] asks for it, so that a
// fault is told with its field and in a fixed order, and the node id of a faulty
// message is known.
type number struct {
	value float64
	given bool
	fault error
}

// maxNumberText is the longest string that is read as a number. More digits than it
// holds do not change a float64 in the range of the hardware.
const maxNumberText = 16

var (
	errNoNumber = errors.New("must be a number or a string that holds one")
	errTooLarge = errors.New("is too large a number")
)

// UnmarshalJSON implements [json.Unmarshaler].
func (n *number) UnmarshalJSON(text []byte) error {
	*n = number{}
	if string(text) == "null" {
		return nil
	}
	n.given = true
	held := string(text)
	if text[0] == '"' && (json.Unmarshal(text, &held) != nil || !plainDecimal(held)) {
		n.fault = errNoNumber
		return nil
	}
	if c := held[0]; c != '-' && (c < '0' || c > '9') {
		n.fault = errNoNumber
		return nil
	}
	var err error
	if n.value, err = strconv.ParseFloat(held, 64); err != nil {
		n.fault = errTooLarge // JSON of a number is in order otherwise
	}
	return nil
}

// plainDecimal reports whether a string is a JSON number without an exponent.
func plainDecimal(text string) bool {
	for i := range len(text) {
		if c := text[i]; c != '-' && c != '.' && (c < '0' || c > '9') {
			return false
		}
	}
	return len(text) <= maxNumberText && json.Valid([]byte(text))
}

// required returns the fault of a number that must be there.
func (n number) required(field string) error {
	if !n.given {
		return missing(true, field)
	}
	return n.problem(field)
}

// problem returns the fault of a number that may be there.
func (n number) problem(field string) error {
	if n.fault != nil {
		return fmt.Errorf("%s %w", field, n.fault)
	}
	return nil
}
