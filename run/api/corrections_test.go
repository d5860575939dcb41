package api

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/pipeline"
)

type shownCorrection struct {
	ID           int64
	SensorID     string `json:"sensor_id"`
	State        string
	Overdue      bool
	Withdrawable bool
	AddedBy      string  `json:"added_by"`
	WithdrawnBy  *string `json:"withdrawn_by"`
}

// inForce adds a correction that began so long ago, which the API cannot.
func (s *testAPI) inForce(tb testing.TB, customer int64, node string, ago time.Duration, temperature, humidity float64, due string) {
	tb.Helper()
	s.execute(tb, `
		INSERT INTO corrections (customer_id, node_id, from_time, temperature_offset, humidity_offset, due_date, added_by, added_at)
		VALUES ($1, $2, now() - $3::interval, $4, $5, NULLIF($6, '')::date, 'Ana', now() - $3::interval - interval '1 hour')`,
		customer, node, ago, temperature, humidity, due)
}

// TestCorrections adds, lists and withdraws corrections. Contract 5.16.
func TestCorrections(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.room(t, "Hall")
	a.sensors(t, room, "n1", "n2")
	const path = "/api/v1/corrections"
	from := func(ahead time.Duration) string { return s.now().Add(ahead).UTC().Format(time.RFC3339Nano) }
	body := func(ahead time.Duration, more string) string {
		return fmt.Sprintf(`{"sensor_id":"n1","from":%q%s}`, from(ahead), more)
	}
	const soon = "from: must lie at least five minutes ahead"
	tables := s.tables(t)
	for _, c := range []struct{ body, detail string }{
		{body(-time.Hour, ""), soon},
		{body(30*time.Second, ""), soon},
		{body(4*time.Minute+50*time.Second, ""), soon},
		{`{"sensor_id":"n1","from":"2101-01-01"}`, "from: must lie between the years 2000 and 2100"},
		{`{"sensor_id":"n1","from":"tomorrow"}`, "from: must be a time in ISO 8601, such as 2026-03-01T12:00:00Z"},
		{body(time.Hour, `,"temperature_offset":10.01`), "temperature_offset: expected number <= 10"},
		{body(time.Hour, `,"temperature_offset":-10.01`), "temperature_offset: expected number >= -10"},
		{body(time.Hour, `,"humidity_offset":30.1`), "humidity_offset: expected number <= 30"},
		{body(time.Hour, `,"humidity_offset":-30.1`), "humidity_offset: expected number >= -30"},
		{body(time.Hour, `,"temperature_offset":0.005`), "temperature_offset: must have at most two decimals"},
		{body(time.Hour, `,"humidity_offset":0.001`), "humidity_offset: must have at most two decimals"},
		{body(time.Hour, `,"certificate":"`+strings.Repeat("c", 201)+`"`), "certificate: expected length <= 200"},
		{body(time.Hour, `,"due_date":"soon"`), "due_date: expected string to be RFC 3339 date"},
		{`{"from":"2090-01-01"}`, "expected required property sensor_id to be present"},
	} {
		a.call(t, a.token, "POST", path, c.body).says(t, 400, c.detail)
	}
	a.call(t, a.token, "POST", path, `{"sensor_id":"n9","from":"2090-01-01"}`).says(t, 404, "Sensor not found")
	must.Equal(t, "what was refused has changed something", tables, s.tables(t))

	longest := fmt.Sprintf(`,"temperature_offset":-10,"humidity_offset":29.95,"certificate":%q,"serial_number":"S-1","due_date":"2031-03-01","calibrated_by":"Metrolab"`, strings.Repeat("ü", 200))
	first := body(6*time.Minute, longest) // of which the last is sent within a minute
	added := get[shownCorrection](t, a, "POST", path, first)
	must.Equal(t, "added",
		shownCorrection{ID: added.ID, SensorID: "n1", State: "planned", Withdrawable: true, AddedBy: "user000001"}, added)
	a.call(t, a.token, "POST", path, first).says(t, 409, "The sensor has a correction from that time; withdraw it, or add one from another time")
	one := fmt.Sprintf("%s/%d", path, added.ID)
	a.call(t, a.token, "DELETE", one, "").is(t, 204)
	a.call(t, a.token, "DELETE", one, "").says(t, 404, "Correction not found")
	again := get[shownCorrection](t, a, "POST", path, first)
	listed := get[[]shownCorrection](t, a, "GET", path+"?sensor_id=n1", "")
	withdrawn := shownCorrection{ID: added.ID, SensorID: "n1", State: "withdrawn", AddedBy: "user000001", WithdrawnBy: new("user000001")}
	must.Equal(t, "listed", []shownCorrection{again, withdrawn}, listed)

	// One in force is overdue; it cannot be withdrawn; those long past are listed of the sensor alone.
	s.inForce(t, a.id, "n2", 72*time.Hour, 1, 1, "2020-01-01")
	s.inForce(t, a.id, "n2", 48*time.Hour, 2, 2, "2021-01-01")
	type calibration struct {
		Due     string `json:"calibration_due"`
		Overdue bool   `json:"calibration_overdue"`
	}
	sensor := func(id string) calibration {
		return get[calibration](t, a, "GET", "/api/v1/sensors/sensor/"+id, "")
	}
	must.Equal(t, "sensor", calibration{"2021-01-01", true}, sensor("n2"))
	must.Equal(t, "sensor with a planned correction", calibration{}, sensor("n1"))
	listed = get[[]shownCorrection](t, a, "GET", path+"?sensor_id=n2", "")
	must.Equal(t, "states, overdue", []any{"in_force", true, "past", false},
		[]any{listed[0].State, listed[0].Overdue, listed[1].State, listed[1].Overdue})
	a.call(t, a.token, "DELETE", fmt.Sprintf("%s/%d", path, listed[0].ID), "").
		says(t, 409, "A correction can be withdrawn until four minutes before it begins; add another one")
	must.Equal(t, "all", []shownCorrection{again, listed[0]}, get[[]shownCorrection](t, a, "GET", path, ""))
	s.inForce(t, a.id, "n2", 24*time.Hour, 3, 3, "")
	must.Equal(t, "sensor with a later correction that has no due date", calibration{"2021-01-01", true}, sensor("n2"))
	report := fmt.Sprintf("/api/v1/data/report/%d?start_time=2026-03-01&end_time=2026-03-02", room)
	must.Equal(t, "report", []calibration{{}, {"2021-01-01", true}}, get[[]calibration](t, a, "GET", report, ""))
	must.Equal(t, "excursions of an overdue certificate", 0, s.count(t, `SELECT count(*) FROM excursions`))

	// A key for another room knows nothing of it.
	key := a.key(t, fmt.Sprintf(`"scope":"write","room_ids":[%d]`, a.room(t, "Closet"))).text
	a.call(t, key, "POST", path, body(time.Hour, "")).says(t, 404, "Sensor not found")
	a.call(t, key, "DELETE", fmt.Sprintf("%s/%d", path, again.ID), "").says(t, 404, "Correction not found")
	must.Equal(t, "what a key of another room lists", "[]", string(a.call(t, key, "GET", path, "").body))

	// At most so many of a sensor.
	s.execute(t, `
		INSERT INTO corrections (customer_id, node_id, from_time, temperature_offset, humidity_offset, added_by)
		SELECT $1, 'n1', now() + i * interval '1 day', 0, 0, 'Ana' FROM generate_series(1, 198) AS i`, a.id)
	a.call(t, a.token, "POST", path, body(time.Hour, "")).says(t, 400, "At most 200 corrections of a sensor")
}

// TestCorrectedValuesAreAnswered shows which value each answer has of a corrected reading. Contract 5.2, 5.16.
func TestCorrectedValuesAreAnswered(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	a.sensors(t, a.room(t, "Hall"), "n1")
	s.holdsBefore(t, "n1")
	s.inForce(t, a.id, "n1", 90*time.Second, -0.5, 1.25, "")
	for _, ago := range []time.Duration{2 * time.Minute, time.Minute} {
		node := reading.Node{ID: "n1"}
		status := must.Get(s.store.SensorStatuses(t.Context(), []reading.Node{node}))(t)[node]
		r := reading.Reading{NodeID: "n1", MessageID: ago.String(), Time: reading.TruncateTime(s.now().Add(-ago)).Truncate(time.Second), Temperature: 24.125, Humidity: 40}
		r, _ = status.Corrections.Apply(r, reading.Window{})
		must.Do(t, s.store.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: r}}))
		must.Do(t, s.readings.Append(t.Context(), []reading.Reading{r}))
	}
	says := func(path string, want ...string) {
		t.Helper()
		a.call(t, a.token, "GET", path, "").has(t, 200, want...)
	}
	says("/api/v1/data/latest/n1", `"temperature":23.63,"humidity":41.25`)
	history := "/api/v1/data/historical/n1?start_time=" + url.QueryEscape(s.now().Add(-time.Hour).UTC().Format(time.RFC3339)) + "&end_time=2100-01-01"
	says(history+"&format=csv", "node_id,timestamp,temperature,humidity\n", ",23.63,41.25")
	says(history+"&format=csv&uncorrected=true",
		"node_id,timestamp,temperature,humidity,uncorrected_temperature,uncorrected_humidity\n", ",24.125,40,,\n", ",23.63,41.25,24.125,40")
	says(history+"&uncorrected=true",
		`"uncorrected_temperature":null,"uncorrected_humidity":null`, `"uncorrected_temperature":24.125,"uncorrected_humidity":40`)
	says(history+"&max_points=1", `"min_temperature":23.63,"max_temperature":24.125`)
	a.call(t, a.token, "GET", history+"&max_points=1&uncorrected=true", "").says(t, 400, "uncorrected: cannot be combined with max_points")
}
