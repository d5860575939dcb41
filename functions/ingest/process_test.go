package ingest_test

import (
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/function/functiontest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
	"coldaisle.dev/shared/tooltest"
	"coldaisle.dev/shared/wire"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func numbered(t *testing.T, n int) (push.Message, reading.Reading) {
	t.Helper()
	r := reading.Reading{
		NodeID: "n1", MessageID: fmt.Sprintf("m%d", n), Time: time.Date(2026, 11, 20, 12, 0, n, 0, time.UTC),
		Temperature: 21.5, Humidity: 40,
	}
	data := must.Get(wire.EncodeData(wire.Data{Reading: r}))(t)
	return push.Message{ID: r.MessageID, Data: data, PublishTime: r.Time}, r
}

// away is an address at which nothing listens.
const away = "127.0.0.1:1"

// deadLetter returns a Pub/Sub with a dead letter topic.
func deadLetter(t *testing.T) *pstest.Server {
	t.Helper()
	server := pubsubtest.Start(t, pubsubtest.Limits())
	pubsubtest.Topics(t, server, "test", "data-dead-letter")
	return server
}

// TestProcess starts the function as the buildpack does, against both tables.
func TestProcess(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	program := functiontest.Build(t, "../serve")
	start := func(t *testing.T, pubsub, database string, more ...string) *functiontest.Process {
		t.Helper()
		return functiontest.Start(t, program, append(more, "FUNCTION_TARGET=ingest", "PROJECT_ID=test", "DEAD_LETTER_TOPIC=data-dead-letter",
			"PUBSUB_EMULATOR_HOST="+pubsub, "DATABASE_URL="+database)...)
	}
	archiving := func(t *testing.T, database string) (*bqtest.AppendServer, *functiontest.Process) {
		t.Helper()
		table := bqtest.NewAppendServer(t)
		return table, start(t, away, database, "BIGQUERY_EMULATOR_HOST="+away, "BIGQUERY_STORAGE_EMULATOR_HOST="+table.Address())
	}
	t.Run("stores in PostgreSQL once", func(t *testing.T) {
		t.Parallel()
		database := pgtest.URL(t)
		server := deadLetter(t)
		p := start(t, server.Addr, database, "READINGS=postgres")
		m, want := numbered(t, 1)
		for range 3 { // redelivered
			must.Equal(t, p.Output(), http.StatusNoContent, p.Push(m))
		}
		must.Equal(t, "malformed message answered", http.StatusAccepted, p.Push(push.Message{ID: "malformed", Data: []byte("{")}))
		if refused := server.Messages(); len(refused) != 1 || string(refused[0].Data) != "{" || refused[0].Attributes[push.AttributeFunction] != "ingest" {
			t.Errorf("in the dead letter: %v", refused)
		}
		must.Equal(t, p.Output(), 0, p.Terminate())
		must.Equal(t, "stored", []reading.Reading{want}, storedRows(t, database))
		must.Contain(t, "the log", p.Output(),
			`"readings_stored":3`, `"messages_dead_lettered":1`, `"message dead-lettered"`, `"reason":"malformed"`, `"message_id":"malformed"`,
		)
	})
	t.Run("refuses open readings where the open channel is closed", func(t *testing.T) { // contract 10.4
		t.Parallel()
		database := pgtest.URL(t)
		server := deadLetter(t)
		p := start(t, server.Addr, database, "READINGS=postgres", "REQUIRE_ENROLLED_GATEWAYS=true")
		m, _ := numbered(t, 1)
		must.Equal(t, p.Output(), http.StatusAccepted, p.Push(m))
		refused := server.Messages()
		must.Hold(t, len(refused) == 1 && string(refused[0].Data) == string(m.Data), "in the dead letter: %v", refused)
		must.Equal(t, "readings stored", 0, len(storedRows(t, database)))
	})
	t.Run("stores nothing while the database is away", func(t *testing.T) {
		t.Parallel()
		table, p := archiving(t, "postgres://nobody@127.0.0.1:1/none")
		m, _ := numbered(t, 1)
		for m.DeliveryAttempt = range push.MaxUnexpectedAttempts + 2 { // it may pass, however often
			if got := p.Push(m); got != http.StatusServiceUnavailable || len(table.Rows()) != 0 {
				t.Fatalf("answered %d, %d rows\n%s", got, len(table.Rows()), p.Output())
			}
		}
	})
	t.Run("finishes what is in flight at SIGTERM", func(t *testing.T) {
		t.Parallel()
		table, p := archiving(t, pgtest.URL(t))
		table.Latency = 300 * time.Millisecond
		first, _ := numbered(t, 0)
		must.Equal(t, p.Output(), http.StatusNoContent, p.Push(first))
		answers := make([]int, 20)
		var pushing sync.WaitGroup
		for i := range answers {
			m, _ := numbered(t, i+1)
			pushing.Go(func() { answers[i] = p.Push(m) })
		}
		must.Eventually(t, "two rows are stored", func() bool { return len(table.Rows()) >= 2 })
		must.Equal(t, p.Output(), 0, p.Terminate())
		pushing.Wait()
		acknowledged := 0
		for _, status := range answers {
			if status == http.StatusNoContent {
				acknowledged++
			}
		}
		must.Hold(t, acknowledged != 0 && len(table.Rows()) >= 1+acknowledged,
			"%d of 20 acknowledged, %d stored", acknowledged, len(table.Rows()))
	})
	t.Run("refuses to start without its settings", func(t *testing.T) {
		t.Parallel()
		status, written := functiontest.Exits(t, program, "FUNCTION_TARGET=ingest", "READINGS=paper")
		must.Equal(t, "exit status", 1, status)
		must.Contain(t, "what it says", written, "ingest: PROJECT_ID is required and not set")
		status, written = functiontest.Exits(t, program, "FUNCTION_TARGET=ingest", "PROJECT_ID=p", "DEAD_LETTER_TOPIC=d", "READINGS=paper")
		must.Equal(t, "exit status", 1, status)
		must.Contain(t, "what it says", written, "READINGS", "DATABASE_URL")
	})
}

// storedRows reads all readings of a database.
func storedRows(t *testing.T, url string) []reading.Reading {
	t.Helper()
	conn := must.Get(pgx.Connect(t.Context(), url))(t)
	defer func() { _ = conn.Close(t.Context()) }()
	rows := must.Get(conn.Query(t.Context(), `
		SELECT customer_id, node_id, message_id, timestamp, temperature, humidity
		FROM sensor_data.readings
		ORDER BY timestamp, message_id`))(t)
	all := must.Get(pgx.CollectRows(rows, func(row pgx.CollectableRow) (r reading.Reading, err error) {
		err = row.Scan(&r.Channel, &r.NodeID, &r.MessageID, &r.Time, &r.Temperature, &r.Humidity)
		r.Time = r.Time.UTC()
		return r, err
	}))(t)
	return all
}
