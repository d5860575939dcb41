package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
)

// judged is a reading some seconds after the instant, as storing it live sees it.
func judged(node string, second int, temperature float64, window ...incident.Point) incidents.Judged {
	at := instant().Add(time.Duration(second) * time.Second)
	var recent reading.Window
	for _, p := range window {
		recent.Age = append(recent.Age, at.Sub(p.Time).Seconds())
		recent.Temperature, recent.Humidity = append(recent.Temperature, p.Temperature), append(recent.Humidity, p.Humidity)
	}
	return incidents.Judged{
		Reading: reading.Reading{NodeID: node, MessageID: fmt.Sprintf("m%d", second), Time: at, Temperature: temperature, Humidity: 40},
		Window:  recent, Arrived: at.Add(time.Second), Defaults: alert.Thresholds{MaxTemperature: 50, MaxHumidity: 60},
	}
}

// arrived is a reading whose message arrived some seconds after the instant.
func arrived(j incidents.Judged, second int) incidents.Judged {
	j.Arrived = clock(second)
	return j
}

func (db fixture) judge(t *testing.T, judged ...incidents.Judged) {
	t.Helper()
	for _, j := range judged {
		must.Do(t, db.Judge(t.Context(), j))
	}
}

func (db fixture) excursions(t *testing.T, customer int64, q incidents.ExcursionQuery) []incidents.Excursion {
	t.Helper()
	q.Limit = 500
	return must.Get(db.Excursions(t.Context(), customer, q, instant()))(t).Items
}

// inWords are Anna's excursions, the newest first: node, severity, begin and end in seconds after the instant, state, reason.
func (db fixture) inWords(t *testing.T, q incidents.ExcursionQuery) []string {
	t.Helper()
	var all []string
	for _, e := range db.excursions(t, db.anna, q) {
		state := e.Resolution
		if e.Lasting {
			state += "lasts"
		}
		if e.Late {
			state += ", late"
		}
		if e.Reopened > 0 {
			state += fmt.Sprint(", came back ", e.Reopened)
		}
		from, until := e.StartTime.Sub(instant()).Seconds(), e.EndTime.Sub(instant()).Seconds()
		all = append(all, fmt.Sprintf("%s %s %.f–%.f %s: %s", e.NodeID, e.Severity, from, until, state, e.Reason))
	}
	return all
}

func lastingOf(all []incidents.Excursion) []incidents.Excursion {
	return slices.DeleteFunc(all, func(e incidents.Excursion) bool { return !e.Lasting })
}

// gathers compares the stored incidents of a room of Anna's, once they are over, with those that
// excursions make. Silences aside: none of the nodes sends any more.
func (db fixture) gathers(t *testing.T, room int64, parts []incident.Part) {
	t.Helper()
	must.Do(t, db.Settle(t.Context(), db.anna, instant().AddDate(1, 0, 0)))
	type extent struct {
		Cause              incident.Cause
		StartTime, EndTime time.Time
		Lasting            bool
		Excursions         int
	}
	rows := must.Get(db.pool.Query(t.Context(), `
		SELECT cause, start_time, end_time, lasting, (SELECT count(*) FROM excursions e WHERE e.incident_id = i.id AND e.merged_into IS NULL)
		FROM room_incidents i
		WHERE room_id = $1 AND cause <> 'silent' AND merged_into IS NULL
		ORDER BY start_time, cause`, room))(t)
	got := must.Get(pgx.CollectRows(rows, pgx.RowToStructByPos[extent]))(t)
	for i := range parts {
		parts[i].ID = int64(i)
	}
	var want []extent
	for _, g := range incident.Gather(parts) {
		want = append(want, extent{g.Cause, g.Start(), g.End(), g.Breaking(), len(g.Parts)})
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApproxTime(0)); diff != "" || len(want) < 2 {
		t.Errorf("%d excursions, %d incidents (-gathered +stored):\n%s", len(parts), len(want), diff)
	}
}

func TestThresholdIncidentOpensLastsAndClears(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.judge(t, judged("n1", 0, 51), judged("n1", 30, 53))
	db.judge(t, judged("n1", 30, 53)) // delivered again
	got := one(t, "lasting", lastingOf(db.excursions(t, db.anna, incidents.ExcursionQuery{})))
	all := func() []string { return db.inWords(t, incidents.ExcursionQuery{}) }
	must.Equal(t, "open", []string{"n1 critical 0–30 lasts: Temperature above 50.0 °C for 30 s, peak 53.0 °C"}, all())
	must.Equal(t, "place", fmt.Sprint("Rack Room ", db.annasRoom), fmt.Sprint(got.SensorName, " ", got.RoomName, " ", got.RoomID))
	db.judge(t, judged("n1", 60, 50))
	must.Equal(t, "resolved", []string{"n1 critical 0–60 cleared: Temperature above 50.0 °C for 1 min, peak 53.0 °C"}, all())
	db.judge(t, judged("n1", 90, 54)) // within ten minutes: the same, come back
	must.Equal(t, "reopened", []string{
		"n1 critical 0–90 lasts, came back 1: Temperature above 50.0 °C for 1 min, peak 54.0 °C, came back once",
	}, all())
	must.Equal(t, "it is the same", got.ID, db.excursions(t, db.anna, incidents.ExcursionQuery{})[0].ID)
	must.Equal(t, "another customer sees", 0, len(db.excursions(t, db.bruno, incidents.ExcursionQuery{})))
}

func TestIncidentBelongsToWhoeverMaySeeTheReading(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	through := func(j incidents.Judged, channel int64) incidents.Judged {
		j.Channel, j.GatewayID = reading.Channel(channel), "gw-1"
		return j
	}
	db.judge(t,
		judged("n1", 0, 51),
		through(judged("n1", 0, 52), db.bruno), // bruno's gateway, no sensor of his: discovered
		judged("nobody", 0, 53),
		through(judged("n1", 0, 54), 999999),
	)
	annas, brunos := db.excursions(t, db.anna, incidents.ExcursionQuery{}), db.excursions(t, db.bruno, incidents.ExcursionQuery{})
	must.Hold(t, len(annas) == 1 && annas[0].Peak == 51 && annas[0].GatewayID == "", "anna's: %+v", annas)
	must.Hold(t, len(brunos) == 1 && brunos[0].Peak == 52 && brunos[0].SensorName == "" && brunos[0].RoomID == 0 && brunos[0].GatewayID == "gw-1",
		"bruno's: %+v", brunos)
	must.Hold(t, must.Err(db.Excursion(t.Context(), db.bruno, annas[0].ID, instant())) != nil,
		"bruno reads anna's incident")
}

// TestChangesInMidIncident shows that what a rule no longer is, or a sensor no longer
// is where it was, resolves its incidents with that reason.
func TestChangesInMidIncident(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	type resolutions = map[incident.Quantity]string
	deleted := resolutions{"dew_point": "sensor_deleted", "temperature": "sensor_deleted"}
	for name, c := range map[string]struct {
		change func(db fixture, rule incident.Rule) error
		want   resolutions
	}{
		"the threshold is raised": {func(db fixture, _ incident.Rule) error {
			return must.Err(db.SetThresholds(ctx, db.anna, new(60.0), nil))
		}, resolutions{"temperature": "rule_changed"}},
		"a threshold is set, and that of temperature stays at the environment's": {func(db fixture, _ incident.Rule) error {
			return must.Err(db.SetThresholds(ctx, db.anna, nil, new(40.0)))
		}, nil},
		"the thresholds are set, and the environment's was another": {func(db fixture, _ incident.Rule) error {
			_, err := db.pool.Exec(ctx, `UPDATE excursions SET limit_value = 45 WHERE quantity = 'temperature'`)
			return errors.Join(err, must.Err(db.SetThresholds(ctx, db.anna, new(50.0), nil)))
		}, resolutions{"temperature": "rule_changed"}},
		"the rule is edited": {func(db fixture, rule incident.Rule) error {
			rule.Limit = 32
			return must.Err(db.UpdateRule(ctx, db.anna, rule))
		}, resolutions{"dew_point": "rule_changed"}},
		"the rule is switched off": {func(db fixture, rule incident.Rule) error {
			rule.Enabled = false
			return must.Err(db.UpdateRule(ctx, db.anna, rule))
		}, resolutions{"dew_point": "rule_changed"}},
		"the rule is deleted": {func(db fixture, rule incident.Rule) error {
			return db.DeleteRule(ctx, db.anna, rule.ID)
		}, resolutions{"dew_point": "rule_deleted"}},
		"the sensor is moved": {func(db fixture, _ incident.Rule) error {
			room, err := db.CreateRoom(ctx, db.anna, "Other")
			return errors.Join(err, must.Err(db.UpdateSensor(ctx, db.anna, "n1", accounts.SensorChange{Name: "Rack", Type: "T", RoomID: room.ID})))
		}, resolutions{"dew_point": "sensor_moved", "temperature": "sensor_moved"}},
		"the sensor is deleted": {func(db fixture, _ incident.Rule) error { return db.DeleteSensor(ctx, db.anna, "n1") }, deleted},
		"the room is deleted":   {func(db fixture, _ incident.Rule) error { return db.DeleteRoom(ctx, db.anna, db.annasRoom) }, deleted},
		"a rename changes nothing": {func(db fixture, _ incident.Rule) error {
			return must.Err(db.UpdateSensor(ctx, db.anna, "n1", accounts.SensorChange{Name: "Top", Type: "T", RoomID: db.annasRoom}))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openWith(t, "n1")
			rule := db.rule(t, incident.Rule{Quantity: incident.DewPoint, Limit: 15})
			db.judge(t, judged("n1", 0, 51))
			must.Equal(t, "lasting before", 2, len(lastingOf(db.excursions(t, db.anna, incidents.ExcursionQuery{}))))
			must.Do(t, c.change(db, rule))
			for _, i := range db.excursions(t, db.anna, incidents.ExcursionQuery{}) {
				if want := c.want[i.Quantity]; i.Resolution != want || i.Lasting != (want == "") {
					t.Errorf("%s: resolution %q, want %q", i.Quantity, i.Resolution, want)
				}
			}
			must.Equal(t, "memories", 2-len(c.want), db.count(t, `SELECT count(*) FROM rule_memory`, nil))
		})
	}
}

func TestRulesOfACustomer(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	unset := []incidents.RuleRow{{Rule: incident.Rule{Quantity: "temperature", Limit: 50}, Assumed: true}, {Rule: incident.Rule{Quantity: "humidity", Limit: 50}, Assumed: true}}
	rules := incidents.ConvertRules(unset, alert.Thresholds{MaxTemperature: 45, MaxHumidity: 66})
	must.Hold(t, rules[0].Limit == 45 && rules[1].Limit == 66, "defaults: %+v", rules)
	rules = must.Get(db.Rules(t.Context(), db.anna))(t)
	must.Hold(t, len(rules) == 2 && rules[0].Threshold && rules[0].Limit == 50 && rules[1].Limit == 50 && rules[1].Quantity == incident.Humidity, "%+v", rules)
	must.Get(db.SetThresholds(t.Context(), db.anna, new(40.0), nil))(t)
	rules = must.Get(db.Rules(t.Context(), db.anna))(t)
	must.Hold(t, rules[0].Limit == 40 && rules[1].Limit == 50, "after setting: %+v", rules)
	threshold := rules[1]
	threshold.Limit = 70
	must.Get(db.UpdateRule(t.Context(), db.anna, threshold))(t)
	set := must.Get(db.Thresholds(t.Context(), db.anna))(t)
	must.Equal(t, "thresholds and their rules are one record", [2]float64{40, 70}, [2]float64{set.MaxTemperature, set.MaxHumidity})
	threshold.For = time.Minute
	must.Fail(t, "a threshold that waits", must.Err(db.UpdateRule(t.Context(), db.anna, threshold)), incidents.ErrThresholdRule)
	must.Fail(t, "delete a threshold", db.DeleteRule(t.Context(), db.anna, threshold.ID), incidents.ErrThresholdRule)
	must.Fail(t, "delete another's threshold", db.DeleteRule(t.Context(), db.bruno, threshold.ID), store.ErrNoRule)

	rule := incident.Rule{
		Quantity: incident.TemperatureRate, Direction: incident.Below, Limit: -20.5, For: 90 * time.Second, ClearMargin: 1.5, ClearFor: time.Minute,
		Severity: incident.Warning, Scope: incident.Scope{SensorID: "n1"}, Enabled: true,
	}
	created := must.Get(db.CreateRule(t.Context(), db.anna, rule))(t)
	rule.ID, rule.Version = created.ID, 1
	must.Equal(t, "created", rule, created)
	for scope, want := range map[incident.Scope]error{
		{SensorID: "n2"}: store.ErrNoSensor, {RoomID: db.brunosRoom}: store.ErrNoRoom, {RoomID: db.annasRoom}: nil, {}: nil,
	} {
		other := rule
		other.Scope = scope
		must.Fail(t, fmt.Sprint("create for ", scope), must.Err(db.CreateRule(t.Context(), db.anna, other)), want)
		other.ID = rule.ID
		must.Fail(t, fmt.Sprint("update to ", scope), must.Err(db.UpdateRule(t.Context(), db.anna, other)), want)
	}
	must.Equal(t, "version after two changes", int64(3), must.Get(db.Rule(t.Context(), db.anna, rule.ID))(t).Version)
	must.Fail(t, "update another's", must.Err(db.UpdateRule(t.Context(), db.bruno, rule)), store.ErrNoRule)
	must.Fail(t, "delete another's", db.DeleteRule(t.Context(), db.bruno, rule.ID), store.ErrNoRule)
	must.Do(t, db.DeleteRule(t.Context(), db.anna, rule.ID))
	must.Fail(t, "read a deleted one", must.Err(db.Rule(t.Context(), db.anna, rule.ID)), store.ErrNoRule)
}

func TestRuleOfASensorIsForNoOther(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	db.rule(t, incident.Rule{Limit: 30, Scope: incident.Scope{SensorID: "n1"}})
	db.judge(t, judged("n1", 0, 35), judged("n2", 0, 35))
	got := db.excursions(t, db.anna, incidents.ExcursionQuery{})
	must.Hold(t, len(got) == 1 && got[0].NodeID == "n1", "%+v", got)
	statuses := must.Get(db.SensorStatuses(t.Context(), openNodes("n1", "n2")))(t)
	for node, want := range map[string]bool{"n1": true, "n2": false} {
		got := slices.ContainsFunc(statuses[openNodes(node)[0]].Rules, func(r incident.Rule) bool { return r.Limit == 30 })
		must.Equal(t, "told to detection for "+node, want, got)
	}
}

// TestNarrowerRuleEndsWhatTheWiderLeft at its sensor, where that judges no reading any more.
func TestNarrowerRuleEndsWhatTheWiderLeft(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	db.rule(t, incident.Rule{Limit: 27})
	db.judge(t, judged("n1", 0, 30), judged("n2", 0, 30))
	db.rule(t, incident.Rule{Limit: 35, Scope: incident.Scope{SensorID: "n1"}})
	db.judge(t, judged("n1", 30, 30), judged("n2", 30, 30))
	must.Equal(t, "excursions", []string{
		"n2 warning 0–30 lasts: Temperature above 27.0 °C for 30 s, peak 30.0 °C",
		"n1 warning 0–0 rule_changed: Temperature above 27.0 °C, peak 30.0 °C",
	}, db.inWords(t, incidents.ExcursionQuery{}))
	must.Equal(t, "memories", 1, db.count(t, `SELECT count(*) FROM rule_memory`, nil))
}

// TestLateReadingJoinsTwoIncidents shows the older id living on, and the younger redirecting.
func TestLateReadingJoinsTwoIncidents(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.judge(t, judged("n1", 0, 51), judged("n1", 30, 20), judged("n1", 1000, 52), judged("n1", 1030, 20))
	two := db.excursions(t, db.anna, incidents.ExcursionQuery{})
	must.Equal(t, "excursions", 2, len(two))
	younger, older := two[0], two[1]
	db.heard(t, judged("n1", 1030, 20).Reading)
	late := arrived(judged("n1", 515, 53), 7200)
	db.judge(t, late, late)
	joined := one(t, "joined", db.excursions(t, db.anna, incidents.ExcursionQuery{}))
	must.Equal(t, "the id that lives on", older.ID, joined.ID)
	must.Equal(t, "joined", []string{"n1 critical 0–1030 cleared, came back 1: Temperature above 50.0 °C for 17 min, peak 53.0 °C, came back once"},
		db.inWords(t, incidents.ExcursionQuery{}))
	must.Equal(t, "the younger id gives", older.ID, must.Get(db.Excursion(t.Context(), db.anna, younger.ID, instant()))(t).ID)
	db.judge(t, arrived(judged("n1", -3570, 20), 7200), arrived(judged("n1", -3600, 55), 7200))
	must.Equal(t, "one that was over when it arrived", "n1 critical -3600–-3570 cleared, late: Temperature above 50.0 °C for 30 s, peak 55.0 °C",
		db.inWords(t, incidents.ExcursionQuery{})[1])
}

func TestSilences(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1", "n2", "never", "slow")
	db.sensor(t, db.bruno, db.brunosRoom, "theirs")
	state := func(node string, second int) reading.Reading { return judged(node, second, 20).Reading }
	db.heard(t, state("n1", 0), state("n2", 30), state("theirs", 0), state("slow", -600), state("slow", 0))
	silent := func(second int) []string {
		t.Helper()
		found, _, err := db.Silences(t.Context(), db.anna, clock(second))
		must.Do(t, err)
		ids := each(found, func(s incidents.Silence) string { return s.NodeID })
		return ids
	}
	for second, want := range map[int][]string{299: nil, 300: {"n1"}, 330: {"n1", "n2"}, 1799: {"n1", "n2"}, 1800: {"n1", "n2", "slow"}} {
		must.Equal(t, fmt.Sprint("silent after seconds: ", second), want, silent(second))
	}
	found, _, _ := db.Silences(t.Context(), db.anna, clock(310))
	must.Hold(t, len(found) == 1 && found[0].RoomName == "Room" && found[0].SensorName == "Rack", "%+v", found)
	db.heard(t, state("n1", 320))
	later, _, _ := db.Silences(t.Context(), db.anna, clock(1300)) // its interval is 320 s now
	must.Hold(t, len(later) == 2 && later[0].NodeID == "n1", "another silence: %+v", later)
}

// TestSensorStatusHasTheRules shows what detection learns of a node by one query: the
// rules that judge it, and whether they remember something.
func TestSensorStatusHasTheRules(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.sensor(t, db.bruno, db.brunosRoom, "n2")
	create := func(limit float64, scope incident.Scope, enabled bool) incident.Rule {
		t.Helper()
		rule := must.Get(db.CreateRule(t.Context(), db.anna, incident.Rule{
			Quantity: incident.Temperature, Direction: incident.Above, Limit: limit, For: 90 * time.Second, ClearMargin: 0.5, Severity: incident.Warning,
			Scope: scope, Enabled: enabled,
		}))(t)
		return rule
	}
	all := create(30, incident.Scope{}, true)
	room := create(31, incident.Scope{RoomID: db.annasRoom}, true)
	create(20, incident.Scope{SensorID: "n1"}, false)
	own, others := reading.Node{ID: "n1"}, reading.Node{ID: "n2"}
	discovered := reading.Node{Channel: reading.Channel(db.anna), ID: "new"}
	want := map[reading.Node]pipeline.SensorStatus{
		own:    {Owned: true, CustomerID: db.anna, RoomID: db.annasRoom, Budget: 1, Rules: []incident.Rule{room}},
		others: {Owned: true, CustomerID: db.bruno, RoomID: db.brunosRoom, Budget: 1}, discovered: {Budget: 1, Rules: []incident.Rule{all}},
	}
	nodes := []reading.Node{own, others, discovered, {ID: "nobody"}}
	must.Equal(t, "statuses", want, must.Get(db.SensorStatuses(t.Context(), nodes))(t))
	db.judge(t, judged("n1", 0, 32))
	got := must.Get(db.SensorStatuses(t.Context(), nodes))(t)
	must.Equal(t, "both remember after a reading above the limit", [2]bool{true, false}, [2]bool{got[own].Remembers, got[others].Remembers})
	db.judge(t, judged("n1", 30, 20))
	must.Equal(t, "remembers after a reading that settles it", false, must.Get(db.SensorStatuses(t.Context(), nodes))(t)[own].Remembers)
}

func hot(message string) alert.Event {
	return alert.Event{
		NodeID: "n1", MessageID: message, Time: instant(), Type: alert.Temperature,
		Value: 55.2, Threshold: 50, Temperature: 55.2, Humidity: 40,
	}
}

// insert stores an event, which makes so many rows.
func (db fixture) insert(t *testing.T, e alert.Event, want int) (owned bool) {
	t.Helper()
	stored := func() int { return db.count(t, `SELECT count(*) FROM alerts`, nil) }
	before := stored()
	owned = must.Get(db.InsertAlert(t.Context(), e))(t)
	must.Equal(t, fmt.Sprintf("%s alert of %s, %s in channel %d at %v: rows", e.Type, e.NodeID, e.MessageID, e.Channel, e.Time), want, stored()-before)
	return owned
}

func (db fixture) history(t *testing.T, customer int64) []incidents.Alert {
	t.Helper()
	return must.Get(db.AlertHistory(t.Context(), customer, incidents.AlertQuery{PageRequest: store.PageRequest{Limit: 50}}))(t).Items
}

// TestAlertBesideAnUncommittedDeletion stores an alert while the sensor's deletion is about
// to commit: the outcome is that of the alert stored first. It stays in its owner's history,
// like those before it, and whoever creates the id again never sees it.
func TestAlertBesideAnUncommittedDeletion(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	deletion := db.begin(t, `DELETE FROM sensors WHERE node_id = 'n1'`)
	db.insert(t, hot("a"), 1)
	must.Do(t, deletion.Commit(t.Context()))
	db.sensor(t, db.bruno, db.brunosRoom, "n1")
	db.insert(t, hot("a"), 0)
	after := hot("b")
	after.Time = time.Now().Add(time.Minute)
	db.insert(t, after, 1)
	annas, brunos := db.history(t, db.anna), db.history(t, db.bruno)
	must.Hold(t, len(annas) == 1 && annas[0].Time.Equal(instant()) && len(brunos) == 1 && brunos[0].Time.Equal(after.Time.Truncate(time.Microsecond)),
		"anna sees %+v, bruno %+v", annas, brunos)
}

// TestAlertIsStoredOncePerReadingAndType shows contract 6.2, 9.7.
func TestAlertIsStoredOncePerReadingAndType(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.insert(t, hot("a"), 1)
	db.insert(t, hot("a"), 0)
	humid := hot("a")
	humid.Type, humid.Value = alert.Humidity, 61
	db.insert(t, humid, 1)
	db.insert(t, hot("b"), 1)
	later := hot("a")
	later.Time = instant().Add(readings.FoldWithin) // before that it is a copy
	db.insert(t, later, 1)

	found := db.history(t, db.anna)
	if len(found) != 4 {
		t.Fatalf("%d alerts, want 4", len(found))
	}
	found[3].Time = found[3].Time.UTC()
	want := incidents.Alert{
		ID: found[3].ID, SensorID: "n1", Type: "temperature", Time: instant(),
		Message: "High temperature detected: 55.2°C (limit 50.0°C)",
	}
	must.Equal(t, "", want, found[3])
}

// active gathers a customer's active alerts.
func (db fixture) active(ctx context.Context, customer int64) (alerts []incidents.Alert, err error) {
	for a, err := range db.ActiveAlerts(ctx, customer) {
		if err != nil {
			return nil, err
		}
		alerts = append(alerts, a)
	}
	return alerts, nil
}

// TestActiveAlertsAreReadInPages takes away those that are not read yet once the first
// is given: what follows is the rest of the first page, all that is held of them.
func TestActiveAlertsAreReadInPages(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sql(t, `
		INSERT INTO alerts (customer_id, sensor_id, alert_type, message, timestamp, message_id, value, threshold)
		SELECT @anna, 'n1', 'temperature', 'High', now() - make_interval(secs => i / 3), i::text, 55.2, 50
		FROM generate_series(1, 2500) AS i`, pgx.NamedArgs{"anna": db.anna})
	all := must.Get(db.active(t.Context(), db.anna))(t)
	seen := map[int64]bool{}
	for i, a := range all {
		seen[a.ID] = true
		must.Hold(t, i == 0 || !a.Time.After(all[i-1].Time), "alert %d is newer than the one before", i)
	}
	must.Equal(t, "alerts, and different ones", [2]int{2500, 2500}, [2]int{len(all), len(seen)})
	given := 0
	for _, err := range db.ActiveAlerts(t.Context(), db.anna) {
		if given++; given == 1 {
			db.sql(t, `DELETE FROM alerts`, nil)
		}
		must.Do(t, err)
	}
	must.Equal(t, "alerts were held", 1000, given)
}
