package pgreadings_test

import (
	"os"
	"testing"
	"time"

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
	if err != nil || first != 2 || second != 1 {
		t.Errorf("partitions hold %d and %d readings, %v; want 2 and 1", first, second, err)
	}
	_, err = pool.Exec(t.Context(), `INSERT INTO sensor_data.readings VALUES ('n', '2026-03-01 10:00Z', 'x', 136, 40)`)
	if err == nil {
		t.Error("the table took 136 °C")
	}
}

func TestSample(t *testing.T) {
	t.Parallel()
	sampling(t, pgreadings.New(pgtest.New(t), nil, present))
}
