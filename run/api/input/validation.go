// Package input has the types of input: times, e-mail addresses, names, passwords, ids.
// huma derives both the check of a request and its description in the OpenAPI document
// from a type; rules that JSON Schema cannot express are in its Resolve method. The
// package knows neither the store nor answers.
package input

import (
	"fmt"
	"net/mail"
	"strings"
	"unicode"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/shared/reading"
)

// Check returns the error of a field, unless it is valid.
func Check(valid bool, location, message string) []error {
	if valid {
		return nil
	}
	return []error{&huma.ErrorDetail{Location: location, Message: message}}
}

// MaxPasswordBytes is the most that bcrypt reads (contract 2.9): it would accept a longer
// password by its first 72 bytes.
const MaxPasswordBytes = 72

// InvalidEmail is the whole detail of an address that is refused (contract 2.2).
const InvalidEmail = "Invalid email format"

// Email is a customer's address.
type Email string

// TransformSchema describes an address.
func (Email) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Format = "email"
	s.MaxLength = new(120)
	s.Examples = []any{"ops@example.com"}
	s.Description = "E-mail address; compared without regard to case."
	return s
}

// Resolve refuses what the grammar of message headers allows besides a plain address: display names, comments,
// quoted local parts, hosts without a domain. Nor may it have what makes two look alike: invisible characters, or
// signs such as that of kelvin, whose small letter is ASCII's.
func (e *Email) Resolve(_ huma.Context, path *huma.PathBuffer) []error {
	return Check(*e == "" || isPlainAddress(string(*e)), path.String(), InvalidEmail)
}

func isPlainAddress(text string) bool {
	deceives := func(r rune) bool { return isInvisible(r) || r > 'z' && unicode.ToLower(r) <= 'z' }
	parsed, err := mail.ParseAddress(text)
	if err != nil || parsed.Address != text || strings.ContainsAny(text, "\"<>()[]\\ ,;") || strings.ContainsFunc(text, deceives) {
		return false
	}
	_, domain, _ := strings.Cut(text, "@")
	return strings.Contains(domain, ".")
}

// Username is a customer's chosen name.
type Username string

// TransformSchema describes a user name.
func (Username) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.MinLength, s.MaxLength = new(6), new(12)
	s.Pattern, s.PatternDescription = usernamePattern, usernameDescription
	s.Examples = []any{"coldaisle"}
	s.Description = "Unique name, compared without regard to case: 6 to 12 printable characters, without spaces at either end or characters of no width."
	return s
}

// The pattern has the part of the rule that it can express, for ASCII; Resolve has the rest.
const (
	usernamePattern     = `^[^\x00-\x20\x7f]([^\x00-\x1f\x7f]*[^\x00-\x20\x7f])?$`
	usernameDescription = "printable characters without spaces at either end or characters of no width"
)

// Resolve refuses invisible characters, with which two customers could have names that look
// alike, and names that begin like an API key's: the actions of a key are shown under
// "API key" and its name (contract 2.3).
func (u *Username) Resolve(_ huma.Context, path *huma.PathBuffer) []error {
	ofKey := strings.HasPrefix(strings.ToLower(strings.ReplaceAll(string(*u), " ", "")), "apikey")
	return append(
		Check(!ofKey, path.String(), "must not begin like the name of an API key"),
		Check(!strings.ContainsFunc(string(*u), isInvisible), path.String(), "expected string to be "+usernameDescription)...)
}

// PersonName is a person's name for everybody else.
type PersonName string

// TransformSchema describes a person's name.
func (PersonName) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.MinLength, s.MaxLength = new(2), new(80)
	s.Pattern, s.PatternDescription = usernamePattern, usernameDescription
	s.Examples = []any{"Ana"}
	s.Description = "What everybody is shown: 2 to 80 printable characters, without spaces at either end or characters of no width."
	return s
}

// Resolve refuses the same as for user names, for the same reasons.
func (n *PersonName) Resolve(ctx huma.Context, path *huma.PathBuffer) []error {
	return (*Username)(n).Resolve(ctx, path)
}

// isInvisible reports a character by which two texts that look alike could differ.
func isInvisible(r rune) bool { return !unicode.IsPrint(r) || isZeroWidth(r) }

// isZeroWidth reports a character without a width of its own: marks on the letter
// before, joiners, variation selectors, fillers, and others that programs need not
// show.
// See https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point.
func isZeroWidth(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) ||
		r == brailleBlank
}

// brailleBlank is the Braille symbol without dots. Unicode does not count it as a
// space, but it looks like one.
const brailleBlank = '\u2800'

// Password is a password being set. It is never written into a response.
type Password string

// TransformSchema describes the rules of a password.
func (Password) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.MinLength, s.MaxLength = new(8), new(MaxPasswordBytes)
	s.Format = "password"
	s.WriteOnly = true
	s.Examples = []any{"Rack42door"}
	s.Description = "At least 8 characters with an uppercase letter, a lowercase letter and a digit; at most 72 bytes in UTF-8."
	return s
}

// Resolve applies the rules that a schema cannot express.
func (p *Password) Resolve(_ huma.Context, path *huma.PathBuffer) []error {
	text := string(*p)
	if text == "" {
		return nil // the schema refuses it
	}
	var rules []string
	if !strings.ContainsFunc(text, unicode.IsUpper) {
		rules = append(rules, "an uppercase letter")
	}
	if !strings.ContainsFunc(text, unicode.IsLower) {
		rules = append(rules, "a lowercase letter")
	}
	if !strings.ContainsFunc(text, unicode.IsDigit) {
		rules = append(rules, "a digit")
	}
	return append(
		Check(len(rules) == 0, path.String(), "must contain "+strings.Join(rules, ", ")),
		Check(len(text) <= MaxPasswordBytes, path.String(), fmt.Sprintf("must be at most %d bytes", MaxPasswordBytes))...)
}

// Names are one line of text, and not blank. PostgreSQL cannot store NUL, and no name of a
// room or rack needs another control character.
const (
	textPattern     = `^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$`
	textDescription = "text without control characters and not blank"
)

// SingleLine is the name of a room or sensor, or a position.
type SingleLine string

// TransformSchema describes a line of text; the field has its lengths.
func (SingleLine) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Pattern, s.PatternDescription = textPattern, textDescription
	return s
}

// Resolve refuses a text without a visible character, and one with a line's end, another control
// character beyond ASCII, or one that reverses the text after it.
func (t *SingleLine) Resolve(_ huma.Context, path *huma.PathBuffer) []error {
	shows := func(r rune) bool { return unicode.IsGraphic(r) && !unicode.IsSpace(r) && !isZeroWidth(r) }
	controls := func(r rune) bool {
		return unicode.IsControl(r) || r >= '\u2028' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
	}
	valid := strings.ContainsFunc(string(*t), shows) && !strings.ContainsFunc(string(*t), controls)
	return Check(valid, path.String(), "expected string to be "+textDescription)
}

// NodeID is the public identifier of a sensor: that of its node hardware.
type NodeID string

// TransformSchema describes an identifier; the rule is the gateway's.
func (NodeID) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.MinLength, s.MaxLength = new(1), new(reading.MaxNodeIDLength)
	s.Pattern = `^([.]{0,2}[A-Za-z0-9_:-]|[.]{3})[A-Za-z0-9._:-]*$`
	s.PatternDescription = "letters, digits, '.', '_', ':' or '-', and not '.' or '..'"
	s.Examples = []any{"esp32-7f3a"}
	s.Description = "Identifier of the node hardware: 1 to 50 letters, digits, '.', '_', ':' or '-'."
	return s
}

// Resolve refuses the id that gateways use for themselves (contract 8.12).
func (n *NodeID) Resolve(_ huma.Context, path *huma.PathBuffer) []error {
	return Check(*n != reading.ProbeNodeID, path.String(), "is reserved")
}

// CustomerPath names the caller.
type CustomerPath struct {
	CustomerID int64 `path:"customer_id" doc:"The caller's own id." example:"7"`
}

// SensorPath takes any text.
type SensorPath struct {
	SensorID string `path:"sensor_id" doc:"Identifier of one of the caller's sensors." example:"esp32-7f3a"`
}

// Resolve empties a text that cannot be an id, which PostgreSQL may not store: no sensor has it, so the answer is 404.
func (p *SensorPath) Resolve(huma.Context) []error {
	if reading.ValidateNodeID(p.SensorID) != nil {
		p.SensorID = ""
	}
	return nil
}
