package rest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"

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
