package detect_test

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/function/functiontest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/tooltest"
	"coldaisle.dev/shared/wire"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// TestProcess runs the function against a metadata database and Pub/Sub.
func TestProcess(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	program := functiontest.Build(t, "../serve")
	database := pgtest.URL(t)
	pool := must.Get(pgxpool.New(t.Context(), database))(t)
	defer pool.Close()
	s := pgtest.NewStores(pool)
	customer, _ := s.Owner(t, "customer1", "strict", "gone")
	must.Do(t, s.DeleteSensor(t.Context(), customer, "gone"))
	limit := 25.0
	must.Get(s.SetThresholds(t.Context(), customer, &limit, nil))(t)
	server := pubsubtest.Start(t)
	pubsubtest.Topics(t, server, "test", "alerts", "data-dead-letter")
	p := functiontest.Start(t, program, "FUNCTION_TARGET=detect", "PROJECT_ID=test", "DEAD_LETTER_TOPIC=data-dead-letter", "DATABASE_URL="+database,
		"PUBSUB_EMULATOR_HOST="+server.Addr, "MAX_ALLOWED_TEMP=30", "ALERT_TOPIC=alerts")
	now := time.Now()
	for _, r := range []reading.Reading{
		{NodeID: "strict", MessageID: "over the owner's limit", Time: now, Temperature: 26, Humidity: 40},
		{NodeID: "strict", MessageID: "at the owner's limit", Time: now, Temperature: 25, Humidity: 40},
		{NodeID: "strict", MessageID: "six hours late", Time: now.Add(-6 * time.Hour), Temperature: 99},
		{NodeID: "gone", MessageID: "deleted", Time: now, Temperature: 99},
		{NodeID: "unregistered", MessageID: "over the default", Time: now, Temperature: 31},
		{NodeID: "unregistered", MessageID: "below the default", Time: now, Temperature: 29},
	} {
		must.Equal(t, p.Output(), http.StatusNoContent, p.Push(message(t, r, now)))
	}
	must.Equal(t, "malformed message answered", http.StatusAccepted, p.Push(push.Message{ID: "malformed", Data: []byte("{")}))
	var raised []string
	for _, m := range server.Messages() {
		if m.Attributes[push.AttributeFunction] == "detect" {
			continue // the malformed one
		}
		raised = append(raised, must.Get(wire.DecodeAlert(m.Data))(t).MessageID)
	}
	must.Equal(t, "raised", "over the owner's limit, six hours late, over the default", strings.Join(raised, ", "))
	found, err := s.Excursions(t.Context(), customer, incidents.ExcursionQuery{PageRequest: store.PageRequest{Limit: 10}}, now)
	must.Hold(t, err == nil && len(found.Items) == 1 && found.Items[0].Lasting && found.Items[0].Peak == 26,
		"excursions %+v, %v: want one, of the threshold", found, err)
	must.Equal(t, p.Output(), 0, p.Terminate())
	must.Contain(t, "the log", p.Output(), `"readings_ignored":1`, `"messages_dead_lettered":1`)
	status, written := functiontest.Exits(t, program, "FUNCTION_TARGET=detect", "PROJECT_ID=p", "DEAD_LETTER_TOPIC=d", "DATABASE_URL=postgres://x", "MAX_ALLOWED_TEMP=hot")
	must.Equal(t, "exit status", 1, status)
	must.Contain(t, "what it says", written, "MAX_ALLOWED_TEMP is not a valid number")
}
