package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/strictjson"
)

// FuzzReadJSON shows that what is validated is what is used: the plain value and the typed one agree on every field.
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
		if err := readJSON(data, &typed); errors.Is(err, strictjson.ErrTwice) { // in two cases
			return
		} else if err != nil {
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
			must.Equal(t, fmt.Sprintf("%s: %s is validated as %s and used as %s", data, field, want, got), string(want), string(got))
		}
	})
}
