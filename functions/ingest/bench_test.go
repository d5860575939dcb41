package ingest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"

	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/shared/function"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/tooltest"
	"coldaisle.dev/shared/wire"
)

// concurrency is what an instance is deployed with.
const concurrency = 80

// BenchmarkInstance measures what one instance of ingest takes, over HTTP through the
// Functions Framework, against the AppendRows protocol answered after 5 and 50 ms. Beside
// it stand an empty function, and one that does nothing for as long as an append takes: no
// function that waits for its append can be faster.
func BenchmarkInstance(b *testing.B) {
	body := message(b)
	functions := map[string]http.HandlerFunc{
		"empty": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusNoContent)
		},
	}
	names := []string{"empty"}
	for _, latency := range []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond} {
		idle := fmt.Sprintf("idle/%s", latency)
		functions[idle] = func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if latency > 0 {
				<-time.After(latency)
			}
			w.WriteHeader(http.StatusNoContent)
		}
		ingesting := fmt.Sprintf("ingest/%s", latency)
		functions[ingesting] = instance(b, latency)
		names = append(names, idle, ingesting)
	}
	for name, handler := range functions {
		must.Do(b, funcframework.RegisterHTTPFunctionContext(b.Context(), "/"+name, handler))
	}
	port := strconv.Itoa(tooltest.FreePort(b))
	address := net.JoinHostPort("127.0.0.1", port)
	// The framework cannot be stopped; it ends with the test's process.
	go func() { _ = funcframework.StartHostPort("127.0.0.1", port) }()
	must.Eventually(b, "it listens at "+address, func() bool {
		conn, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	for _, name := range names {
		b.Run(name, func(b *testing.B) {
			latencies := load(b, address, request(name, body), b.N)
			slices.Sort(latencies)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "readings/s")
			b.ReportMetric(float64(latencies[len(latencies)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// archiveAlone is the archive without PostgreSQL.
type archiveAlone struct{ *bqreadings.Store }

func (archiveAlone) Insert(context.Context, *store.DB, []reading.Reading) error { return nil }

func (a archiveAlone) Archive(ctx context.Context, rows []reading.Reading) error {
	return a.Append(ctx, rows)
}

func (archiveAlone) Maintain(context.Context) error { return nil }

// instance is the function as deployed, except for its settings and for a registry
// that knows no deleted sensor.
func instance(b *testing.B, latency time.Duration) http.HandlerFunc {
	b.Helper()
	server := bqtest.NewAppendServer(b)
	server.Latency = latency
	server.Discard = true
	table := must.Get(bqreadings.Open(b.Context(), "test", bqreadings.Config{
		Dataset: "sensor_data", Table: "readings", MaxBytes: bqreadings.MaxBytes{Chart: 1 << 30, Export: 1 << 30, Training: 1 << 30},
		AppendTimeout: 5 * time.Second, Emulator: "127.0.0.1:1", StorageEmulator: server.Address(),
	}, logging.Discard()))(b)
	b.Cleanup(func() { _ = table.Close() })
	step := ingest.New(from, fakeMetadata{}, archiveAlone{table}, pipeline.BatchWait(), time.Now, logging.Discard(), nil)
	host := function.NewHost("ingest", logging.Discard(), nil, time.Now, func(context.Context) (*function.Opened, error) {
		return &function.Opened{Handle: step.Handle}, nil
	})
	return host.ServeHTTP
}

// message is a push request with a window of 120 readings, as ingest gets it.
func message(b *testing.B) []byte {
	b.Helper()
	d := wire.Data{Reading: reading.Reading{
		NodeID: "esp32-7f3a90", MessageID: "9f86d081", Time: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), Temperature: 21.5, Humidity: 41.2,
	}}
	for i := range reading.MaxWindow {
		d.Recent.Age = append(d.Recent.Age, float64(reading.MaxWindow-i)*30)
		d.Recent.Temperature = append(d.Recent.Temperature, 21.5)
		d.Recent.Humidity = append(d.Recent.Humidity, 41.2)
	}
	data := must.Get(wire.EncodeData(d))(b)
	return must.Get(push.Encode(push.Message{ID: "1", Data: data, PublishTime: d.Reading.Time}))(b)
}

func request(path string, body []byte) []byte {
	head := fmt.Sprintf("POST /%s HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, len(body))
	return append([]byte(head), body...)
}

// load sends n requests over as many connections as an instance serves at once
// and returns how long each took. It writes the same bytes again and again, so
// that the machine is busy with the function and not with the client.
func load(b *testing.B, address string, request []byte, n int) []time.Duration {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(n))
	taken := make([][]time.Duration, concurrency)
	var clients sync.WaitGroup
	b.ResetTimer()
	for i := range concurrency {
		clients.Go(func() {
			conn, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", address)
			if err != nil {
				b.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			answers := bufio.NewReader(conn)
			for left.Add(-1) >= 0 {
				began := time.Now()
				if _, err := conn.Write(request); err != nil {
					b.Error(err)
					return
				}
				answer, err := http.ReadResponse(answers, nil)
				if err != nil {
					b.Error(err)
					return
				}
				_ = answer.Body.Close()
				if answer.StatusCode != http.StatusNoContent {
					b.Errorf("answered %s", answer.Status)
					return
				}
				taken[i] = append(taken[i], time.Since(began))
			}
		})
	}
	clients.Wait()
	b.StopTimer()
	return slices.Concat(taken...)
}
