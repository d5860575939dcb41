package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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

// encode is writeJSON into memory, without the line end.
func encode(value any) ([]byte, error) {
	var buffer bytes.Buffer
	if err := writeJSON(&buffer, value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), nil
}

// malformedJSON begins the detail of a body that is not JSON.
const malformedJSON = "malformed JSON"

// readJSON reads a body. huma reads each twice, first as a plain value to
// validate it and then into the operation's type. Go matches names of fields
// without regard to case, so {"name": "ok", "NAME": "…"} could have one value
// validated and the other used: such a body is refused.
func readJSON(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf(malformedJSON+": %w", err)
	}
	if plain, ok := into.(*any); ok {
		return refuseTwins(*plain)
	}
	return nil
}

// refuseTwins reports two fields of one object whose names differ only in case.
func refuseTwins(value any) error {
	switch v := value.(type) {
	case map[string]any:
		seen := make(map[string]struct{}, len(v))
		for name, member := range v {
			folded := fold(name)
			if _, twice := seen[folded]; twice {
				return fmt.Errorf("field %.40q is given twice in different case", folded)
			}
			seen[folded] = struct{}{}
			if err := refuseTwins(member); err != nil {
				return err
			}
		}
	case []any:
		for _, member := range v {
			if err := refuseTwins(member); err != nil {
				return err
			}
		}
	}
	return nil
}

// fold brings names that encoding/json would take for one another to one form:
// lower case of upper case also unites the letters 'ſ' and 'K' with s and k.
func fold(name string) string { return strings.ToLower(strings.ToUpper(name)) }
