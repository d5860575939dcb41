package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
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
		read, err := readPlain(data)
		*whole = read
		return err
	}
	err := json.Unmarshal(data, into)
	if notInteger(err) {
		err = json.Unmarshal(normalizeIntegers(data), into)
	}
	if typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := embedded.ReplaceAllString(typeErr.Field, "")
		if notInteger(err) {
			return fmt.Errorf("%s: expected an integer of at most 64 bits", field)
		}
		return fmt.Errorf("%s: unexpected %s", field, typeErr.Value)
	}
	if err != nil {
		return fmt.Errorf(malformedJSON+": %w", err)
	}
	return nil
}

// embedded finds the names of embedded structs, which encoding/json adds to the path of
// a field. They alone begin with a capital: names in JSON are written in snake case.
var embedded = regexp.MustCompile(`\b[A-Z]\w*\.`)

// readPlain reads a body as maps, lists, texts and numbers.
func readPlain(data []byte) (any, error) {
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		return nil, fmt.Errorf(malformedJSON+": %w", err)
	}
	if err := refuseTwice(decoderOf(data)); err != nil {
		return nil, err
	}
	return convert(decodeNumbers(data), func(number json.Number) (any, bool) {
		value, err := number.Float64()
		return value, err == nil
	})
}

// refuseTwice refuses a value of which an object has a field twice: one could be
// validated and the other used. So could fields whose names differ only in case, since Go
// matches names without regard to it (contract 1.5). What is read is known to be JSON.
func refuseTwice(decoder *json.Decoder) error {
	token, _ := decoder.Token()
	begun, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	seen := map[string]struct{}{}
	for decoder.More() {
		if begun == '{' {
			token, _ := decoder.Token()
			name, _ := token.(string)
			folded := foldCase(name)
			if _, twice := seen[folded]; twice {
				return fmt.Errorf("field %.40q is given twice", folded)
			}
			seen[folded] = struct{}{}
		}
		if err := refuseTwice(decoder); err != nil {
			return err
		}
	}
	_, _ = decoder.Token() // the end
	return nil
}

// decoderOf keeps numbers as they are written.
func decoderOf(data []byte) *json.Decoder {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	return decoder
}

// decodeNumbers decodes what is known to be JSON, with its numbers as they are
// written.
func decodeNumbers(data []byte) any {
	var value any
	_ = decoderOf(data).Decode(&value)
	return value
}

// convert gives every number of a decoded value another form. It refuses
// numbers that have none.
func convert(value any, number func(json.Number) (any, bool)) (any, error) {
	switch v := value.(type) {
	case json.Number:
		converted, ok := number(v)
		if !ok {
			return nil, ruleError{rule: "number is out of range"}
		}
		return converted, nil
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			converted, err := convert(v[name], number)
			if err != nil {
				return nil, inField(name, err)
			}
			v[name] = converted
		}
	case []any:
		for i, item := range v {
			converted, err := convert(item, number)
			if err != nil {
				return nil, inField("["+strconv.Itoa(i)+"]", err)
			}
			v[i] = converted
		}
	}
	return value, nil
}

// ruleError says which rule is broken, and by which field.
type ruleError struct{ field, rule string }

func (w ruleError) Error() string { return strings.TrimPrefix(w.field+": "+w.rule, ": ") }

// inField adds the name of the enclosing object or list item to the field.
func inField(name string, err error) error {
	broken, ok := errors.AsType[ruleError](err)
	if !ok {
		return err
	}
	if broken.field != "" && broken.field[0] != '[' {
		name += "."
	}
	return ruleError{field: fmt.Sprintf("%.80s", name+broken.field), rule: broken.rule}
}

// notInteger reports a number that encoding/json will not take for an integer:
// it looks at the spelling, and refuses 1e2 and 1.0.
func notInteger(err error) bool {
	typeErr, ok := errors.AsType[*json.UnmarshalTypeError](err)
	return ok && strings.HasPrefix(typeErr.Value, "number") && reflect.Zero(typeErr.Type).CanInt()
}

// normalizeIntegers writes the integers of a body in digits alone, as far as they
// have 64 bits.
func normalizeIntegers(data []byte) []byte {
	value, err := convert(decodeNumbers(data), func(number json.Number) (any, bool) {
		// Enough bits for every integer of 64, and a bound for what 1e999999999 costs.
		exact, _, err := big.ParseFloat(number.String(), 10, 128, big.ToNearestEven)
		if err != nil || !exact.IsInt() {
			return number, true
		}
		if whole, accuracy := exact.Int64(); accuracy == big.Exact {
			return whole, true
		}
		return number, true
	})
	if err != nil {
		return data
	}
	spelled, err := json.Marshal(value)
	if err != nil {
		return data
	}
	return spelled
}

// foldCase maps names that encoding/json treats as equal to one form. Lower case
// of upper case also maps the letters 'ſ' and 'K' to s and k.
func foldCase(name string) string { return strings.ToLower(strings.ToUpper(name)) }
