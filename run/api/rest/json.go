package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/shared/strictjson"
)

// jsonFormat is how bodies are read and written.
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

// malformedJSON begins the detail of a body that is not JSON.
const malformedJSON = "malformed JSON"

// readJSON reads a body. huma reads each twice, first as a plain value to
// validate it and then into the operation's type. Its errors name the field and
// the rule that it breaks, and never a type of ours.
func readJSON(data []byte, into any) error {
	if whole, ok := into.(*any); ok {
		return readPlain(data, whole)
	}
	err := json.Unmarshal(data, into)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		// encoding/json rejects 1.0 and 1e2 as integers, but writes them as 1 and 100.
		var plain any
		_ = json.Unmarshal(data, &plain)  // it was read before
		spelled, _ := json.Marshal(plain) // it comes from JSON
		err = json.Unmarshal(spelled, into)
	}
	if typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s: unexpected %s", embedded.ReplaceAllString(typeErr.Field, ""), typeErr.Value)
	}
	if err != nil {
		return fmt.Errorf(malformedJSON+": %w", err)
	}
	return nil
}

// embedded finds the names of embedded structs, which encoding/json adds to the path of
// a field. They alone begin with a capital: names in JSON are written in snake case.
var embedded = regexp.MustCompile(`\b[A-Z]\w*\.`)

// readPlain reads a body as maps, lists, texts and numbers. It refuses what encoding/json
// would replace or lose.
func readPlain(data []byte, into *any) error {
	err := json.Unmarshal(data, into)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return errors.New("request body: number is out of range")
	}
	if err != nil {
		return fmt.Errorf(malformedJSON+": %w", err)
	}
	if !isUnicode(data) {
		return errors.New("request body: expected text in UTF-8, without lone surrogates")
	}
	return strictjson.UniqueFields(data)
}

// escapes finds the escapes in a JSON text: surrogate pairs, lone surrogates, and the first
// two characters of any other.
var escapes = regexp.MustCompile(`\\u[dD][89abAB][[:xdigit:]]{2}\\u[dD][c-fC-F][[:xdigit:]]{2}|\\u[dD][89a-fA-F][[:xdigit:]]{2}|\\.`)

// isUnicode reports whether every string in a JSON text is valid Unicode. encoding/json
// replaces anything else with U+FFFD.
func isUnicode(data []byte) bool {
	for _, escape := range escapes.FindAll(data, -1) {
		if len(escape) == len(`\ud800`) {
			return false
		}
	}
	return utf8.Valid(data)
}
