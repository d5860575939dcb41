package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	bq "google.golang.org/api/bigquery/v2"

	"coldaisle.dev/shared/learn"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store/pipeline"
)

// persistence is a model that expects no change.
type persistence struct{}

func (persistence) Wait(context.Context, int64) modelstore.Pair {
	return modelstore.Pair{Forecaster: &learn.Forecaster{Info: learn.Info{Name: "persistence"}}}
}

// TestPollsAskNothingOfBigQuery polls as ten open dashboards do, for sensors that report, that fell silent, that never
// reported, that are new and that are deleted. Contract 5.8.
func TestPollsAskNothingOfBigQuery(t *testing.T) {
	t.Parallel()
	const dashboards, polls = 10, 4
	server := bqtest.NewQueryServer(t, func(request *bq.QueryRequest) bqtest.Answer {
		t.Errorf("BigQuery was asked %s", request.Query)
		return bqtest.Answer{Status: http.StatusBadRequest, Reason: "invalidQuery"}
	})
	archive := must.Get(bqreadings.Open(context.WithoutCancel(t.Context()), "project", bqreadings.Config{
		Dataset: "sensor_data", Table: "readings", MaxBytes: bqreadings.MaxBytes{Chart: 1 << 30, Export: 1 << 30, Training: 1 << 30}, AppendTimeout: time.Second,
		Emulator: server.URL, StorageEmulator: "127.0.0.1:1",
	}, logging.Discard()))(t)
	t.Cleanup(func() { _ = archive.Close() })
	pool := pgtest.New(t)
	table := pgreadings.New(pool, nil, time.Now)
	s := newTestAPI(t, func(c *Config) {
		c.Readings = pgreadings.New(pool, archive, time.Now)
		c.Models = persistence{}
	})
	a := s.customer(t)
	a.enrolled(t, "Basement") // so that there are two channels to look in
	room := a.room(t, "Hall")
	all := []string{"reports", "silent", "never", "deleted", "again", "new"}
	a.sensors(t, room, all...)
	at := time.Now().Truncate(time.Second)
	report := func(id string, channel int64, after time.Duration, temperature float64) {
		t.Helper()
		r := reading.Reading{
			Channel: reading.Channel(channel), NodeID: id, MessageID: fmt.Sprint(after), Time: at.Add(after), Temperature: temperature, Humidity: 40,
		}
		must.Do(t, s.store.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: r}}))
		must.Do(t, table.Append(t.Context(), []reading.Reading{r})) // as ingest does, without the archive
	}
	for i := range 60 {
		report("reports", a.id, time.Duration(i-60)*30*time.Second, 20)
	}
	report("reports", a.id, time.Second, 20)
	report("reports", 0, 0, 90) // older
	s.holdsBefore(t, "silent")
	report("silent", 0, -40*24*time.Hour, 17.5)
	for _, id := range []string{"deleted", "again"} {
		s.call(t, a.token, http.MethodDelete, "/api/v1/sensors/delete_sensor/"+id, "").is(t, 204)
	}
	a.sensors(t, room, "again")

	named := must.Get(json.Marshal(map[string][]string{"node_ids": all}))(t)
	today := fmt.Sprintf("?max_points=720&start_time=%s&end_time=%s", at.Add(-24*time.Hour).UTC().Format(time.RFC3339), at.UTC().Format(time.RFC3339))
	poll := func(reports string, ids ...string) {
		t.Helper()
		found := get[map[string]struct{ Temperature float64 }](t, a, http.MethodPost, "/api/v1/data/multi-sensor", string(named))
		must.Equal(t, "multi-sensor", "map[reports:{"+reports+"} silent:{17.5}]", fmt.Sprint(found))
		body, _ := a.overview(t, "")
		must.Equal(t, "sensors in the overview", len(all)-1, len(body.Sensors))
		for _, id := range ids {
			for path, has := range map[string]bool{
				"/api/v1/data/latest/" + id:             id == "reports" || id == "silent",
				"/api/v1/ml/forecast/" + id:             id == "reports", // of what is silent there is none
				"/api/v1/data/historical/" + id + today: id != "deleted",
			} {
				s.call(t, a.token, http.MethodGet, path, "").is(t, map[bool]int{true: 200, false: 404}[has])
			}
		}
	}
	var first sync.WaitGroup
	for range dashboards {
		first.Go(func() { poll("20", all...) })
	}
	first.Wait()
	for i := range polls - 1 {
		report("reports", a.id, time.Duration(i+2)*time.Second, 21)
		for d := range dashboards {
			poll("21", all[(i+d)%len(all)])
		}
	}
}

// TestForecastFollowsTheLastReading has a node whose newest reading is in its state and not
// stored yet: the four steps are dated from it. Contract 7.11.
func TestForecastFollowsTheLastReading(t *testing.T) {
	t.Parallel()
	table := pgreadings.New(pgtest.New(t), nil, time.Now)
	s, a := newTestCustomer(t, func(c *Config) { c.Readings, c.Models = table, persistence{} })
	a.sensors(t, a.room(t, "Hall"), "n1")
	s.holdsBefore(t, "n1")
	newest := time.Now().Truncate(time.Second)
	var stored []reading.Reading
	for i := range 61 {
		r := reading.Reading{NodeID: "n1", MessageID: strconv.Itoa(i), Time: newest.Add(time.Duration(i-60) * 30 * time.Second), Temperature: 20, Humidity: 40}
		must.Do(t, s.store.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: r}}))
		stored = append(stored, r)
	}
	must.Do(t, table.Append(t.Context(), stored[:60]))
	type step struct {
		AheadS                float64 `json:"ahead_s"`
		Timestamp             time.Time
		Temperature, Humidity float64
	}
	got := get[struct {
		LastReading struct{ Timestamp time.Time } `json:"last_reading"`
		Forecast    []step
	}](t, a, http.MethodGet, "/api/v1/ml/forecast/n1", "")
	must.Equal(t, "last reading", newest.UTC(), got.LastReading.Timestamp.UTC())
	var want []step
	for _, ahead := range []float64{5, 10, 15, 20} {
		want = append(want, step{ahead, newest.Add(time.Duration(ahead) * time.Second).UTC(), 20, 40})
	}
	must.Equal(t, "forecast", want, got.Forecast)
}
