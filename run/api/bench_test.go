package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
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

// BenchmarkIncidentsAtSize measures what a page asks for, of 2,000 sensors in 100 rooms that
// have sent for a day, beside 10,000 incidents that are over and 30 that last, of 10 sensors
// each: the overview, compressed, after readings of some sensors each time and within a second, and
// how soon a change reaches who waits, once the reading is judged. Bars: p99 of a changed
// overview 50 ms, p50 of a change 10 ms. Run it with
//
//	go test ./run/api -run '^$' -bench IncidentsAtSize -benchtime 200x
func BenchmarkIncidentsAtSize(b *testing.B) {
	const sensors, rooms, hot, past = 2000, 100, 30, 10_000
	// Only report moves the clock. It starts a month before that of the database, which passes
	// over readings ahead of its own: 860,000 reports earlier.
	var now atomic.Int64 // ns
	now.Store(time.Now().AddDate(0, -1, 0).UnixNano())
	clock := func() time.Time { return time.Unix(0, now.Load()).UTC() }
	s := newTestAPI(b, func(c *Config) { c.Log, c.Clock = logging.New(io.Discard, slog.LevelInfo, ""), clock })
	s.document = nil
	a := s.customer(b)
	ids := a.fleet(b, sensors, rooms, clock())
	a.execute(b, pastIncidents, 1, past, a.id)
	for room := range hot {
		for k := range 10 {
			a.judgeLive(b, ids[room*sensors/rooms+k], clock())
		}
	}
	for _, table := range []string{"room_incidents", "excursions", "incident_changes"} {
		a.execute(b, `VACUUM ANALYZE `+table)
	}
	a.token = a.key(b, `"scope":"read"`).text // a token would expire after 600 reports
	chance := rand.New(rand.NewPCG(2, 2))
	report := func() {
		now.Add(int64(3 * time.Second)) // longer than an answer is kept
		at, batch := clock(), []pipeline.NodeReading(nil)
		for range sensors / 3 { // what comes in ten seconds
			at = at.Add(time.Millisecond)
			batch = append(batch, pipeline.NodeReading{Reading: reading.Reading{
				NodeID: ids[chance.IntN(sensors)], MessageID: "m", Time: reading.TruncateTime(at), Temperature: 22 + float64(chance.IntN(40))/10, Humidity: 40,
			}})
		}
		must.Do(b, s.store.UpdateNodeStates(b.Context(), batch))
	}
	ask := func(tag string) (took time.Duration, size int, again string) {
		request := must.Get(http.NewRequestWithContext(b.Context(), http.MethodGet, s.url+"/api/v1/overview", nil))(b)
		request.Header.Set("Authorization", "Bearer "+a.token)
		request.Header.Set("Accept-Encoding", "gzip")
		request.Header.Set("If-None-Match", tag)
		began := time.Now()
		response := must.Get(s.client.Do(request))(b) //nolint:bodyclose // below
		body, err := io.ReadAll(response.Body)
		took = time.Since(began)
		_ = response.Body.Close()
		if err != nil || (response.StatusCode == http.StatusOK) != (len(body) > 0) {
			b.Fatal(response.StatusCode, len(body), err)
		}
		if response.StatusCode == http.StatusOK && response.Header.Get("Content-Encoding") != "gzip" {
			b.Fatal("it is not compressed")
		}
		return took, len(body), response.Header.Get("ETag")
	}
	print := func(b *testing.B, times []time.Duration, size int) {
		b.Helper()
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(size)/1000, "KB")
		reportTimes(b, times)
	}
	_, _, tag := ask("") // which reads the day of all
	b.Run("changed", func(b *testing.B) {
		var times []time.Duration
		var size int
		for b.Loop() {
			report()
			took, bytes, next := ask(tag)
			if next == tag {
				b.Fatal("it has not changed")
			}
			times, size, tag = append(times, took), bytes, next
		}
		print(b, times, size)
	})
	b.Run("within a second", func(b *testing.B) {
		var times []time.Duration
		for b.Loop() {
			took, size, _ := ask(tag)
			if size > 0 {
				b.Fatal("it has changed")
			}
			times = append(times, took)
		}
		print(b, times, 0)
	})
	b.Run("change", func(b *testing.B) {
		s.running(b)
		cursor := a.changes(b, "").Next
		var times []time.Duration
		cool := ids[hot*sensors/rooms:]
		for b.Loop() {
			answer := a.wait(b, cursor)
			must.Eventually(b, "the listener", func() bool { return s.listens(b) })
			time.Sleep(20 * time.Millisecond) // the request waits by now
			a.judgeLive(b, cool[len(times)%len(cool)], clock().Add(time.Duration(len(times)/len(cool))*time.Millisecond))
			began := time.Now()
			got := <-answer
			times = append(times, time.Since(began))
			cursor = got.Next
		}
		print(b, times, 0)
	})
}

// judgeLive has the rules judge that a node of the fleet is too hot.
func (a *testCustomer) judgeLive(tb testing.TB, node string, at time.Time) {
	tb.Helper()
	r := reading.Reading{NodeID: node, MessageID: "hot", Time: reading.TruncateTime(at), Temperature: 55, Humidity: 40}
	must.Do(tb, a.store.Judge(tb.Context(), incidents.Judged{Reading: r, Arrived: at, Defaults: alert.Defaults()}))
}

// fleet gives the customer sensors in rooms that have sent for a day until now.
func (a *testCustomer) fleet(tb testing.TB, count, halls int, now time.Time) (ids []string) {
	tb.Helper()
	ctx, chance := tb.Context(), rand.New(rand.NewPCG(1, 1))
	var rooms []int64
	for i := range halls {
		rooms = append(rooms, a.room(tb, fmt.Sprintf("Hall %d", i)))
	}
	var sensors, states, slots [][]any
	for i := range count {
		id := fmt.Sprintf("esp32-%06x", chance.IntN(1<<24))
		ids = append(ids, id)
		sensors = append(sensors, []any{id, a.id, rooms[i*len(rooms)/count], fmt.Sprintf("Rack %d %s", i/4%60, []string{"top", "middle", "bottom", "door"}[i%4]), "ESP32-DHT22"})
		temperature, humidity := 18+chance.Float64()*10, 30+chance.Float64()*20
		for k := range 144 {
			starts := now.Truncate(10 * time.Minute).Add(time.Duration(k-143) * 10 * time.Minute)
			temperature += float64(chance.IntN(7)-3) / 10
			temperature = min(max(temperature, 15), 35)
			low, high := round(temperature-0.2), round(temperature+0.2)
			slots = append(slots, []any{0, id, (starts.Hour()*60 + starts.Minute()) / 10, starts, low, high, humidity, humidity, starts.Add(time.Minute), low, humidity})
		}
		at := now.Add(-time.Duration(chance.IntN(30_000)) * time.Millisecond)
		states = append(states, []any{0, id, "m", at, round(temperature), at, round(humidity), at, 30.0})
	}
	load := func(table string, rows [][]any, columns ...string) {
		must.Get(a.pool.CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromRows(rows)))(tb)
		must.Get(a.pool.Exec(context.WithoutCancel(ctx), `VACUUM ANALYZE `+table))(tb)
	}
	load("sensors", sensors, "node_id", "customer_id", "room_id", "name", "type")
	a.execute(tb, `DELETE FROM node_state`)                        // the empty ones that come with sensors
	a.execute(tb, `UPDATE open_holds SET held_from = '-infinity'`) // not from the database's now on
	a.execute(tb, `VACUUM ANALYZE open_holds`)
	load("node_state", states, "channel", "node_id", "message_id", "timestamp",
		"temperature", "temperature_at", "humidity", "humidity_at", "usual_interval_s")
	load("node_slots", slots, "channel", "node_id", "slot", "starts", "min_temperature", "max_temperature", "min_humidity", "max_humidity",
		"last_at", "last_temperature", "last_humidity")
	return ids
}

func round(value float64) float64 { return float64(int(value*10+0.5)) / 10 }
