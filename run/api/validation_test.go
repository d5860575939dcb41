package api

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/danielgtaylor/huma/v2"
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
		if strings.Count(text, "@") != 1 || strings.ContainsFunc(text, unicode.IsSpace) || strings.ContainsFunc(text, unicode.IsControl) || !isStorableText(text) {
			t.Errorf("%q is taken for an address", text)
		}
	})
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
		given := password(text)
		var got []string
		for _, fault := range given.Resolve(nil, huma.NewPathBuffer(nil, 0)) {
			detail, ok := fault.(huma.ErrorDetailer)
			if !ok {
				t.Fatalf("%T", fault)
			}
			got = append(got, detail.ErrorDetail().Message)
		}
		if strings.Join(got, "; ") != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// FuzzReadJSON shows that what is validated is what is used: the plain value
// and the typed one agree on every field.
func FuzzReadJSON(f *testing.F) {
	f.Add([]byte(`{"name":"a","room_id":1}`))
	f.Add([]byte(`{"name":"a","NAME":"b"}`))
	f.Add([]byte(`{"ſensor_id":"a","sensor_id":"b"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var plain any
		if readJSON(data, &plain) != nil {
			return
		}
		object, ok := plain.(map[string]any)
		if !ok {
			return
		}
		var typed struct {
			Name     any `json:"name"`
			SensorID any `json:"sensor_id"`
			RoomID   any `json:"room_id"`
		}
		if err := readJSON(data, &typed); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		for field, used := range map[string]any{"name": typed.Name, "sensor_id": typed.SensorID, "room_id": typed.RoomID} {
			var validated any
			for name, value := range object {
				if strings.EqualFold(name, field) {
					validated = value
				}
			}
			want, _ := json.Marshal(validated)
			got, _ := json.Marshal(used)
			if string(want) != string(got) {
				t.Errorf("%s: %s is validated as %s and used as %s", data, field, want, got)
			}
		}
	})
}
