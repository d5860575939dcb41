package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
)

// connections is how many clients call at a time.
const connections = 32

// BenchmarkEndpoints measures the busiest endpoints at 32 connections, each
// beside a bare net/http handler that makes the same queries and encodes the
// same answer, but has no token, no limits, no log and no document. Run it with
//
//	go test ./run/api -run '^$' -bench Endpoints
//
// ratio is the API's requests per second over the bare handler's.
func BenchmarkEndpoints(b *testing.B) {
	s := newSystem(b, func(d *Deps) { d.Log = logging.New(io.Discard, slog.LevelInfo, "") })
	s.contract = nil
	a := s.customer(b)
	room := a.create(b, "/api/v1/server_rooms/new_room", `{"name":"Hall"}`)
	for i := range 9 {
		a.create(b, "/api/v1/server_rooms/new_room", fmt.Sprintf(`{"name":"Hall %d"}`, i))
	}
	now := s.now().Truncate(time.Second)
	ids := make([]string, 100)
	for i := range ids {
		ids[i] = fmt.Sprintf("node-%03d", i)
		a.create(b, "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":%q,"name":"Rack","type":"DHT22","room_id":%d}`, ids[i], room))
		s.series(b, ids[i], now.Add(-time.Hour), 10)
	}
	const long = 100_000
	s.series(b, ids[0], now.Add(-30*24*time.Hour), long)
	named, err := json.Marshal(map[string][]string{"node_ids": ids})
	if err != nil {
		b.Fatal(err)
	}
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
		var base float64
		b.Run(endpoint.name+"/bare", func(b *testing.B) {
			base = load(b, endpoint.method, bare.URL+endpoint.bare, endpoint.body, "")
		})
		b.Run(endpoint.name+"/api", func(b *testing.B) {
			rate := load(b, endpoint.method, s.url+endpoint.path, endpoint.body, a.token)
			if base > 0 {
				b.ReportMetric(rate/base, "ratio")
			}
		})
	}
}

// load makes b.N requests over 32 connections and returns them per second.
func load(b *testing.B, method, url, body, token string) float64 {
	b.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: connections, DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	ask := func() time.Duration {
		request, err := http.NewRequestWithContext(b.Context(), method, url, strings.NewReader(body))
		if err != nil {
			b.Error(err)
			return 0
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		began := time.Now()
		response, err := client.Do(request)
		if err != nil {
			b.Error(err)
			return 0
		}
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			b.Errorf("%s: %d, %v", url, response.StatusCode, err)
		}
		return time.Since(began)
	}
	var clients sync.WaitGroup
	var mutex sync.Mutex
	var times []time.Duration
	work := make(chan struct{}, connections)
	b.ResetTimer()
	for range connections {
		clients.Go(func() {
			var own []time.Duration
			for range work {
				own = append(own, ask())
			}
			mutex.Lock()
			defer mutex.Unlock()
			times = append(times, own...)
		})
	}
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	clients.Wait()
	b.StopTimer()
	slices.Sort(times)
	rate := float64(b.N) / b.Elapsed().Seconds()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(rate, "req/s")
	b.ReportMetric(float64(quantile(times, 0.5).Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(quantile(times, 0.99).Microseconds())/1000, "p99-ms")
	return rate
}

// bareHandlers are what the API is measured against.
func (a *account) bareHandlers(ids []string, now time.Time) http.Handler {
	mux := http.NewServeMux()
	handle := func(path string, answer func(ctx context.Context) (any, error)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			body, err := answer(r.Context())
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(body)
		})
	}
	node := func(ctx context.Context) (readings.Node, error) {
		owned, err := a.store.Sensor(ctx, a.id, ids[0])
		return readings.Node{ID: owned.ID, Since: owned.VisibleSince}, err
	}
	handle("/health", func(context.Context) (any, error) { return health{Status: "healthy"}, nil })
	handle("/rooms", func(ctx context.Context) (any, error) {
		found, err := a.store.Rooms(ctx, a.id)
		return each(found, roomOf), err
	})
	handle("/sensor", func(ctx context.Context) (any, error) {
		found, err := a.store.Sensor(ctx, a.id, ids[0])
		return sensorOf(found), err
	})
	handle("/latest", func(ctx context.Context) (any, error) {
		n, err := node(ctx)
		if err != nil {
			return nil, err
		}
		found, err := a.readings.Latest(ctx, []readings.Node{n})
		return readingOf(found[ids[0]]), err
	})
	mux.HandleFunc("/multi", func(w http.ResponseWriter, r *http.Request) {
		var asked nodeList
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		owned, err := a.store.OwnedSensors(r.Context(), a.id, asked.NodeIDs)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		found, err := a.readings.Latest(r.Context(), each(owned, func(s store.Sensor) readings.Node {
			return readings.Node{ID: s.ID, Since: s.VisibleSince}
		}))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		body := make(map[string]readingBody, len(found))
		for id, r := range found {
			body[id] = readingOf(r)
		}
		_ = json.NewEncoder(w).Encode(body)
	})
	mux.HandleFunc("/history", func(w http.ResponseWriter, r *http.Request) {
		n, err := node(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		var all []readingBody
		for item, err := range a.readings.Range(r.Context(), n, now.Add(-31*24*time.Hour), now.Add(-time.Minute)) {
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			all = append(all, readingOf(item))
		}
		_ = json.NewEncoder(w).Encode(all)
	})
	return mux
}

// series stores so many readings of a node, twenty seconds apart.
func (s *system) series(tb testing.TB, node string, from time.Time, count int) {
	tb.Helper()
	rows := make([]reading.Reading, count)
	for i := range rows {
		rows[i] = reading.Reading{
			NodeID: node, MessageID: "message", Time: from.Add(time.Duration(i) * 20 * time.Second),
			Temperature: 20 + float64(i%100)/8, Humidity: 40,
		}
	}
	for part := range slices.Chunk(rows, 10_000) {
		if err := s.readings.Append(tb.Context(), part); err != nil {
			tb.Fatal(err)
		}
	}
}
