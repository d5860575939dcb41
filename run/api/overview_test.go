package api

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/tooltest"
)

// overviewBody is what the tests read of an overview.
type overviewBody struct {
	Time  time.Time
	Probe struct {
		Late      bool
		LatenessS float64 `json:"lateness_s"`
	}
	Sentence shownSentence
	Rooms    []struct {
		Name, State    string
		MaxTemperature *float64 `json:"max_temperature"`
	}
	Limits [][]struct {
		Quantity, Direction, Severity string
		Limit                         float64
	}
	SparklineStart time.Time `json:"sparkline_start"`
	Sensors        []struct {
		ID, Name, State, Sparkline string
		Reports                    bool
		Temperature, Humidity      *float64
		Timestamp                  *time.Time
		GatewayID                  *string `json:"gateway_id"`
		JudgedBy                   string  `json:"judged_by"`
		Limits                     int
	}
	Incidents      []shownIncident
	IncidentCounts map[string]int `json:"incident_counts"`
	Counts         map[string]int
}

type shownSentence struct {
	Says, Tone              string
	IncidentID              int64 `json:"incident_id"`
	Cause, Room             string
	SensorID                string `json:"sensor_id"`
	Sensor, Quantity        string
	Value, Limit, Rate      float64
	ValueAt                 *time.Time `json:"value_at"`
	Since                   *time.Time
	TakenBy                 string `json:"taken_by"`
	Others, Outside, Drills int
}

// unless asks for what is not the answer of a tag.
func (a *testCustomer) unless(t *testing.T, path, tag string) reply {
	t.Helper()
	return a.send(t, a.token, "GET", path, "", map[string]string{"If-None-Match": tag})
}

func (a *testCustomer) overview(t *testing.T, tag string) (overviewBody, reply) {
	t.Helper()
	got := a.unless(t, "/api/v1/overview", tag)
	if got.status == http.StatusNotModified && len(got.body) == 0 {
		return overviewBody{}, got
	}
	return into[overviewBody](t, got), got
}

// TestOverview shows contract 5.10: each state of a sensor, its limits and its day.
func TestOverview(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(30 * time.Minute).Add(-20 * time.Minute)
	s := newTestAPI(t, func(c *Config) { c.Clock = func() time.Time { return now } })
	s.now = func() time.Time { return now }
	a := s.customer(t)
	gateway := a.enrolled(t, "Basement")
	hall, attic := a.room(t, "Hall"), a.room(t, "Attic")
	for id, room := range map[string]int64{"critical": hall, "warm": hall, "fine": attic, "never": attic, "silent": hall} {
		a.sensors(t, room, id)
	}
	a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 30.0, fmt.Sprintf(`,"room_id":%d`, hall)))
	report := func(id string, before time.Duration, temperature float64) {
		t.Helper()
		r := reading.Reading{
			Channel: reading.Channel(a.id), NodeID: id, MessageID: fmt.Sprint(before), Time: now.Add(-before), Temperature: temperature, Humidity: 40,
		}
		must.Do(t, s.store.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: r, GatewayID: gateway.id}}))
	}
	// In the order of time, from which its usual interval follows.
	report("fine", 24*time.Hour, 99)
	report("fine", 23*time.Hour+40*time.Minute, 20)
	report("fine", 23*time.Hour+35*time.Minute, 19)
	report("fine", time.Hour, 25.26)
	report("fine", time.Minute, 24.9)
	for parts := 4; parts > 0; parts-- {
		report("warm", time.Duration(parts)*30*time.Minute, 20)
	}
	for _, id := range []string{"critical", "warm"} {
		report(id, 30*time.Second, 31)
	}
	report("silent", 6*time.Minute, 22)
	for id, temperature := range map[string]float64{"critical": 55, "warm": 31} {
		r := reading.Reading{Channel: reading.Channel(a.id), NodeID: id, MessageID: "m", Time: now, Temperature: temperature, Humidity: 40}
		must.Do(t, s.store.Judge(t.Context(), incidents.Judged{Reading: r, Arrived: now, Defaults: alert.Defaults()}))
	}

	var learned []learning.Learned
	for id, by := range map[string]learning.JudgedBy{"fine": learning.ByWindow, "warm": learning.ByLiveState} {
		learned = append(learned, learning.Learned{Node: reading.Node{Channel: reading.Channel(a.id), ID: id}, JudgedBy: by})
	}
	must.Do(t, s.store.RecordLearned(t.Context(), a.id, learned, 2))

	states := func(body overviewBody) map[string]string {
		all := map[string]string{}
		for _, sensor := range body.Sensors {
			all[sensor.ID] = sensor.State + " by " + sensor.JudgedBy
		}
		return all
	}
	body, got := a.overview(t, "")
	// By what detection judges the one that was heard for two hours, it says.
	must.Equal(t, "states", map[string]string{
		"critical": "critical by nothing", "warm": "warning by live_state", "fine": "ok by learning",
		"never": "unreported by nothing", "silent": "silent by nothing",
	}, states(body))
	must.Equal(t, "counts", map[string]int{"sensors": 5, "ok": 1, "warning": 1, "critical": 1, "silent": 1, "late": 0, "unreported": 1, "reporting": 3}, body.Counts)
	counted := func(open, taken, silenced int) map[string]int {
		return map[string]int{"lasting": 2, "open": open, "taken": taken, "silenced": silenced, "unseen": 0, "to_be_seen": open}
	}
	must.Equal(t, "incidents", counted(2, 0, 0), body.IncidentCounts)
	must.Equal(t, "rooms, incidents", []any{2, 2, "too_hot", "silent"},
		[]any{len(body.Rooms), len(body.Incidents), body.Incidents[0].Cause, body.Incidents[1].Cause})
	fine, warm := body.Sensors[1], body.Sensors[4]
	must.Equal(t, "newest", []any{24.9, now.Add(-time.Minute), gateway.id},
		[]any{*fine.Temperature, fine.Timestamp.UTC(), *fine.GatewayID})
	must.Equal(t, "sparkline", "200"+strings.Repeat(",", 45)+"53,,-4", fine.Sparkline)
	must.Equal(t, "its start", now.Add(-23*time.Hour-40*time.Minute), body.SparklineStart.UTC())
	must.Equal(t, "limits", []any{2, 3, 30.0},
		[]any{len(body.Limits[fine.Limits]), len(body.Limits[warm.Limits]), body.Limits[warm.Limits][2].Limit})
	must.Equal(t, "Cache-Control", "private, no-cache", got.header.Get("Cache-Control"))

	// Unchanged, and each thing that changes it.
	tag := got.header.Get("ETag")
	unchanged := func() {
		t.Helper()
		_, again := a.overview(t, `"other", `+tag)
		must.Equal(t, "tag of what is unchanged", tag, again.is(t, http.StatusNotModified).header.Get("ETag"))
	}
	changed := func() overviewBody {
		t.Helper()
		now = now.Add(3 * time.Second) // longer than an answer may be kept
		body, again := a.overview(t, tag)
		again.is(t, http.StatusOK)
		tag = again.header.Get("ETag")
		unchanged()
		return body
	}
	unchanged()
	report("fine", time.Second, 26)
	must.Equal(t, "temperature", 26.0, *changed().Sensors[1].Temperature)
	a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 25.0, `,"sensor_id":"fine"`))
	if body := changed(); len(body.Limits[body.Sensors[1].Limits]) != 3 {
		t.Errorf("%v", body.Limits)
	}
	a.act(t, body.Incidents[1].ID, `"action":"take"`)
	must.Equal(t, "taken", counted(1, 1, 0), changed().IncidentCounts)
	a.create(t, "/api/v1/maintenance", fmt.Sprintf(`{"start_time":%q,"duration_s":7200,"room_ids":[%d,%d],"confirm":true}`, now.Add(-time.Hour).Format(time.RFC3339), hall, attic))
	s.execute(t, `UPDATE maintenance_windows SET stands_from = now() - interval '2 hours'`) // before this test's time
	must.Equal(t, "in maintenance", counted(0, 0, 2), changed().IncidentCounts)
	s.call(t, a.token, "PUT", fmt.Sprintf("/api/v1/server_rooms/update_room/%d", hall), `{"name":"Vault"}`).is(t, 200)
	changed()
	s.call(t, a.token, "DELETE", "/api/v1/sensors/delete_sensor/never", "").is(t, 204)
	changed()

	// The service is late: nobody is blamed.
	must.Do(t, s.store.RecordProbe(t.Context(), now, now))
	now = now.Add(10 * time.Minute)
	body = changed()
	must.Equal(t, "late states", map[string]string{ // the fine one sends seldom
		"critical": "critical by nothing", "warm": "warning by live_state", "fine": "ok by learning", "silent": "late by nothing",
	}, states(body))
	must.Equal(t, "late, by", []any{true, 543.0}, []any{body.Probe.Late, body.Probe.LatenessS})
}

// TestFirstSentenceNamesWhatLasts puts 5,000 newer incidents that are over beside one that lasts, which is named.
func TestFirstSentenceNamesWhatLasts(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	a.heldSensor(t, "n1")
	s.judge(t, "n1", s.now(), 55)
	s.execute(t, pastIncidents, 1, 5000, a.id)
	s.execute(t, `UPDATE room_incidents SET start_time = now(), end_time = now() WHERE NOT lasting`)
	body, _ := a.overview(t, "")
	must.Equal(t, "sentence", []any{1, "incident", body.Incidents[0].ID, "n1"},
		[]any{len(body.Incidents), body.Sentence.Says, body.Sentence.IncidentID, body.Sentence.SensorID})
	must.Equal(t, "counts", map[string]int{"lasting": 1, "open": 1, "taken": 0, "silenced": 0, "unseen": 5000, "to_be_seen": 5001}, body.IncidentCounts)
	unseen := func() int {
		t.Helper()
		body, _ := a.overview(t, "")
		listed := a.call(t, a.token, "GET", "/api/v1/incidents?state=unseen&limit=1", "")
		must.Equal(t, "listed", strconv.Itoa(body.IncidentCounts["unseen"]), listed.header.Get("X-Total-Count"))
		return body.IncidentCounts["unseen"]
	}
	oldest := s.count(t, `SELECT min(id)::int FROM room_incidents WHERE NOT lasting`)
	for _, c := range []struct {
		ids        string
		seen, left int
	}{
		{fmt.Sprintf(`{"ids":[%d,%d]}`, oldest, body.Incidents[0].ID), 1, 4999}, {fmt.Sprintf(`{"ids":[%d]}`, oldest), 0, 4999}, {`{}`, 4999, 0},
	} {
		seen := get[struct{ Seen int }](t, a, "POST", "/api/v1/incidents/seen", c.ids).Seen
		must.Equal(t, c.ids, []int{c.seen, c.left}, []int{seen, unseen()})
	}
}

// TestSentence shows each first sentence: what it is about, and with which numbers.
func TestSentence(t *testing.T) {
	t.Parallel()
	hot := shownSentence{
		Says: "incident", Tone: "critical", Cause: "too_hot", Room: "Hall", SensorID: "n1", Sensor: "Rack", Quantity: "temperature", Value: 55, Limit: 50, Rate: 1, Outside: 1,
	}
	taken, beside, unstored := hot, hot, hot
	taken.Tone, taken.TakenBy = "note", "Anna"
	beside.Others, beside.Outside = 1, 2
	unstored.Value, unstored.Rate, unstored.Outside = 0, 0, 0
	type readings map[string][2]float64 // temperatures five minutes ago and now, at a humidity of 40 %
	warming := readings{"n1": {50, 55}}
	late := func(a *testCustomer, _ int64) {
		must.Do(t, a.store.RecordProbe(t.Context(), time.Now().Add(-5*time.Minute), time.Now().Add(-5*time.Minute)))
	}
	for name, c := range map[string]struct {
		readings readings
		then     func(a *testCustomer, room int64)
		want     shownSentence
	}{
		"no sensor reports": {nil, nil, shownSentence{Says: "no_sensor_reports", Tone: "note"}},
		"nothing wrong":     {readings{"n1": {22, 22}}, nil, shownSentence{Says: "nothing_wrong", Tone: "quiet"}},
		"outside the recommended range": {readings{"n1": {28, 28}, "n2": {22, 30.5}, "n3": {22, 22}}, nil, shownSentence{
			Says: "outside_recommended", Tone: "note", Room: "Hall", SensorID: "n2", Sensor: "Rack", Quantity: "temperature", Value: 30.5, Limit: 27, Outside: 2,
		}},
		"incident": {warming, nil, hot},
		"incident, of which the air dries": {warming, func(a *testCustomer, _ int64) { // by more than it is too hot
			a.create(t, "/api/v1/rules", `{"quantity":"humidity","direction":"below","limit":80,"for_s":0,"clear_margin":0,"clear_for_s":0,"severity":"critical","enabled":true}`)
			a.judge(t, "n1", time.Now(), 55)
			must.Equal(t, "excursions", 2, a.incidents(t, "")[0].Excursions)
		}, hot},
		"incident, and another": {readings{"n1": {50, 55}, "n2": {22, 22}}, func(a *testCustomer, _ int64) {
			a.sensors(t, a.room(t, "Attic"), "n4")
			a.judge(t, "n4", time.Now(), 51)
		}, beside},
		"incident of a reading that is not stored yet": {nil, func(a *testCustomer, _ int64) {
			r := reading.Reading{NodeID: "n1", MessageID: "first", Time: reading.TruncateTime(time.Now()), Temperature: 55, Humidity: 40}
			must.Do(t, a.store.Judge(t.Context(), incidents.Judged{Reading: r, Arrived: time.Now(), Defaults: alert.Defaults()}))
		}, unstored},
		"taken": {warming, func(a *testCustomer, _ int64) {
			a.act(t, a.incidents(t, "")[0].ID, `"action":"hand_over","to":"Anna"`)
		}, taken},
		"silenced alone": {readings{"n1": {28, 28}}, func(a *testCustomer, room int64) {
			a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 20.0, ""))
			a.judge(t, "n1", time.Now(), 28)
			body, _ := a.overview(t, "")
			must.Equal(t, "before maintenance", "warning", body.Sentence.Tone)
			began := time.Now().Add(-time.Minute).Format(time.RFC3339)
			a.create(t, "/api/v1/maintenance", fmt.Sprintf(`{"start_time":%q,"duration_s":3600,"room_ids":[%d],"confirm":true}`, began, room))
		}, shownSentence{Says: "maintenance", Tone: "note", Outside: 1}},
		"service late":              {readings{"n1": {22, 22}}, late, shownSentence{Says: "service_late", Tone: "note"}},
		"service late, and too hot": {warming, late, hot},
	} {
		s, a := newTestCustomer(t)
		room := a.heldSensor(t, "n1", "n2", "n3")
		for node, temperatures := range c.readings {
			now := s.now()
			s.reading(t, node, now.Add(-5*time.Minute), temperatures[0], 40)
			s.reading(t, node, now, temperatures[1], 40)
			s.judge(t, node, now, temperatures[1])
		}
		if c.then != nil {
			c.then(a, room)
		}
		body, _ := a.overview(t, "")
		got := body.Sentence
		if c.want.Says == "incident" {
			c.want.IncidentID = body.Incidents[0].ID
			must.Hold(t, got.Since != nil && s.now().Sub(*got.Since) <= time.Minute, "%s: since %v", name, got.Since)
		}
		got.Since, got.ValueAt = nil, nil
		if math.Abs(got.Rate-c.want.Rate) < 0.05 { // the clock goes on between two readings
			got.Rate = c.want.Rate
		}
		must.Equal(t, name, c.want, got)
	}
}

// TestDeadSensorIsNotHot shows contract 5.10: a sensor that died hot is critical, but what is so now comes before it.
func TestDeadSensorIsNotHot(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	for name, node := range map[string]string{"Silent Hall": "s1", "Live Hall": "t1"} {
		a.sensors(t, a.room(t, name), node)
	}
	died := s.now().Add(-6 * time.Minute)
	for _, at := range []time.Duration{-2 * time.Minute, -time.Minute} {
		s.reading(t, "s1", died.Add(at), 60, 40)
	}
	s.judge(t, "s1", died, 60)
	alone, _ := a.overview(t, "")
	said := alone.Sentence
	must.Equal(t, "alone", []any{"incident", "s1", 0}, []any{said.Says, said.SensorID, said.Outside})
	must.Equal(t, "as of", reading.TruncateTime(died).UTC(), said.ValueAt.UTC())
	s.judge(t, "t1", s.now(), 51)
	body, _ := a.overview(t, "")
	first, second := body.Rooms[0], body.Rooms[1]
	must.Equal(t, "rooms", []any{"Live Hall", 51.0, "critical", true},
		[]any{first.Name, *first.MaxTemperature, second.State, second.MaxTemperature == nil})
	must.Equal(t, "reporting", []int{1, 2}, []int{body.Counts["reporting"], body.Counts["critical"]})
	must.Equal(t, "the dead one", "false critical", fmt.Sprint(body.Sensors[0].Reports, " ", body.Sensors[0].State))
	must.Equal(t, "sentence", "t1 1", fmt.Sprint(body.Sentence.SensorID, " ", body.Sentence.Outside))
	must.Equal(t, "now", &shownNow{Value: new(60.0), Silent: true}, body.Incidents[1].Now)
}

// states has ingest store the state of a node that has sent a reading some time before now.
func (s *testAPI) states(tb testing.TB, node string, before time.Duration, temperature, humidity float64) {
	tb.Helper()
	s.holdsBefore(tb, node)
	r := reading.Reading{NodeID: node, MessageID: before.String(), Time: reading.TruncateTime(s.now().Add(-before)), Temperature: temperature, Humidity: humidity}
	must.Do(tb, s.store.UpdateNodeStates(tb.Context(), []pipeline.NodeReading{{Reading: r}}))
}

// TestThermometerThatStopped is of a sensor whose humidity goes on: its last temperature is not the room's.
func TestThermometerThatStopped(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	a.heldSensor(t, "half", "whole")
	s.states(t, "half", 10*time.Minute+30*time.Second, 45, 40)
	s.states(t, "half", 10*time.Minute, 45, 40)
	s.states(t, "half", 0, reading.Missing(), 41)
	s.states(t, "whole", 0, 22, 40)
	body, _ := a.overview(t, "")
	must.Equal(t, "highest of the room", new(22.0), body.Rooms[0].MaxTemperature)
	must.Equal(t, "sentence", "sensor 0", fmt.Sprint(body.Sentence.Cause, " ", body.Sentence.Outside))
	must.Equal(t, "the newest of each", []float64{45, 41}, []float64{*body.Sensors[0].Temperature, *body.Sensors[0].Humidity})
}

// TestRoomsInOrderOfTrouble has rooms come by state, by how far beyond a limit or the recommended range, and by name.
func TestRoomsInOrderOfTrouble(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	rooms := map[string]float64{
		"Hall 10": 24, "Hall 9": 26, "Warm": 33, "Hot": 37, "Cold": 10, "Damp": 22, "Burning": 51, "Ablaze": 60, "Mute": 20, "Empty": 0, "New": 0,
	}
	for name, temperature := range rooms {
		room, node, ago := a.room(t, name), strings.ReplaceAll(name, " ", "-"), time.Duration(0)
		if name == "Empty" {
			continue
		}
		a.sensors(t, room, node)
		switch name {
		case "New":
			continue
		case "Damp":
			a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 20.0, `,"sensor_id":"Damp"`))
		case "Mute":
			ago = 10 * time.Minute
		}
		s.judge(t, node, s.now().Add(-ago), temperature)
	}
	body, _ := a.overview(t, "")
	var got []string
	for _, room := range body.Rooms {
		got = append(got, room.Name+" "+room.State)
	}
	must.Equal(t, "", []string{
		"Ablaze critical", "Burning critical", "Mute silent", "Damp warning", "New unreported", "Hot ok", "Cold ok", "Warm ok", "Empty ok", "Hall 9 ok", "Hall 10 ok",
	}, got)
}

// scraped is the Accept of Prometheus 2.42, which Debian has.
const scraped = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"

// metrics scrapes as Prometheus does, or as accept says.
func (s *testAPI) metrics(tb testing.TB, key, accept string) reply {
	tb.Helper()
	return s.send(tb, key, "GET", "/api/v1/metrics", "", map[string]string{"Accept": accept}).is(tb, 200)
}

// TestMetrics reads the metrics of two rooms as Prometheus and as curl do; promtool judges them. Contract 12.8.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	hall := a.create(t, "/api/v1/server_rooms/new_room", `{"name":"Hall \"A\\B\""}`)
	lab := a.room(t, "Lab")
	for id, room := range map[string]int64{"hall-1": hall, "hall-2": hall, "lab-1": lab} {
		a.sensors(t, room, id)
	}
	now := s.now()
	s.reading(t, "hall-1", now, 55.5, 40)
	s.judge(t, "hall-1", now, 55.5)
	s.reading(t, "lab-1", now, 20, 50)
	all, limited := a.key(t, `"scope":"read"`), a.key(t, fmt.Sprintf(`"scope":"read","room_ids":[%d]`, lab))
	const room = `room="Hall \"A\\B\""`

	got := s.metrics(t, all.text, scraped)
	must.Contain(t, "Content-Type", got.header.Get("Content-Type"),
		"application/openmetrics-text; version=1.0.0; charset=utf-8")
	must.Equal(t, "it ends", true, strings.HasSuffix(string(got.body), "\n# EOF"))
	got.has(t, 200,
		"# TYPE coldaisle_temperature_celsius gauge\n",
		`coldaisle_temperature_celsius{node_id="hall-1",sensor="Rack",`+room+`,gateway=""} 55.5`+"\n",
		`coldaisle_relative_humidity_ratio{node_id="lab-1",sensor="Rack",room="Lab",gateway=""} 0.5`+"\n",
		`coldaisle_dew_point_celsius{node_id="lab-1",sensor="Rack",room="Lab",gateway=""} 9.25`,
		`coldaisle_last_reading_timestamp_seconds{node_id="lab-1",sensor="Rack",room="Lab",gateway=""} `+
			strconv.FormatFloat(float64(now.UnixMilli())/1000, 'g', -1, 64)+"\n",
		`coldaisle_sensor_up{node_id="lab-1",sensor="Rack",room="Lab",gateway=""} 1.0`+"\n",
		`coldaisle_sensor_up{node_id="hall-2",sensor="Rack",`+room+`,gateway=""} 0.0`+"\n",
		`coldaisle_incidents{`+room+`,cause="too_hot",severity="critical",state="open"} 1.0`+"\n",
		"coldaisle_probe_lateness_seconds 0.0\n",
	)

	// As curl asks.
	plain := s.metrics(t, all.text, "*/*")
	must.Contain(t, "Content-Type", plain.header.Get("Content-Type"), "text/plain; version=0.0.4")
	plain.lacks(t, "EOF")
	judge := exec.CommandContext(t.Context(), tooltest.Program(t, "promtool"), "check", "metrics")
	judge.Stdin = strings.NewReader(string(plain.body) + "\n") // which a reply has lost
	said, err := judge.CombinedOutput()
	must.Hold(t, err == nil && len(bytes.TrimSpace(said)) == 0, "promtool: %v: %s", err, said)

	// A key for a room.
	s.metrics(t, limited.text, scraped).has(t, 200, "lab-1").lacks(t, "hall", "Hall")

	// Later nothing has come: the values of silent sensors are gone, and what was wrong is wrong still.
	s.forward(time.Hour)
	const silent = `coldaisle_incidents{room="Lab",cause="silent",severity="warning",state="open"} 1.0`
	s.metrics(t, all.text, scraped).has(t, 200, silent, "coldaisle_last_reading_timestamp_seconds{",
		`coldaisle_sensor_up{node_id="lab-1",sensor="Rack",room="Lab",gateway=""} 0.0`,
		`coldaisle_incidents{`+room+`,cause="too_hot",severity="critical",state="open"} 1.0`).lacks(t, "coldaisle_temperature_celsius{")
	s.metrics(t, limited.text, scraped).has(t, 200, silent).lacks(t, "Hall")

	// Without a sensor there is little to tell, in the right form.
	s.metrics(t, s.customer(t).token, scraped).has(t, 200, "coldaisle_probe_lateness_seconds 0.0\n# EOF")
}

func (s *testAPI) countedIncidents(t *testing.T, a *testCustomer) (series []string) {
	t.Helper()
	for line := range strings.Lines(string(s.metrics(t, a.token, scraped).body)) {
		if rest, ok := strings.CutPrefix(line, "coldaisle_incidents{"); ok {
			series = append(series, "{"+strings.TrimSpace(rest))
		}
	}
	return series
}

// TestMetricsOfWhoHasIt tells what somebody has taken, and what is in maintenance, from what calls. Contract 12.8.
func TestMetricsOfWhoHasIt(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	rooms := map[string]int64{}
	for _, name := range []string{"A", "B", "C"} {
		rooms[name] = a.room(t, name)
		a.sensors(t, rooms[name], "hot-"+name, "cellar-"+name, "silent-"+name)
		s.judge(t, "hot-"+name, s.now(), 55)
		s.reading(t, "silent-"+name, s.now().Add(-10*time.Minute), 20, 40)
	}
	s.silentGateway(t, a, s.now().Add(-10*time.Minute), "cellar-A", "cellar-B", "cellar-C")
	series := func(gateway string, states ...string) []string {
		want := []string{fmt.Sprintf(`{room="",cause="silent",severity="critical",state=%q} 1.0`, gateway)}
		for k, state := range states {
			for _, of := range []string{`cause="silent",severity="warning"`, `cause="too_hot",severity="critical"`} {
				want = append(want, fmt.Sprintf(`{room="%c",%s,state=%q} 1.0`, 'A'+k, of, state))
			}
		}
		return want
	}
	must.Equal(t, "at first", series("open", "open", "open", "open"), s.countedIncidents(t, a))

	for _, room := range []string{"B", "C"} {
		for _, i := range a.incidents(t, fmt.Sprintf("?room_id=%d", rooms[room])) {
			if i.RoomID != 0 {
				a.act(t, i.ID, `"action":"take"`)
			}
		}
	}
	began := s.now().Add(-time.Minute).Format(time.RFC3339)
	window := a.create(t, "/api/v1/maintenance", fmt.Sprintf(`{"start_time":%q,"duration_s":3600,"room_ids":[%d],"confirm":true}`, began, rooms["C"]))
	must.Equal(t, "B taken, C in maintenance and taken", series("open", "open", "taken", "silenced"), s.countedIncidents(t, a))

	a.call(t, a.token, "DELETE", fmt.Sprintf("/api/v1/maintenance/%d", window), "").is(t, http.StatusNoContent)
	must.Equal(t, "after maintenance", series("open", "open", "taken", "taken"), s.countedIncidents(t, a))

	// A gateway's silence calls while one of its nodes is not in maintenance.
	for k, sensor := range []string{"hot-A", "silent-A", "cellar-A", "cellar-B", "cellar-C"} {
		a.create(t, "/api/v1/maintenance", fmt.Sprintf(`{"start_time":%q,"duration_s":3600,"sensor_id":%q,"confirm":true}`, began, sensor))
		if k == 3 {
			must.Equal(t, "maintenance of all but one", series("open", "silenced", "taken", "taken"), s.countedIncidents(t, a))
		}
	}
	must.Equal(t, "maintenance of all of the gateway's", series("silenced", "silenced", "taken", "taken"), s.countedIncidents(t, a))
}

// TestMetricsOfASlowQuantity has the humidity, which comes each ten minutes, beside a temperature that comes each 30 s.
func TestMetricsOfASlowQuantity(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	a.heldSensor(t, "slow")
	for before := 27 * time.Minute; before >= 0; before -= 30 * time.Second {
		humidity := reading.Missing()
		if before%(10*time.Minute) == 7*time.Minute {
			humidity = 40
		}
		s.states(t, "slow", before, 22, humidity)
	}
	for _, name := range []string{"temperature_celsius", "relative_humidity_ratio", "dew_point_celsius"} {
		s.metrics(t, a.token, scraped).has(t, 200, "coldaisle_"+name+`{node_id="slow"`)
	}
}

// TestMetricsOfALateIncident counts one as late until a reading comes in time. Contract 11.1, 12.8.
func TestMetricsOfALateIncident(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	a.heldSensor(t, "hot")
	now := s.now()
	s.judgeArrived(t, "hot", now.Add(-time.Minute-incident.JoinGap), now, 55)
	late := []string{`{room="Hall",cause="silent",severity="warning",state="open"} 1.0`, `{room="Hall",cause="too_hot",severity="critical",state="late"} 1.0`}
	must.Equal(t, "", late, s.countedIncidents(t, a))
	s.judge(t, "hot", now, 55)
	must.Equal(t, "after a reading in time", `{room="Hall",cause="too_hot",severity="critical",state="open"} 1.0`, s.countedIncidents(t, a)[1])
}
