package input

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/shared/must"
)

func TestIsPlainAddress(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"a@example.com", "first.last@sub.example.org", "plus+tag@example.com", "o'hara@example.ie", "x_y-z@example.co.uk", "ü@example.com", "1@2.de",
	} {
		must.Hold(t, isPlainAddress(good), "%q is refused", good)
	}
	for _, bad := range []string{
		"", "a", "@", "a@", "@example.com", "a@example", "a@@example.com", "a b@example.com", "a@exa mple.com", "A <a@example.com>", "<a@example.com>",
		`"a b"@example.com`, "a@[127.0.0.1]", "a@example.com, b@example.com", "a@example.com\n", "a\x00@example.com", "a@example.com (comment)",
		"a\u200b@example.com", "a\u202e@example.com", "a\u00a0b@example.com", "a@ex\u00adample.com", "a@example.com\u2060", "\u212aim@example.com",
		"a@.com", "a@example..com", ".a@example.com", "a@example.com.", "a@-.", strings.Repeat("@", 50),
	} {
		must.Hold(t, !isPlainAddress(bad), "%q is taken for an address", bad)
	}
}

func FuzzEmail(f *testing.F) {
	f.Add("a@example.com")
	f.Add(`"quoted"@example.com`)
	f.Fuzz(func(t *testing.T, text string) {
		if !isPlainAddress(text) {
			return
		}
		if strings.Count(text, "@") != 1 || strings.ContainsFunc(text, unicode.IsSpace) || strings.ContainsFunc(text, unicode.IsControl) || !utf8.ValidString(text) {
			t.Errorf("%q is taken for an address", text)
		}
	})
}

// TestUsernameLikeAKeys shows contract 2.3: nobody is called like what a key's deeds are told under.
func TestUsernameLikeAKeys(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]bool{
		"API key X": true, "api KEY x": true, "API  key": true, "apikeys": true, "my API key": false, "coldaisle": false,
	} {
		given := Username(name)
		must.Equal(t, name, refused, len(given.Resolve(nil, huma.NewPathBuffer(nil, 0))) > 0)
	}
}

func TestPasswordRules(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Passw0rd":                               "",
		"Пароль123":                              "",
		"passw0rd":                               "must contain an uppercase letter",
		"12345678":                               "must contain an uppercase letter, a lowercase letter",
		"--------":                               "must contain an uppercase letter, a lowercase letter, a digit",
		"Aa0" + strings.Repeat("x", 69):          "",
		"Aa0" + strings.Repeat("x", 70):          "must be at most 72 bytes",
		"aa0" + strings.Repeat("x", 70):          "must contain an uppercase letter; must be at most 72 bytes",
		"Aa0" + strings.Repeat("\U0001f511", 18): "must be at most 72 bytes",
	} {
		given := Password(text)
		var got []string
		for _, fault := range given.Resolve(nil, huma.NewPathBuffer(nil, 0)) {
			detail, ok := fault.(huma.ErrorDetailer)
			if !ok {
				t.Fatalf("%T", fault)
			}
			got = append(got, detail.ErrorDetail().Message)
		}
		must.Equal(t, fmt.Sprintf("%q", text), want, strings.Join(got, "; "))
	}
}

// TestTimestamp shows contract 1.1.
func TestTimestamp(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-03-01T12:00:00Z":           noon,
		"2026-03-01T12:00:00":            noon,
		"2026-03-01T13:00:00+01:00":      noon,
		"2026-03-01":                     noon.Add(-12 * time.Hour),
		"2026-03-01T12:00:00.25Z":        noon.Add(250 * time.Millisecond),
		"2026-03-01T12:00:00.25":         noon.Add(250 * time.Millisecond),
		"2026-03-01T12:00:00.000001Z":    noon.Add(time.Microsecond),
		"2026-02-28T23:00:00.5-13:00":    noon.Add(500 * time.Millisecond),
		"2026-03-01T12:00:00.000000000Z": noon,
		"2026-07-01T12:00:00+02:00":      time.Date(2026, 7, 1, 10, 0, 0, 0, time.UTC),
		"2026-03-02T11:59:00+23:59":      noon,
		"0000-01-01T00:00:00Z":           time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC),
		"9999-12-31T23:59:59Z":           time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	} {
		got, local, err := parseTimestamp(text)
		must.Hold(t, err == nil && got.Equal(want) && local != regexp.MustCompile(`Z|[-+]\d\d:\d\d$`).MatchString(text),
			"%q: %v, local %t, %v, want %v", text, got, local, err, want)
	}
	for _, text := range []string{
		"", "yesterday", "1772366400", "2026-13-01", "2026-02-30T00:00:00Z", "2026-03-01T25:00:00Z", "2026-03-01T12:00:00Zjunk",
		"2026-03-01T24:00:00Z", "2026-03-01T12:00Z", "2026-03-01T12Z", "20260301T120000Z", "20260301", "2026-03-01T", "2026-03-01 ",
		"2026-03-01 12:00:00Z", "2026-03-01t12:00:00z", "2026-03-01T12:00:00+0100", "2026-03-01T12:00:00+01", "2026-03-01T13:00:00 01:00",
		"9999-12-31T23:59:59-12:00", "2026-03-01T12:00:00+24:00", "2026-03-01T12:00:00-24:00", "0000-01-01T00:00:00+14:00", "2026-03-01ZT00:00:00Z",
	} {
		got, _, err := parseTimestamp(text)
		must.Hold(t, err != nil, "%q is taken for %v", text, got)
	}
}

func FuzzTimestamp(f *testing.F) {
	f.Add("2026-03-01T12:00:00Z")
	f.Fuzz(func(t *testing.T, text string) {
		parsed, _, err := parseTimestamp(text)
		if err != nil {
			return
		}
		encoded, err := json.Marshal(parsed)
		if err != nil {
			t.Fatalf("%q is taken, and cannot be answered: %v", text, err)
		}
		var again Timestamp
		err = json.Unmarshal(encoded, &again)
		must.Hold(t, err == nil && again.Equal(parsed), "%q reads as %v, which reads as %v (%v)", text, parsed, again, err)
	})
}
