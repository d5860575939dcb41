package api

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/store/pipeline"
)

// measured is what one customer's node of a shared id has measured: values that occur nowhere else.
type measured struct {
	who                         *testCustomer
	channel                     reading.Channel
	temperature                 float64 // of readings and predictions
	hot                         float64 // of alerts
	alert, prediction, incident int64
}

// marks are the texts by which the values are known in any answer.
func (m *measured) marks() []string { return []string{fmt.Sprint(m.temperature), fmt.Sprint(m.hot)} }

func (m *measured) measure(t *testing.T, node string, at time.Time) {
	t.Helper()
	s, at := m.who, reading.TruncateTime(at)
	r := reading.Reading{Channel: m.channel, NodeID: node, MessageID: "same", Time: at, Temperature: m.temperature, Humidity: 40}
	must.Do(t, s.store.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: r}}))
	hot, series := r, []reading.Reading{r}
	hot.Temperature = m.hot
	for i := range 6 { // enough for a forecast
		r.MessageID, r.Time = fmt.Sprint("before-", i), r.Time.Add(-30*time.Second)
		series = append(series, r)
	}
	must.Do(t, s.readings.Append(t.Context(), series))
	must.Get(s.store.InsertAlert(t.Context(), alert.Event{
		Channel: m.channel, NodeID: node, MessageID: "same", Time: at, Type: alert.Temperature, Value: m.hot, Threshold: 50, Temperature: m.hot, Humidity: 40,
	}))(t)
	must.Get(s.store.RecordDetection(t.Context(), s.id, learning.NewPrediction{
		Channel: m.channel, SensorID: node, MessageID: "same", Time: at, ActualTemperature: &m.temperature, AnomalyPredicted: true,
	}, 2))(t)
	must.Do(t, s.store.Judge(t.Context(), incidents.Judged{Reading: hot, Arrived: at, Defaults: alert.Defaults()}))
	for column, id := range map[string]*int64{"incident_id) FROM excursions": &m.incident, "id) FROM alerts": &m.alert, "id) FROM prediction_feedback": &m.prediction} {
		*id = scalar[int64](t, s.testAPI, `SELECT max(`+column+` WHERE channel = $1`, int64(m.channel))
	}
}

// sharedNode is one node id under three customers: two with enrolled gateways, one who holds it in the open channel.
func sharedNode(t *testing.T, s *testAPI, node string) (all []*measured) {
	t.Helper()
	for i := range 3 {
		who := s.customer(t)
		m := &measured{who: who, temperature: 21.0625 + float64(i), hot: 61.5 + float64(i)}
		if i > 0 {
			who.enrolled(t, "Basement")
			m.channel = reading.Channel(who.id)
		}
		who.sensors(t, who.room(t, "Hall"), node)
		all = append(all, m)
	}
	// What is measured lies within the open hold, and before now.
	s.execute(t, `UPDATE open_holds SET held_from = now() - interval '5 minutes'`)
	s.execute(t, `UPDATE sensors SET placed_at = '2000-01-01'`)
	at := s.now().Add(-time.Minute)
	for _, m := range all {
		m.measure(t, node, at)
	}
	return all
}

// TestNothingCrossesChannels has three customers with one node id read everything: each sees theirs. Contract 4.8.
func TestNothingCrossesChannels(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t, withRecords(t), func(c *Config) { c.Models = persistence{} })
	const node = "shared-1"
	all := sharedNode(t, s, node)
	open := all[0]
	const history = "/api/v1/data/historical/" + node + "?start_time=2020-01-01&end_time=2090-01-01"
	// What of an operation must show the caller's own: 0 the reading, 1 the alert.
	shows := map[string]int{
		"getLatestReading": 0, "getHistory": 0, "getStatistics": 0, "getLatestReadings": 0, "getForecast": 0, "getOverview": 0, "listPredictions": 0, "getPrediction": 0,
		"listIncidents": 1, "getIncident": 1, "listActiveAlerts": 1, "listAlertHistory": 1,
	}
	asked := map[string]bool{}
	for _, m := range all {
		ask := func(id, method, path, body string) {
			t.Helper()
			got := s.call(t, m.who.token, method, path, body).is(t, 200)
			asked[id] = true
			for _, other := range all {
				if other != m {
					got.lacks(t, other.marks()...)
				}
			}
			if kind, ok := shows[id]; ok {
				got.has(t, 200, m.marks()[kind])
			}
		}
		for _, op := range operations(t) {
			if op.method != "GET" || !strings.HasPrefix(op.path, "/api/") {
				continue
			}
			path := strings.NewReplacer(
				"{sensor_id}", node, "{customer_id}", decimal(m.who.id), "{id}", decimal(m.prediction), "{room_id}", roomIDOf(t, m.who), "{incident_id}", decimal(m.incident),
			).Replace(op.path)
			switch op.id {
			case "getTrainingRun", "getDrill": // there is none
				continue
			case "getRecord":
				s.execute(t, `UPDATE room_members SET from_time = '2020-01-01'`)
				path = strings.Replace(path, "{month}", time.Now().UTC().Format("2006-01"), 1)
				readings := unpack(t, s.call(t, m.who.token, op.method, path, "").is(t, 200).body)["readings.csv"]
				for _, other := range all {
					if other != m {
						must.Equal(t, "the record has another's", "",
							regexp.MustCompile(","+strings.Join(other.marks(), ",|,")+",").FindString(readings))
					}
				}
				continue
			case "getHistory":
				for _, form := range []string{"", "&max_points=5", "&format=csv"} {
					ask(op.id, op.method, history+form, "")
				}
				continue
			case "getReport", "getRoomTime", "getUsual":
				path += "?start_time=2026-03-01&end_time=2026-04-01"
			}
			ask(op.id, op.method, path, "")
			if slices.Contains([]string{"listIncidents", "listAlertHistory", "listPredictions"}, op.id) {
				ask(op.id, op.method, path+"?sensor_id="+node, "")
			}
		}
		ask("getLatestReadings", "POST", "/api/v1/data/multi-sensor", `{"node_ids":["`+node+`"]}`)
		for _, other := range all {
			if other == m {
				continue
			}
			for path, detail := range map[string]string{
				fmt.Sprintf("POST /api/v1/alerts/%d/acknowledge", other.alert):      "Alert not found",
				fmt.Sprintf("GET /api/v1/incidents/%d", other.incident):             "Incident not found",
				fmt.Sprintf("GET /api/v1/prediction-feedback/%d", other.prediction): "Prediction not found",
				fmt.Sprintf("PUT /api/v1/prediction-feedback/%d", other.prediction): "Prediction not found",
			} {
				method, path, _ := strings.Cut(path, " ")
				s.call(t, m.who.token, method, path, `{"feedback":"ok"}`).says(t, 404, detail)
			}
		}
	}
	for id := range shows {
		must.Equal(t, id+" was asked", true, asked[id])
	}

	// The alert of one is acknowledged, and the others' stay.
	s.call(t, open.who.token, "POST", fmt.Sprintf("/api/v1/alerts/%d/acknowledge", open.alert), "").is(t, 200)
	// Who holds the id deletes it: nothing goes from the others, nor comes to them.
	s.call(t, open.who.token, "DELETE", "/api/v1/sensors/delete_sensor/"+node, "").is(t, 204)
	for _, m := range all[1:] {
		for kind, path := range []string{history, "/api/v1/alerts/active"} {
			s.call(t, m.who.token, "GET", path, "").has(t, 200, m.marks()[kind]).lacks(t, open.marks()...)
		}
	}
	// Their own channel is theirs for ever, and the same sensor again shows it.
	m := all[1]
	s.call(t, m.who.token, "DELETE", "/api/v1/sensors/delete_sensor/"+node, "").is(t, 204)
	m.who.create(t, "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":%q,"name":"Again","type":"T","room_id":%s}`, node, roomIDOf(t, m.who)))
	s.call(t, m.who.token, "GET", history, "").has(t, 200, m.marks()[0]).lacks(t, open.marks()...)
}

// roomIDOf is the id of a customer's one room.
func roomIDOf(tb testing.TB, a *testCustomer) string {
	tb.Helper()
	return decimal(scalar[int64](tb, a.testAPI, `SELECT id FROM server_rooms WHERE customer_id = $1`, a.id))
}

// TestUnreportedSensorsAreLimited shows contract 4.9 over HTTP.
func TestUnreportedSensorsAreLimited(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t, func(c *Config) { c.MaxUnreported = 2 })
	room := a.room(t, "Hall")
	const full = "At most 2 sensors may wait for their first reading; enrol a gateway to have more"
	add := func(id string) reply {
		t.Helper()
		return s.call(t, a.token, "POST", "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":%q,"name":"Rack","type":"T","room_id":%d}`, id, room))
	}
	for _, id := range []string{"n1", "n2"} {
		add(id).is(t, 201)
	}
	add("n3").says(t, 400, full)
	must.Do(t, s.store.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: reading.Reading{
		NodeID: "n1", MessageID: "m", Time: reading.TruncateTime(s.now().Add(time.Second)), Temperature: 20, Humidity: 40,
	}}}))
	add("n3").is(t, 201)
	add("n4").says(t, 400, full)
	a.enrolled(t, "Basement")
	add("n4").has(t, 201, `"channel":"signed"`)
	setBack := func() reply { return s.call(t, a.token, "POST", "/api/v1/sensors/n4/channel", "") }
	setBack().says(t, 400, full)
	s.call(t, a.token, "DELETE", "/api/v1/sensors/delete_sensor/n3", "").is(t, 204)
	for range 2 {
		setBack().has(t, 200, `"channel":"open"`)
	}
}

type shownCorrection struct {
	ID                    int64
	SensorID              string `json:"sensor_id"`
	State                 string
	Overdue, Withdrawable bool
	AddedBy               string  `json:"added_by"`
	WithdrawnBy           *string `json:"withdrawn_by"`
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
	sensor := func(id string) calibration { return get[calibration](t, a, "GET", "/api/v1/sensors/sensor/"+id, "") }
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
