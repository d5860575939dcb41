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

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
	"coldaisle.dev/shared/store"
)

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
		Dataset: "sensor_data", Table: "readings", MaxBytesBilled: 1 << 30, AppendTimeout: time.Second, // and no cache
		Emulator: server.URL, StorageEmulator: "127.0.0.1:1",
	}, time.Now, logging.Discard())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	s := newTestAPI(t, func(c *Config) { c.Readings, c.Forecaster = table, latestForecaster{} })
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
	poll := func(reports string, ids ...string) {
		t.Helper()
		multi := s.call(t, a.token, http.MethodPost, "/api/v1/data/multi-sensor", string(named))
		var found map[string]struct{ Temperature float64 }
		if err := json.Unmarshal(multi.body, &found); err != nil || len(found) != 2 ||
			fmt.Sprint(found["reports"].Temperature) != reports || found["silent"].Temperature != 17.5 {
			t.Errorf("multi-sensor: %s, %v", multi.body, err)
		}
		for _, id := range ids {
			want := 404
			if id == "reports" || id == "silent" {
				want = 200
			}
			for _, path := range []string{"/api/v1/data/latest/", "/api/v1/ml/forecast/"} {
				if got := s.call(t, a.token, http.MethodGet, path+id, ""); got.status != want {
					t.Errorf("%s%s: %d %s", path, id, got.status, got.body)
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
