package system_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/features"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// TestRoomWithoutHumidity runs a room whose nodes measure temperature alone through the
// whole pipeline: what is there is shown and judged, and nothing else is. Contract 5.15.
func TestRoomWithoutHumidity(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	owner, _ := customer(t, s, "operator")
	sensors := []string{"bmc-1", "bmc-2", "bmc-3"}
	must.Do(t, owner.CreateRoom(t.Context(), "Vault", sensors))
	owner.do(http.MethodPost, "/api/v1/rules", `{"quantity":"dew_point","direction":"above","limit":15,"for_s":0,"clear_margin":0,"clear_for_s":0,"severity":"critical","enabled":true}`, http.StatusCreated)
	var room int
	// The room has been there for a day.
	must.Do(t, s.Pool.QueryRow(t.Context(), `
		WITH held AS (UPDATE open_holds SET held_from = held_from - interval '1 day'), ruled AS (UPDATE rules SET changed_at = changed_at - interval '1 day')
		UPDATE sensors SET placed_at = placed_at - interval '1 day' RETURNING room_id`).Scan(&room))
	const readings = 60
	now := time.Now().UTC().Truncate(time.Second)
	var batch []*pubsubpb.PubsubMessage
	for k, id := range sensors {
		var node []reading.Reading
		for i := range readings {
			r := reading.Reading{
				NodeID: id, MessageID: fmt.Sprint("m", i), Time: now.Add(time.Duration(i-readings+1) * 30 * time.Second),
				Temperature: 22 + float64(k) + float64(i%3)/10, Humidity: reading.Missing(),
			}
			if k == 0 && i == readings-1 {
				r.Temperature = 60
			}
			node = append(node, r)
		}
		for i, window := range features.Windows(node) {
			encoded := must.Get(wire.EncodeData(wire.Data{Reading: node[i], Recent: window}))(t)
			batch = append(batch, &pubsubpb.PubsubMessage{Data: encoded, Attributes: map[string]string{wire.NodeIDAttribute: id}})
		}
	}
	must.Get(s.PubSub.TopicAdminClient.Publish(t.Context(), &pubsubpb.PublishRequest{
		Topic: queue.TopicName(system.Project, queue.TopicData), Messages: batch,
	}))(t)
	drain(t, s)
	get := func(path string) any {
		t.Helper()
		return owner.do(http.MethodGet, path, "", http.StatusOK)
	}
	null := func(from any, names ...string) {
		t.Helper()
		for _, name := range names {
			members, _ := from.(map[string]any)
			if value, there := members[name]; !there || value != nil {
				t.Errorf("%s is %v (%t) in %v", name, value, there, from)
			}
		}
	}
	latest := get("/api/v1/data/latest/bmc-1")
	null(latest, "humidity")
	must.Equal(t, "latest", 60.0, field[float64](t, latest, "temperature"))
	stats := get("/api/v1/data/stats/bmc-2?period=1h")
	null(stats, "avg_humidity", "min_humidity", "max_humidity")
	if field[float64](t, stats, "count") != readings || field[float64](t, stats, "min_temperature") != 23 {
		t.Errorf("statistics %v", stats)
	}
	span := fmt.Sprintf("start_time=%s&end_time=%s", now.Add(-time.Hour).Format(time.RFC3339), now.Add(time.Minute).Format(time.RFC3339))
	for _, path := range []string{"?max_points=4&", "?"} {
		for _, part := range list(t, get("/api/v1/data/historical/bmc-2"+path+span)) {
			null(part, "humidity")
		}
	}
	overview := get("/api/v1/overview")
	for _, sensor := range field[[]any](t, overview, "sensors") {
		null(sensor, "humidity")
	}
	// The step is one incident; no rule of humidity or dew point has one, and nothing is missing.
	incidents := list(t, get("/api/v1/incidents"))
	if len(incidents) != 1 || field[string](t, incidents[0], "cause") != "too_hot" {
		t.Errorf("incidents %v", incidents)
	}
	report := get(fmt.Sprintf("/api/v1/data/report/%d?%s", room, span))
	if text := fmt.Sprint(report); !strings.Contains(text, "max_temperature:60") {
		t.Errorf("report %v", report)
	}
}
