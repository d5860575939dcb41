package api

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
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
