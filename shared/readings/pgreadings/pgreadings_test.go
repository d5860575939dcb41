package pgreadings_test

import (
	"iter"
	"os"
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
