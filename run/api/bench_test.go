package api

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

// connections is how many clients call at a time.
const connections = 32

// BenchmarkEndpoints measures the busiest endpoints at 32 connections, each
// beside a bare net/http handler that makes the same queries and encodes the
// same answer, but has no token, no limits, no log and no document. Run it with
//
//	go test ./run/api -run '^$' -bench Endpoints
//
// ratio is the API's requests per second over the bare handler's: the median of many short turns, each beside its
// neighbour, so that other programs on the machine change it little.
func BenchmarkEndpoints(b *testing.B) {
	s := newTestAPI(b, func(d *Config) { d.Log = logging.New(io.Discard, slog.LevelInfo, "") })
	s.document = nil
	a := s.customer(b)
	room := a.room(b, "Hall")
	for i := range 9 {
		a.room(b, fmt.Sprintf("Hall %d", i))
	}
	now := s.now().Truncate(time.Second)
	ids := make([]string, 100)
	for i := range ids {
		ids[i] = fmt.Sprintf("node-%03d", i)
		a.sensors(b, room, ids[i])
		s.series(b, ids[i], now.Add(-time.Hour), 10)
		s.reading(b, ids[i], now.Add(-time.Minute), 22, 40) // and the state of its node
	}
	const long = 100_000
	s.series(b, ids[0], now.Add(-30*24*time.Hour), long)
	named := must.Get(json.Marshal(map[string][]string{"node_ids": ids}))(b)
	bare := httptest.NewServer(a.bareHandlers(ids, now))
	b.Cleanup(bare.Close)

	for _, endpoint := range []struct{ name, method, path, bare, body string }{
		{"health", "GET", "/health", "/health", ""},
		{"list_rooms", "GET", fmt.Sprintf("/api/v1/server_rooms/list_rooms/%d", a.id), "/rooms", ""},
		{"sensor", "GET", "/api/v1/sensors/sensor/" + ids[0], "/sensor", ""},
		{"latest", "GET", "/api/v1/data/latest/" + ids[0], "/latest", ""},
		{"multi-sensor-100", "POST", "/api/v1/data/multi-sensor", "/multi", string(named)},
		{"historical-100k", "GET", fmt.Sprintf("/api/v1/data/historical/%s?start_time=%s&end_time=%s", ids[0],
			now.Add(-31*24*time.Hour).Format(time.RFC3339), now.Add(-time.Minute).Format(time.RFC3339)), "/history", ""},
	} {
		b.Run(endpoint.name, func(b *testing.B) {
			through := newLoad(endpoint.method, s.url+endpoint.path, endpoint.body, a.token)
			beside := newLoad(endpoint.method, bare.URL+endpoint.bare, endpoint.body, "")
			var ratios []float64
			for left := b.N; left > 0; {
				part := min(left, 4*connections)
				took := through.run(b, part)
				ratios = append(ratios, beside.run(b, part).Seconds()/took.Seconds())
				left -= part
			}
			slices.Sort(ratios)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(len(through.times))/through.took.Seconds(), "req/s")
			b.ReportMetric(ratios[len(ratios)/2], "ratio")
			reportTimes(b, through.times)
		})
	}
}

// load asks one thing over and over, over 32 connections.
type load struct {
	method, url, body, token string

	client *http.Client
	took   time.Duration   // of all runs
	times  []time.Duration // of each request
}

func newLoad(method, url, body, token string) *load {
	return &load{method: method, url: url, body: body, token: token, client: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: connections, DisableCompression: true},
	}}
}

// reportTimes reports the median and the 99th percentile.
func reportTimes(b *testing.B, times []time.Duration) {
	b.Helper()
	slices.Sort(times)
	for unit, q := range map[string]float64{"p50-ms": 0.5, "p99-ms": 0.99} {
		at := times[min(len(times)-1, int(q*float64(len(times))))]
		b.ReportMetric(float64(at.Microseconds())/1000, unit)
	}
}

// run asks so often and returns how long that took.
func (l *load) run(b *testing.B, count int) time.Duration {
	b.Helper()
	var clients sync.WaitGroup
	var mutex sync.Mutex
	var left atomic.Int64
	left.Store(int64(count))
	began := time.Now()
	for range connections {
		clients.Go(func() {
			var own []time.Duration
			for left.Add(-1) >= 0 {
				own = append(own, l.ask(b))
			}
			mutex.Lock()
			defer mutex.Unlock()
			l.times = append(l.times, own...)
		})
	}
	clients.Wait()
	took := time.Since(began)
	l.took += took
	return took
}

func (l *load) ask(b *testing.B) time.Duration {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), l.method, l.url, strings.NewReader(l.body))
	if err != nil {
		b.Error(err)
		return 0
	}
	if l.token != "" {
		request.Header.Set("Authorization", "Bearer "+l.token)
	}
	began := time.Now()
	response, err := l.client.Do(request)
	if err != nil {
		b.Error(err)
		return 0
	}
	_, err = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	if err != nil || response.StatusCode != http.StatusOK {
		b.Errorf("%s: %d, %v", l.url, response.StatusCode, err)
	}
	return time.Since(began)
}

// The answers of the bare handlers, field by field as the API has them.
type (
	bareRoom struct {
		ID         int64  `json:"id"`
		CustomerID int64  `json:"customer_id"`
		Name       string `json:"name"`
	}
	bareSensor struct {
		ID       string  `json:"id"`
		Name     string  `json:"name"`
		Type     string  `json:"type"`
		RoomID   int64   `json:"room_id"`
		Position *string `json:"position"`
	}
	bareReading struct {
		NodeID      string    `json:"node_id"`
		Temperature float64   `json:"temperature"`
		Humidity    float64   `json:"humidity"`
		Timestamp   time.Time `json:"timestamp"`
	}
)

func bareReadingOf(r reading.Reading) bareReading {
	return bareReading{NodeID: r.NodeID, Temperature: r.Temperature, Humidity: r.Humidity, Timestamp: r.Time.UTC()}
}

// bareHandlers are what the API is measured against.
func (a *testCustomer) bareHandlers(ids []string, now time.Time) http.Handler {
	mux := http.NewServeMux()
	handle := func(path string, answer func(r *http.Request) (any, error)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			body, err := answer(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(body)
		})
	}
	handle("/health", func(*http.Request) (any, error) { return map[string]string{"status": "healthy"}, nil })
	handle("/rooms", func(r *http.Request) (any, error) {
		found, err := a.store.Rooms(r.Context(), a.id)
		body := make([]bareRoom, len(found))
		for i, room := range found {
			body[i] = bareRoom{ID: room.ID, Name: room.Name, CustomerID: room.CustomerID}
		}
		return body, err
	})
	handle("/sensor", func(r *http.Request) (any, error) {
		found, err := a.store.Sensor(r.Context(), a.id, ids[0])
		return bareSensor{ID: found.ID, Name: found.Name, Type: found.Type, RoomID: found.RoomID, Position: found.Position}, err
	})
	handle("/latest", func(r *http.Request) (any, error) {
		found, err := a.store.NewestReadings(r.Context(), a.id, ids[:1])
		return bareReadingOf(found[ids[0]]), err
	})
	handle("/multi", func(r *http.Request) (any, error) {
		var asked struct {
			NodeIDs []string `json:"node_ids"`
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			return nil, err
		}
		found, err := a.store.NewestReadings(r.Context(), a.id, asked.NodeIDs)
		body := make(map[string]bareReading, len(found))
		for id, newest := range found {
			body[id] = bareReadingOf(newest)
		}
		return body, err
	})
	handle("/history", func(r *http.Request) (any, error) {
		n, err := a.store.VisibleNode(r.Context(), a.id, ids[0])
		if err != nil {
			return nil, err
		}
		var all []bareReading
		for item, err := range a.readings.Range(r.Context(), n, now.Add(-31*24*time.Hour), now.Add(-time.Minute)) {
			if err != nil {
				return nil, err
			}
			all = append(all, bareReadingOf(item))
		}
		return all, nil
	})
	return mux
}

// series stores so many readings of a node, twenty seconds apart.
func (s *testAPI) series(tb testing.TB, node string, from time.Time, count int) {
	tb.Helper()
	rows := make([]reading.Reading, count)
	for i := range rows {
		rows[i] = reading.Reading{
			NodeID: node, MessageID: "message", Time: from.Add(time.Duration(i) * 20 * time.Second),
			Temperature: 20 + float64(i%100)/8, Humidity: 40,
		}
	}
	for part := range slices.Chunk(rows, 10_000) {
		must.Do(tb, s.readings.Append(tb.Context(), part))
	}
}
