package system_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/procfs"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/postgres"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/wire"
)

// BenchmarkReading compares the processor time of a reading, from the node to its row, in the whole local system and on
// a floor: a handler that answers when the row, and an alert where it is too hot, are on disk by a COMMIT that requests
// share. Both run one after the other with a PostgreSQL of the same settings. Nodes send from a process of their own,
// whose time does not count: as fast as they are answered, then 200 and 33 a second, as 1,000 real nodes do, then again
// as fast as they are answered of 50,000 nodes. A room has 100. Idle is the system without readings. Each case is a
// fixed number of readings, of 50,000 nodes one or two of each:
//
//	go test -run '^$' -bench '^BenchmarkReading$' ./run/local/system
func BenchmarkReading(b *testing.B) {
	system.CollectLess() // as the program does, for both
	for _, c := range []struct {
		name string
		load
	}{
		{"saturated", load{60_000, 0, 100}},
		{"200 a second", load{3000, 200, 100}},
		{"33 a second", load{660, 33, 1000}},
		{"saturated by 50,000", load{60_000, 0, 50_000}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				least := measureFloor(b, c.load)
				whole := measureSystem(b, c.load)
				b.ReportMetric(least.processor, "floor-µs/reading")
				b.ReportMetric(whole.processor, "µs/reading")
				b.ReportMetric(whole.database, "postgresql-µs/reading")
				b.ReportMetric(whole.processor/least.processor, "times-floor")
				b.ReportMetric(whole.wal, "wal-B/reading")
				b.ReportMetric(whole.commits, "commits/reading")
				b.ReportMetric(whole.answered, "answer-p50-ms")
				b.ReportMetric(whole.readable, "readable-p99-ms")
				b.ReportMetric(float64(c.readings)/whole.took.Seconds(), "readings/s")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
	b.Run("idle", func(b *testing.B) {
		for b.Loop() {
			b.ReportMetric(measureSystem(b, load{nodes: 100}).idle, "cores")
			b.ReportMetric(0, "ns/op")
		}
	})
}

// load is how many readings come, how many a second, 0 for as many as are answered, and from how many nodes.
type load struct{ readings, rate, nodes int }

// cost is that of a reading.
type cost struct {
	processor, database float64 // µs, of all and of PostgreSQL
	wal, commits        float64 // bytes and commits
	answered, readable  float64 // ms, the median and the 99th percentile
	idle                float64 // cores, for some seconds after the readings
	began               time.Time
	took                time.Duration
}

// idleSpan is a minute, in which each loop runs once or more.
const idleSpan = time.Minute

// measureSystem measures the local system.
func measureSystem(b *testing.B, l load) cost {
	b.Helper()
	var mu sync.Mutex
	lateness := map[time.Time]time.Duration{} // from a reading's time until it can be read, of a thousand readings or two
	every, handled := int64(max(l.readings/1000, 1)), atomic.Int64{}
	s, err := system.Start(b.Context(), system.Options{
		DataDir: b.TempDir(), Clock: time.Now, Log: logging.Discard(),
		WrapHandler: func(function string, next push.HandleFunc) push.HandleFunc {
			if function != "ingest" {
				return next
			}
			return func(ctx context.Context, m push.Message) error {
				err := next(ctx, m)
				if handled.Add(1)%every != 0 { // to decode it once more takes a fourteenth of the processor time of all
					return err
				}
				if d, decoded := wire.DecodeData(m.Data, m.PublishTime); err == nil && decoded == nil {
					mu.Lock()
					defer mu.Unlock()
					lateness[d.Reading.Time] = time.Since(d.Reading.Time)
				}
				return err
			}
		},
	})
	pgtest.SkipUnlessAvailable(b, err)
	defer func() { must.Do(b, s.Stop()) }()
	user := &system.APIUser{Base: s.APIURL}
	must.Do(b, user.SignIn(b.Context(), system.Credentials{Email: "bench@example.com", Password: "Passw0rd1"}, "benchuser"))
	must.Get(s.Pool.Exec(b.Context(), `
		WITH room AS (
		    INSERT INTO server_rooms (customer_id, name)
		    SELECT c.id, 'Room ' || n FROM customers c, generate_series(0, (@nodes - 1) / 100) AS n
		    RETURNING customer_id, id, name)
		INSERT INTO sensors (node_id, customer_id, room_id, name, type)
		SELECT 'node-' || n, customer_id, id, 'Rack ' || n, 'ESP32-DHT22'
		FROM generate_series(0, @nodes - 1) AS n JOIN room ON name = 'Room ' || n / 100`, pgx.StrictNamedArgs{"nodes": l.nodes}))(b)
	c := measure(b, s.Pool, s.GatewayURL, l, func() { must.Do(b, s.Queue.Drain(b.Context())) })
	if l.readings > 0 {
		maps.DeleteFunc(lateness, func(at time.Time, _ time.Duration) bool { return at.Before(c.began) }) // connections, plans and caches
		sorted := slices.Sorted(maps.Values(lateness))
		c.readable = float64(sorted[len(sorted)*99/100].Microseconds()) / 1000
		return c
	}
	before := usedByAll(b, s.Pool)
	time.Sleep(idleSpan)
	c.idle = (usedByAll(b, s.Pool) - before).Seconds() / idleSpan.Seconds()
	return c
}

// measureFloor measures the least that answers a node when its reading is on disk.
func measureFloor(b *testing.B, l load) cost {
	b.Helper()
	server, err := postgres.Start(b.Context(), postgres.Options{Dir: b.TempDir(), Download: true, Log: logging.Discard()})
	pgtest.SkipUnlessAvailable(b, err)
	defer func() { must.Do(b, server.Stop()) }()
	pool := must.Get(pgxpool.New(b.Context(), server.URL()))(b)
	defer pool.Close()
	must.Get(pool.Exec(b.Context(), `
		CREATE TABLE readings (node_id text, id text, at timestamptz, temperature float8, humidity float8, PRIMARY KEY (node_id, id, at));
		CREATE TABLE alerts (node_id text, id text, at timestamptz, temperature float8, PRIMARY KEY (node_id, id, at))`))(b)
	type row struct {
		ID          string  `json:"id"`
		NodeID      string  `json:"node_id"`
		Temperature float64 `json:"temperature"`
		Humidity    float64 `json:"humidity"`
	}
	commits := coalesce.New(func(ctx context.Context, rows []row) ([]struct{}, error) {
		ids, nodes, temperatures, humidities := make([]string, len(rows)), make([]string, len(rows)), make([]float64, len(rows)), make([]float64, len(rows))
		for i, r := range rows {
			ids[i], nodes[i], temperatures[i], humidities[i] = r.ID, r.NodeID, r.Temperature, r.Humidity
		}
		_, err := pool.Exec(ctx, `
			WITH r AS (SELECT * FROM unnest(@nodes::text[], @ids::text[], @temperatures::float8[], @humidities::float8[])
			        AS r (node_id, id, temperature, humidity)),
			    a AS (INSERT INTO alerts SELECT node_id, id, now(), temperature FROM r WHERE temperature > 50 ON CONFLICT DO NOTHING)
			INSERT INTO readings SELECT node_id, id, now(), temperature, humidity FROM r ON CONFLICT DO NOTHING`,
			pgx.StrictNamedArgs{"ids": ids, "nodes": nodes, "temperatures": temperatures, "humidities": humidities})
		return make([]struct{}, len(rows)), err
	}, coalesce.Options[row]{})
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in row
		err := json.NewDecoder(r.Body).Decode(&in)
		if err == nil {
			_, err = commits.Do(r.Context(), in)
		}
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer gateway.Close()
	return measure(b, pool, gateway.URL, l, func() {})
}

// measure sends readings from another process and waits until they are processed.
func measure(b *testing.B, pool *pgxpool.Pool, gateway string, l load, drain func()) (c cost) {
	b.Helper()
	send(b, gateway, load{max(200, l.nodes), 0, l.nodes}) // connections, plans and caches
	drain()
	type database struct {
		wal, commits float64
	}
	read := func() (d database) {
		// A session reports its commits once it has been idle for a second.
		time.Sleep(2 * time.Second)
		must.Do(b, pool.QueryRow(b.Context(), `SELECT pg_current_wal_lsn() - '0/0'::pg_lsn, (SELECT sum(xact_commit) FROM pg_stat_database)`).Scan(&d.wal, &d.commits))
		return d
	}
	before := read()
	own, server := used(b), usedByPostgreSQL(b, pool)
	c.began = time.Now()
	if l.readings > 0 {
		c.answered = send(b, gateway, l)
	}
	drain()
	c.took = time.Since(c.began)
	own, server = used(b)-own, usedByPostgreSQL(b, pool)-server
	after, each := read(), float64(max(l.readings, 1))
	c.database = float64(server.Microseconds()) / each
	c.processor = float64(own.Microseconds())/each + c.database
	c.wal, c.commits = (after.wal-before.wal)/each, (after.commits-before.commits)/each
	return c
}

// send runs [TestSendReadings] in a process of its own and returns the median time of an answer, in milliseconds.
func send(b *testing.B, gateway string, l load) float64 {
	b.Helper()
	command := exec.CommandContext(b.Context(), os.Args[0], "-test.run", "^TestSendReadings$", "-test.v") //nolint:gosec // this program
	command.Env = append(os.Environ(), "SEND_TO="+gateway, fmt.Sprintf("SEND=%d %d %d", l.readings, l.rate, l.nodes))
	output := must.Get(command.CombinedOutput())(b)
	_, text, ok := strings.Cut(string(output), "median ")
	if !ok {
		b.Fatalf("%s", output)
	}
	return must.Get(strconv.ParseFloat(strings.Fields(text)[0], 64))(b)
}

// TestSendReadings sends readings of nodes that take turns, for [BenchmarkReading].
func TestSendReadings(t *testing.T) { //nolint:paralleltest // alone in its process
	gateway := os.Getenv("SEND_TO")
	if gateway == "" {
		return // nobody asks
	}
	const connections = 128
	var n, rate, nodes int
	must.Get(fmt.Sscan(os.Getenv("SEND"), &n, &rate, &nodes))(t)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}, Timeout: time.Minute}
	taken := make([]time.Duration, n)
	began := time.Now()
	var next atomic.Int64
	var sending sync.WaitGroup
	for range connections {
		sending.Go(func() {
			for k := int(next.Add(1)) - 1; k < n; k = int(next.Add(1)) - 1 {
				if rate > 0 {
					time.Sleep(time.Until(began.Add(time.Duration(k) * time.Second / time.Duration(rate)))) // until its turn
				}
				start := time.Now()
				if err := postReading(t.Context(), client, gateway, k, nodes); err != nil {
					t.Error(err)
				}
				taken[k] = time.Since(start)
			}
		})
	}
	sending.Wait()
	slices.Sort(taken)
	fmt.Printf("median %g\n", float64(taken[n/2].Microseconds())/1000)
}

// postReading sends the n-th reading of nodes that take turns. Values change by a sensor's
// smallest step: detect would record a stuck sensor, and a leap, at each reading.
func postReading(ctx context.Context, client *http.Client, gateway string, n, nodes int) error {
	round := n / nodes
	body := fmt.Sprintf(`{"id":"%x-%x","node_id":%q,"temperature":%.1f,"humidity":%.1f}`,
		os.Getpid(), n, "node-"+strconv.Itoa(n%nodes), 21.5+float64(round/3%2)/10, 40+float64(round/5%2)/10)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, gateway+"/api/v1/message", strings.NewReader(body))
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s", response.Status)
	}
	return nil
}

// usedByPostgreSQL is the processor time of a server and of its processes, those that have ended included.
func usedByPostgreSQL(b *testing.B, pool *pgxpool.Pool) time.Duration {
	b.Helper()
	var folder string
	must.Do(b, pool.QueryRow(b.Context(), `SHOW data_directory`).Scan(&folder))
	first, _, _ := bytes.Cut(must.Get(os.ReadFile(filepath.Join(folder, "postmaster.pid")))(b), []byte("\n"))
	server := must.Get(strconv.Atoi(string(first)))(b)
	var sum time.Duration
	for _, process := range must.Get(procfs.AllProcs())(b) {
		stat, err := process.Stat() // of none that has ended meanwhile
		if err == nil && (stat.PID == server || stat.PPID == server) {
			sum += ticks(int(stat.UTime) + int(stat.STime) + stat.CUTime + stat.CSTime)
		}
	}
	return sum
}

// usedByAll is the processor time of this process and of PostgreSQL.
func usedByAll(b *testing.B, pool *pgxpool.Pool) time.Duration {
	b.Helper()
	return used(b) + usedByPostgreSQL(b, pool)
}

// used is the processor time of this process alone: the nodes that send are its children.
func used(b *testing.B) time.Duration {
	b.Helper()
	stat := must.Get(must.Get(procfs.Self())(b).Stat())(b)
	return ticks(int(stat.UTime) + int(stat.STime))
}

// ticks are hundredths of a second, as /proc counts processor time.
func ticks(n int) time.Duration { return time.Duration(n) * 10 * time.Millisecond }
