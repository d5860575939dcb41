package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/store/pipeline"
)

// overviewBody is what the tests read of an overview.
type overviewBody struct {
	Time  time.Time
	Probe struct {
		Late      bool
		LatenessS float64 `json:"lateness_s"`
	}
	Rooms []struct {
		ID   int64
		Name string
	}
	Limits [][]struct {
		Quantity, Direction, Severity string
		Limit                         float64
	}
	SparklineStart time.Time `json:"sparkline_start"`
	Sensors        []struct {
		ID, Name, State, Sparkline string
		Temperature, Humidity      *float64
		Timestamp                  *time.Time
		GatewayID                  *string `json:"gateway_id"`
		JudgedBy                   string  `json:"judged_by"`
		Limits                     int
	}
	Incidents []struct {
		Kind, Reason, Severity string
		SensorID               string `json:"sensor_id"`
	}
	ToBeSeen int `json:"to_be_seen"`
	Counts   map[string]int
}

// unless asks for what is not the answer of a tag.
func (a *testCustomer) unless(t *testing.T, path, tag string) reply {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+path, nil))(t)
	request.Header.Set("Authorization", "Bearer "+a.token)
	request.Header.Set("If-None-Match", tag)
	return a.do(t, request)
}

func (a *testCustomer) overview(t *testing.T, tag string) (overviewBody, reply) {
	t.Helper()
	got := a.unless(t, "/api/v1/overview", tag)
	var body overviewBody
	if got.status == http.StatusOK {
		if err := json.Unmarshal(got.body, &body); err != nil {
			t.Fatalf("%s: %v", got.body, err)
		}
	} else if got.status != http.StatusNotModified || len(got.body) > 0 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	return body, got
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
	must.Do(t, s.store.KeepLearned(t.Context(), learned, 2))

	states := func(body overviewBody) map[string]string {
		all := map[string]string{}
		for _, sensor := range body.Sensors {
			all[sensor.ID] = sensor.State
		}
		return all
	}
	body, got := a.overview(t, "")
	want := map[string]string{"critical": "critical", "warm": "warning", "fine": "ok", "never": "unreported", "silent": "silent"}
	must.Equal(t, "states", want, states(body))
	must.Equal(t, "counts", map[string]int{"sensors": 5, "ok": 1, "warning": 1, "critical": 1, "silent": 1, "late": 0, "unreported": 1}, body.Counts)
	// Two of the critical one, which are a group with the warm one's, and a silence.
	if len(body.Rooms) != 2 || len(body.Incidents) != 4 || body.ToBeSeen != 2 {
		t.Errorf("rooms %v, %d to be seen of incidents %v", body.Rooms, body.ToBeSeen, body.Incidents)
	}
	fine, warm := body.Sensors[1], body.Sensors[4]
	if *fine.Temperature != 24.9 || !fine.Timestamp.Equal(now.Add(-time.Minute)) || *fine.GatewayID != gateway.id {
		t.Errorf("newest: %+v", fine)
	}
	if wantLine := "200" + strings.Repeat(",", 45) + "53,,-4"; fine.Sparkline != wantLine || !body.SparklineStart.Equal(now.Add(-23*time.Hour-40*time.Minute)) {
		t.Errorf("sparkline %q from %v, want %q", fine.Sparkline, body.SparklineStart, wantLine)
	}
	if len(body.Limits[fine.Limits]) != 2 || len(body.Limits[warm.Limits]) != 3 || body.Limits[warm.Limits][2].Limit != 30 {
		t.Errorf("limits %v of %d and %d", body.Limits, fine.Limits, warm.Limits)
	}
	if got.header.Get("Cache-Control") != "private, no-cache" {
		t.Errorf("Cache-Control %q", got.header.Get("Cache-Control"))
	}

	// By what each is judged: what detection says, of the node that was heard for two hours.
	judged := map[string]string{}
	for _, sensor := range body.Sensors {
		judged[sensor.ID] = sensor.JudgedBy
	}
	must.Equal(t, "judged by", map[string]string{"critical": "nothing", "warm": "live_state", "fine": "learning", "never": "nothing", "silent": "nothing"}, judged)

	// Unchanged, and each thing that changes it.
	tag := got.header.Get("ETag")
	unchanged := func() {
		t.Helper()
		if _, again := a.overview(t, `"other", `+tag); again.status != http.StatusNotModified || again.header.Get("ETag") != tag {
			t.Fatalf("%d with %s, want %s", again.status, again.header.Get("ETag"), tag)
		}
	}
	changed := func(what string) overviewBody {
		t.Helper()
		now = now.Add(3 * time.Second) // longer than an answer may be kept
		body, again := a.overview(t, tag)
		if again.status != http.StatusOK {
			t.Fatalf("%s: %d", what, again.status)
		}
		tag = again.header.Get("ETag")
		unchanged()
		return body
	}
	unchanged()
	report("fine", time.Second, 26)
	if body := changed("a reading"); *body.Sensors[1].Temperature != 26 {
		t.Errorf("%+v", body.Sensors[1])
	}
	a.create(t, "/api/v1/rules", fmt.Sprintf(someRule, 25.0, `,"sensor_id":"fine"`))
	if body := changed("a rule"); len(body.Limits[body.Sensors[1].Limits]) != 3 {
		t.Errorf("%v", body.Limits)
	}
	if got := s.call(t, a.token, http.MethodPost, "/api/v1/incidents/acknowledge", fmt.Sprintf(`{"room_id":%d,"kind":"silence"}`, hall)); got.status != 200 {
		t.Fatal(string(got.body))
	}
	if body := changed("an acknowledgement"); body.ToBeSeen != 1 {
		t.Errorf("%d to be seen when the silence is acknowledged", body.ToBeSeen)
	}
	a.create(t, "/api/v1/maintenance", fmt.Sprintf(`{"start_time":%q,"duration_s":7200,"room_ids":[%d,%d],"confirm":true}`, now.Add(-time.Hour).Format(time.RFC3339), hall, attic))
	s.execute(t, `UPDATE maintenance_windows SET stands_from = now() - interval '2 hours'`) // before this test's time
	if body := changed("a maintenance window"); body.ToBeSeen != 0 {
		t.Errorf("%d to be seen in maintenance", body.ToBeSeen)
	}
	if got := s.call(t, a.token, http.MethodPut, "/api/v1/server_rooms/update_room/"+strconv.FormatInt(hall, 10), `{"name":"Vault"}`); got.status != 200 {
		t.Fatal(string(got.body))
	}
	changed("a name")
	if got := s.call(t, a.token, http.MethodDelete, "/api/v1/sensors/delete_sensor/never", ""); got.status != 204 {
		t.Fatal(string(got.body))
	}
	changed("a deletion")

	// The service is late: nobody is blamed.
	must.Do(t, s.store.KeepProbe(t.Context(), now, now))
	now = now.Add(10 * time.Minute)
	body = changed("lateness")
	want = map[string]string{"critical": "critical", "warm": "warning", "fine": "ok", "silent": "late"} // the fine one sends seldom
	if diff := cmp.Diff(want, states(body)); diff != "" || !body.Probe.Late || body.Probe.LatenessS != 543 {
		t.Errorf("%+v, states (-want +got):\n%s", body.Probe, diff)
	}
}

// TestOverviewHasAllThatLasts puts 210 newer, finished, unseen incidents beside 31 that
// last: all of these are in the overview, and the others are counted.
func TestOverviewHasAllThatLasts(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	insert := func(ended bool, number int) {
		t.Helper()
		s.execute(t, fmt.Sprintf(`
			INSERT INTO incidents (customer_id, kind, channel, node_id, sensor_name, room_name, quantity, direction, limit_value, severity,
			                       start_time, end_time, lasting, peak, peak_time, resolution)
			SELECT %d, 'threshold', 0, 'n-%t-' || i, 'Rack', 'Hall', 'temperature', 'above', 27, 'critical', at, at, NOT %[2]t, 41, at, CASE WHEN %[2]t THEN 'cleared' ELSE '' END
			FROM (SELECT i, now() - i * interval '1 minute' - CASE WHEN %[2]t THEN interval '1 hour' ELSE interval '1 day' END AS at FROM generate_series(1, %d) AS i) AS began`,
			a.id, ended, number))
	}
	insert(true, 210)
	insert(false, 31)
	body, got := a.overview(t, "")
	if len(body.Incidents) != 31 || body.ToBeSeen != 241 {
		t.Fatalf("%d incidents last and %d are to be seen, want 31 and 241", len(body.Incidents), body.ToBeSeen)
	}
	for _, i := range body.Incidents {
		if !strings.HasPrefix(i.SensorID, "n-false-") || i.Reason != "Temperature above 27.0 °C, peak 41.0 °C" {
			t.Errorf("%+v", i)
		}
	}
	// The oldest of them all is counted, too.
	s.execute(t, `UPDATE incidents SET acknowledged_at = now(), acknowledged_peak = peak WHERE node_id = 'n-true-210'`)
	if body, again := a.overview(t, got.header.Get("ETag")); again.status != http.StatusOK || body.ToBeSeen != 240 {
		t.Errorf("%d with %d to be seen once the oldest is acknowledged", again.status, body.ToBeSeen)
	}
}

// TestOverviewOrdersRoomsByTrouble sends rooms by state, then by how far beyond the
// recommended range the worst of their sensors is, then by name.
func TestOverviewOrdersRoomsByTrouble(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	for _, r := range []struct {
		name        string
		temperature float64
	}{{"Hall 10", 24}, {"Hall 9", 26}, {"Warm", 33}, {"Hot", 37}, {"Cold", 10}, {"Broken", 22}, {"Empty", 0}} {
		room, node := a.room(t, r.name), strings.ReplaceAll(r.name, " ", "-")
		if r.name == "Empty" {
			continue
		}
		a.sensors(t, room, node)
		s.reading(t, node, time.Now(), r.temperature, 40)
	}
	s.execute(t, fmt.Sprintf(`
		INSERT INTO incidents (customer_id, kind, channel, node_id, sensor_name, room_name, quantity, direction, limit_value, severity, start_time, end_time, lasting, peak, peak_time)
		VALUES (%d, 'threshold', 0, 'Broken', 'Rack', 'Broken', 'humidity', 'above', 30, 'warning', now(), now(), true, 40, now())`, a.id))
	body, _ := a.overview(t, "")
	var names []string
	for _, room := range body.Rooms {
		names = append(names, room.Name)
	}
	must.Equal(t, "", []string{"Broken", "Hot", "Cold", "Warm", "Empty", "Hall 9", "Hall 10"}, names)
}
