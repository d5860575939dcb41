package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/run/api/alerting"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/incidents"
)

type startedDrill struct {
	Drill shownDrill
	Code  string
}

type shownDrill struct {
	ID          int
	State       string
	Incident    int64  `json:"incident_id"`
	FailedStage string `json:"failed_stage"`
	Stages      []struct {
		Stage string
		At    *time.Time
	}
}

// reached lists the stages that a drill has reached.
func (d shownDrill) reached() string {
	var reached []string
	for _, s := range d.Stages {
		if s.At != nil {
			reached = append(reached, s.Stage)
		}
	}
	return strings.Join(reached, " ")
}

// drillRoom has a sensor that is heard, and a rule that judges only after an hour.
func drillRoom(t *testing.T, s *testAPI, a *testCustomer) (room, rule int64) {
	t.Helper()
	room = a.room(t, "Hall")
	a.sensors(t, room, "n1", "n2")
	s.reading(t, "n1", time.Now(), 20, 40)
	rule = a.create(t, "/api/v1/rules", `{"quantity":"temperature","direction":"above","limit":27,"for_s":3600,"clear_margin":0,"clear_for_s":0,"severity":"critical","enabled":true}`)
	return room, rule
}

// TestDrill runs a drill beside a real incident of the same room and cause: it is never joined to
// it, comes after it, and is in no count of real incidents.
func TestDrill(t *testing.T) {
	t.Parallel()
	topic := &published[alerting.DrillMessage]{}
	s, a := newTestCustomer(t, func(c *Config) { c.Drills = topic })
	room, rule := drillRoom(t, s, a)
	started := get[startedDrill](t, a, http.MethodPost, "/api/v1/drills", fmt.Sprintf(`{"rule_id":%d,"sensor_id":"n1"}`, rule))
	path := fmt.Sprintf("/api/v1/drills/%d", started.Drill.ID)
	shown := func() shownDrill { return get[shownDrill](t, a, http.MethodGet, path, "") }
	must.Equal(t, "state", "running", started.Drill.State)
	must.Equal(t, "code", "", started.Code)
	must.Equal(t, "stages", "sent published", shown().reached())

	m := incidents.DrillMessage{Code: topic.last().Code, Sent: time.Now(), Published: time.Now()}
	for range 2 { // each delivered twice
		must.Equal(t, "ingested", true, must.Get(s.store.IngestDrill(t.Context(), m))(t))
		must.Equal(t, "judged", true, must.Get(s.store.JudgeDrill(t.Context(), m))(t))
		must.Equal(t, "alert", true, must.Get(s.store.AlertDrill(t.Context(), m.Code))(t))
	}
	must.Equal(t, "stages", "sent published ingested judged alert", shown().reached())
	s.judge(t, "n2", time.Now(), 60) // a real one, of the thresholds
	type told struct {
		ID       int64
		Drill    bool
		Cause    string
		Severity string
		Worst    struct {
			Reason string
			Limit  float64
		}
		Timeline []struct{ Event string }
	}
	overview := get[struct {
		Sentence struct {
			IncidentID int64 `json:"incident_id"`
			Others     int
			Drills     int
		}
		Incidents []told
		Counts    struct{ Lasting, Open int } `json:"incident_counts"`
		Rooms     []struct{ State string }
	}](t, a, http.MethodGet, "/api/v1/overview", "")
	if len(overview.Incidents) != 2 || overview.Incidents[0].Drill || !overview.Incidents[1].Drill {
		t.Fatalf("incidents %+v", overview.Incidents)
	}
	drilled := overview.Incidents[1]
	must.Equal(t, "cause", "too_hot critical 27", fmt.Sprint(drilled.Cause, " ", drilled.Severity, " ", drilled.Worst.Limit))
	if !strings.HasPrefix(drilled.Worst.Reason, "Only a drill: ") {
		t.Errorf("reason %q", drilled.Worst.Reason)
	}
	if overview.Sentence.IncidentID != overview.Incidents[0].ID || overview.Sentence.Others != 0 || overview.Sentence.Drills != 1 ||
		overview.Counts.Lasting != 1 || overview.Counts.Open != 1 {
		t.Errorf("sentence %+v, counts %+v", overview.Sentence, overview.Counts)
	}
	must.Equal(t, "stages", "sent published ingested judged alert shown", shown().reached())
	_, metrics := s.metrics(t, a.key(t, `"scope":"read"`).text, scraped)
	if !strings.Contains(metrics, fmt.Sprintf(`coldaisle_drill{room="Hall",cause="too_hot",severity="critical",drill="%d"} 1`, started.Drill.ID)) ||
		strings.Count(metrics, "\ncoldaisle_incidents{") != 1 {
		t.Errorf("metrics %s", metrics)
	}

	must.Equal(t, "incident", drilled.ID, shown().Incident)
	incidentPath := fmt.Sprintf("/api/v1/incidents/%d", drilled.ID)
	a.call(t, a.token, http.MethodPost, incidentPath+"/told", "").is(t, 204)
	a.call(t, a.token, http.MethodPost, incidentPath+"/actions", `{"action":"take"}`).is(t, 200)
	d := shown()
	must.Equal(t, "stages", "sent published ingested judged alert shown told taken", d.reached())
	must.Equal(t, "state", "passed", d.State)
	for i := 1; i < len(d.Stages)-2; i++ { // told and taken are people's
		if d.Stages[i].At.Before(*d.Stages[i-1].At) {
			t.Errorf("%s at %v, before %s", d.Stages[i].Stage, d.Stages[i].At, d.Stages[i-1].Stage)
		}
	}
	// It is over once it is through, and nobody has to see it; the real one lasts.
	lasting := get[[]told](t, a, http.MethodGet, "/api/v1/incidents?state=lasting", "")
	if len(lasting) != 1 || lasting[0].Drill {
		t.Errorf("lasting %+v", lasting)
	}
	must.Equal(t, "unseen", 0, must.Get(s.store.Unseen(t.Context(), a.id))(t))
	var events []string
	for _, e := range get[told](t, a, http.MethodGet, incidentPath, "").Timeline {
		events = append(events, e.Event)
	}
	must.Equal(t, "timeline", "started taken ended", strings.Join(events, " "))
	for table, want := range map[string]int{"alerts": 0, "excursions": 1, "sensor_data.readings": 2, fmt.Sprintf("room_incidents WHERE room_id = %d", room): 2} {
		must.Equal(t, "rows in "+table, want, s.count(t, `SELECT count(*) FROM `+table))
	}
}

// TestDrillOutlivesItsClient has the client go while the message is published.
func TestDrillOutlivesItsClient(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	s, a := newTestCustomer(t, func(c *Config) { c.Drills = leaving(leave) })
	_, rule := drillRoom(t, s, a)
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/api/v1/drills", strings.NewReader(fmt.Sprintf(`{"rule_id":%d,"sensor_id":"n1"}`, rule)))
	request.Header.Set("Authorization", "Bearer "+a.token)
	s.api.ServeHTTP(httptest.NewRecorder(), request)
	drills := get[[]shownDrill](t, a, http.MethodGet, "/api/v1/drills", "")
	must.Equal(t, "stages", "sent published", drills[0].reached())
}

// leaving is a topic whose first message has its client go.
type leaving context.CancelFunc

func (leave leaving) Publish(ctx context.Context, _ alerting.DrillMessage) error {
	leave()
	return ctx.Err()
}

// TestDrillFailsAndNamesTheStage leaves out one stage after the other.
func TestDrillFailsAndNamesTheStage(t *testing.T) {
	t.Parallel()
	topic := &published[alerting.DrillMessage]{}
	s, a := newTestCustomer(t, func(c *Config) { c.Drills = topic })
	_, rule := drillRoom(t, s, a)
	failed := map[string]int{}
	for _, missing := range []string{"published", "ingested", "judged", "alert", "told", "taken"} {
		topic.failing(nil)
		if missing == "published" {
			topic.failing(errors.New("Pub/Sub is away"))
		}
		d := get[startedDrill](t, a, http.MethodPost, "/api/v1/drills", fmt.Sprintf(`{"rule_id":%d,"sensor_id":"n1"}`, rule)).Drill
		failed[missing] = d.ID
		if missing == "published" {
			continue
		}
		m := incidents.DrillMessage{Code: topic.last().Code, Sent: time.Now(), Published: time.Now()}
		if missing != "ingested" {
			must.Get(s.store.IngestDrill(t.Context(), m))(t)
		}
		if missing == "judged" {
			continue
		}
		must.Get(s.store.JudgeDrill(t.Context(), m))(t)
		if missing != "alert" {
			must.Get(s.store.AlertDrill(t.Context(), m.Code))(t)
		}
		shown := a.incidents(t, "?state=lasting")
		if missing != "told" {
			a.call(t, a.token, http.MethodPost, fmt.Sprintf("/api/v1/incidents/%d/told", shown[0].ID), "").is(t, 204)
		}
		if missing != "taken" {
			a.call(t, a.token, http.MethodPost, fmt.Sprintf("/api/v1/incidents/%d/actions", shown[0].ID), `{"action":"take"}`).is(t, 200)
		}
	}
	onSite := get[startedDrill](t, a, http.MethodPost, "/api/v1/drills", fmt.Sprintf(`{"rule_id":%d,"sensor_id":"n1","on_site":true}`, rule))
	failed["sent"] = onSite.Drill.ID
	unshown := get[startedDrill](t, a, http.MethodPost, "/api/v1/drills", fmt.Sprintf(`{"rule_id":%d,"sensor_id":"n1"}`, rule)).Drill
	failed["shown"] = unshown.ID
	m := incidents.DrillMessage{Code: topic.last().Code, Sent: time.Now(), Published: time.Now()}
	must.Get(s.store.IngestDrill(t.Context(), m))(t)
	must.Get(s.store.JudgeDrill(t.Context(), m))(t)
	must.Get(s.store.AlertDrill(t.Context(), m.Code))(t)

	s.forward(incident.DrillTime + time.Second)
	for stage, id := range failed {
		d := get[shownDrill](t, a, http.MethodGet, fmt.Sprintf("/api/v1/drills/%d", id), "")
		if stage == "taken" {
			must.Equal(t, "not taken yet", "running", d.State)
		} else if d.State != "failed" || d.FailedStage != stage {
			t.Errorf("without %s: %s at %q", stage, d.State, d.FailedStage)
		}
	}
	s.forward(incident.DrillTakenTime + time.Second)
	a.login(t) // the token is over, too
	d := get[shownDrill](t, a, http.MethodGet, fmt.Sprintf("/api/v1/drills/%d", failed["taken"]), "")
	must.Equal(t, "not taken", "failed taken", d.State+" "+d.FailedStage)
	if lasting := a.incidents(t, "?state=lasting&cause=too_hot"); len(lasting) != 0 { // the sensor is silent by then
		t.Errorf("after their time still last %+v", lasting)
	}
	list := get[[]shownDrill](t, a, http.MethodGet, "/api/v1/drills?limit=3", "")
	if len(list) != 3 || list[0].ID != unshown.ID {
		t.Errorf("list %+v", list)
	}
}

// TestDrillComesAsItIsTo holds that a code is good for its own way, its account and five minutes.
func TestDrillComesAsItIsTo(t *testing.T) {
	t.Parallel()
	topic := &published[alerting.DrillMessage]{}
	s, a := newTestCustomer(t, func(c *Config) { c.Drills = topic })
	_, rule := drillRoom(t, s, a)
	start := func(onSite bool) string {
		started := get[startedDrill](t, a, http.MethodPost, "/api/v1/drills", fmt.Sprintf(`{"rule_id":%d,"sensor_id":"n1","on_site":%v}`, rule, onSite))
		if onSite {
			return strings.ToLower(started.Code[:10]) + "-" + started.Code[10:] // as somebody types it
		}
		return topic.last().Code
	}
	here, onSite := start(false), start(true)
	for _, c := range []struct {
		code    string
		channel int64
		known   bool
	}{{here, 0, true}, {here, a.id, false}, {onSite, 0, false}, {onSite, a.id + 1, false}, {onSite, a.id, true}, {"GUESS", 0, false}} {
		m := incidents.DrillMessage{Code: c.code, Channel: reading.Channel(c.channel), Sent: time.Now(), Published: time.Now()}
		for name, reach := range map[string]func(context.Context, incidents.DrillMessage) (bool, error){"ingest": s.store.IngestDrill, "judge": s.store.JudgeDrill} {
			must.Equal(t, fmt.Sprintf("%s of %s in channel %d", name, c.code, c.channel), c.known, must.Get(reach(t.Context(), m))(t))
		}
	}
	late := start(false)
	s.execute(t, `UPDATE drills SET created_at = created_at - interval '5 minutes 1 second'`)
	if must.Get(s.store.JudgeDrill(t.Context(), incidents.DrillMessage{Code: late}))(t) {
		t.Error("a code is judged after its time")
	}
	must.Equal(t, "incidents", 2, s.count(t, `SELECT count(*) FROM room_incidents`))
}

// TestRefusedDrills has the bad inputs: nothing is published, nothing changed.
func TestRefusedDrills(t *testing.T) {
	t.Parallel()
	topic := &published[alerting.DrillMessage]{}
	s, a := newTestCustomer(t, func(c *Config) { c.Drills = topic })
	_, rule := drillRoom(t, s, a)
	lab := a.room(t, "Lab")
	a.sensors(t, lab, "never", "gone", "worked-on")
	s.reading(t, "gone", time.Now().Add(-time.Hour), 20, 40)
	s.reading(t, "worked-on", time.Now(), 20, 40)
	a.call(t, a.token, http.MethodPost, "/api/v1/maintenance", fmt.Sprintf(`{"start_time":%q,"duration_s":600,"room_ids":[%d],"confirm":true}`,
		time.Now().UTC().Format(time.RFC3339), lab)).is(t, 201)
	elsewhere := a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 30.0, fmt.Sprintf(`,"room_id":%d`, lab)))
	wide := a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 33.0, ""))
	a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 34.0, `,"sensor_id":"n1"`)) // which judges it instead
	off := a.create(t, "/api/v1/rules", strings.Replace(fmt.Sprintf(someRule, 31.0, ""), `"enabled":true`, `"enabled":false`, 1))
	for _, c := range []struct {
		body   string
		status int
		detail string
	}{
		{fmt.Sprintf(`{"rule_id":%d,"sensor_id":"never"}`, rule), 409, "The sensor is silent: its readings would alarm nobody"},
		{fmt.Sprintf(`{"rule_id":%d,"sensor_id":"gone"}`, rule), 409, "The sensor is silent: its readings would alarm nobody"},
		{fmt.Sprintf(`{"rule_id":%d,"sensor_id":"worked-on"}`, elsewhere), 409, "A maintenance window covers the sensor: its readings would alarm nobody"},
		{fmt.Sprintf(`{"rule_id":%d,"sensor_id":"nobody"}`, rule), 404, "Sensor not found"},
		{`{"rule_id":999999,"sensor_id":"n1"}`, 404, "Rule not found"},
		{fmt.Sprintf(`{"rule_id":%d,"sensor_id":"n1"}`, elsewhere), 400, "rule_id: the rule does not apply to the sensor"},
		{fmt.Sprintf(`{"rule_id":%d,"sensor_id":"n1"}`, wide), 400, "rule_id: the rule does not apply to the sensor"},
		{fmt.Sprintf(`{"rule_id":%d,"sensor_id":"n1"}`, off), 400, "rule_id: the rule is off"},
		{`{"sensor_id":"n1"}`, 400, "expected required property rule_id to be present"},
		{`{"rule_id":"x","sensor_id":"n1"}`, 400, "rule_id: expected integer"},
	} {
		a.call(t, a.token, http.MethodPost, "/api/v1/drills", c.body).says(t, c.status, c.detail)
	}
	for range incidents.MaxDrills {
		a.call(t, a.token, http.MethodPost, "/api/v1/drills", fmt.Sprintf(`{"rule_id":%d,"sensor_id":"n1"}`, rule)).is(t, 201)
	}
	got := a.call(t, a.token, http.MethodPost, "/api/v1/drills", fmt.Sprintf(`{"rule_id":%d,"sensor_id":"n1"}`, rule))
	got.says(t, 429, "At most 10 drills in a day")
	if got.header.Get("Retry-After") == "" || len(topic.all()) != incidents.MaxDrills {
		t.Errorf("header %v, %d published", got.header, len(topic.all()))
	}
}
