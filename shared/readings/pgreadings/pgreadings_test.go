package pgreadings_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestAppendMakesAgainAPartitionThatWasDropped(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	store := pgreadings.New(store.New(pool), nil, present)
	row := at("n", "a", present(), 20, 40)
	add(t, store, row)
	must.Get(pool.Exec(t.Context(), `DROP TABLE sensor_data.readings_20260301`))(t)
	add(t, store, row)
	must.Equal(t, "found", []reading.Reading{row}, collect(t, store, open("n"), row.Time, row.Time.Add(time.Second)))
}

// With an archive, ancient readings are stored there alone: a partition for each day of a batch of them would
// take the time that ingest has to store the batch.
func TestAncientDaysOfABatchGetNoPartition(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	s, known := pgreadings.New(store.New(pool), newArchive(t), present), pgtest.NewStores(pool)
	rows := []reading.Reading{at("n", "a", present(), 20, 40), at("n", "b", present().AddDate(0, 0, -1), 20, 40), at("n", "c", present().AddDate(-1, 0, 0), 20, 40)}
	batch := make([]pipeline.NodeReading, len(rows))
	for i, r := range rows {
		batch[i].Reading = r
	}
	must.Get(known.StoreReadings(t.Context(), batch, s.Insert))(t)
	add(t, s, at("n", "d", present().AddDate(0, 0, -2), 20, 40), at("n", "e", present().AddDate(-2, 0, 0), 20, 40))
	var days []string
	must.Do(t, pool.QueryRow(t.Context(), `
		SELECT array_agg(inhrelid::regclass::text ORDER BY inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'sensor_data.readings'::regclass`).Scan(&days))
	must.Equal(t, "partitions", []string{"sensor_data.readings_20260227", "sensor_data.readings_20260228", "sensor_data.readings_20260301"}, days)
}

func TestTableIsPartitionedByDayAndRefusesImpossibleValues(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	store := pgreadings.New(store.New(pool), nil, present)
	day := present().Truncate(24 * time.Hour)
	for i, when := range []time.Time{day, day.Add(24*time.Hour - time.Microsecond), day.Add(24 * time.Hour)} {
		add(t, store, at("n", string(rune('a'+i)), when, 20, 40))
	}
	var first, second int
	err := pool.QueryRow(t.Context(), `
		SELECT (SELECT count(*) FROM sensor_data.readings_20260301), (SELECT count(*) FROM sensor_data.readings_20260302)`,
	).Scan(&first, &second)
	must.Do(t, err)
	must.Equal(t, "readings of the partitions", [2]int{2, 1}, [2]int{first, second})
	_, err = pool.Exec(t.Context(), `INSERT INTO sensor_data.readings VALUES ('n', '2026-03-01 10:00Z', 'x', 136, 40)`)
	must.Hold(t, err != nil, "the table took 136 °C")
}

func TestSample(t *testing.T) {
	t.Parallel()
	sampling(t, pgreadings.New(store.New(pgtest.New(t)), nil, present))
}

// TestOldDaysAreLeftAlone reads recent readings while a day of a year ago is locked. On a single machine days stay
// for years: a query that locked them all would need some thousand locks, and as long to plan.
func TestOldDaysAreLeftAlone(t *testing.T) {
	t.Parallel()
	for _, plans := range []string{"auto", "force_generic_plan"} { // the second for the functions of one machine
		t.Run(plans, func(t *testing.T) { t.Parallel(); oldDaysAreLeftAlone(t, plans) })
	}
}

func oldDaysAreLeftAlone(t *testing.T, plans string) {
	t.Helper()
	config := must.Get(pgxpool.ParseConfig(pgtest.URL(t)))(t)
	config.ConnConfig.RuntimeParams["lock_timeout"] = "2s" // nobody else has locks
	config.ConnConfig.RuntimeParams["plan_cache_mode"] = plans
	pool := must.Get(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(pool.Close)
	now := present()
	s, known := pgreadings.New(store.New(pool), nil, func() time.Time { return now }), pgtest.NewStores(pool)
	customer, _ := known.Owner(t, "operator")
	old := now.AddDate(-1, 0, 0)
	add(t, s, at("n", "m", old, 21, 40), at("n", "m", now.Add(-time.Hour), 21, 40))
	must.Do(t, s.Maintain(t.Context()))
	tx := must.Get(pool.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(t.Context()) }()
	must.Get(tx.Exec(t.Context(), "LOCK TABLE sensor_data.readings_"+old.Format("20060102")))(t)
	node := open("n")
	for range 7 { // the sixth is the first for which PostgreSQL plans for all arguments
		from := now.AddDate(0, 0, -2)
		must.Equal(t, "buckets", 1, len(must.Get(s.Buckets(t.Context(), node, from, now, 3))(t)))
		must.Equal(t, "buckets of hours", 1, len(must.Get(s.Buckets(t.Context(), node, now.AddDate(0, -1, 0), now, 10))(t)))
		must.Equal(t, "statistics", int64(2), must.Get(s.Stats(t.Context(), node, now, []time.Time{now.AddDate(-2, 0, 0)}))(t)[0].TemperatureCount)
		must.Equal(t, "readings", 1, len(gather(t, s.Range(t.Context(), node, from, now))))
		must.Equal(t, "readings of nodes", 1, len(gather(t, s.Ranges(t.Context(), []readings.NodeRef{node}, from, now))))
		must.Get(known.FirstReadings(t.Context(), 1, []string{"n"}, from, now))(t)
		must.Do(t, known.RecordProbe(t.Context(), time.Now(), time.Now()))
		hot := signed(at("hot", "m", now, 60, 40), reading.Channel(customer))
		must.Do(t, known.Judge(t.Context(), incidents.Judged{Reading: hot, Arrived: now, Defaults: alert.Thresholds{MaxTemperature: 50, MaxHumidity: 50}}))
		now = now.Add(time.Hour)
		must.Do(t, s.Maintain(t.Context()))
	}
	all := incidents.ExcursionQuery{PageRequest: store.PageRequest{Limit: 9}}
	must.Equal(t, "excursions", 1, len(must.Get(known.Excursions(t.Context(), customer, all, now))(t).Items))
	for _, err := range s.Range(t.Context(), node, old.AddDate(-1, 0, 0), now) {
		must.Contain(t, "reaching the locked day", err.Error(), "lock timeout")
		break
	}
	must.Do(t, tx.Rollback(t.Context()))
	must.Equal(t, "readings of two years", 2, len(gather(t, s.Range(t.Context(), node, old.AddDate(-1, 0, 0), now))))
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
	store := pgreadings.New(store.New(pgtest.New(t)), nil, present)
	const rounds, nodes = 20, 500
	for round := range rounds {
		rows := batch(nodes, fmt.Sprint("m", round), present().Add(time.Duration(round)*time.Second))
		reversed := slices.Clone(rows)
		slices.Reverse(reversed)
		var group sync.WaitGroup
		for _, order := range [][]reading.Reading{rows, reversed, rows, reversed} {
			group.Go(func() { must.Fail(t, "append", store.Append(t.Context(), order), nil) })
		}
		group.Wait()
	}
	must.Equal(t, "readings", rounds, len(collect(t, store, open("node-0499"), present(), present().Add(time.Hour))))
}

// A dump of the database reads the table from its first to its last minute; the
// first reading of a day must not wait for it, nor hold up all readers behind.
func TestNewDayWaitsForNoReader(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	store := pgreadings.New(store.New(pool), nil, present)
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
	store := pgreadings.New(store.New(pgtest.New(t)), nil, present)
	days := []time.Time{
		time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), // what reading.Validate allows
		time.Date(2099, 12, 31, 23, 59, 59, 999_999_000, time.UTC),
	}
	for _, when := range days {
		must.Do(t, store.Append(t.Context(), batch(1, "m", when)))
	}
	var found []time.Time
	for _, r := range collect(t, store, open("node-0000"), days[0], days[1].Add(time.Microsecond)) {
		found = append(found, r.Time)
	}
	must.Equal(t, "found", days, found)
}

// BenchmarkAppend stores batches of several sizes, by so many writers on each core at once.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		for _, writers := range []int{1, 8} {
			b.Run(fmt.Sprintf("%d rows, %d writers", size, writers), func(b *testing.B) {
				store := pgreadings.New(store.New(pgtest.New(b)), nil, present)
				var mu sync.Mutex
				next := present()
				instant := func() time.Time {
					mu.Lock()
					defer mu.Unlock()
					next = next.Add(time.Millisecond)
					return next
				}
				must.Do(b, store.Append(b.Context(), batch(1, "first", next))) // makes the partition
				b.SetParallelism(writers)
				b.ResetTimer()
				b.RunParallel(func(loop *testing.PB) {
					for loop.Next() {
						must.Fail(b, "append", store.Append(b.Context(), batch(size, "m", instant())), nil)
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
	store := pgreadings.New(store.New(pool), nil, present)
	first := present().Add(-time.Hour)
	var want []reading.Reading
	for _, channel := range []reading.Channel{0, 7} {
		for i := range 3000 {
			want = append(want, signed(at("a", fmt.Sprint("m", i), first.Add(time.Duration(i)*time.Second), float64(i%50), 40), channel))
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

// archive is a table without an archive of its own, in the place of BigQuery's. It counts the queries.
type archive struct {
	*pgreadings.Store

	queries int
	longest time.Duration // 0 for no limit; longer ranges of nodes fail
}

func newArchive(t *testing.T) *archive {
	t.Helper()
	return &archive{Store: pgreadings.New(store.New(pgtest.New(t)), nil, present)}
}

func (a *archive) Range(ctx context.Context, _ readings.Purpose, node readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	a.queries++
	return a.Store.Range(ctx, node, start, end)
}

func (a *archive) Ranges(ctx context.Context, nodes []readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	a.queries++
	if a.longest > 0 && end.Sub(start) > a.longest {
		return func(yield func(reading.Reading, error) bool) { yield(reading.Reading{}, errors.New("over the limit")) }
	}
	return a.Store.Ranges(ctx, nodes, start, end)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		conformance(t, pgreadings.New(store.New(pgtest.New(t)), nil, present))
	})
	t.Run("with an archive", func(t *testing.T) {
		t.Parallel()
		conformance(t, pgreadings.New(store.New(pgtest.New(t)), newArchive(t), present))
	})
}

func TestHistory(t *testing.T) {
	t.Parallel()
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		history(t, func(clock func() time.Time) *pgreadings.Store {
			return pgreadings.New(store.New(pgtest.New(t)), nil, clock)
		})
	})
	t.Run("with an archive", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.New(t)
		history(t, func(clock func() time.Time) *pgreadings.Store {
			return pgreadings.New(store.New(pool), newArchive(t), clock)
		})
		var oldest time.Time
		var marks int
		must.Do(t, pool.QueryRow(t.Context(), `
			SELECT (SELECT min(timestamp) FROM sensor_data.readings), (SELECT count(*) FROM sensor_data.marked_hours)`).Scan(&oldest, &marks))
		age := present().Sub(oldest)
		must.Hold(t, age <= 10*24*time.Hour, "the oldest raw reading is %s old", age)
	})
}

// TestChartsDoNotReadTheArchive: contract 5.12, no page, chart or statistic of ordinary use costs a query of BigQuery.
func TestChartsDoNotReadTheArchive(t *testing.T) {
	t.Parallel()
	all := newArchive(t)
	store := pgreadings.New(store.New(pgtest.New(t)), all, present)
	now, day := present(), 24*time.Hour
	node := open("n")
	add(t, store, at("n", "a", now.Add(-time.Hour), 20, 40))
	for _, days := range []int{1, 7, 30, 365} {
		if days <= 7 {
			collect(t, store, node, now.Add(-time.Duration(days)*day), now)
		}
		buckets := must.Get(store.Buckets(t.Context(), node, now.Add(-time.Duration(days)*day), now, 300))(t)
		must.Hold(t, len(buckets) == 1 && buckets[0].Count == 1, "%d days: %v", days, buckets)
	}
	stats := must.Get(store.Stats(t.Context(), node, now, []time.Time{now.Add(-2 * time.Hour), now.Add(-30 * day)}))(t)
	must.Hold(t, stats[0].Count == 1 && stats[1].Count == 1, "%v", stats)
	must.Equal(t, "queries of the archive", 0, all.queries)
	_, err := store.Buckets(t.Context(), node, now.Add(-40*day), now.Add(-39*day), 300)
	must.Hold(t, err == nil && all.queries == 1, "a day of last month: %d queries, %v; want 1", all.queries, err)
}

// TestHourlyPartsOfADay: a short range of the past has its own parts, even if they are an hour long.
func TestHourlyPartsOfADay(t *testing.T) {
	t.Parallel()
	now, pool := present(), pgtest.New(t)
	store := pgreadings.New(store.New(pool), newArchive(t), func() time.Time { return now })
	start := now.Truncate(time.Hour).Add(-30*time.Minute - 24*time.Hour)
	var rows []reading.Reading
	for i := -2; i < 24*4; i++ {
		rows = append(rows, at("n", strconv.Itoa(i), start.Add(time.Duration(i)*15*time.Minute), float64(i), 40))
	}
	add(t, store, rows...)
	must.Do(t, store.Maintain(t.Context()))
	now = now.AddDate(0, 0, 12)
	must.Do(t, store.Maintain(t.Context()))
	buckets := must.Get(store.Buckets(t.Context(), open("n"), start, start.Add(24*time.Hour), 24))(t)
	must.Equal(t, "parts", 24, len(buckets))
	for i, b := range buckets {
		if want := float64(4 * i); !b.Start.Equal(start.Add(time.Duration(i)*time.Hour)) || b.Count != 4 || b.MinTemperature != want || b.MaxTemperature != want+3 {
			t.Errorf("part %d: %+v", i, b)
		}
	}
}

// TestMaintainByTwoInstances has two instances maintain one table at the same time.
func TestMaintainByTwoInstances(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	now := present()
	clock := func() time.Time { return now }
	db := store.New(pool)
	store := pgreadings.New(db, nil, clock)
	must.Do(t, store.Maintain(t.Context()))
	add(t, store, at("n", "a", now, 20, 40))
	now = now.AddDate(0, 0, 10)
	var maintaining sync.WaitGroup
	for range 2 {
		maintaining.Go(func() { must.Fail(t, "maintain", pgreadings.New(db, nil, clock).Maintain(t.Context()), nil) })
	}
	maintaining.Wait()
	must.Do(t, store.Maintain(t.Context()))
	var hours, count int
	must.Do(t, pool.QueryRow(t.Context(), `SELECT count(*), sum(count) FROM sensor_data.hours`).Scan(&hours, &count))
	must.Equal(t, "hours, and their readings", [2]int{1, 1}, [2]int{hours, count})
}

// TestHoursOfAClockThatWasAhead: on one machine the clock was a month ahead. Once it is
// right, charts and statistics have all readings again.
func TestHoursOfAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	now := present()
	store := pgreadings.New(store.New(pgtest.New(t)), nil, func() time.Time { return now })
	must.Do(t, store.Maintain(t.Context()))
	now = now.AddDate(0, 1, 0)
	must.Do(t, store.Maintain(t.Context()))
	now = present()
	add(t, store, at("n", "a", now, 20, 40))
	must.Do(t, store.Maintain(t.Context()))
	stats := must.Get(store.Stats(t.Context(), open("n"), now.Add(time.Second), []time.Time{now.AddDate(0, 0, -30)}))(t)
	must.Equal(t, "readings", int64(1), stats[0].Count)
}

// TestLateHoursOfYears: readings of a year and more come late, of which the archive reads ten days
// at once, or none. Raw days go all the same.
func TestLateHoursOfYears(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		longest time.Duration
		fails   bool
		want    int // hours of two nodes
	}{
		"ten days at once": {longest: 10 * 24 * time.Hour, want: 2*50 + 1},
		"none":             {longest: time.Nanosecond, fails: true, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, pool, now := newArchive(t), pgtest.New(t), present()
			all.longest = c.longest
			store := pgreadings.New(store.New(pool), all, func() time.Time { return now })
			must.Do(t, store.Maintain(t.Context()))
			rows := []reading.Reading{at("a", "now", now, 20, 40)}
			for i := range 50 {
				when := now.AddDate(0, 0, -400+8*i-12).Truncate(time.Hour)
				rows = append(rows, at("a", "late", when, 20, 40), at("b", "late", when, 21, 41))
			}
			add(t, store, rows...)
			now = now.AddDate(0, 0, 12)
			err := store.Maintain(t.Context())
			must.Hold(t, (err != nil) == c.fails, "%v", err)
			var marks, hours, raw int
			must.Do(t, pool.QueryRow(t.Context(), `
				SELECT (SELECT count(*) FROM sensor_data.marked_hours), (SELECT count(*) FROM sensor_data.hours), (SELECT count(*) FROM sensor_data.readings)`).Scan(&marks, &hours, &raw))
			must.Hold(t, hours == c.want && raw == 0 && (marks > 0) == c.fails,
				"%d marks, %d hours, %d raw readings; want %d hours and no raw reading", marks, hours, raw, c.want)
		})
	}
}

// rawDays is how many days a store has raw readings of.
const rawDays = 8

// history appends readings over twelve days as time passes, some of them late, and
// holds summaries to the sum of the readings: before hours are aggregated, after, and
// after readings of aggregated hours have arrived. The store must be empty.
func history(t *testing.T, open func(clock func() time.Time) *pgreadings.Store) {
	t.Helper()
	const node = "history"
	random := rand.New(rand.NewPCG(16, 1)) //nolint:gosec // the same numbers each time
	end := present().Add(7*time.Minute + 30*time.Second)
	first := end.AddDate(0, 0, -12)
	now := first
	store := open(func() time.Time { return now })
	must.Do(t, store.Maintain(t.Context())) // of an empty table

	type arrival struct {
		reading.Reading

		at time.Time
	}
	var arrivals []arrival
	for when := first; when.Before(end); when = when.Add(time.Duration(4+random.IntN(60)) * time.Minute) {
		r := at(node, strconv.Itoa(len(arrivals)), when.Truncate(time.Second), 20+random.NormFloat64(), 40+random.NormFloat64())
		r.Channel = reading.Channel(random.IntN(3))
		if random.IntN(3) == 0 { // a third lacks one of the values
			*[...]*float64{&r.Temperature, &r.Humidity}[random.IntN(2)] = reading.Missing()
		}
		arrived := r.Time
		if random.IntN(5) == 0 {
			arrived = arrived.Add(time.Duration(random.Int64N(int64(11 * 24 * time.Hour))))
		}
		arrivals = append(arrivals, arrival{r, arrived})
		if random.IntN(4) == 0 { // a copy, often in the next hour, often before its original
			r.Time = r.Time.Add(time.Duration(1+random.IntN(11)) * time.Minute)
			arrivals = append(arrivals, arrival{r, r.Time})
		}
	}
	slices.SortStableFunc(arrivals, func(a, b arrival) int { return a.at.Compare(b.at) })
	for _, a := range arrivals {
		if a.at.After(end) {
			a.at = end
		}
		for ; now.Add(3 * time.Hour).Before(a.at); now = now.Add(3 * time.Hour) {
			must.Do(t, store.Maintain(t.Context()))
		}
		now = a.at
		add(t, store, a.Reading, a.Reading)
	}
	now = end
	approximately := cmp.Options{cmpopts.EquateApprox(0, 1e-9), cmpopts.EquateNaNs()}
	check := func(when string) {
		t.Helper()
		raw := now.Add(-rawDays * 24 * time.Hour).Truncate(time.Hour)
		for name, visible := range map[string][]reading.Span{
			"the open channel":  {{}},
			"a hold":            {{From: first.Add(50*time.Hour + 17*time.Minute), Until: end.Add(-49*time.Hour - 3*time.Minute)}},
			"a hold of one day": {{From: end.Add(-11 * 24 * time.Hour), Until: end.Add(-10 * 24 * time.Hour)}},
			"signed, with holds": {
				{Channel: 2, From: first.Add(30*time.Hour + time.Second)},
				{Until: first.Add(20*time.Hour + 59*time.Minute)},
				{From: first.Add(31*time.Hour + time.Minute)},
			},
		} {
			ref := readings.NodeRef{ID: node, Visible: visible}
			// summed are the readings that a summary from start to end by the hour has.
			summed := func(start time.Time) []reading.Reading {
				return slices.DeleteFunc(collect(t, store, ref, first.Add(-time.Hour), end.Add(time.Hour)), func(r reading.Reading) bool {
					if !r.Time.Before(raw) {
						return r.Time.Before(start) || !r.Time.Before(end)
					}
					hour := r.Time.Truncate(time.Hour)
					return r.Time.Before(start.Truncate(time.Hour)) || !slices.ContainsFunc(visible, func(s reading.Span) bool {
						return s.Channel == r.Channel && !hour.Before(s.From) && (s.Until.IsZero() || !hour.Add(time.Hour).After(s.Until))
					})
				})
			}
			for _, span := range []time.Duration{11*24*time.Hour + 11*time.Minute, readings.HourlyFrom, 3 * 24 * time.Hour} {
				for _, n := range []int{9, 500} {
					start := end.Add(-span)
					begin, width := readings.Parts(start, end, n)
					want := map[time.Time]readings.Stats{}
					expected := collect(t, store, ref, start, end)
					if span >= readings.HourlyFrom {
						expected = summed(start)
					}
					for _, r := range expected {
						part := begin.Add(r.Time.Sub(begin) / width * width)
						sum := want[part]
						sum.Add(r)
						want[part] = sum
					}
					got := map[time.Time]readings.Stats{}
					parts := must.Get(store.Buckets(t.Context(), ref, start, end, n))(t)
					for _, part := range parts {
						got[part.Start] = part.Stats
					}
					must.Hold(t, len(parts) == len(got) && len(parts) <= n, "%s: %s: %d buckets of %d", when, name, len(parts), n)
					must.Equal(t, fmt.Sprintf("%s: %s of %s in %d", when, name, span, n), want, got, approximately)
				}
			}
			// Short parts of a range that is not raw any more.
			start, until := first.Add(26*time.Hour+5*time.Minute), first.Add(50*time.Hour)
			want := readings.Stats{}
			for _, r := range collect(t, store, ref, start, until) {
				want.Add(r)
			}
			short := counted(must.Get(store.Buckets(t.Context(), ref, start, until, 300))(t))
			must.Equal(t, when+": "+name+": short parts count", want.Count, short)
			starts := []time.Time{end.Add(-time.Hour), end.AddDate(0, 0, -7), end.AddDate(0, 0, -11)}
			wants := make([]readings.Stats, len(starts))
			for i, start := range starts {
				for _, r := range summed(start) {
					wants[i].Add(r)
				}
			}
			got := must.Get(store.Stats(t.Context(), ref, end, starts))(t)
			must.Equal(t, when+": statistics of "+name, wants, got, approximately)
		}
	}
	settle := func() { // marked hours wait for others
		now = now.Add(2 * time.Hour)
		must.Do(t, store.Maintain(t.Context()))
		must.Do(t, store.Maintain(t.Context()))
	}
	settle()
	check("aggregated")
	late := at(node, "late", first.Add(30*time.Hour).Truncate(time.Hour).Add(-2*time.Minute), -30, 10)
	repeated := late
	repeated.Time = late.Time.Add(3 * time.Minute)
	add(t, store, repeated)
	settle()
	check("with one that came late")
	add(t, store, late) // of which that is a copy
	settle()
	check("with its original, which came later")
}
