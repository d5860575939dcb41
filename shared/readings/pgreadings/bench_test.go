package pgreadings_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store"
)

// The table of the benchmark: 100 nodes, a reading every 30 seconds up to the present of the tests. READINGS_BENCH
// says how many in all, 10 million when it is not set, which are 35 days and take about a minute to make.
const benchNodes = 100

func benchReadings(b *testing.B) int {
	b.Helper()
	return must.Get(strconv.Atoi(cmp.Or(os.Getenv("READINGS_BENCH"), "10000000")))(b)
}

// BenchmarkQueries asks what the dashboard asks. Each figure stands beside that of the bare statement by psql on
// the same server, the best of several: the ratio is what the store, its driver and its parameters cost.
func BenchmarkQueries(b *testing.B) {
	database := pgtest.URL(b)
	pool := must.Get(pgxpool.New(b.Context(), database))(b)
	b.Cleanup(pool.Close)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	store := pgreadings.New(store.New(pool), nil, func() time.Time { return now })
	fill(b, pool, store, now, benchReadings(b))

	node := readings.NodeRef{ID: "node-1", Visible: []reading.Span{{}}}
	const days = 24 * time.Hour
	starts := []time.Time{now.Add(-time.Hour), now.Add(-days), now.Add(-7 * days), now.Add(-30 * days)}
	ctx := b.Context()
	buckets := func(count time.Duration) (int, error) {
		found, err := store.Buckets(ctx, node, now.Add(-count*days), now, 1000)
		return len(found), err
	}
	bucketSQL := func(width, from string) string {
		return fmt.Sprintf(`
			SELECT date_bin('%[1]s', timestamp, '%[2]s'), avg(temperature), min(temperature), max(temperature),
			       avg(humidity), min(humidity), max(humidity), count(*)
			FROM sensor_data.readings
			WHERE node_id = 'node-1' AND timestamp >= '%[2]s' AND timestamp < '2026-03-01 12:00Z'
			GROUP BY 1 ORDER BY 1`, width, from)
	}
	for _, q := range []struct {
		name string
		run  func() (int, error)
		want int
		sql  string
	}{
		{
			"stats of four windows",
			func() (int, error) {
				found, err := store.Stats(ctx, node, now, starts)
				return len(found), err
			}, len(starts),
			`SELECT w, avg(temperature), min(temperature), max(temperature), avg(humidity), min(humidity), max(humidity), count(*)
			 FROM unnest(ARRAY['1 hour', '1 day', '7 days', '30 days']::interval[]) AS w
			 JOIN sensor_data.readings ON node_id = 'node-1' AND timestamp >= '2026-03-01 12:00Z'::timestamptz - w AND timestamp < '2026-03-01 12:00Z'
			 GROUP BY w`,
		},
		{
			"a day in 1000 buckets", func() (int, error) { return buckets(1) }, 1000, bucketSQL("86.4 s", "2026-02-28 12:00Z"),
		},
		{
			"30 days in 1000 buckets", func() (int, error) { return buckets(30) }, 1000, bucketSQL("2592 s", "2026-01-30 12:00Z"),
		},
	} {
		b.Run(q.name, func(b *testing.B) {
			for b.Loop() {
				if n, err := q.run(); err != nil || n == 0 || n > q.want {
					b.Fatalf("%d rows, %v", n, err)
				}
			}
			ours := b.Elapsed().Seconds() * 1000 / float64(b.N)
			b.ReportMetric(ours, "ms/op")
			if bare, ok := psql(b, database, q.sql); ok {
				b.ReportMetric(bare, "psql-ms/op")
				b.ReportMetric(ours/bare, "ratio")
			}
		})
	}
}

// fill makes the readings in the server itself, a day's partition by the store.
func fill(b *testing.B, pool *pgxpool.Pool, store *pgreadings.Store, now time.Time, n int) {
	b.Helper()
	each := n / benchNodes
	first := now.Add(-time.Duration(each) * 30 * time.Second)
	var days []reading.Reading
	for day := first.Truncate(24 * time.Hour); !day.After(now); day = day.AddDate(0, 0, 1) {
		days = append(days, reading.Reading{NodeID: "other", MessageID: "m", Time: day, Temperature: 20, Humidity: 40})
	}
	must.Do(b, store.Append(b.Context(), days))
	must.Get(pool.Exec(b.Context(), `UPDATE sensor_data.hours_until SET until = @first`, pgx.StrictNamedArgs{"first": first.Truncate(time.Hour)}))(b)
	for _, sql := range []string{
		fmt.Sprintf(`
			INSERT INTO sensor_data.readings (node_id, message_id, timestamp, temperature, humidity)
			SELECT 'node-' || n, to_hex(i * 100 + n), '%s'::timestamptz + i * interval '30 s' + n * interval '10 ms',
			       22 + 3 * sin(i / 500.0) + random(), 40 + 5 * cos(i / 700.0) + random()
			FROM generate_series(0, %d) AS i, generate_series(1, %d) AS n`, first.Format(time.RFC3339), each-1, benchNodes),
		`VACUUM ANALYZE sensor_data.readings`,
	} {
		must.Get(pool.Exec(b.Context(), sql))(b)
	}
	began := time.Now()
	must.Do(b, store.Maintain(b.Context()))
	b.Logf("the hours before the last 8 days took %s", time.Since(began))
}

// psql runs a statement seven times and returns the shortest, as psql tells it,
// in milliseconds; false where there is no psql.
func psql(b *testing.B, database, sql string) (float64, bool) {
	b.Helper()
	path, err := exec.LookPath("psql")
	if err != nil {
		return 0, false
	}
	command := exec.CommandContext(context.WithoutCancel(b.Context()), path, "-X", "-q", "-o", os.DevNull, database)
	command.Stdin = strings.NewReader("\\timing on\n" + strings.Repeat(sql+";\n", 7))
	output, err := command.CombinedOutput()
	if err != nil {
		b.Fatalf("psql: %v\n%s", err, output)
	}
	best := 0.0
	for lines := bufio.NewScanner(bytes.NewReader(output)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "Time:" {
			continue
		}
		if took, err := strconv.ParseFloat(fields[1], 64); err == nil && (best == 0 || took < best) {
			best = took
		}
	}
	return best, best > 0
}
