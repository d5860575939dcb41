package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// TestWatchKey holds that a key of the scope watch reads, takes incidents and reports itself, alone. Contract 12.2.
func TestWatchKey(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	a.heldSensor(t, "n1")
	s.judge(t, "n1", s.now(), 60)
	hot := a.incidents(t, "")[0].ID
	key := a.key(t, `"scope":"watch"`)
	actions := fmt.Sprintf("/api/v1/incidents/%d/actions", hot)
	for _, action := range []string{`{"action":"give_back"}`, `{"action":"comment","comment":"x"}`, `{"action":"hand_over","to":"Ana"}`} {
		s.call(t, key.text, "POST", actions, action).says(t, 403, "An API key with the scope watch may only take incidents")
	}
	s.call(t, key.text, "POST", actions, `{"action":"take"}`).has(t, 200, `"taken_by":"API key A program"`)
	const beat = `{"name":"Zurich","last_poll_age_s":0,"queue_age_s":0}`
	s.call(t, key.text, "GET", fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", a.id), "").has(t, 200, `"instructions":`)
	allowed := map[string]bool{"actOnIncident": true, "reportWatch": true, "reportTold": true}
	for _, op := range operations(t) {
		_, sentence, _ := strings.Cut(op.Description, "API keys: ")
		if sentence == "" || strings.HasPrefix(sentence, "any scope") {
			continue // public, or only reads
		}
		path := strings.NewReplacer("{", "", "}", "").Replace(op.path)
		got := s.call(t, key.text, op.method, path, "{}")
		refused := got.status == 403
		must.Hold(t, refused != allowed[op.id], "%s with a key of a watch: %d %s", op.id, got.status, got.body)
	}
	s.call(t, key.text, "POST", "/api/v1/watches/heartbeat", beat).is(t, 204)
	s.call(t, a.token, "POST", "/api/v1/watches/heartbeat", beat).says(t, 403, "Only API keys may do this")
	for _, scope := range []string{"read", "write"} {
		s.call(t, a.key(t, fmt.Sprintf(`"scope":%q`, scope)).text, "POST", "/api/v1/watches/heartbeat", beat).
			says(t, 403, "This needs an API key with the scope watch")
	}
	for body, detail := range map[string]string{
		`{"last_poll_age_s":0,"queue_age_s":0}`:                                      "name",
		`{"name":" ","last_poll_age_s":0,"queue_age_s":0}`:                           "name",
		`{"name":"` + strings.Repeat("x", 81) + `","last_poll_age_s":0}`:             "name: expected length <= 80",
		`{"name":"x","last_poll_age_s":-1,"queue_age_s":0}`:                          "last_poll_age_s: expected number >= 0",
		`{"name":"x","last_poll_age_s":0,"queue_age_s":1e12}`:                        "queue_age_s: expected number <= ",
		`{"name":"x","last_poll_age_s":0,"queue_age_s":0,"last_success_age_s":"no"}`: "last_success_age_s",
	} {
		s.call(t, key.text, "POST", "/api/v1/watches/heartbeat", body).has(t, 400, detail)
	}
}

// TestNobodyWouldBeWoken has watches that report late, have not read, and cannot send.
func TestNobodyWouldBeWoken(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	key := a.key(t, `"scope":"watch"`)
	beat := func(name string, poll, queue int) {
		t.Helper()
		s.call(t, key.text, "POST", "/api/v1/watches/heartbeat",
			fmt.Sprintf(`{"name":%q,"last_poll_age_s":%d,"last_success_age_s":null,"queue_age_s":%d}`, name, poll, queue)).is(t, 204)
	}
	type shown struct {
		ID                   int64
		Name, State, Problem string
	}
	watches := func() []shown { return get[[]shown](t, a, "GET", "/api/v1/watches", "") }
	problems := func() string {
		var all []string
		for _, w := range watches() {
			all = append(all, w.Name+" "+w.State+": "+cmp.Or(w.Problem, "-"))
		}
		return strings.Join(all, "\n")
	}
	tag := func() string { return s.call(t, a.token, "GET", "/api/v1/overview", "").header.Get("ETag") }
	must.Equal(t, "without a watch", "", problems())
	s.call(t, a.token, "GET", "/api/v1/overview", "").has(t, 200, `"watched":false`)
	alone := tag()
	beat("Zurich", 3, 299)
	must.Equal(t, "well", "Zurich ok: -", problems())
	s.call(t, a.token, "GET", "/api/v1/overview", "").has(t, 200, `"watched":true`)
	must.Hold(t, tag() != alone, "a page that polls does not hear of the first watch")
	s.execute(t, `UPDATE watches SET heartbeat_at = heartbeat_at - interval '20 minutes 5 seconds' WHERE customer_id = $1`, a.id)
	must.Equal(t, "silent", "Zurich silent: Nobody would be woken: the watch of Zurich has been silent for 20 min", problems())
	ill := tag()
	s.call(t, a.token, "GET", "/api/v1/overview", "").has(t, 200, `"watch_problems":["Nobody would be woken: the watch of Zurich has been silent for 20 min"]`)
	beat("Bern", 400, 0)
	must.Equal(t, "a page that polls hears of another watch", true, tag() != ill)
	must.Equal(t, "two", "Bern not_reading: Nobody would be woken: the watch of Bern has not read the incidents for 6 min\n"+
		"Zurich silent: Nobody would be woken: the watch of Zurich has been silent for 20 min", problems())
	beat("Zurich", 3, 0)
	must.Equal(t, "one is well", "Bern not_reading: The watch of Bern has not read the incidents for 6 min\nZurich ok: -", problems())
	beat("Zurich", 3, 720)
	must.Equal(t, "a dead mail server", "Bern not_reading: Nobody would be woken: the watch of Bern has not read the incidents for 6 min\n"+
		"Zurich not_sending: Nobody would be woken: the watch of Zurich has not been able to send a message for 12 min", problems())
	s.call(t, key.text, "POST", "/api/v1/watches/heartbeat", `{"name":"Zurich","last_poll_age_s":3,"last_success_age_s":30,"queue_age_s":400}`).is(t, 204)
	must.Equal(t, "one step is dead", "Bern not_reading: The watch of Bern has not read the incidents for 6 min\n"+
		"Zurich not_sending: A step of the watch of Zurich has not been able to send a message for 6 min", problems())
	for _, w := range watches() {
		s.call(t, a.token, "DELETE", fmt.Sprintf("/api/v1/watches/%d", w.ID), "").is(t, 204)
	}
	must.Equal(t, "removed", "", problems())
	for n := range 100 {
		beat(fmt.Sprint("w", n), 0, 0)
	}
	s.call(t, key.text, "POST", "/api/v1/watches/heartbeat", `{"name":"one more","last_poll_age_s":0,"queue_age_s":0}`).has(t, 400, "At most 100 watches")
	beat("w7", 0, 0)
}

// TestWatchHasItsTimeToReport holds that a watch is not blamed for minutes in which nothing reached the service.
func TestWatchHasItsTimeToReport(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	key := a.key(t, `"scope":"watch"`)
	s.call(t, key.text, "POST", "/api/v1/watches/heartbeat", `{"name":"Zurich","last_poll_age_s":0,"queue_age_s":0}`).is(t, 204)
	for _, c := range []struct {
		name           string
		probes         []int // minutes ago
		heard, polled  int   // minutes ago
		state, problem string
	}{
		{"on time", []int{12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}, 12, 12, "silent", "has been silent for 12 min"},
		{"away, and no probe since", []int{12}, 12, 12, "ok", ""},
		{"away, and heard before a probe", []int{12}, 0, 12, "ok", ""},
		{"back", []int{12, 2, 1, 0}, 12, 12, "ok", ""},
		{"back, and heard before it has read", []int{12, 2, 1, 0}, 1, 12, "ok", ""},
		{"back for long enough", []int{12, 4, 3, 2, 1, 0}, 12, 12, "silent", "has been silent for 12 min"},
		{"back, and it does not read", []int{12, 4, 3, 2, 1, 0}, 0, 12, "not_reading", "has not read the incidents for 12 min"},
		{"away while a message waited for a minute", []int{12}, 12, 13, "ok", ""},
		{"silent before", []int{12}, 20, 20, "silent", "has been silent for 20 min"},
		{"heard while readings are late", []int{20}, 12, 12, "silent", "has been silent for 12 min"},
	} {
		now := time.Now()
		ago := func(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }
		s.execute(t, `DELETE FROM probe`)
		for _, minutes := range c.probes {
			must.Do(t, s.store.RecordProbe(t.Context(), ago(minutes), ago(minutes)))
		}
		s.execute(t, `UPDATE watches SET heartbeat_at = $1, polled_at = $2, waiting_at = CASE WHEN $3 THEN $2::timestamptz END`, ago(c.heard), ago(c.polled),
			strings.Contains(c.name, "waited"))
		s.stop(now.Add(time.Second))
		listed := s.call(t, a.token, "GET", "/api/v1/watches", "")
		listed.has(t, 200, fmt.Sprintf(`"state":%q`, c.state))
		want := `"watch_problems":[]`
		if c.problem != "" {
			want = "Nobody would be woken: the watch of Zurich " + c.problem
			listed.has(t, 200, want)
		}
		overview := s.call(t, a.token, "GET", "/api/v1/overview", "")
		must.Hold(t, strings.Contains(string(overview.body), want), "%s: no %s in %s", c.name, want, overview.body)
	}
}

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
func (d shownDrill) reached() (stages []string) {
	for _, s := range d.Stages {
		if s.At != nil {
			stages = append(stages, s.Stage)
		}
	}
	return stages
}

// drillRoom is a customer's whose drills go to a topic, with a sensor that is heard, and a rule that judges only after an hour.
func drillRoom(t *testing.T, topic alerting.DrillPublisher) (s *testAPI, a *testCustomer, room, rule int64) {
	t.Helper()
	s, a = newTestCustomer(t, func(c *Config) { c.Drills = topic })
	room = a.room(t, "Hall")
	a.sensors(t, room, "n1", "n2")
	s.reading(t, "n1", time.Now(), 20, 40)
	rule = a.create(t, "/api/v1/rules", `{"quantity":"temperature","direction":"above","limit":27,"for_s":3600,"clear_margin":0,"clear_for_s":0,"severity":"critical","enabled":true}`)
	return s, a, room, rule
}

// drill starts one at a sensor, by fields of the body.
func (a *testCustomer) drill(tb testing.TB, rule int64, fields string) startedDrill {
	tb.Helper()
	return get[startedDrill](tb, a, "POST", "/api/v1/drills", fmt.Sprintf(`{"rule_id":%d,"sensor_id":"n1"%s}`, rule, fields))
}

func (a *testCustomer) shownDrill(tb testing.TB, id int) shownDrill {
	tb.Helper()
	return get[shownDrill](tb, a, "GET", fmt.Sprintf("/api/v1/drills/%d", id), "")
}

// message is what Pub/Sub brings of the drill that was started last.
func message(topic *published[alerting.DrillMessage]) incidents.DrillMessage {
	return incidents.DrillMessage{Code: topic.last().Code, Sent: time.Now(), Published: time.Now()}
}

// TestDrill runs a drill beside a real incident of the same room and cause: it is never joined to it, nor counted.
func TestDrill(t *testing.T) {
	t.Parallel()
	topic := &published[alerting.DrillMessage]{}
	s, a, room, rule := drillRoom(t, topic)
	started := a.drill(t, rule, "")
	reached := func(stages ...string) {
		t.Helper()
		must.Equal(t, "stages", stages, a.shownDrill(t, started.Drill.ID).reached())
	}
	must.Equal(t, "state, code", []string{"running", ""}, []string{started.Drill.State, started.Code})
	reached("sent", "published")

	m := message(topic)
	for range 2 { // each delivered twice
		must.Equal(t, "ingested", true, must.Get(s.store.IngestDrill(t.Context(), m))(t))
		must.Equal(t, "judged", true, must.Get(s.store.JudgeDrill(t.Context(), m))(t))
		must.Equal(t, "alert", true, must.Get(s.store.AlertDrill(t.Context(), m.Code))(t))
	}
	reached("sent", "published", "ingested", "judged", "alert")
	s.judge(t, "n2", time.Now(), 60) // a real one, of the thresholds
	body, _ := a.overview(t, "")
	must.Equal(t, "drills among the incidents", []bool{false, true},
		[]bool{body.Incidents[0].Drill, body.Incidents[1].Drill})
	actual, drilled := body.Incidents[0], body.Incidents[1]
	must.Equal(t, "cause", "too_hot critical 27", fmt.Sprint(drilled.Cause, " ", drilled.Severity, " ", drilled.Worst.Limit))
	must.Contain(t, "reason", drilled.Worst.Reason, "Only a drill: ")
	must.Equal(t, "measured", 20.0, *drilled.Now.Value)
	must.Equal(t, "sentence, others, drills", fmt.Sprint(actual.ID, 0, 1),
		fmt.Sprint(body.Sentence.IncidentID, body.Sentence.Others, body.Sentence.Drills))
	must.Equal(t, "lasting, open", []int{1, 1}, []int{body.IncidentCounts["lasting"], body.IncidentCounts["open"]})
	reached("sent", "published", "ingested", "judged", "alert", "shown")
	metrics := s.metrics(t, a.key(t, `"scope":"read"`).text, scraped)
	metrics.has(t, 200, fmt.Sprintf(`coldaisle_drill{room="Hall",cause="too_hot",severity="critical",drill="%d"} 1`, started.Drill.ID))
	must.Equal(t, "incidents in the metrics", 1, strings.Count(string(metrics.body), "\ncoldaisle_incidents{"))

	must.Equal(t, "incident", drilled.ID, a.shownDrill(t, started.Drill.ID).Incident)
	a.act(t, drilled.ID, `"action":"take"`)
	a.act(t, drilled.ID, fmt.Sprintf(`"action":"snooze","until":%q`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
	a.call(t, a.token, "POST", fmt.Sprintf("/api/v1/incidents/%d/told", drilled.ID), "").is(t, 204)
	reached("sent", "published", "ingested", "judged", "alert", "shown", "told", "taken")
	d := a.shownDrill(t, started.Drill.ID)
	must.Equal(t, "state", "passed", d.State)
	for i := 1; i < len(d.Stages)-2; i++ { // told and taken are people's
		must.Hold(t, !d.Stages[i].At.Before(*d.Stages[i-1].At),
			"%s at %v, before %s", d.Stages[i].Stage, d.Stages[i].At, d.Stages[i-1].Stage)
	}
	// It is over once it is through, and nobody has to see it; the real one lasts.
	lasting := a.incidents(t, "?state=lasting")
	must.Hold(t, len(lasting) == 1 && lasting[0].ID == actual.ID, "lasting %+v", lasting)
	must.Equal(t, "unseen", 0, must.Get(s.store.Unseen(t.Context(), a.id))(t))
	ended := a.incident(t, drilled.ID)
	must.Equal(t, "timeline", "[started taken snoozed ended]", fmt.Sprint(ended.Timeline))
	must.Hold(t, ended.SnoozedUntil == nil, "a drill that is over calls again at %v", ended.SnoozedUntil)
	for table, want := range map[string]int{"alerts": 0, "excursions": 1, "sensor_data.readings": 2, fmt.Sprintf("room_incidents WHERE room_id = %d", room): 2} {
		must.Equal(t, "rows in "+table, want, s.count(t, `SELECT count(*) FROM `+table))
	}
}

// TestDrillOutlivesItsClient has the client go while the message is published.
func TestDrillOutlivesItsClient(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	s, a, _, rule := drillRoom(t, leaving(leave))
	request := httptest.NewRequestWithContext(ctx, "POST", "/api/v1/drills", strings.NewReader(fmt.Sprintf(`{"rule_id":%d,"sensor_id":"n1"}`, rule)))
	request.Header.Set("Authorization", "Bearer "+a.token)
	s.api.ServeHTTP(httptest.NewRecorder(), request)
	drills := get[[]shownDrill](t, a, "GET", "/api/v1/drills", "")
	must.Equal(t, "stages", []string{"sent", "published"}, drills[0].reached())
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
	s, a, _, rule := drillRoom(t, topic)
	failed := map[string]int{}
	for _, missing := range []string{"published", "ingested", "judged", "alert", "told", "taken"} {
		topic.failing(nil)
		if missing == "published" {
			topic.failing(errors.New("Pub/Sub is away"))
		}
		failed[missing] = a.drill(t, rule, "").Drill.ID
		if missing == "published" {
			continue
		}
		m := message(topic)
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
		shown := a.incidents(t, "?state=lasting")[0].ID
		if missing != "told" {
			a.call(t, a.token, "POST", fmt.Sprintf("/api/v1/incidents/%d/told", shown), "").is(t, 204)
		}
		if missing != "taken" {
			a.act(t, shown, `"action":"take"`)
		}
	}
	failed["sent"] = a.drill(t, rule, `,"on_site":true`).Drill.ID
	failed["shown"] = a.drill(t, rule, "").Drill.ID
	m := message(topic)
	must.Get(s.store.IngestDrill(t.Context(), m))(t)
	must.Get(s.store.JudgeDrill(t.Context(), m))(t)
	must.Get(s.store.AlertDrill(t.Context(), m.Code))(t)

	s.forward(incident.DrillTime + time.Second)
	for stage, id := range failed {
		d := a.shownDrill(t, id)
		if stage == "taken" {
			must.Equal(t, "not taken yet", "running", d.State)
		} else if d.State != "failed" || d.FailedStage != stage {
			t.Errorf("without %s: %s at %q", stage, d.State, d.FailedStage)
		}
	}
	s.forward(incident.DrillTakenTime + time.Second)
	a.login(t) // the token is over, too
	d := a.shownDrill(t, failed["taken"])
	must.Equal(t, "not taken", "failed taken", d.State+" "+d.FailedStage)
	// The sensor is silent by then.
	must.Equal(t, "lasting after their time", 0, len(a.incidents(t, "?state=lasting&cause=too_hot")))
	list := get[[]shownDrill](t, a, "GET", "/api/v1/drills?limit=3", "")
	must.Equal(t, "list", []int{3, failed["shown"]}, []int{len(list), list[0].ID})
}

// TestDrillComesAsItIsTo holds that a code is good for its own way, its account and five minutes.
func TestDrillComesAsItIsTo(t *testing.T) {
	t.Parallel()
	topic := &published[alerting.DrillMessage]{}
	s, a, _, rule := drillRoom(t, topic)
	start := func(onSite bool) string {
		started := a.drill(t, rule, fmt.Sprintf(`,"on_site":%t`, onSite))
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
	must.Equal(t, "judged after its time", false,
		must.Get(s.store.JudgeDrill(t.Context(), incidents.DrillMessage{Code: late}))(t))
	must.Equal(t, "incidents", 2, s.count(t, `SELECT count(*) FROM room_incidents`))
}

// TestRefusedDrills has the bad inputs: nothing is published, nothing changed.
func TestRefusedDrills(t *testing.T) {
	t.Parallel()
	topic := &published[alerting.DrillMessage]{}
	s, a, _, rule := drillRoom(t, topic)
	lab := a.room(t, "Lab")
	a.sensors(t, lab, "never", "gone", "worked-on")
	s.reading(t, "gone", time.Now().Add(-time.Hour), 20, 40)
	s.reading(t, "worked-on", time.Now(), 20, 40)
	a.call(t, a.token, "POST", "/api/v1/maintenance", fmt.Sprintf(`{"start_time":%q,"duration_s":600,"room_ids":[%d],"confirm":true}`,
		time.Now().UTC().Format(time.RFC3339), lab)).is(t, 201)
	elsewhere := a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 30.0, fmt.Sprintf(`,"room_id":%d`, lab)))
	wide := a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 33.0, ""))
	a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 34.0, `,"sensor_id":"n1"`)) // which judges it instead
	off := a.create(t, "/api/v1/rules", strings.Replace(fmt.Sprintf(someRule, 31.0, ""), `"enabled":true`, `"enabled":false`, 1))
	silent, other := "The sensor is silent: its readings would alarm nobody", "rule_id: the rule does not apply to the sensor"
	for _, c := range []struct {
		rule   int64
		sensor string
		status int
		detail string
	}{
		{rule, "never", 409, silent},
		{rule, "gone", 409, silent},
		{elsewhere, "worked-on", 409, "A maintenance window covers the sensor: its readings would alarm nobody"},
		{rule, "nobody", 404, "Sensor not found"},
		{999999, "n1", 404, "Rule not found"},
		{elsewhere, "n1", 400, other},
		{wide, "n1", 400, other},
		{off, "n1", 400, "rule_id: the rule is off"},
	} {
		body := fmt.Sprintf(`{"rule_id":%d,"sensor_id":%q}`, c.rule, c.sensor)
		a.call(t, a.token, "POST", "/api/v1/drills", body).says(t, c.status, c.detail)
	}
	for range incidents.MaxDrills {
		a.drill(t, rule, "")
	}
	got := a.call(t, a.token, "POST", "/api/v1/drills", fmt.Sprintf(`{"rule_id":%d,"sensor_id":"n1"}`, rule))
	got.says(t, 429, "At most 10 drills in a day")
	must.Equal(t, "published", incidents.MaxDrills, len(topic.all()))
	must.Equal(t, "has Retry-After", true, got.header.Get("Retry-After") != "")
}
