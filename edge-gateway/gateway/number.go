package gateway

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/v1"

	"coldaisle.dev/shared/reading"
)

// number is a JSON number, or a string that holds one, as ESPHome and C's printf send
// it. Its error waits for [messageRequest.validate], which reports errors in a fixed order
// and with their field; the node id is decoded by then.
type number struct {
	value float64
	given bool
	err   error
}

// maxNumberText is the longest string that is read as a number. More digits than it
// holds do not change a float64 in the range of the hardware.
const maxNumberText = 32

var errNoNumber = errors.New("must be a number or a string that holds one")

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
			n.err = errNoNumber
			return nil
		}
		held = strings.Trim(held, " ") // printf and dtostrf pad
	}
	// ParseFloat also accepts nan, inf, hexadecimals and underscores.
	strange := func(c rune) bool { return !strings.ContainsRune("+-.0123456789eE", c) }
	value, err := strconv.ParseFloat(held, 64)
	n.value = value
	switch {
	case strings.ContainsFunc(held, strange), errors.Is(err, strconv.ErrSyntax):
		n.err = errNoNumber
	case err != nil:
		n.err = errors.New("is too large a number")
	}
	return nil
}

// orMissing returns the number, [reading.Missing] where none is given.
func (n number) orMissing() float64 {
	if n.given {
		return n.value
	}
	return reading.Missing()
}

func (n number) required(field string) error {
	if !n.given {
		return missing("", field)
	}
	return n.optional(field)
}

func (n number) optional(field string) error {
	if n.err != nil {
		return fmt.Errorf("%s %w", field, n.err)
	}
	return nil
}
