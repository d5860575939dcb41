package api

import (
	"bytes"
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/tooltest"
)

// scraped is the Accept of Prometheus 2.42, which Debian has.
const scraped = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"

// metrics scrapes as Prometheus does, or as accept says.
func (s *testAPI) metrics(tb testing.TB, key, accept string) reply {
	tb.Helper()
	return s.send(tb, key, http.MethodGet, "/api/v1/metrics", "", map[string]string{"Accept": accept}).is(tb, 200)
}

// TestMetrics reads the metrics of two rooms as Prometheus does and as curl does, and has
// promtool judge them. Contract 12.8.
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
	must.Contain(t, "Content-Type", got.header.Get("Content-Type"), "application/openmetrics-text; version=1.0.0; charset=utf-8")
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
	if said, err := judge.CombinedOutput(); err != nil || len(bytes.TrimSpace(said)) > 0 {
		t.Errorf("promtool: %v: %s", err, said)
	}

	// A key for a room.
	s.metrics(t, limited.text, scraped).has(t, 200, "lab-1").lacks(t, "hall", "Hall")

	// Later nothing has come: the values of silent sensors are gone, and what was wrong is wrong still.
	s.forward(time.Hour)
	const silent = `coldaisle_incidents{room="Lab",cause="silent",severity="warning",state="open"} 1.0`
	s.metrics(t, all.text, scraped).has(t, 200, silent, `coldaisle_sensor_up{node_id="lab-1",sensor="Rack",room="Lab",gateway=""} 0.0`,
		`coldaisle_incidents{`+room+`,cause="too_hot",severity="critical",state="open"} 1.0`, "coldaisle_last_reading_timestamp_seconds{").
		lacks(t, "coldaisle_temperature_celsius{")
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

// TestMetricsOfWhoHasIt tells incidents that somebody has taken, and those in maintenance, from those that call: of a
// room that is too hot, of one with a silent node, and of a gateway whose nodes are all silent. Contract 12.8.
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

	a.call(t, a.token, http.MethodDelete, fmt.Sprintf("/api/v1/maintenance/%d", window), "").is(t, http.StatusNoContent)
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

// TestMetricsOfALateIncident counts one that nobody is notified of as late, until a reading
// comes in time. Contract 11.1, 12.8.
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
