package storealert_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/functions/storealert"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/function/functiontest"
	"coldaisle.dev/shared/logging"
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

// noon is later than any sensor here: a hold begins when its sensor is made.
var noon = time.Now().UTC().Truncate(time.Hour).Add(2 * time.Hour)

// event is a reading of a node so many seconds after noon that is too hot.
func event(node string, second int) alert.Event {
	return alert.Exceeded(reading.Reading{
		NodeID: node, MessageID: fmt.Sprintf("m%d", second), Time: noon.Add(time.Duration(second) * time.Second),
		Temperature: 55.2, Humidity: 61,
	}, alert.Defaults())[0]
}

func message(t *testing.T, e alert.Event) push.Message {
	t.Helper()
	return push.Message{ID: "1", Data: must.Get(wire.EncodeAlert(e))(t), PublishTime: noon}
}

func history(t *testing.T, s pgtest.Stores, customer int64) []incidents.Alert {
	t.Helper()
	return must.Get(s.AlertHistory(t.Context(), customer, incidents.AlertQuery{PageRequest: store.PageRequest{Limit: 500}}))(t).Items
}

// TestAlertIsStoredOnceForItsOwner shows contract 6.6.
func TestAlertIsStoredOnceForItsOwner(t *testing.T) {
	t.Parallel()
	s := pgtest.NewStores(pgtest.New(t))
	customer, _ := s.Owner(t, "customer1", "n1")
	other, _ := s.Owner(t, "customer2", "n2")
	step := storealert.New(s, time.Now, logging.Discard(), nil)
	both := alert.Exceeded(reading.Reading{NodeID: "n1", MessageID: "m", Time: noon, Temperature: 55.2, Humidity: 61}, alert.Defaults())
	handle := func() {
		t.Helper()
		for _, e := range both {
			must.Do(t, step.Handle(t.Context(), message(t, e)))
		}
	}
	handle()
	stored := history(t, s, customer)
	got := map[string]string{}
	for _, a := range stored {
		got[a.Type] = a.Message
		must.Hold(t, !a.Acknowledged && a.SensorID == "n1" && a.Time.Equal(noon), "stored %+v", a)
	}
	want := map[string]string{
		"temperature": "High temperature detected: 55.2°C (limit 50.0°C)", "humidity": "High humidity detected: 61.0% (limit 50.0%)",
	}
	must.Equal(t, "alerts", want, got)
	must.Get(s.AcknowledgeAlert(t.Context(), customer, stored[0].ID))(t)
	handle() // redelivered: no second record, no acknowledgement undone
	again := history(t, s, customer)
	must.Hold(t, len(again) == 2 && again[0].Acknowledged, "after redelivery: %+v", again)
	must.Equal(t, "another customer sees", 0, len(history(t, s, other)))
}

// TestAlertWithoutOwnerIsIgnored shows contract 6.6.
func TestAlertWithoutOwnerIsIgnored(t *testing.T) {
	t.Parallel()
	s := pgtest.NewStores(pgtest.New(t))
	customer, room := s.Owner(t, "customer1", "gone")
	step := storealert.New(s, time.Now, logging.Discard(), nil)
	must.Do(t, s.DeleteSensor(t.Context(), customer, "gone"))
	for _, node := range []string{"gone", "nobody"} {
		must.Do(t, step.Handle(t.Context(), message(t, event(node, 1))))
	}
	must.Equal(t, "stored", 0, len(history(t, s, customer)))
	s.AddSensors(t, customer, room, "nobody")
	must.Do(t, step.Handle(t.Context(), message(t, event("nobody", 2))))
	must.Equal(t, "stored after registration", 1, len(history(t, s, customer)))
}

func TestMalformedMessageIsRefused(t *testing.T) {
	t.Parallel()
	step := storealert.New(nil, time.Now, logging.Discard(), nil)
	for _, data := range []string{"", "{", `{"node_id":"n1"}`, `{"node_id":"n1","message_id":"m","timestamp":"2026-11-20T12:00:00Z","alert_type":"smoke"}`} {
		err := step.Handle(t.Context(), push.Message{Data: []byte(data)})
		must.Equal(t, data+" is refused for good", true, push.IsPermanent(err))
	}
}

func count(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	must.Do(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM alerts WHERE NOT acknowledged`).Scan(&n))
	return n
}

func TestProcess(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	program := functiontest.Build(t, "../serve")
	database := pgtest.URL(t)
	pool := must.Get(pgxpool.New(t.Context(), database))(t)
	defer pool.Close()
	pgtest.NewStores(pool).Owner(t, "customer1", "n1")
	server := pubsubtest.Start(t)
	pubsubtest.Topics(t, server, "test", "alerts-dead-letter")
	p := functiontest.Start(t, program, "FUNCTION_TARGET=storealert", "PROJECT_ID=test", "DATABASE_URL="+database,
		"DEAD_LETTER_TOPIC=alerts-dead-letter", "PUBSUB_EMULATOR_HOST="+server.Addr)
	for range 2 {
		must.Equal(t, p.Output(), http.StatusNoContent, p.Push(message(t, event("n1", 1))))
	}
	must.Equal(t, "malformed message", http.StatusAccepted, p.Push(push.Message{ID: "malformed", Data: []byte("{")}))
	must.Equal(t, "messages in the dead letter", 1, len(server.Messages()))
	must.Equal(t, p.Output(), 0, p.Terminate())
	must.Equal(t, "alerts", 1, count(t, pool))
	must.Contain(t, "the log", p.Output(), `"messages_processed":2`, `"messages_dead_lettered":1`)
}

// TestProbe sends the probe through the insert, which stores no row, and reads its lateness from the log.
func TestProbe(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	var log bytes.Buffer
	now := noon
	clock := func() time.Time { return now }
	step := storealert.New(pgtest.NewStores(pool), clock, slog.New(slog.NewJSONHandler(&log, nil)), nil)
	probe := alert.Event{NodeID: reading.ProbeNodeID, MessageID: "scheduler", Time: noon, Type: alert.Temperature, Value: 1, Temperature: 1}
	for late, want := range map[time.Duration]float64{90 * time.Second: 90, -time.Second: 0} { // a clock may be behind the publisher's
		log.Reset()
		now = noon.Add(late)
		must.Do(t, step.Handle(t.Context(), message(t, probe)))
		var logged struct {
			Msg      string
			Lateness float64 `json:"lateness_s"`
		}
		if err := json.Unmarshal(log.Bytes(), &logged); err != nil || logged.Msg != "probe alerted" || logged.Lateness != want {
			t.Errorf("%+v, %v of %s", logged, err, log.String())
		}
	}
	pool.Close()
	log.Reset()
	err := step.Handle(t.Context(), message(t, probe))
	must.Hold(t, err != nil && log.Len() == 0, "without a database: %v, %s", err, log.String())
}
