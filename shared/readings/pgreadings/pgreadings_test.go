package pgreadings_test

import (
	"os"
	"testing"
	"time"

	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/readings/readingstest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func TestConformance(t *testing.T) {
	t.Parallel()
	readingstest.Run(t, pgreadings.New(pgtest.New(t), readingstest.Now))
}

func TestAppendMakesAgainAPartitionThatWasDropped(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	store := pgreadings.New(pool, readingstest.Now)
	row := reading.Reading{NodeID: "n", MessageID: "a", Time: readingstest.Now(), Temperature: 20, Humidity: 40}
	if err := store.Append(t.Context(), []reading.Reading{row}); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `DROP TABLE sensor_data.readings_20260301`); err != nil {
		t.Fatal(err)
	}
	if err := store.Append(t.Context(), []reading.Reading{row}); err != nil {
		t.Fatal(err)
	}
	found, err := store.Latest(t.Context(), []readings.NodeRef{{ID: "n", Visible: []reading.Span{{}}}})
	if err != nil || len(found) != 1 {
		t.Errorf("found %v, %v", found, err)
	}
}

func TestTableIsPartitionedByDayAndRefusesImpossibleValues(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	store := pgreadings.New(pool, readingstest.Now)
	day := readingstest.Now().Truncate(24 * time.Hour)
	for i, when := range []time.Time{day, day.Add(24*time.Hour - time.Microsecond), day.Add(24 * time.Hour)} {
		row := reading.Reading{NodeID: "n", MessageID: string(rune('a' + i)), Time: when, Temperature: 20, Humidity: 40}
		if err := store.Append(t.Context(), []reading.Reading{row}); err != nil {
			t.Fatal(err)
		}
	}
	var first, second int
	err := pool.QueryRow(t.Context(), `
		SELECT (SELECT count(*) FROM sensor_data.readings_20260301), (SELECT count(*) FROM sensor_data.readings_20260302)`,
	).Scan(&first, &second)
	if err != nil || first != 2 || second != 1 {
		t.Errorf("partitions hold %d and %d readings, %v; want 2 and 1", first, second, err)
	}
	_, err = pool.Exec(t.Context(), `INSERT INTO sensor_data.readings VALUES ('n', '2026-03-01 10:00Z', 'x', 126, 40)`)
	if err == nil {
		t.Error("the table took 126 °C")
	}
}

func TestHourly(t *testing.T) {
	t.Parallel()
	readingstest.RunHourly(t, pgreadings.New(pgtest.New(t), readingstest.Now), func([]time.Time) {}) // it keeps none
}

func TestSample(t *testing.T) {
	t.Parallel()
	readingstest.RunSample(t, pgreadings.New(pgtest.New(t), readingstest.Now))
}
