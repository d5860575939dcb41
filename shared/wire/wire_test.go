package wire_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

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
	encoded = must.Get(wire.EncodeData(want))(t)
	must.Hold(t, !strings.Contains(string(encoded), "-0"), "-0 was written as %s", encoded)
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

// FuzzDecodeData holds that whatever is accepted is valid and means the same after another trip through the codec.
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

// FuzzDecodeRetraining holds that a request is refused, or names a run and survives being written and read again.
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

// hour is a reading with the last hour of a node that sends every 30 seconds, so many
// microseconds early or late, and whose values have a number of decimals.
func hour(jitter int64, decimals float64) wire.Data {
	random := rand.New(rand.NewPCG(1, 2))
	round := func(value float64) float64 { return reading.Round(float64(int64(value*decimals)) / decimals) }
	d := wire.Data{Reading: reading.Reading{
		NodeID: "esp32-a4cf12", MessageID: "9f3c01aa", Time: time.Date(2026, 11, 20, 3, 0, 0, 123456000, time.UTC), Temperature: 24.5, Humidity: 41.2,
	}}
	temperature, humidity := 24.5, 41.2
	for i := range reading.MaxWindow {
		temperature, humidity = temperature+random.NormFloat64()*0.1, humidity+random.NormFloat64()*0.3
		age := int64(reading.MaxWindow-i)*30_000_000 - jitter/2 + random.Int64N(jitter)
		d.Recent.Age = append(d.Recent.Age, float64(age)/1e6)
		d.Recent.Temperature, d.Recent.Humidity = append(d.Recent.Temperature, round(temperature)), append(d.Recent.Humidity, round(humidity))
	}
	return d
}

// TestAnHourFitsAMessage holds the sizes of messages with 120 readings, without attributes.
func TestAnHourFitsAMessage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		jitter   int64
		decimals float64
		bytes    int
	}{{20_000, 10, 620}, {200_000, 10, 690}, {20_000, 100, 750}} {
		d := hour(c.jitter, c.decimals)
		encoded := must.Get(wire.EncodeData(d))(t)
		must.Equal(t, "after a round trip", d, must.Get(wire.DecodeData(encoded, d.Reading.Time))(t))
		must.Hold(t, len(encoded) <= c.bytes,
			"%d µs, %g: %d bytes, want at most %d", c.jitter, c.decimals, len(encoded), c.bytes)
	}
}

// TestAnyWindowIsExact holds that a valid window, in hundredths and microseconds, comes back as it was.
func TestAnyWindowIsExact(t *testing.T) {
	t.Parallel()
	value := func(low, high int) *rapid.Generator[float64] {
		return rapid.OneOf(
			rapid.Just(reading.Missing()),
			rapid.Map(rapid.IntRange(low*10, high*10), func(n int) float64 { return float64(n) / 10 }),
			rapid.Map(rapid.IntRange(low*100, high*100), func(n int) float64 { return float64(n) / 100 }),
		)
	}
	rapid.Check(t, func(t *rapid.T) {
		micros := int64(0)
		var want reading.Window
		for range rapid.IntRange(0, reading.MaxWindow).Draw(t, "readings") {
			micros += rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(29_990_000, 30_010_000), rapid.Int64Range(0, 1<<31)).Draw(t, "µs")
			temperature, humidity := value(-40, 125).Draw(t, "°C"), value(0, 100).Draw(t, "%")
			if !reading.Has(temperature) && !reading.Has(humidity) {
				humidity = 40
			}
			want.Age = append([]float64{float64(micros) / 1e6}, want.Age...)
			want.Temperature, want.Humidity = append([]float64{temperature}, want.Temperature...), append([]float64{humidity}, want.Humidity...)
		}
		d := wire.Data{Reading: reading.Reading{NodeID: "n1", MessageID: "ab", Time: published, Temperature: 20, Humidity: 40}, Recent: want}
		encoded, err := wire.EncodeData(d)
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.DecodeData(encoded, published)
		if diff := cmp.Diff(d, got, cmpopts.EquateNaNs()); err != nil || diff != "" {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
	})
}

// TestAgeOfAWindow: an age is written in 38 bits of a microsecond.
func TestAgeOfAWindow(t *testing.T) {
	t.Parallel()
	for age, fits := range map[float64]bool{float64(1<<38-1) / 1e6: true, float64(1<<38) / 1e6: false} {
		_, err := wire.EncodeData(wire.Data{
			Reading: reading.Reading{NodeID: "n1", MessageID: "ab", Time: published, Temperature: 20, Humidity: 40},
			Recent:  reading.Window{Age: []float64{age}, Temperature: []float64{20}, Humidity: []float64{40}},
		})
		must.Equal(t, fmt.Sprintf("%g s fits", age), fits, err == nil)
	}
}

// TestDamagedWindowIsDropped cuts a window short at each byte.
func TestDamagedWindowIsDropped(t *testing.T) {
	t.Parallel()
	d := hour(20_000, 10)
	encoded := string(must.Get(wire.EncodeData(d))(t))
	begin := strings.Index(encoded, `"recent":"`) + len(`"recent":"`)
	for end := begin; end < len(encoded)-6; end += 4 { // whole groups of base64, but for the last
		got := must.Get(wire.DecodeData([]byte(encoded[:end]+`"}`), d.Reading.Time))(t)
		must.Hold(t, got.Reading.Equal(d.Reading) && got.Recent.Len() == 0, "%d characters became %+v", end-begin, got)
	}
}

// FuzzDecodeWindow holds that whatever is accepted is valid, and means the same after another trip through the codec.
func FuzzDecodeWindow(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte(`{"age_s":[60,30],"temperature":[20.5,null],"humidity":[null,41]}`))
	encoded := must.Get(wire.EncodeData(hour(20_000, 10)))(f)
	_, window, _ := bytes.Cut(encoded, []byte(`"recent":`))
	f.Add(bytes.TrimSuffix(window, []byte("}")))
	f.Fuzz(func(t *testing.T, recent []byte) {
		w := wire.DecodeWindow(recent)
		must.Do(t, w.Validate())
		again, err := wire.EncodeData(wire.Data{Reading: reading.Reading{NodeID: "n1", MessageID: "ab", Time: published, Temperature: 20}, Recent: w})
		if err != nil {
			return // ages of weeks, which a message may claim
		}
		got := must.Get(wire.DecodeData(again, published))(t)
		must.Hold(t, got.Recent.Len() == w.Len(), "%d readings became %d", w.Len(), got.Recent.Len())
	})
}

// key makes the same key of a byte each time.
func key(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func public(k ed25519.PrivateKey) ed25519.PublicKey {
	public, _ := k.Public().(ed25519.PublicKey)
	return public
}

func encodedReading(tb testing.TB) (reading.Reading, []byte) {
	tb.Helper()
	r := reading.Reading{NodeID: "n1", MessageID: "ab", Time: published, Temperature: 21.5, Humidity: 40}
	data := must.Get(wire.EncodeData(wire.Data{Reading: r}))(tb)
	return r, data
}

func TestSignedDataIsVerified(t *testing.T) {
	t.Parallel()
	r, data := encodedReading(t)
	for _, age := range []wire.Age{{Duration: 90 * time.Second, Known: true}, {Known: true}, {}} {
		attributes := wire.SignData(key(1), "gw-abc", r.Time, age, data)
		origin := must.Get(wire.ParseOrigin(attributes))(t)
		must.Hold(t, origin.Signed() && origin.Age == age && origin.Verify(public(key(1)), data),
			"%+v of %v is not verified", origin, attributes)
		must.Hold(t, !origin.Verify(public(key(2)), data) && !origin.Verify(nil, data),
			"verified by another key")
		later := must.Get(wire.EncodeData(wire.Data{Reading: reading.Reading{NodeID: "n1", MessageID: "ab", Time: r.Time.Add(time.Microsecond), Temperature: 21.5, Humidity: 40}}))(t)
		must.Hold(t, !origin.Verify(public(key(1)), later), "verified for another time")
		for change, value := range map[string]string{wire.AgeAttribute: "1", wire.GatewayIDAttribute: "gw-abd"} {
			altered := maps.Clone(attributes)
			altered[change] = value
			o, err := wire.ParseOrigin(altered)
			must.Hold(t, err != nil || !o.Verify(public(key(1)), data), "verified with %s altered", change)
		}
	}
}

// TestSignedBytes shows contract 10.3: gateways in the field sign exactly these bytes.
func TestSignedBytes(t *testing.T) {
	t.Parallel()
	r, data := encodedReading(t)
	origin := must.Get(wire.ParseOrigin(wire.SignData(key(1), "gw-abc", r.Time, wire.Age{Duration: 1500 * time.Millisecond, Known: true}, data)))(t)
	text := "coldaisle/data/1\ngw-abc\n" + published.Format(time.RFC3339Nano) + "\n1500\n" + string(data)
	must.Hold(t, ed25519.Verify(public(key(1)), []byte(text), origin.Signature), "the signature is not of\n%s", text)
}

func TestOriginRefuses(t *testing.T) {
	t.Parallel()
	r, data := encodedReading(t)
	good := wire.SignData(key(1), "gw-abc", r.Time, wire.Age{Known: true}, data)
	for name, change := range map[string][2]string{
		"no gateway":            {wire.GatewayIDAttribute, ""},
		"no signature":          {wire.SignatureAttribute, ""},
		"short signature":       {wire.SignatureAttribute, "YWJj"},
		"signature not base64":  {wire.SignatureAttribute, strings.Repeat("!", 88)},
		"not the id of one":     {wire.GatewayIDAttribute, "gw-a\nb"},
		"age below zero":        {wire.AgeAttribute, "-1"},
		"age with a sign":       {wire.AgeAttribute, "+1"},
		"age with a zero ahead": {wire.AgeAttribute, "01"},
		"age not a number":      {wire.AgeAttribute, "soon"},
		"age of a century":      {wire.AgeAttribute, "3155760000000"},
	} {
		attributes := maps.Clone(good)
		attributes[change[0]] = change[1]
		must.Fail(t, name, must.Err(wire.ParseOrigin(attributes)), wire.ErrOrigin)
	}
	o := must.Get(wire.ParseOrigin(map[string]string{"node_id": "n1"}))(t)
	must.Hold(t, !o.Signed() && !o.Age.Known, "an open message: %+v", o)
}

func TestSignedStatus(t *testing.T) {
	t.Parallel()
	want := wire.StatusRequest{
		GatewayID: "gw-abc", Nonce: "n", BootID: "b", Sequence: 7, SentAt: published, Version: "1.2.0", Role: "primary",
		ClockOffsetMS: -86_400_000, OutboxReadings: 12,
		Nodes: []wire.StatusNode{{NodeID: "n1", LastHeartbeat: published}, {NodeID: "n2", LastReading: published}},
	}
	signed := must.Get(wire.SignStatus(key(1), want))(t)
	must.Equal(t, "after a round trip", want, must.Get(signed.Verify(public(key(1))))(t))
	must.Fail(t, "verified by another key", must.Err(signed.Verify(public(key(2)))), wire.ErrSignature)
	// A signature of data is none of a status, however the two are put together.
	data := wire.SignData(key(1), "gw-abc", published, wire.Age{}, signed.Request)
	origin := must.Get(wire.ParseOrigin(data))(t)
	crossed := wire.SignedStatus{GatewayID: "gw-abc", Request: signed.Request, Signature: origin.Signature}
	must.Hold(t, must.Err(crossed.Verify(public(key(1)))) != nil, "a signature of data was taken for one of a status")
}

func TestStatusRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*wire.StatusRequest){
		"no nonce":       func(r *wire.StatusRequest) { r.Nonce = "" },
		"no boot":        func(r *wire.StatusRequest) { r.BootID = "" },
		"sequence":       func(r *wire.StatusRequest) { r.Sequence = 0 },
		"outbox":         func(r *wire.StatusRequest) { r.OutboxReadings = -1 },
		"offset":         func(r *wire.StatusRequest) { r.ClockOffsetMS = math.MaxInt64 },
		"offset before":  func(r *wire.StatusRequest) { r.ClockOffsetMS = math.MinInt64 },
		"gateway":        func(r *wire.StatusRequest) { r.GatewayID = "abc" },
		"control":        func(r *wire.StatusRequest) { r.Version = "1\x00" },
		"long":           func(r *wire.StatusRequest) { r.Role = strings.Repeat("a", 65) },
		"node":           func(r *wire.StatusRequest) { r.Nodes = []wire.StatusNode{{NodeID: "a b"}} },
		"too many nodes": func(r *wire.StatusRequest) { r.Nodes = make([]wire.StatusNode, wire.MaxStatusNodes+1) },
	} {
		r := wire.StatusRequest{GatewayID: "gw-abc", Nonce: "n", BootID: "b", Sequence: 1}
		change(&r)
		must.Fail(t, name, must.Err(must.Get(wire.SignStatus(key(1), r))(t).Verify(public(key(1)))), wire.ErrGateway)
	}
}

// TestMostThatIsTaken shows the bounds of a status and of an age from within.
func TestMostThatIsTaken(t *testing.T) {
	t.Parallel()
	status := wire.StatusRequest{
		GatewayID: "gw-" + strings.Repeat("a", 37), Nonce: strings.Repeat("~", 64), BootID: "b", Sequence: 1, Version: "1 2",
		Nodes: []wire.StatusNode{{NodeID: "n1", Name: strings.Repeat("ä", wire.MaxNodeName)}},
	}
	for _, sign := range []int64{1, -1} {
		status.ClockOffsetMS = sign * 200 * 366 * 86_400_000
		must.Do(t, status.Validate())
		status.ClockOffsetMS += sign
		must.Equal(t, "a clock further off is refused", true, errors.Is(status.Validate(), wire.ErrGateway))
		status.ClockOffsetMS = 0
	}
	full := status
	full.Nodes = slices.Repeat(status.Nodes, wire.MaxStatusNodes)
	must.Do(t, full.Validate())
	full.Nodes = append(full.Nodes, status.Nodes...)
	must.Equal(t, "a node more is refused", true, errors.Is(full.Validate(), wire.ErrGateway))
	status.Nodes[0].Name += "a"
	must.Fail(t, "a longer name", status.Validate(), wire.ErrGateway)
	must.Fail(t, "a longer id", wire.ValidateGatewayID("gw-"+strings.Repeat("a", 38)), wire.ErrGateway)
	const most = "316224000000" // ten years, in milliseconds
	o := must.Get(wire.ParseOrigin(map[string]string{wire.AgeAttribute: most}))(t)
	must.Equal(t, "age", 10*366*24*time.Hour, o.Age.Duration)
	must.Fail(t, "an age above", must.Err(wire.ParseOrigin(map[string]string{wire.AgeAttribute: "316224000001"})), wire.ErrOrigin)
}

// FuzzSignedData holds that nothing but the signed message itself is verified.
func FuzzSignedData(f *testing.F) {
	r, data := encodedReading(f)
	good := wire.SignData(key(1), "gw-abc", r.Time, wire.Age{Duration: time.Second, Known: true}, data)
	f.Add(good[wire.GatewayIDAttribute], good[wire.AgeAttribute], good[wire.SignatureAttribute], data)
	f.Add("", "1000", "", data)
	f.Fuzz(func(t *testing.T, gateway, age, signature string, data []byte) {
		attributes := map[string]string{wire.GatewayIDAttribute: gateway, wire.AgeAttribute: age, wire.SignatureAttribute: signature}
		origin, err := wire.ParseOrigin(attributes)
		if err != nil {
			return
		}
		must.Hold(t, !origin.Age.Known || strconv.FormatInt(origin.Age.Duration.Milliseconds(), 10) == age,
			"age %q was read as %v", age, origin.Age.Duration)
		if !origin.Signed() || !origin.Verify(public(key(1)), data) {
			return
		}
		must.Hold(t, maps.Equal(attributes, good), "verified %v", attributes)
	})
}

// FuzzSignedStatus holds that what is accepted is valid and was signed.
func FuzzSignedStatus(f *testing.F) {
	good := must.Get(wire.SignStatus(key(1), wire.StatusRequest{GatewayID: "gw-abc", Nonce: "n", BootID: "b", Sequence: 1}))(f)
	f.Add(good.GatewayID, good.Request, good.Signature)
	f.Fuzz(func(t *testing.T, gateway string, request, signature []byte) {
		accepted, err := wire.SignedStatus{GatewayID: gateway, Request: request, Signature: signature}.Verify(public(key(1)))
		if err != nil {
			return
		}
		if err := accepted.Validate(); err != nil || gateway != good.GatewayID || !bytes.Equal(request, good.Request) {
			t.Fatalf("accepted %s as %+v, %v", request, accepted, err)
		}
	})
}
