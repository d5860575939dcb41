package strictjson_test

import (
	"encoding/json"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/strictjson"
)

func TestUniqueFields(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"a":1,"b":{"a":2},"c":[{"a":3},{"a":4}]}`: "",
		`[1,"a",null,true]`:                         "",
		`"a"`:                                       "",
		`{"a":"b\":1","b":"{","c":""}`:              "",
		`{"a":1,"b":2,"a":1}`:                       `field "a" is given twice`,
		`{"a" : 1, "A" : 2}`:                        `field "a" is given twice`,
		`{"a":1,"\u0061":2}`:                        `field "a" is given twice`,
		`{"s":1,"ſ":2}`:                             `field "s" is given twice`,
		`[{"b":{"c":1,"d":[],"c":2}}]`:              `field "c" is given twice`,
	} {
		got := ""
		if err := strictjson.UniqueFields([]byte(body)); err != nil {
			got = err.Error()
		}
		must.Equal(t, body, want, got)
	}
}

// FuzzUniqueFields compares the scan with a decoder's tokens.
func FuzzUniqueFields(f *testing.F) {
	f.Add(`{"a":[{"b":"\\\"","c":{}}],"B":1}`)
	f.Add(`{"K":"\ud800","k":[[]]}`)
	f.Fuzz(func(t *testing.T, body string) {
		if !json.Valid([]byte(body)) {
			return
		}
		want := hasRepeatedField(json.NewDecoder(strings.NewReader(body)))
		if err := strictjson.UniqueFields([]byte(body)); (err != nil) != want {
			t.Errorf("%q: %v, want an error: %v", body, err, want)
		}
	})
}

func hasRepeatedField(decoder *json.Decoder) bool {
	decoder.UseNumber()
	token, _ := decoder.Token()
	start, ok := token.(json.Delim)
	if !ok {
		return false
	}
	seen, repeated := map[string]bool{}, false
	for decoder.More() {
		if start == '{' {
			token, _ := decoder.Token()
			name, _ := token.(string)
			name = strings.ToLower(strings.ToUpper(name))
			repeated = repeated || seen[name]
			seen[name] = true
		}
		if hasRepeatedField(decoder) {
			repeated = true
		}
	}
	_, _ = decoder.Token()
	return repeated
}

func BenchmarkUniqueFields(b *testing.B) {
	body := []byte(`{"id":"9f2c41d07be6a835","node_id":"rack-1","temperature":24.5,"humidity":41}`)
	b.Run("scan", func(b *testing.B) {
		for b.Loop() {
			_ = strictjson.UniqueFields(body)
		}
	})
	b.Run("decoder", func(b *testing.B) {
		for b.Loop() {
			hasRepeatedField(json.NewDecoder(strings.NewReader(string(body))))
		}
	})
}
