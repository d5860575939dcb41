package pgreadings_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/pgreadings"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestAppendMakesAgainAPartitionThatWasDropped(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	store := pgreadings.New(pool, nil, present)
	row := reading.Reading{NodeID: "n", MessageID: "a", Time: present(), Temperature: 20, Humidity: 40}
	must.Do(t, store.Append(t.Context(), []reading.Reading{row}))
	must.Get(pool.Exec(t.Context(), `DROP TABLE sensor_data.readings_20260301`))(t)
	must.Do(t, store.Append(t.Context(), []reading.Reading{row}))
	found := must.Get(store.Stats(t.Context(), readings.NodeRef{ID: "n", Visible: []reading.Span{{}}}, row.Time.Add(time.Second), []time.Time{row.Time}))(t)
	must.Equal(t, "found", int64(1), found[0].Count)
}

func TestTableIsPartitionedByDayAndRefusesImpossibleValues(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	store := pgreadings.New(pool, nil, present)
	day := present().Truncate(24 * time.Hour)
	for i, when := range []time.Time{day, day.Add(24*time.Hour - time.Microsecond), day.Add(24 * time.Hour)} {
		row := reading.Reading{NodeID: "n", MessageID: string(rune('a' + i)), Time: when, Temperature: 20, Humidity: 40}
		must.Do(t, store.Append(t.Context(), []reading.Reading{row}))
	}
	var first, second int
	err := pool.QueryRow(t.Context(), `
		SELECT (SELECT count(*) FROM sensor_data.readings_20260301), (SELECT count(*) FROM sensor_data.readings_20260302)`,
	).Scan(&first, &second)
	must.Hold(t, err == nil && first == 2 && second == 1,
		"partitions hold %d and %d readings, %v; want 2 and 1", first, second, err)
	_, err = pool.Exec(t.Context(), `INSERT INTO sensor_data.readings VALUES ('n', '2026-03-01 10:00Z', 'x', 136, 40)`)
	must.Hold(t, err != nil, "the table took 136 °C")
}

func TestSample(t *testing.T) {
	t.Parallel()
	sampling(t, pgreadings.New(pgtest.New(t), nil, present))
}

// TestOldDaysAreLeftAlone reads recent readings while a day of a year ago is locked. On a single
// machine days stay for years: a query that locked them all would need some thousand locks, and as
// long to plan.
func TestOldDaysAreLeftAlone(t *testing.T) {
	t.Parallel()
	config := must.Get(pgxpool.ParseConfig(pgtest.URL(t)))(t)
	config.ConnConfig.RuntimeParams["lock_timeout"] = "2s" // nobody else has locks
	pool := must.Get(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(pool.Close)
	now := present()
	s, known := pgreadings.New(pool, nil, present), pgtest.NewStores(pool)
	old := now.AddDate(-1, 0, 0)
	for _, at := range []time.Time{old, now.Add(-time.Hour)} {
		must.Do(t, s.Append(t.Context(), []reading.Reading{{MessageID: "m", NodeID: "n", Time: at, Temperature: 21, Humidity: 40}}))
	}
	must.Do(t, s.Maintain(t.Context()))
	tx := must.Get(pool.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(t.Context()) }()
	must.Get(tx.Exec(t.Context(), "LOCK TABLE sensor_data.readings_"+old.Format("20060102")))(t)
	node := readings.NodeRef{ID: "n", Visible: []reading.Span{{}}}
	for range 7 { // the sixth is the first for which PostgreSQL plans for all arguments
		from := now.AddDate(0, 0, -2)
		must.Equal(t, "buckets", 1, len(must.Get(s.Buckets(t.Context(), node, from, now, 3))(t)))
		must.Equal(t, "buckets of hours", 1, len(must.Get(s.Buckets(t.Context(), node, now.AddDate(0, -1, 0), now, 10))(t)))
		must.Equal(t, "statistics", int64(2), must.Get(s.Stats(t.Context(), node, now, []time.Time{now.AddDate(-2, 0, 0)}))(t)[0].TemperatureCount)
		must.Equal(t, "readings", 1, read(t, s.Range(t.Context(), node, from, now)))
		must.Equal(t, "readings of nodes", 1, read(t, s.Ranges(t.Context(), []readings.NodeRef{node}, from, now)))
		must.Get(known.FirstReadings(t.Context(), 1, []string{"n"}, from, now))(t)
		must.Do(t, known.RecordProbe(t.Context(), time.Now(), time.Now()))
	}
	for _, err := range s.Range(t.Context(), node, old.AddDate(-1, 0, 0), now) {
		must.Contain(t, "reaching the locked day", err.Error(), "lock timeout")
		break
	}
	must.Do(t, tx.Rollback(t.Context()))
	must.Equal(t, "readings of two years", 2, read(t, s.Range(t.Context(), node, old.AddDate(-1, 0, 0), now)))
}

func read(t *testing.T, all iter.Seq2[reading.Reading, error]) (count int) {
	t.Helper()
	for _, err := range all {
		must.Do(t, err)
		count++
	}
	return count
}

// batch makes readings of so many nodes, all of one instant.
func batch(nodes int, message string, when time.Time) []reading.Reading {
	rows := make([]reading.Reading, nodes)
	for i := range rows {
		rows[i] = reading.Reading{NodeID: fmt.Sprintf("node-%04d", i), MessageID: message, Time: when, Temperature: 20, Humidity: 40}
	}
	return rows
}

// Redelivered messages come in other company and another order: two batches of
// the same rows must not each wait for a row of the other's.
func TestAppendsOfTheSameRowsInAnyOrderSucceed(t *testing.T) {
	t.Parallel()
	store := pgreadings.New(pgtest.New(t), nil, present)
	const rounds, nodes = 20, 500
	for round := range rounds {
		rows := batch(nodes, fmt.Sprint("m", round), present().Add(time.Duration(round)*time.Second))
		reversed := slices.Clone(rows)
		slices.Reverse(reversed)
		var group sync.WaitGroup
		for _, order := range [][]reading.Reading{rows, reversed, rows, reversed} {
			group.Go(func() {
				if err := store.Append(t.Context(), order); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	}
	stats := must.Get(store.Stats(t.Context(), readings.NodeRef{ID: "node-0499", Visible: []reading.Span{{}}}, present().Add(time.Hour), []time.Time{present()}))(t)
	must.Equal(t, "readings", rounds, int(stats[0].Count))
}

// A dump of the database reads the table from its first to its last minute; the
// first reading of a day must not wait for it, nor hold up all readers behind.
func TestNewDayWaitsForNoReader(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	store := pgreadings.New(pool, nil, present)
	must.Do(t, store.Append(t.Context(), batch(1, "a", present())))
	dump := must.Get(pool.Begin(t.Context()))(t)
	defer func() { _ = dump.Rollback(context.WithoutCancel(t.Context())) }()
	must.Get(dump.Exec(t.Context(), `SELECT count(*) FROM sensor_data.readings`))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	must.Do(t, store.Append(ctx, batch(1, "b", present().AddDate(0, 0, 1))))
}

func TestAppendTakesTheFirstAndTheLastDay(t *testing.T) {
	t.Parallel()
	store := pgreadings.New(pgtest.New(t), nil, present)
	days := []time.Time{
		time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), // what reading.Validate allows
		time.Date(2099, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
	}
	for _, when := range days {
		must.Do(t, store.Append(t.Context(), batch(1, "m", when)))
	}
	var found []time.Time
	for r, err := range store.Range(t.Context(), readings.NodeRef{ID: "node-0000", Visible: []reading.Span{{}}}, days[0], days[1].Add(time.Microsecond)) {
		must.Do(t, err)
		found = append(found, r.Time)
	}
	must.Hold(t, slices.Equal(days, found), "found %v, want %v", found, days)
}

// BenchmarkAppend stores batches of several sizes, by so many writers on each
// core at once.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		for _, writers := range []int{1, 8} {
			b.Run(fmt.Sprintf("%d rows, %d writers", size, writers), func(b *testing.B) {
				store := pgreadings.New(pgtest.New(b), nil, present)
				var mu sync.Mutex
				next := present()
				instant := func() time.Time {
					mu.Lock()
					defer mu.Unlock()
					next = next.Add(time.Millisecond)
					return next
				}
				if err := store.Append(b.Context(), batch(1, "first", next)); err != nil { // makes the partition
					b.Fatal(err)
				}
				b.SetParallelism(writers)
				b.ResetTimer()
				b.RunParallel(func(loop *testing.PB) {
					for loop.Next() {
						if err := store.Append(b.Context(), batch(size, "m", instant())); err != nil {
							b.Error(err)
						}
					}
				})
				b.ReportMetric(float64(size*b.N)/b.Elapsed().Seconds(), "readings/s")
			})
		}
	}
}

// TestSlowReaderHoldsNoConnection takes its time over each reading of three channels, as a client does
// that downloads a record: they are more than a page, and come once, channel after channel.
func TestSlowReaderHoldsNoConnection(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	store := pgreadings.New(pool, nil, present)
	first := present().Add(-time.Hour)
	var want []reading.Reading
	for _, channel := range []reading.Channel{0, 7} {
		for i := range 3000 {
			r := at("a", fmt.Sprint("m", i), first.Add(time.Duration(i)*time.Second), float64(i%50), 40)
			r.Channel = channel
			want = append(want, r)
		}
	}
	want = append(want, at("b", "m", first, 20, 40))
	add(t, store, want...)
	both := open("a")
	both.Visible = append(both.Visible, reading.Span{Channel: 7})
	var got []reading.Reading
	for r, err := range store.Ranges(t.Context(), []readings.NodeRef{open("b"), both}, first, present()) {
		must.Do(t, err)
		must.Equal(t, "connections held", 0, int(pool.Stat().AcquiredConns()))
		got = append(got, r)
	}
	must.Equal(t, "read", want, got)
}
