// Package strictjson reads JSON as encoding/json does, but refuses input that encoding/json
// accepts and that two readers may understand differently. The API and the edge gateway read
// bodies with it.
package strictjson

import (
	"errors"
	"fmt"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/go-json-experiment/json/v1"
)

// Errors of [Unmarshal] beside encoding/json's.
var (
	ErrTwice   = errors.New("is given twice")
	ErrUnicode = errors.New("expected text in UTF-8, without lone surrogates") // with [Unicode]
)

// Options read as encoding/json does, but refuse a field that is given twice. Errors say where.
func Options() jsonv2.Options { return options }

// options are joined once, not for each body.
//
//nolint:gochecknoglobals // it never changes
var options = jsonv2.JoinOptions(json.DefaultOptionsV1(), json.ReportErrorsWithLegacySemantics(false), jsontext.AllowDuplicateNames(false))

// Unicode refuses invalid UTF-8 and surrogates, which encoding/json would read as U+FFFD.
func Unicode() jsonv2.Options { return jsontext.AllowInvalidUTF8(false) }

// Unmarshal refuses a value in which an object has the same field twice: one could be
// validated and the other used. Fields of a struct are the same in whatever case, because
// encoding/json matches them without regard to it. Other errors are encoding/json's.
func Unmarshal(data []byte, into any, more ...jsonv2.Options) error {
	err := jsonv2.Unmarshal(data, into, append([]jsonv2.Options{options}, more...)...)
	if err == nil {
		return nil
	}
	if repeated, ok := errors.AsType[*jsontext.SyntacticError](err); ok && errors.Is(err, jsontext.ErrDuplicateName) {
		return fmt.Errorf("field %.40q %w", strings.ToLower(repeated.JSONPointer.LastToken()), ErrTwice)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return err //nolint:wrapcheck // as encoding/json says it
	}
	return ErrUnicode
}
