package api

import (
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/store/pipeline"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// measured is what one customer's node of a shared id has measured: values that occur nowhere else.
type measured struct {
	who         *testCustomer
	channel     reading.Channel
	temperature float64 // of readings and predictions
	hot         float64 // of alerts
	alert       int64
	prediction  int64
	incident    int64
}

// marks are the texts by which the values are known in any answer.
func (m *measured) marks() []string {
	return []string{fmt.Sprint(m.temperature), fmt.Sprint(m.hot)}
}

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
	must.Equal(t, "alert", incidents.AlertStored, must.Get(s.store.InsertAlert(t.Context(), alert.Event{
		Channel: m.channel, NodeID: node, MessageID: "same", Time: at, Type: alert.Temperature, Value: m.hot, Threshold: 50, Temperature: m.hot, Humidity: 40,
	}))(t))
	recorded, _, err := s.store.RecordDetection(t.Context(), s.id, learning.NewPrediction{
		Channel: m.channel, SensorID: node, MessageID: "same", Time: at, ActualTemperature: &m.temperature, AnomalyPredicted: true,
	}, 2)
	if err != nil || !recorded {
		t.Fatalf("prediction: %v, %v", recorded, err)
	}
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

// TestNothingCrossesChannels asks every operation that reads, for each of three customers who have the same node id at
// once: each sees what is theirs and nothing of the others. Contract 4.8.
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
				got := s.call(t, m.who.token, op.method, strings.Replace(path, "{month}", time.Now().UTC().Format("2006-01"), 1), "").is(t, 200)
				readings := unpack(t, got.body)["readings.csv"]
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
