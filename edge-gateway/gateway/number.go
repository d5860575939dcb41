package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// number is a JSON number, or a string that holds one: ESPHome and C's printf send
// such. It keeps its fault until [messageRequest.problem] asks for it, so that a fault
// is told with its field and in a fixed order, and the node id of a faulty message is
// known.
type number struct {
	value float64
	given bool
	fault error
}

// maxNumberText is the longest string that is read as a number. More digits than it
// holds do not change a float64 in the range of the hardware.
const maxNumberText = 32

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
	if text[0] == '"' {
		if err := json.Unmarshal(text, &held); err != nil || len(held) > maxNumberText {
			n.fault = errNoNumber
			return nil
		}
		held = strings.TrimSpace(held) // printf pads
	}
	// ParseFloat takes nan, inf, hexadecimals and underscores too.
	strange := func(c rune) bool { return !strings.ContainsRune("+-.0123456789eE", c) }
	var err error
	n.value, err = strconv.ParseFloat(held, 64)
	switch {
	case strings.ContainsFunc(held, strange), errors.Is(err, strconv.ErrSyntax):
		n.fault = errNoNumber
	case err != nil:
		n.fault = errTooLarge
	}
	return nil
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
