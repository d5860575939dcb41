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
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/crypto/bcrypt"

	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/tooltest"
)

// crowd has so many clients do something over and over until it is stopped.
func crowd(clients int, do func(client, round int)) (stop func()) {
	var stopped atomic.Bool
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for round := 0; !stopped.Load(); round++ {
				do(client, round)
			}
		})
	}
	return func() { stopped.Store(true); all.Wait() }
}

// runFlood logs in from so many clients for a while, and meanwhile asks for active alerts a hundred times a second.
func runFlood(tb testing.TB, s *testAPI, a *testCustomer, clients int, lasting time.Duration) (perSecond float64, others []time.Duration) {
	tb.Helper()
	body := fmt.Sprintf(`{"email":%q,"password":%q}`, a.email, a.password)
	transport := &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var logins atomic.Int64
	stop := crowd(clients, func(int, int) {
		response, err := client.Post(s.url+"/api/v1/customers/login", "application/json", strings.NewReader(body))
		if err != nil {
			return
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			logins.Add(1)
		}
	})
	began := time.Now()
	for time.Since(began) < lasting || logins.Load() < int64(clients) && time.Since(began) < 3*time.Minute {
		time.Sleep(10 * time.Millisecond)
		asked := time.Now()
		s.call(tb, a.token, "GET", "/api/v1/alerts/active", "").is(tb, http.StatusOK)
		others = append(others, time.Since(asked))
	}
	perSecond = float64(logins.Load()) / time.Since(began).Seconds()
	stop()
	return perSecond, others
}

// TestLoginFloodFromOneAddress has one client send more logins and registrations at a time than can wait, each under a
// new invented address. Another client logs in and registers meanwhile, one request at a time, and is answered. The
// first gets 503 and when to try again, but not where it needs no password. Nobody gets a 500. Contract 2.9.
func TestLoginFloodFromOneAddress(t *testing.T) { //nolint:paralleltest // takes the processor
	tooltest.Long(t)
	s, a := newTestCustomer(t, func(d *Config) { d.PasswordSlots, d.TrustedProxies = 1, []string{"peer"} })
	const flooder, other = "203.0.113.7", "198.51.100.9"
	post := func(path, body, from string) reply {
		return s.send(t, "", "POST", path, body, map[string]string{"X-Forwarded-For": from})
	}
	const login, register = "/api/v1/customers/login", "/api/v1/customers/register"
	right := fmt.Sprintf(`{"email":%q,"password":%q}`, a.email, a.password)

	var refused, served atomic.Int64
	stop := crowd(2*auth.MaxWaiting, func(i, n int) {
		from := fmt.Sprintf("192.0.2.%d, %s", (i+n)%256, flooder)
		got := post(login, right, from)
		if i%2 == 0 {
			got = post(register, fmt.Sprintf(`{"email":"f%d.%d@example.com","username":"f%d.%05d","password":"Passw0rd"}`, i, n, i, n), from)
		}
		if got.status < 300 {
			served.Add(1)
			return
		}
		refused.Add(1)
		got.says(t, http.StatusServiceUnavailable, "Too many logins and registrations at once; try again in a moment")
		must.Equal(t, "Retry-After", "10", got.header.Get("Retry-After"))
		time.Sleep(100 * time.Millisecond) // the queue stays full, and the processor is not
	})
	for deadline := time.Now().Add(3 * time.Minute); refused.Load() == 0 && time.Now().Before(deadline); {
		s.call(t, "", "GET", "/health", "")
	}
	for n := range 3 {
		post(login, right, other).is(t, http.StatusOK)
		post(register, fmt.Sprintf(`{"email":"o%d@example.com","username":"other%d","password":"Passw0rd"}`, n, n), other).is(t, http.StatusCreated)
		s.send(t, a.token, "GET", "/api/v1/alerts/active", "", map[string]string{"X-Forwarded-For": flooder}).is(t, http.StatusOK)
	}
	stop()
	must.Equal(t, "of the flood some are refused, some served", []bool{true, true},
		[]bool{refused.Load() > 0, served.Load() > 0})
}

// TestKnownDevicesUnderFlood has 320 addresses guess a password, each again half a second after it was refused: the queue
// is always full, the processor is not. Whoever has logged in before sends the cookie of that and always gets in, also by
// turns with another of the browser's; one for another address, a forged and an old one open nothing. Contract 2.9.
func TestKnownDevicesUnderFlood(t *testing.T) { //nolint:paralleltest // takes the processor
	tooltest.Long(t)
	s, a := newTestCustomer(t, func(d *Config) { d.PasswordSlots, d.PasswordCost, d.TrustedProxies = 1, 8, []string{"peer"} })
	b := a.with(t, "viewer")
	var signedIn []*testCustomer
	for range 6 {
		signedIn = append(signedIn, a.with(t, "viewer"))
	}
	login := func(email, password, from, cookie string) reply {
		return s.send(t, "", "POST", "/api/v1/customers/login", fmt.Sprintf(`{"email":%q,"password":%q}`, email, password),
			map[string]string{"X-Forwarded-For": from, "Cookie": cookie})
	}
	cookieOf := func(p *testCustomer) string {
		cookie := login(p.email, p.password, "198.51.100.9", "").header.Get("Set-Cookie")
		value, attributes, _ := strings.Cut(cookie, ";")
		must.Equal(t, "attributes", " Path=/api/v1/customers/login; Max-Age=15552000; HttpOnly; Secure; SameSite=Strict", attributes)
		return value
	}
	mine, other := cookieOf(a), cookieOf(b)
	opensNothing := func(what, cookie string) { // without a lane of its own one login in eight or more is refused
		t.Helper()
		for n := range 100 {
			if login(a.email, a.password, fmt.Sprintf("198.51.100.%d", n), cookie).status == http.StatusServiceUnavailable {
				return
			}
		}
		t.Errorf("all logins with an %s cookie got in", what)
	}
	var refused atomic.Int64
	stop := crowd(320, func(i, _ int) {
		if got := login(a.email, "Gue55ing", fmt.Sprintf("192.0.%d.%d", i/250, i%250), other); got.status == http.StatusServiceUnavailable {
			refused.Add(1)
			time.Sleep(500 * time.Millisecond)
		} else {
			got.is(t, http.StatusUnauthorized)
		}
	})
	for deadline := time.Now().Add(time.Minute); refused.Load() < 320 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	const logins = 8
	in, began := 0, time.Now()
	for n := range logins {
		person := []*testCustomer{a, b}[n%2]
		if got := login(person.email, person.password, fmt.Sprintf("198.51.100.%d", n), mine+"; "+other); got.status == http.StatusOK {
			in++
		} else {
			got.is(t, http.StatusServiceUnavailable)
		}
	}
	took := time.Since(began)
	for _, person := range signedIn { // a token is as good as a cookie
		s.call(t, person.token, "PATCH", fmt.Sprintf("/api/v1/customers/%d", a.id), `{"password":"NewPassw0rd"}`).is(t, 200)
	}
	opensNothing("forged", mine+"x")
	s.forward(181 * 24 * time.Hour)
	opensNothing("old", mine)
	stop()
	if in < logins-1 { // a machine that is busy with others may refuse one
		t.Errorf("of %d logins with a cookie %d got in, in %v, while %d guesses were refused", logins, in, took, refused.Load())
	}
}

// BenchmarkLoginFlood gives logins per second beside what bcrypt allows on all cores, and the times of others.
func BenchmarkLoginFlood(b *testing.B) {
	hash := must.Get(bcrypt.GenerateFromPassword([]byte("Passw0rd"), auth.DefaultPasswordCost))(b)
	var bound atomic.Int64
	began, procs := time.Now(), runtime.GOMAXPROCS(0)
	stop := crowd(procs, func(int, int) {
		_ = bcrypt.CompareHashAndPassword(hash, []byte("Passw0rd"))
		bound.Add(1)
	})
	time.Sleep(2 * time.Second)
	stop()
	limit := float64(bound.Load()) / time.Since(began).Seconds()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2 * procs)) // as run/server does
	s, a := newTestCustomer(b, func(d *Config) { d.PasswordCost, d.PasswordSlots = auth.DefaultPasswordCost, procs })
	s.document = nil
	var perSecond float64
	var others []time.Duration
	for b.Loop() {
		perSecond, others = runFlood(b, s, a, 16, 5*time.Second)
	}
	b.ReportMetric(perSecond, "logins/s")
	b.ReportMetric(limit, "bcrypt/s")
	reportTimes(b, others)
}

// connections is how many clients call at a time.
const connections = 32

// BenchmarkEndpoints measures the busiest endpoints at 32 connections, each beside a bare net/http handler that makes the
// same queries and encodes the same answer, but has no token, no limits, no log and no document. Run it with
//
//	go test ./run/api -run '^$' -bench Endpoints
//
// ratio is the API's requests per second over the bare handler's: the median of many short turns, each by its neighbour.
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
	times := make([][]time.Duration, connections)
	var clients sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(count))
	began := time.Now()
	for i := range times {
		clients.Go(func() {
			for left.Add(-1) >= 0 {
				times[i] = append(times[i], l.ask(b))
			}
		})
	}
	clients.Wait()
	took := time.Since(began)
	l.took, l.times = l.took+took, slices.Concat(append(times, l.times)...)
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
	if err != nil || response.StatusCode != http.StatusOK { // must.Hold would be measured
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

// BenchmarkIncidentsAtSize measures what a page asks for, of 2,000 sensors in 100 rooms that have sent for a day,
// beside 10,000 incidents that are over and 30 that last, of 10 sensors each: the overview, compressed, after readings
// of some sensors each time and within a second, and how soon a change reaches who waits, once the reading is judged.
// Bars: p99 of a changed overview 50 ms, p50 of a change 10 ms. Run it with
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
		request := must.Get(http.NewRequestWithContext(b.Context(), "GET", s.url+"/api/v1/overview", nil))(b)
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
