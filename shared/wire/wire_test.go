package wire_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

var published = time.Date(2026, 11, 20, 3, 0, 5, 0, time.UTC)

func TestDecodeData(t *testing.T) {
	t.Parallel()
	want := reading.Reading{
		NodeID: "n1", MessageID: "ab", Time: time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC), Temperature: 21.5, Humidity: 40,
	}
	dated := func(when time.Time) reading.Reading { r := want; r.Time = when; return r }
	fallback := dated(published)
	for name, c := range map[string]struct {
		message   string
		want      reading.Reading
		wantError string // part of the error; empty when the message is good
	}{
		"canonical":               {`{"message_id":"ab","node_id":"n1","temperature":21.5,"humidity":40,"timestamp":"2026-11-20T03:00:00Z"}`, want, ""},
		"id for message_id":       {`{"id":"ab","node_id":"n1","temperature":21.5,"humidity":40,"timestamp":"2026-11-20T03:00:00Z"}`, want, ""},
		"message_id wins over id": {`{"id":"zz","message_id":"ab","node_id":"n1","temperature":21.5,"humidity":40,"timestamp":"2026-11-20T03:00:00Z"}`, want, ""},
		"no timestamp":            {`{"message_id":"ab","node_id":"n1","temperature":21.5,"humidity":40}`, fallback, ""},
		"2 minutes ahead":         {`{"message_id":"ab","node_id":"n1","temperature":21.5,"humidity":40,"timestamp":"2026-11-20T03:02:05Z"}`, dated(published.Add(2 * time.Minute)), ""},
		"further ahead":           {`{"message_id":"ab","node_id":"n1","temperature":21.5,"humidity":40,"timestamp":"2026-11-20T03:02:05.000001Z"}`, fallback, ""},
		"in the next century":     {`{"message_id":"ab","node_id":"n1","temperature":21.5,"humidity":40,"timestamp":"2150-01-01T00:00:00Z"}`, fallback, ""},
		"years ago":               {`{"message_id":"ab","node_id":"n1","temperature":21.5,"humidity":40,"timestamp":"2019-01-01T00:00:00Z"}`, dated(time.Date(2019, 1, 1, 0, 0, 0, 0, time.UTC)), ""},
		"before all readings":     {`{"message_id":"ab","node_id":"n1","temperature":21.5,"humidity":40,"timestamp":"1999-12-31T23:59:59Z"}`, reading.Reading{}, "timestamp"},
		"offset":                  {`{"message_id":"ab","node_id":"n1","temperature":21.5,"humidity":40,"timestamp":"2026-11-20T05:00:00+02:00"}`, want, ""},
		"unknown field":           {`{"message_id":"ab","node_id":"n1","temperature":21.5,"humidity":40,"timestamp":"2026-11-20T03:00:00Z","firmware":7}`, want, ""},
		"recent that is wrong":    {`{"message_id":"ab","node_id":"n1","temperature":21.5,"humidity":40,"timestamp":"2026-11-20T03:00:00Z","recent":{"age_s":[1],"temperature":[],"humidity":[]}}`, want, ""},
		"recent that is text":     {`{"message_id":"ab","node_id":"n1","temperature":21.5,"humidity":40,"timestamp":"2026-11-20T03:00:00Z","recent":"x"}`, want, ""},
		"recent that is a list":   {`{"message_id":"ab","node_id":"n1","temperature":21.5,"humidity":40,"timestamp":"2026-11-20T03:00:00Z","recent":[1]}`, want, ""},
		"recent with texts":       {`{"message_id":"ab","node_id":"n1","temperature":21.5,"humidity":40,"timestamp":"2026-11-20T03:00:00Z","recent":{"age_s":["1"],"temperature":[20],"humidity":[40]}}`, want, ""},
		"recent beyond a float":   {`{"message_id":"ab","node_id":"n1","temperature":21.5,"humidity":40,"timestamp":"2026-11-20T03:00:00Z","recent":{"age_s":[1e999],"temperature":[20],"humidity":[40]}}`, want, ""},
		"neither value":           {`{"message_id":"ab","node_id":"n1","humidity":null}`, reading.Reading{}, "required"},
		"temperature as text":     {`{"message_id":"ab","node_id":"n1","temperature":"21.5","humidity":40}`, reading.Reading{}, "temperature"},
		"no message id":           {`{"node_id":"n1","temperature":21.5,"humidity":40}`, reading.Reading{}, "message id"},
		"humidity out of range":   {`{"message_id":"ab","node_id":"n1","temperature":21.5,"humidity":140}`, reading.Reading{}, "humidity"},
		"timestamp not a time":    {`{"message_id":"ab","node_id":"n1","temperature":21.5,"humidity":40,"timestamp":"soon"}`, reading.Reading{}, "soon"},
		"not JSON":                {`temperature=21.5`, reading.Reading{}, "decode reading"},
		"empty":                   {``, reading.Reading{}, "decode reading"},
	} {
		got, err := wire.DecodeData([]byte(c.message), published)
		if c.wantError != "" {
			must.Contain(t, name+": the error", fmt.Sprint(err), c.wantError)
			continue
		}
		must.Do(t, err)
		must.Equal(t, name, wire.Data{Reading: c.want}, got)
	}
}

func TestEncodeDataRefusesNothingValid(t *testing.T) {
	t.Parallel()
	want := wire.Data{
		Reading: reading.Reading{NodeID: "n1", MessageID: "ab", Time: published, Temperature: -40, Humidity: 100},
		Recent:  reading.Window{Age: []float64{60, 30}, Temperature: []float64{20.25, 20.5}, Humidity: []float64{40, 41}},
	}
	encoded := must.Get(wire.EncodeData(want))(t)
	must.Equal(t, "after a round trip", want, must.Get(wire.DecodeData(encoded, published))(t))
	want.Reading.Temperature, want.Reading.Humidity = math.Copysign(0, -1), math.Copysign(0, -1)
	if encoded, err := wire.EncodeData(want); err != nil || strings.Contains(string(encoded), "-0") {
		t.Errorf("-0 was written as %s (%v)", encoded, err)
	}
	want.Recent.Age[1] = math.Inf(1)
	encoded, err := wire.EncodeData(want)
	must.Hold(t, err != nil, "infinity was written as %s", encoded)
}

func TestDataThatLacksAValue(t *testing.T) {
	t.Parallel()
	none := reading.Missing()
	for message, want := range map[string]wire.Data{
		`"temperature":21.5`: {Reading: reading.Reading{Temperature: 21.5, Humidity: none}},
		`"humidity":40,"timestamp":"2026-11-20T03:00:05Z","recent":{"age_s":[60,30],"temperature":[20.5,null],"humidity":[null,41]}`: {
			Reading: reading.Reading{Temperature: none, Humidity: 40},
			Recent:  reading.Window{Age: []float64{60, 30}, Temperature: []float64{20.5, none}, Humidity: []float64{none, 41}},
		},
		`"temperature":21.5,"recent":{"age_s":[30],"temperature":[20]}`: {
			Reading: reading.Reading{Temperature: 21.5, Humidity: none},
			Recent:  reading.Window{Age: []float64{30}, Temperature: []float64{20}, Humidity: []float64{none}},
		},
	} {
		want.Reading.NodeID, want.Reading.MessageID, want.Reading.Time = "n1", "ab", published
		got := must.Get(wire.DecodeData([]byte(`{"message_id":"ab","node_id":"n1",`+message+`}`), published))(t)
		encoded := must.Get(wire.EncodeData(got))(t)
		for _, d := range []wire.Data{got, must.Get(wire.DecodeData(encoded, published))(t)} {
			must.Equal(t, message, want, d, cmpopts.EquateNaNs())
		}
	}
}

// TestAlertRoundTrip shows contract 9.3.
func TestAlertRoundTrip(t *testing.T) {
	t.Parallel()
	hot := reading.Reading{NodeID: "n1", MessageID: "ab", Time: published, Temperature: 61.25, Humidity: 70}
	messages := map[alert.Type]string{
		alert.Temperature: `{"node_id":"n1","message_id":"ab","timestamp":"2026-11-20T03:00:05Z","alert_type":"temperature","value":61.25,"threshold":50,"temperature":61.25,"humidity":70}`,
		alert.Humidity:    `{"node_id":"n1","message_id":"ab","timestamp":"2026-11-20T03:00:05Z","alert_type":"humidity","value":70,"threshold":50,"temperature":61.25,"humidity":70}`,
	}
	hotAlone := hot
	hotAlone.Humidity = reading.Missing()
	encoded := must.Get(wire.EncodeAlert(alert.Exceeded(hotAlone, alert.Defaults())[0]))(t)
	if got := must.Get(wire.DecodeAlert(encoded))(t); !got.Reading().Equal(hotAlone) || strings.Contains(string(encoded), "humidity") {
		t.Errorf("%s became %+v", encoded, got)
	}
	signed := alert.Exceeded(hot, alert.Thresholds{MaxTemperature: 50, MaxHumidity: 100})[0]
	signed.Channel, signed.NodeID = 7, "n2"
	for _, want := range append(alert.Exceeded(hot, alert.Defaults()), signed) {
		encoded := must.Get(wire.EncodeAlert(want))(t)
		message := messages[want.Type]
		if want.Channel != reading.Open {
			message = strings.Replace(message, `{"node_id":"n1"`, `{"customer_id":7,"node_id":"n2"`, 1)
		}
		must.Equal(t, "message", message, string(encoded))
		must.Equal(t, "after a round trip", want, must.Get(wire.DecodeAlert(encoded))(t))
	}
}

func TestDecodeAlertRefuses(t *testing.T) {
	t.Parallel()
	for name, message := range map[string]string{
		"unknown type":        `{"node_id":"n1","message_id":"ab","timestamp":"2026-11-20T03:00:00Z","alert_type":"smoke","value":60,"threshold":50,"temperature":60,"humidity":40}`,
		"no time":             `{"node_id":"n1","message_id":"ab","alert_type":"temperature","value":60,"threshold":50,"temperature":60,"humidity":40}`,
		"no node":             `{"message_id":"ab","timestamp":"2026-11-20T03:00:00Z","alert_type":"temperature","value":60,"threshold":50,"temperature":60,"humidity":40}`,
		"no type":             `{"node_id":"n1","message_id":"ab","timestamp":"2026-11-20T03:00:00Z","value":60,"threshold":50,"temperature":60,"humidity":40}`,
		"a negative customer": `{"customer_id":-1,"node_id":"n1","message_id":"ab","timestamp":"2026-11-20T03:00:00Z","alert_type":"temperature","value":60,"threshold":50,"temperature":60,"humidity":40}`,
		"too hot":             `{"node_id":"n1","message_id":"ab","timestamp":"2026-11-20T03:00:00Z","alert_type":"temperature","value":60,"threshold":50,"temperature":600,"humidity":40}`,
		"a list":              `[]`,
	} {
		event, err := wire.DecodeAlert([]byte(message))
		must.Hold(t, err != nil, "%s: accepted as %+v", name, event)
	}
}

// TestRetrainingRoundTrip shows contract 9.3.
func TestRetrainingRoundTrip(t *testing.T) {
	t.Parallel()
	want := wire.Retraining{TrainingRunID: 7, TriggeredBy: "manual", ValidatedCount: 12, RequestedAt: published}
	encoded := must.Get(wire.EncodeRetraining(want))(t)
	message := `{"training_run_id":7,"triggered_by":"manual","validated_count":12,"requested_at":"2026-11-20T03:00:05Z"}`
	must.Equal(t, "message", message, string(encoded))
	must.Equal(t, "after a round trip", want, must.Get(wire.DecodeRetraining(encoded))(t))
	for _, refused := range []string{`{"triggered_by":"manual"}`, `{"triggered_by":"daily_refresh","training_run_id":-1}`} {
		r, err := wire.DecodeRetraining([]byte(refused))
		must.Hold(t, err != nil, "%s names no run and was accepted: %+v", refused, r)
	}
	must.Equal(t, "the first run", int64(1), must.Get(wire.DecodeRetraining([]byte(`{"triggered_by":"manual","training_run_id":1}`)))(t).TrainingRunID)
	daily := must.Get(wire.DecodeRetraining([]byte(`{"triggered_by":"daily_refresh"}`)))(t)
	must.Equal(t, "a daily refresh, no run", wire.Retraining{TriggeredBy: wire.DailyRefresh}, daily)
}

// FuzzDecodeData holds that whatever is accepted is valid and means the same
// after another trip through the codec.
func FuzzDecodeData(f *testing.F) {
	f.Add([]byte(`{"message_id":"ab","node_id":"n1","temperature":21.5,"humidity":40,"timestamp":"2026-11-20T03:00:00Z"}`))
	f.Add([]byte(`{"id":"ab","node_id":"n1","temperature":1e2,"humidity":0,"recent":{"age_s":[30],"temperature":[1],"humidity":[2]}}`))
	f.Add([]byte(`{"message_id":"ab","node_id":"n1","temperature":20,"recent":{"age_s":[60,30],"temperature":[20,null]}}`))
	f.Add([]byte(`{"message_id":"ab","node_id":"n1","temperature":1e999,"humidity":40}`))
	f.Fuzz(func(t *testing.T, message []byte) {
		first, err := wire.DecodeData(message, published)
		if err != nil {
			return
		}
		must.Do(t, first.Reading.Validate())
		must.Do(t, first.Recent.Validate())
		encoded := must.Get(wire.EncodeData(first))(t)
		second, err := wire.DecodeData(encoded, published)
		if err != nil {
			t.Fatalf("canonical form refused: %v\n%s", err, encoded)
		}
		must.Equal(t, "reading after a round trip", first.Reading, second.Reading)
		must.Equal(t, "window after a round trip", first.Recent.Len(), second.Recent.Len())
	})
}

// FuzzDecodeAlert holds that whatever is accepted is valid and encodes again.
func FuzzDecodeAlert(f *testing.F) {
	f.Add([]byte(`{"node_id":"n1","message_id":"ab","timestamp":"2026-11-20T03:00:00Z","alert_type":"humidity","value":60,"threshold":50,"temperature":20,"humidity":60}`))
	f.Fuzz(func(t *testing.T, message []byte) {
		event, err := wire.DecodeAlert(message)
		if err != nil {
			return
		}
		must.Do(t, event.Reading().Validate())
		must.Get(wire.EncodeAlert(event))(t)
	})
}

// FuzzDecodeRetraining holds that a request is refused, or names a run and
// survives being written and read again.
func FuzzDecodeRetraining(f *testing.F) {
	f.Add([]byte(`{"training_run_id":7,"triggered_by":"manual","validated_count":0,"requested_at":"2026-03-01T12:00:00Z"}`))
	f.Add([]byte(`{"training_run_id":0}`))
	f.Add([]byte(`{"training_run_id":1,"requested_at":"0000-01-01T00:00:00+23:59"}`))
	f.Fuzz(func(t *testing.T, encoded []byte) {
		first, err := wire.DecodeRetraining(encoded)
		if err != nil {
			return
		}
		must.Hold(t, first.TrainingRunID >= 1, "run %d was taken", first.TrainingRunID)
		again := must.Get(wire.EncodeRetraining(first))(t)
		second := must.Get(wire.DecodeRetraining(again))(t)
		must.Equal(t, "two runs (-first +second)", first, second)
	})
}
