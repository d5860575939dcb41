package strictjson_test

import (
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/strictjson"
)

func TestUnmarshal(t *testing.T) {
	t.Parallel()
	type object struct {
		A int            `json:"a"`
		S int            `json:"s"`
		B []object       `json:"b"`
		C map[string]any `json:"c"`
	}
	for body, want := range map[string]string{
		`{"a":1,"b":[{"a":2},{"a":3}],"c":{"a":4,"A":5}}`: "",
		`{"x":"y\":1","y":"{","z":"\ud800"}`:              "",
		`{"a":1,"s":2,"a":1}`:                             `field "a" is given twice`,
		`{"a" : 1, "A" : 2}`:                              `field "a" is given twice`,
		`{"a":1,"\u0061":2}`:                              `field "a" is given twice`,
		`{"x":1,"x":2}`:                                   `field "x" is given twice`, // which is not read
		`{"b":[{"b":[{"c":{"d":1,"e":[],"d":2}}]}]}`:      `field "d" is given twice`,
		`{"a":"1"}`:                                       "json: cannot unmarshal string into Go struct field object.a of type int",
		`{"a":1`:                                          "unexpected end of JSON input",
	} {
		got := ""
		if err := strictjson.Unmarshal([]byte(body), new(object)); err != nil {
			got = err.Error()
		}
		must.Equal(t, body, want, got)
	}
	for body, want := range map[string]error{
		`["\ud83d\ude00", "ü"]`: nil, `["\ud83d"]`: strictjson.ErrUnicode, "[\"\xff\"]": strictjson.ErrUnicode,
	} {
		if err := strictjson.Unmarshal([]byte(body), new(any), strictjson.Unicode()); err != want { //nolint:errorlint // as it is
			t.Errorf("%s: %v, want %v", body, err, want)
		}
	}
}
