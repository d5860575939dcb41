package api

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
)

// TestLimitsOfACustomer shows contract 11.5, 11.7.
func TestLimitsOfACustomer(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.room(t, "Hall")
	for path, c := range map[string]struct {
		fill, body, want string
	}{
		"/api/v1/rules": {
			`INSERT INTO rules (customer_id, quantity, direction, limit_value, for_s, clear_margin, clear_for_s, severity, enabled)
			SELECT $1, 'temperature', 'above', 60, 0, 0, 0, 'warning', false FROM generate_series(1, 198)`,
			fmt.Sprintf(someRule, 30.0, ""), "At most 200 rules are possible",
		},
		"/api/v1/maintenance": {
			`INSERT INTO maintenance_windows (id, customer_id, start_time, time_zone, duration_s, created_by)
			SELECT 0, $1, now(), 'UTC', 60, 'x' FROM generate_series(1, 200)`,
			fmt.Sprintf(`{"start_time":"2093-03-01","duration_s":60,"room_ids":[%d]}`, room), "At most 200 maintenance windows are possible",
		},
	} {
		s.execute(t, c.fill, a.id)
		a.call(t, a.token, "POST", path, c.body).says(t, http.StatusBadRequest, c.want)
	}
	s.forward(25 * time.Hour) // the windows are over for a day
	a.login(t)
	a.create(t, "/api/v1/maintenance", fmt.Sprintf(`{"start_time":"2093-03-01","duration_s":60,"room_ids":[%d]}`, room))
}

const someRule = `{"quantity":"temperature","direction":"above","limit":%g,"for_s":0,"clear_margin":0,"clear_for_s":0,"severity":"warning","enabled":true%s}`

// TestRulesAndThresholdsAreOne shows contract 11.5.
func TestRulesAndThresholdsAreOne(t *testing.T) {
	t.Parallel()
	_, a := newTestCustomer(t)
	a.heldSensor(t, "n1")
	type shown struct {
		ID, Version int64
		Quantity    string
		Limit       float64
		Threshold   bool
	}
	rules := func() []shown { return get[[]shown](t, a, "GET", "/api/v1/rules", "") }
	two := rules()
	must.Equal(t, "rules at first", []any{2, true, true, 50.0},
		[]any{len(two), two[0].Threshold, two[1].Threshold, two[0].Limit})
	threshold := fmt.Sprintf("/api/v1/rules/%d", two[0].ID)
	critical := strings.Replace(someRule, "warning", "critical", 1)
	changed := get[shown](t, a, "PUT", threshold, fmt.Sprintf(critical, 33.0, ""))
	must.Equal(t, "limit, is newer", []any{33.0, true}, []any{changed.Limit, changed.Version > two[0].Version})
	a.call(t, a.token, "GET", fmt.Sprintf("/api/v1/alerts/thresholds/%d", a.id), "").has(t, 200, `"max_temperature":33,`)
	id := a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 30.0, `,"sensor_id":"n1"`))
	own := fmt.Sprintf("/api/v1/rules/%d", id)
	must.Equal(t, "limit", 31.0, get[shown](t, a, "PUT", own, fmt.Sprintf(someRule, 31.0, "")).Limit)
	zeros := strings.Replace(fmt.Sprintf(someRule, math.Copysign(0, -1), ""), `"clear_margin":0`, `"clear_margin":-0`, 1)
	a.call(t, a.token, "PUT", own, zeros).has(t, 200, `"limit":0,`, `"clear_margin":0,`)
	// Two people edit one rule: the older form changes nothing, but a repeat of the newer is no change.
	first := rules()[2].Version
	edited := func(limit float64) string { return fmt.Sprintf(someRule, limit, fmt.Sprintf(`,"version":%d`, first)) }
	a.call(t, a.token, "PUT", own, edited(28)).is(t, http.StatusOK)
	a.call(t, a.token, "PUT", own, edited(35)).says(t, http.StatusConflict, "Somebody has changed this rule meanwhile")
	a.call(t, a.token, "PUT", own, edited(28)).has(t, http.StatusOK, `"limit":28,`)
	for _, c := range []struct{ method, path, body, want string }{
		{"PUT", threshold, fmt.Sprintf(someRule, 33.0, ""), "Only the limit of a threshold rule can be changed"},
		{"DELETE", threshold, "", "Only the limit of a threshold rule can be changed"},
		{"POST", "/api/v1/rules", fmt.Sprintf(someRule, 126.0, ""), "limit: must lie within the range of the quantity"},
		{"POST", "/api/v1/rules", fmt.Sprintf(someRule, 26.0, `,"sensor_id":"nobody"`), "Sensor not found"},
		{"POST", "/api/v1/rules/preset", `{"preset":"ashrae_a9"}`, `preset: expected value to be one of "ashrae_recommended, ashrae_recommended_corrosive, ashrae_a1, ashrae_a2, ashrae_a3, ashrae_a4, ashrae_rate, ashrae_rate_tape"`},
		{"DELETE", "/api/v1/rules/999999", "", "Rule not found"},
	} {
		status := map[bool]int{true: 404, false: 400}[strings.HasSuffix(c.want, "not found")]
		a.call(t, a.token, c.method, c.path, c.body).says(t, status, c.want)
	}
	a.call(t, a.token, "DELETE", own, "").is(t, http.StatusNoContent)
	for range 2 { // the second adds nothing
		must.Equal(t, "preset", 5, len(get[[]shown](t, a, "POST", "/api/v1/rules/preset", `{"preset":"ashrae_recommended"}`)))
	}
	must.Equal(t, "rules", 7, len(rules()))
	presets := get[[]struct {
		Preset string
		Rules  []shown
	}](t, a, "GET", "/api/v1/rules/presets", "")
	must.Equal(t, "presets", "8 ashrae_recommended 5",
		fmt.Sprint(len(presets), " "+presets[0].Preset+" ", len(presets[0].Rules)))
}

// TestSuggestedLimits holds that each room gets what it does into a limit, until a rule says as much. Contract 11.5.
func TestSuggestedLimits(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	cool, hot := a.heldSensor(t, "cool-1", "cool-2"), a.heldSensor(t, "hot-1")
	a.heldSensor(t, "unheard")
	now := s.now()
	for node, temperature := range map[string]float64{"cool-1": 22, "cool-2": 24.9, "hot-1": 30.2} {
		s.judge(t, node, now.Add(-time.Hour), temperature)
		s.judge(t, node, now.Add(-time.Minute), 20)
	}
	type suggestion struct {
		RoomID      int64 `json:"room_id"`
		Highest     float64
		Recommended bool
		Rule        json.RawMessage
	}
	suggestions := func() []suggestion { return get[[]suggestion](t, a, "GET", "/api/v1/rules/suggestions", "") }
	given := suggestions()
	for i, limit := range []string{`"limit":27,`, `"limit":36,`} {
		must.Contain(t, "what is suggested", string(given[i].Rule), limit)
	}
	want := []suggestion{{cool, 24.9, true, given[0].Rule}, {hot, 30.2, false, given[1].Rule}}
	must.Equal(t, "suggestions", want, given)
	// What is suggested is a rule, and once it is in force it is suggested no more.
	a.create(t, "/api/v1/rules", strings.TrimSuffix(string(given[1].Rule), "}")+fmt.Sprintf(`,"room_id":%d}`, hot))
	must.Equal(t, "suggestions after one is taken", want[:1], suggestions())
	get[struct{}](t, a, "POST", fmt.Sprintf("/api/v1/alerts/thresholds/%d", a.id), `{"max_temperature":26}`)
	must.Equal(t, "below a threshold", 0, len(suggestions()))
}

// TestUnchangedRuleKeepsItsExcursions puts a rule as it was read: nothing has changed. Contract 11.5.
func TestUnchangedRuleKeepsItsExcursions(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.heldSensor(t, "n1")
	lasting := func() []shownExcursion {
		t.Helper()
		all := get[[]shownExcursion](t, a, "GET", "/api/v1/excursions", "")
		return slices.DeleteFunc(all, func(e shownExcursion) bool { return e.State == "over" })
	}
	entries := func() int { return len(get[[]loggedEntry](t, a, "GET", "/api/v1/audit", "")) }
	for name, scope := range map[string]string{"all": "", "room": fmt.Sprintf(`,"room_id":%d`, room), "sensor": `,"sensor_id":"n1"`} {
		// 1.001 s are no whole number of nanoseconds in binary.
		body := fmt.Sprintf(strings.Replace(someRule, `"clear_for_s":0`, `"clear_for_s":1.001`, 1), 30.0, scope)
		path := fmt.Sprintf("/api/v1/rules/%d", a.create(t, "/api/v1/rules", body))
		s.judge(t, "n1", s.now(), 40)
		open := lasting()
		must.Equal(t, name+": excursions", 1, len(open))
		s.execute(t, `DELETE FROM audit_log`)
		before := get[map[string]any](t, a, "PUT", path, body)
		after := get[map[string]any](t, a, "PUT", path, string(must.Get(json.Marshal(before))(t)))
		must.Equal(t, name+": versions", []any{1.0, 1.0}, []any{before["version"], after["version"]})
		must.Equal(t, name, open, lasting())
		must.Equal(t, name+": entries", 0, entries())
		changed := get[map[string]any](t, a, "PUT", path, strings.Replace(body, `"limit":30`, `"limit":35`, 1))
		must.Equal(t, name+": version, excursions, entries", []any{2.0, 0, 1},
			[]any{changed["version"], len(lasting()), entries()})
		a.call(t, a.token, "DELETE", path, "")
	}
}

type shownPreview struct {
	Incidents, Excursions int
	Rooms                 []shownRoomPreview
}

type shownRoomPreview struct {
	RoomID                int64  `json:"room_id"`
	RoomName              string `json:"room_name"`
	Incidents, Excursions int
	Days                  []shownPreviewDay
	Sensors               []shownPreviewSensor
}

type shownPreviewDay struct {
	Date                  string
	Incidents, Excursions int
}

type shownPreviewSensor struct {
	SensorID   string `json:"sensor_id"`
	Excursions int
}

// TestPreviewIsWhatHappens shows contract 11.5: readings judged as they came and previewed give the same excursions.
func TestPreviewIsWhatHappens(t *testing.T) {
	t.Parallel()
	warm, critical := fmt.Sprintf(someRule, 27.0, ""), strings.Replace(fmt.Sprintf(someRule, 32.0, ""), "warning", "critical", 1)
	dry := strings.NewReplacer("temperature", "humidity", "above", "below").Replace(fmt.Sprintf(someRule, 30.0, ""))
	for name, c := range map[string]struct {
		rules                 []string
		warmth                func(sensor, minute int) float64
		incidents, excursions int
		sensors               []shownPreviewSensor
	}{
		"one sensor that is warm now and then": {
			[]string{warm},
			func(sensor, minute int) float64 { return float64(max(0, 1-sensor) * max(0, 1-minute%20/3) * 4) }, 15, 15,
			[]shownPreviewSensor{{"a", 15}},
		},
		"a room that warms": {
			[]string{warm, critical, dry},
			func(sensor, minute int) float64 {
				return max(0, min(float64(minute-sensor*7)/4, 12-float64(minute)/20))
			}, 1, 9,
			[]shownPreviewSensor{{"a", 3}, {"b", 3}, {"c", 3}},
		},
		"a room that is left alone": {[]string{warm, critical, dry}, func(int, int) float64 { return 0 }, 0, 0, nil},
	} {
		s, a := newTestCustomer(t)
		room := a.room(t, "Hall")
		nodes := []string{"a", "b", "c"}
		a.sensors(t, room, nodes...)
		for _, node := range nodes {
			s.holdsBefore(t, node)
		}
		for _, r := range c.rules {
			a.create(t, "/api/v1/rules", r)
		}
		begin := reading.TruncateTime(s.now().Add(-30 * time.Hour))
		var rows []reading.Reading
		for minute := range 300 {
			for sensor, node := range nodes {
				warmth := c.warmth(sensor, minute) // dries the air
				rows = append(rows, reading.Reading{
					NodeID: node, MessageID: fmt.Sprint("m", minute), Time: begin.Add(time.Duration(minute) * time.Minute),
					Temperature: 24 + warmth, Humidity: 40 - 2*warmth,
				})
			}
		}
		must.Do(t, s.readings.Append(t.Context(), rows))
		for _, r := range rows {
			must.Do(t, s.store.Judge(t.Context(), incidents.Judged{Reading: r, Arrived: r.Time, Defaults: alert.Defaults()}))
		}
		must.Do(t, s.store.Settle(t.Context(), a.id, begin.Add(6*time.Hour)))
		must.Equal(t, name+": stored", []int{c.incidents, c.excursions}, []int{
			s.count(t, `SELECT count(*) FROM room_incidents WHERE cause <> 'silent' AND NOT lasting AND merged_into IS NULL`),
			s.count(t, `SELECT count(*) FROM excursions WHERE kind = 'threshold' AND merged_into IS NULL`),
		})

		got := get[shownPreview](t, a, "POST", "/api/v1/rules/preview", `{"days":7,"rules":[`+strings.Join(c.rules, ",")+`]}`)
		must.Equal(t, name+": of all rooms", []int{c.incidents, c.excursions}, []int{got.Incidents, got.Excursions})
		if c.sensors == nil {
			must.Equal(t, name+": rooms", 0, len(got.Rooms))
			continue
		}
		sum, last := shownPreviewDay{}, s.now().UTC().Format(time.DateOnly)
		days := got.Rooms[0].Days
		for _, day := range days {
			sum.Incidents += day.Incidents
			sum.Excursions += day.Excursions
		}
		if len(days) != 8 || days[7].Date != last || days[0].Date != s.now().UTC().AddDate(0, 0, -7).Format(time.DateOnly) || days[5].Incidents+days[6].Incidents == 0 {
			t.Errorf("%s: days %+v", name, days)
		}
		must.Equal(t, name+": of all days", shownPreviewDay{"", c.incidents, c.excursions}, sum)
		got.Rooms[0].Days = nil
		must.Equal(t, name+": rooms", []shownRoomPreview{{room, "Hall", c.incidents, c.excursions, nil, c.sensors}},
			got.Rooms)
	}
}

// TestPreviewOfAWiderRule previews one of all sensors beside one of a room, which judges there unless it is replaced.
func TestPreviewOfAWiderRule(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	hall, attic := a.room(t, "Hall"), a.room(t, "Attic")
	a.sensors(t, hall, "a")
	a.sensors(t, attic, "b")
	threshold := get[[]struct{ ID int64 }](t, a, "GET", "/api/v1/rules", "")[0].ID
	critical := strings.Replace(someRule, "warning", "critical", 1) // as the threshold
	own := a.create(t, "/api/v1/rules", fmt.Sprintf(critical, 45.0, fmt.Sprintf(`,"room_id":%d`, attic)))
	for _, node := range []string{"a", "b"} {
		s.holdsBefore(t, node)
		var rows []reading.Reading
		for minute := range 20 {
			rows = append(rows, reading.Reading{
				NodeID: node, MessageID: fmt.Sprint("m", minute), Temperature: 35, Humidity: 40,
				Time: reading.TruncateTime(s.now().Add(time.Duration(minute-60) * time.Minute)),
			})
		}
		must.Do(t, s.readings.Append(t.Context(), rows))
	}
	for replaces, want := range map[int64][]int64{0: {hall}, own: {hall, attic}, threshold: {hall, attic}} {
		body := fmt.Sprintf(`{"days":1,"replaces":%d,"rules":[%s]}`, replaces, fmt.Sprintf(critical, 30.0, ""))
		var rooms []int64
		for _, room := range get[shownPreview](t, a, "POST", "/api/v1/rules/preview", body).Rooms {
			rooms = append(rooms, room.RoomID)
		}
		slices.Sort(rooms)
		must.Equal(t, fmt.Sprintf("rooms with incidents, in place of rule %d", replaces), want, rooms)
	}
}

// TestPreviewOfAForeignScope previews rules for what is another's, or nobody's: 404, as for made ones. Contract 1.3.
func TestPreviewOfAForeignScope(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, other := s.customer(t), s.customer(t)
	own, foreign := a.heldSensor(t, "n1"), other.heldSensor(t, "n2")
	preview := func(scopes ...string) reply {
		rules := make([]string, len(scopes))
		for i, scope := range scopes {
			rules[i] = fmt.Sprintf(someRule, 40.0, scope)
		}
		return a.call(t, a.token, "POST", "/api/v1/rules/preview", `{"days":1,"rules":[`+strings.Join(rules, ",")+`]}`)
	}
	in := func(room int64) string { return fmt.Sprintf(`,"room_id":%d`, room) }
	for _, room := range []int64{foreign, 999_999} {
		preview(in(own), in(room)).says(t, 404, "Room not found")
	}
	for _, sensor := range []string{"n2", "nobody"} {
		preview("", `,"sensor_id":"`+sensor+`"`).says(t, 404, "Sensor not found")
	}
	preview("", in(own), in(own), `,"sensor_id":"n1"`).is(t, 200)
}

// countedQueries counts the statements of a pool.
type countedQueries struct{ asked atomic.Int64 }

func (q *countedQueries) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	q.asked.Add(1)
	return ctx
}

func (q *countedQueries) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestPreviewAsksAsMuchForManyRooms previews rules for one room and for thirty: the same number of statements.
func TestPreviewAsksAsMuchForManyRooms(t *testing.T) {
	t.Parallel()
	var config Config
	s, a := newTestCustomer(t, func(c *Config) { config = *c })
	settings := s.pool.Config()
	queries := &countedQueries{}
	settings.ConnConfig.Tracer = queries
	settings.MaxConns = 2
	pool := must.Get(pgxpool.NewWithConfig(t.Context(), settings))(t)
	t.Cleanup(pool.Close)
	config.DB = store.New(pool)
	config.Readings = pgreadings.New(config.DB, nil, time.Now)
	counted := must.Get(New(config))(t)
	sensors := 0
	preview := func() int64 {
		t.Helper()
		before := queries.asked.Load()
		got := answer(t, counted, "POST", "/api/v1/rules/preview", `{"days":7,"rules":[`+fmt.Sprintf(someRule, 20.0, "")+`]}`,
			map[string]string{"Authorization": "Bearer " + a.token, "Content-Type": "application/json"}).is(t, http.StatusOK)
		must.Equal(t, "sensors", sensors, strings.Count(string(got.body), `"sensor_id"`))
		return queries.asked.Load() - before
	}
	add := func(rooms int) {
		t.Helper()
		for range rooms {
			id := fmt.Sprint("node-", sensors)
			room := a.room(t, fmt.Sprintf("Hall %d", sensors))
			a.sensors(t, room, id)
			s.reading(t, id, time.Now().Add(-time.Hour), 30, 40)
			sensors++
		}
	}
	add(1)
	preview() // the connection and what the API caches
	one := preview()
	add(29)
	preview() // what the API caches may have expired meanwhile
	must.Equal(t, "statements for thirty rooms", one, preview())
	must.Equal(t, "six are enough", true, one <= 6)
}

// TestMaintenanceSilences shows contract 11.7.
func TestMaintenanceSilences(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.heldSensor(t, "n1")
	s.judge(t, "n1", s.now().Add(-2*time.Minute), 55)
	silenced := func() bool { return a.incidents(t, "")[0].Silenced }
	must.Equal(t, "silenced without a window", false, silenced())
	window := fmt.Sprintf(`{"start_time":%q,"duration_s":7200,"time_zone":"Europe/Zurich","room_ids":[%d],"comment":"Filters","confirm":true}`,
		s.now().Add(-time.Hour).Format(time.RFC3339), room)
	id := a.create(t, "/api/v1/maintenance", window)
	must.Equal(t, "silenced in a window", true, silenced())
	path := fmt.Sprintf("/api/v1/maintenance/%d", id)
	past := fmt.Sprintf(`{"start_time":%q,"duration_s":60,"weekdays":[1,3],"sensor_id":"n1","confirm":true}`, s.now().Add(-24*time.Hour*365).Format(time.RFC3339))
	type body struct {
		Active   bool
		Weekdays []int
		TimeZone string `json:"time_zone"`
	}
	replaced := get[body](t, a, "PUT", path, past)
	must.Equal(t, "replaced", body{replaced.Active, []int{1, 3}, "UTC"}, replaced)
	for range 3 { // a repeat changes nothing
		must.Equal(t, "replaced again", body{true, []int{}, "Europe/Zurich"}, get[body](t, a, "PUT", path, window))
		must.Equal(t, "silenced again", true, silenced())
	}
	must.Equal(t, "versions", 3, s.count(t, `SELECT count(*) FROM maintenance_windows`))
	a.call(t, a.token, "DELETE", path, "").is(t, http.StatusNoContent)
	must.Equal(t, "silenced when the window is deleted", false, silenced())
	must.Equal(t, "listed", 0, len(get[[]body](t, a, "GET", "/api/v1/maintenance", "")))
	const over = "start_time: every occurrence would be over already"
	a.call(t, a.token, "PUT", fmt.Sprintf("/api/v1/maintenance/%d", a.create(t, "/api/v1/maintenance", window)),
		`{"start_time":"2026-03-01","duration_s":60,"sensor_id":"n1"}`).says(t, http.StatusBadRequest, over)
	for body, want := range map[string]string{
		`{"start_time":"2026-03-01","duration_s":60,"time_zone":"Local"}`:                 "time_zone: must be a time zone of the IANA database, such as Europe/Zurich",
		`{"start_time":"2026-03-01","duration_s":60,"weekdays":[7]}`:                      "weekdays: must be 0 (Sunday) to 6 (Saturday), each at most once",
		`{"start_time":"2026-03-01","duration_s":60,"until":"2026-02-01","weekdays":[1]}`: "until: must be after start_time and before the year 2100",
		`{"start_time":"2026-03-01","duration_s":60,"until":"2026-05-01"}`:                "until: needs weekdays",
		`{"start_time":"2026-03-01","duration_s":60,"until":"2026-03-02","weekdays":[1]}`: "until: must come after the first occurrence",
		`{"start_time":"9999-12-31","duration_s":3600,"weekdays":[1]}`:                    "start_time: must lie between the years 2000 and 2100",
		`{"start_time":"2026-03-01","duration_s":60,"time_zone":"posix/Europe/Zurich"}`:   "time_zone: must be a time zone of the IANA database, such as Europe/Zurich",
		`{"start_time":"2026-03-01","duration_s":90000,"weekdays":[1,2]}`:                 "duration_s: must end before the next occurrence begins",
		`{"start_time":"2026-03-01","duration_s":0}`:                                      "duration_s: expected number > 0",
		`{"start_time":"2026-03-01","duration_s":60}`:                                     over,
		`{"start_time":"2026-03-01","duration_s":60,"until":"2026-04-01","weekdays":[1]}`: over,
	} {
		body = strings.Replace(body, "}", `,"sensor_id":"n1"}`, 1)
		a.call(t, a.token, "POST", "/api/v1/maintenance", body).says(t, 400, want)
	}
}

// TestMaintenanceNamesItsRooms shows contract 11.7: a window tells what it silences; what is critical needs a yes.
func TestMaintenanceNamesItsRooms(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, other := s.customer(t), s.customer(t)
	hall, attic, cellar, foreign := a.heldSensor(t, "n1"), a.room(t, "Attic"), a.room(t, "Cellar"), other.room(t, "Hall")
	a.sensors(t, attic, "n2")
	a.sensors(t, cellar, "n3")
	a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 30.0, `,"sensor_id":"n2"`)) // a warning
	s.judge(t, "n1", s.now().Add(-2*time.Minute), 55)
	s.judge(t, "n2", s.now(), 35)
	rooms := func(ids ...int64) string { return `{"room_ids":` + strings.ReplaceAll(fmt.Sprint(ids), " ", ",") + `}` }
	of := func(scope string, more string) string {
		began := s.now().Add(-time.Hour).Format(time.RFC3339)
		return fmt.Sprintf(`{"start_time":%q,"duration_s":7200,%s%s}`, began, strings.Trim(scope, "{}"), more)
	}
	const windows = "/api/v1/maintenance"
	silences := func(scope string) (sensors []string) {
		t.Helper()
		got := get[struct {
			Incidents []struct {
				Severity string
				Worst    shownExcursion
			}
			Critical int
		}](t, a, "POST", windows+"/preview", scope)
		for _, i := range got.Incidents {
			sensors = append(sensors, i.Worst.SensorID+" "+i.Severity)
		}
		must.Equal(t, scope+": critical", strings.Count(fmt.Sprint(sensors), "critical"), got.Critical)
		return sensors
	}
	for scope, want := range map[string][]string{
		rooms(hall): {"n1 critical"}, rooms(hall, attic, hall): {"n1 critical", "n2 warning"}, rooms(cellar): nil,
		`{"sensor_id":"n2"}`: {"n2 warning"}, `{"sensor_id":"n3"}`: nil,
	} {
		must.Equal(t, scope, want, silences(scope))
	}
	for scope, want := range map[string]string{
		`{}`:                                "expected room_ids or sensor_id to be present",
		rooms():                             "room_ids: expected array length >= 1",
		rooms(foreign):                      "Room not found",
		rooms(hall, foreign):                "Room not found",
		`{"sensor_id":"n4"}`:                "Sensor not found",
		`{"room_ids":[1],"sensor_id":"n1"}`: "sensor_id: cannot be combined with room_ids",
	} {
		for path, body := range map[string]string{windows: of(scope, ""), windows + "/preview": scope} {
			status := map[bool]int{true: 404, false: 400}[strings.HasSuffix(want, "not found")]
			a.call(t, a.token, "POST", path, strings.Replace(body, ",}", "}", 1)).says(t, status, want)
		}
	}
	const refused = "Lasting critical incidents that the window would silence: 1; send confirm to silence them"
	a.call(t, a.token, "POST", windows, of(rooms(hall, attic), "")).says(t, http.StatusConflict, refused)
	warning := a.create(t, windows, of(rooms(attic), ""))
	path := fmt.Sprintf("%s/%d", windows, warning)
	a.call(t, a.token, "PUT", path, of(rooms(hall, attic), `,"confirm":false`)).says(t, http.StatusConflict, refused)
	must.Equal(t, "refused", []string{"n1 critical"}, silences(rooms(hall, attic))) // the attic's is silenced already
	a.call(t, a.token, "PUT", path, of(rooms(attic, hall, hall), `,"confirm":true`)).
		has(t, http.StatusOK, fmt.Sprintf(`"room_ids":[%d,%d],"sensor_id":null`, hall, attic))
	must.Equal(t, "one window of two rooms", []string(nil), silences(rooms(hall, attic)))
	must.Equal(t, "all are silenced", false,
		slices.ContainsFunc(a.incidents(t, ""), func(i shownIncident) bool { return !i.Silenced }))
	// What a window silences already needs no second confirmation.
	a.call(t, a.token, "PUT", path, of(rooms(attic, hall), `,"comment":"Filters"`)).is(t, http.StatusOK)
}

// TestMaintenanceIsOnItsClocks gives times without an offset: they are on the clocks of the zone beside. Contract 1.1.
func TestMaintenanceIsOnItsClocks(t *testing.T) {
	t.Parallel()
	a := newTestAPI(t).customer(t)
	room := a.room(t, "Hall")
	for fields, want := range map[string][2]string{
		`"start_time":"2093-07-01T12:00:00","time_zone":"Europe/Zurich"`:                                              {"2093-07-01T10:00:00Z"},
		`"start_time":"2093-07-01T12:00:00Z","time_zone":"Europe/Zurich"`:                                             {"2093-07-01T12:00:00Z"},
		`"start_time":"2093-07-01T12:00:00"`:                                                                          {"2093-07-01T12:00:00Z"},
		`"start_time":"2093-01-05","time_zone":"Europe/Zurich","weekdays":[1],"until":"2093-07-06T00:30:00"`:          {"2093-01-04T23:00:00Z", "2093-07-05T22:30:00Z"},
		`"start_time":"2093-01-05","time_zone":"America/New_York","weekdays":[1],"until":"2093-07-06T00:30:00+00:00"`: {"2093-01-05T05:00:00Z", "2093-07-06T00:30:00Z"},
	} {
		type window struct {
			StartTime string `json:"start_time"`
			Until     string
		}
		body := fmt.Sprintf(`{"duration_s":60,"room_ids":[%d],%s}`, room, fields)
		must.Equal(t, fields, window{want[0], want[1]}, get[window](t, a, "POST", "/api/v1/maintenance", body))
	}
	const skipped = `{"duration_s":60,"room_ids":[%d],"start_time":"2093-03-29T02:30:00","time_zone":"Europe/Zurich","weekdays":[0]}`
	a.call(t, a.token, "POST", "/api/v1/maintenance", fmt.Sprintf(skipped, room)).
		says(t, http.StatusBadRequest, "start_time: must be a time that the clocks of time_zone do not skip")
}

// TestScopeTakesItsRulesAndWindows deletes a sensor and a room: their rules and windows end, each in the audit log, and
// do not come back with the sensor; a window of another room too goes on there. Contract 11.5, 11.7.
func TestScopeTakesItsRulesAndWindows(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a, other := s.customer(t), s.customer(t)
	room, attic := a.heldSensor(t, "n1", "n2"), a.room(t, "Attic")
	window := func(a *testCustomer, scope string) string {
		return fmt.Sprint("maintenance:", a.create(t, "/api/v1/maintenance", `{"start_time":"2093-03-01","duration_s":60`+scope+`}`))
	}
	rule := func(scope string) string {
		return fmt.Sprint("rule:", a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 60.0, scope)))
	}
	inRoom := fmt.Sprintf(`,"room_id":%d`, room)
	rooms := func(ids ...int64) string { return `,"room_ids":` + strings.ReplaceAll(fmt.Sprint(ids), " ", ",") }
	both, ofRoom, ofN1, ofN2 := window(a, rooms(room, attic)), window(a, rooms(room)), window(a, `,"sensor_id":"n1"`), window(a, `,"sensor_id":"n2"`)
	ruleOfAll, ruleOfRoom, ruleOfN1, ruleOfN2 := rule(""), rule(inRoom), rule(`,"sensor_id":"n1"`), rule(`,"sensor_id":"n2"`)
	others := window(other, rooms(other.room(t, "Hall")))
	left := func(a *testCustomer) (ids []string) {
		for _, w := range get[[]struct{ ID int64 }](t, a, "GET", "/api/v1/maintenance", "") {
			ids = append(ids, fmt.Sprint("maintenance:", w.ID))
		}
		return ids
	}
	for _, c := range []struct {
		path        string
		ended, left []string
	}{
		{"/api/v1/sensors/delete_sensor/n1", []string{ofN1, ruleOfN1}, []string{both, ofRoom, ofN2}},
		{
			fmt.Sprintf("/api/v1/server_rooms/delete_room/%d", room),
			[]string{both + fmt.Sprintf(" -> [%d]", attic), ofRoom, ofN2, ruleOfRoom, ruleOfN2},
			[]string{both},
		},
	} {
		s.execute(t, `DELETE FROM audit_log`)
		a.call(t, a.token, "DELETE", c.path, "").is(t, http.StatusNoContent)
		var logged []string
		for _, entry := range get[[]loggedEntry](t, a, "GET", "/api/v1/audit", "") {
			kind, _, _ := strings.Cut(entry.Subject, ":")
			if value := map[string]string{"maintenance": "duration_s", "rule": "limit"}[kind]; entry.Before[value] == 60.0 {
				if entry.After != nil {
					entry.Subject += fmt.Sprint(" -> ", entry.After["room_ids"])
				}
				logged = append(logged, entry.Subject)
			}
		}
		slices.Sort(logged)
		must.Equal(t, c.path+": audited", c.ended, logged)
		must.Equal(t, c.path+": left", c.left, left(a))
	}
	a.heldSensor(t, "n1", "n2")
	rules := get[[]struct{ ID int64 }](t, a, "GET", "/api/v1/rules", "")
	must.Hold(t, len(rules) == 3 && fmt.Sprint("rule:", rules[2].ID) == ruleOfAll, "rules left: %v", rules)
	must.Equal(t, "made again", []string{both}, left(a))
	must.Equal(t, "another's", []string{others}, left(other))
}

// TestStillHotWhenItsWindowEnds shows contract 11.7: what lasts is open in the second in which its window ends.
func TestStillHotWhenItsWindowEnds(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.heldSensor(t, "n1")
	begin := s.now().Truncate(time.Second)
	s.judge(t, "n1", begin.Add(-time.Minute), 55)
	a.create(t, "/api/v1/maintenance", fmt.Sprintf(`{"start_time":%q,"duration_s":600,"room_ids":[%d],"confirm":true}`, begin.Format(time.RFC3339), room))
	for offset, want := range map[time.Duration]bool{time.Minute: true, 9*time.Minute + 50*time.Second: true, 10*time.Minute + time.Second: false} {
		s.forward(time.Until(begin.Add(offset)))
		got := a.incidents(t, "?cause=too_hot")
		must.Hold(t, len(got) == 1 && got[0].Silenced == want, "%s after the begin: %+v", offset, got)
	}
}
