package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bq "google.golang.org/api/bigquery/v2"

	"coldaisle.dev/run/api/data"
	"coldaisle.dev/shared/learn"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/backend"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store"
)

// persistence is a model that expects no change.
type persistence struct{}

func (persistence) Wait(context.Context, int64) modelstore.Pair {
	return modelstore.Pair{Forecaster: &learn.Forecaster{Info: learn.Info{Name: "persistence"}}}
}

// TestPollsAskNothingOfBigQuery polls for an hour's worth as ten open dashboards do, for
// sensors that report, that fell silent before there were states of nodes, that never
// reported, that are new and that are deleted. What the first polls ask is asked once
// for each sensor, and the polls after them ask nothing. Contract 5.8.
func TestPollsAskNothingOfBigQuery(t *testing.T) {
	t.Parallel()
	const dashboards, polls = 10, 120 // every 30 s
	silentSince := time.Now().Add(-40 * 24 * time.Hour).Truncate(time.Second)
	server := bqtest.NewQueryServer(t, func(request *bq.QueryRequest) bqtest.Answer {
		answer := bqtest.Answer{Schema: []*bq.TableFieldSchema{
			bqtest.Column("node_id", "STRING"), bqtest.Column("customer_id", "INTEGER"), bqtest.Column("message_id", "STRING"),
			bqtest.Column("timestamp", "TIMESTAMP"), bqtest.Column("temperature", "FLOAT"), bqtest.Column("humidity", "FLOAT"),
		}}
		from, ids, channels := time.Time{}, []string(nil), []string(nil)
		for _, p := range request.QueryParameters {
			switch p.Name {
			case "from":
				micros, err := time.Parse("2006-01-02 15:04:05.999999-07:00", p.ParameterValue.Value)
				if err != nil {
					t.Error(err)
				}
				from = micros
			case "ids", "channels":
				for _, v := range p.ParameterValue.ArrayValues {
					if p.Name == "ids" {
						ids = append(ids, v.Value)
					} else {
						channels = append(channels, v.Value)
					}
				}
			}
		}
		for i, id := range ids {
			if id == "silent" && channels[i] == "0" && !from.After(silentSince) {
				answer.Rows = append(answer.Rows, []string{id, "0", "m", strconv.FormatInt(silentSince.UnixMicro(), 10), "17.5", "40"})
			}
		}
		return answer
	})
	table, err := bqreadings.Open(context.WithoutCancel(t.Context()), "project", bqreadings.Config{
		Dataset: "sensor_data", Table: "readings", MaxBytes: bqreadings.MaxBytes{Page: 1 << 30, Chart: 1 << 30, Export: 1 << 30, Training: 1 << 30}, AppendTimeout: time.Second,
		Emulator: server.URL, StorageEmulator: "127.0.0.1:1",
	}, time.Now, logging.Discard())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	pool := pgtest.New(t)
	if _, err := pool.Exec(t.Context(), `INSERT INTO recent_kept (since, until) VALUES (now() - interval '3 days', now())`); err != nil {
		t.Fatal(err)
	}
	recent := pgreadings.NewRecent(pool, time.Now)
	s := newTestAPI(t, func(c *Config) {
		c.Readings = backend.NewTiered(table, recent)
		c.Forecaster = data.NewModelForecaster(persistence{}, c.Readings, time.Now)
	})
	a := s.customer(t)
	a.enrolled(t, "Basement") // so that there are two channels to look in
	room := a.create(t, "/api/v1/server_rooms/new_room", `{"name":"Hall"}`)
	all := []string{"reports", "silent", "never", "deleted", "again", "new"}
	for _, id := range all {
		a.create(t, "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":%q,"name":"Rack","type":"T","room_id":%d}`, id, room))
	}
	// Of a version before there were states.
	for _, id := range []string{"silent", "never"} {
		s.holdsBefore(t, id)
	}
	at := time.Now().Truncate(time.Second)
	report := func(id string, channel int64, after time.Duration, temperature float64) {
		t.Helper()
		r := reading.Reading{
			Channel: reading.Channel(channel), NodeID: id, MessageID: fmt.Sprint(after), Time: at.Add(after), Temperature: temperature, Humidity: 40,
		}
		if err := s.store.UpdateNodeStates(t.Context(), []store.NodeReading{{Reading: r}}); err != nil {
			t.Fatal(err)
		}
		if err := recent.Append(t.Context(), []reading.Reading{r}); err != nil { // as ingest does
			t.Fatal(err)
		}
	}
	for i := range 60 {
		report("reports", a.id, time.Duration(i-60)*30*time.Second, 20)
	}
	report("reports", a.id, time.Second, 20)
	report("reports", 0, 0, 90) // older
	for _, id := range []string{"deleted", "again"} {
		if got := s.call(t, a.token, http.MethodDelete, "/api/v1/sensors/delete_sensor/"+id, ""); got.status != 204 {
			t.Fatalf("delete: %d %s", got.status, got.body)
		}
	}
	a.create(t, "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":"again","name":"Rack","type":"T","room_id":%d}`, room))

	named, err := json.Marshal(map[string][]string{"node_ids": all})
	if err != nil {
		t.Fatal(err)
	}
	today := fmt.Sprintf("?max_points=720&start_time=%s&end_time=%s", at.Add(-24*time.Hour).UTC().Format(time.RFC3339), at.UTC().Format(time.RFC3339))
	poll := func(reports string, ids ...string) {
		t.Helper()
		multi := s.call(t, a.token, http.MethodPost, "/api/v1/data/multi-sensor", string(named))
		var found map[string]struct{ Temperature float64 }
		if err := json.Unmarshal(multi.body, &found); err != nil || len(found) != 2 ||
			fmt.Sprint(found["reports"].Temperature) != reports || found["silent"].Temperature != 17.5 {
			t.Errorf("multi-sensor: %s, %v", multi.body, err)
		}
		var shown struct {
			Sensors []struct {
				ID          string
				Temperature *float64
			}
		}
		if got := s.call(t, a.token, http.MethodGet, "/api/v1/overview", ""); json.Unmarshal(got.body, &shown) != nil || len(shown.Sensors) != len(all)-1 {
			t.Errorf("overview: %d %s", got.status, got.body)
		}
		for _, id := range ids {
			for path, has := range map[string]bool{
				"/api/v1/data/latest/":                  id == "reports" || id == "silent",
				"/api/v1/ml/forecast/":                  id == "reports", // of what is silent there is none
				"/api/v1/data/historical/" + id + today: id != "deleted",
			} {
				want := 404
				if has {
					want = 200
				}
				if !strings.Contains(path, id) {
					path += id
				}
				if got := s.call(t, a.token, http.MethodGet, path, ""); got.status != want {
					t.Errorf("%s: %d %s", path, got.status, got.body)
				}
			}
		}
	}
	var first sync.WaitGroup
	for range dashboards {
		first.Go(func() { poll("20", all...) })
	}
	first.Wait()
	filled := len(server.Requests())
	if filled == 0 || filled > 12 { // three searches, ever further back, in each of a node's spans
		t.Errorf("%d queries by the first polls", filled)
	}
	for i := range polls - 1 {
		report("reports", a.id, time.Duration(i+2)*time.Second, 21)
		for d := range dashboards {
			poll("21", all[(i+d)%len(all)])
		}
	}
	if got := len(server.Requests()); got != filled {
		t.Errorf("%d queries by the polls after the first", got-filled)
	}
}

// countedHistory counts what is asked of a time-series table.
type countedHistory struct {
	readings.Reader

	asked atomic.Int64
}

func (h *countedHistory) Latest(ctx context.Context, nodes []readings.NodeRef) (map[string]reading.Reading, error) {
	h.asked.Add(1)
	return h.Reader.Latest(ctx, nodes)
}

// TestStatesAreFilledInTheBackground starts on what a version without states of nodes has
// left: before any poll each node has its state, of its last reading or that there is
// none, by a few queries for all. Contract 5.8.
func TestStatesAreFilledInTheBackground(t *testing.T) {
	t.Parallel()
	const sensors = 30
	history := &countedHistory{}
	s := newTestAPI(t, func(c *Config) { history.Reader, c.Readings = c.Readings, history })
	a := s.customer(t)
	a.enrolled(t, "Basement") // so that there are two channels
	room := a.create(t, "/api/v1/server_rooms/new_room", `{"name":"Hall"}`)
	at := s.now().Add(-40 * 24 * time.Hour).Truncate(time.Second)
	for i := range sensors {
		id := fmt.Sprintf("n%02d", i)
		a.create(t, "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":%q,"name":"Rack","type":"T","room_id":%d}`, id, room))
		if i%3 > 0 { // else it never sent anything
			r := reading.Reading{NodeID: id, MessageID: "m", Time: at, Temperature: float64(i), Humidity: 40}
			if err := s.readings.Append(t.Context(), []reading.Reading{r}); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.execute(t, `UPDATE sensors SET readable_from = NULL`)
	s.execute(t, `DELETE FROM node_state`)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.api.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer func() { stop(); running.Wait() }()
	filled := func() (rows int) {
		if err := s.pool.QueryRow(t.Context(), `SELECT count(*) FROM node_state WHERE timestamp IS NOT NULL OR held_since IS NOT NULL`).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	for deadline := time.Now().Add(5 * time.Minute); filled() < 2*sensors; time.Sleep(10 * time.Millisecond) { // between two polls of the condition
		if time.Now().After(deadline) {
			t.Fatalf("%d states", filled())
		}
	}
	asked := history.asked.Load()
	if asked > 2 { // a query has one span of a node
		t.Errorf("%d queries for %d nodes", asked, sensors)
	}
	for i := range sensors {
		want := 404
		if i%3 > 0 {
			want = 200
		}
		if got := s.call(t, a.token, http.MethodGet, fmt.Sprintf("/api/v1/data/latest/n%02d", i), ""); got.status != want {
			t.Errorf("latest of %d: %d %s", i, got.status, got.body)
		}
	}
	body, _ := a.overview(t, "")
	if body.Counts["unreported"] != sensors/3 || body.Counts["silent"] != sensors-sensors/3 {
		t.Errorf("overview: %v", body.Counts)
	}
	if now := history.asked.Load(); now != asked {
		t.Errorf("%d queries by polls", now-asked)
	}
}
