package input

import (
	"fmt"
	"strings"
	"testing"
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
		if !isPlainAddress(good) {
			t.Errorf("%q is refused", good)
		}
	}
	for _, bad := range []string{
		"", "a", "@", "a@", "@example.com", "a@example", "a@@example.com", "a b@example.com", "a@exa mple.com", "A <a@example.com>", "<a@example.com>",
		`"a b"@example.com`, "a@[127.0.0.1]", "a@example.com, b@example.com", "a@example.com\n", "a\x00@example.com", "a@example.com (comment)",
		"a@.com", "a@example..com", ".a@example.com", "a@example.com.", "a@-.", strings.Repeat("@", 50),
	} {
		if isPlainAddress(bad) {
			t.Errorf("%q is taken for an address", bad)
		}
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
