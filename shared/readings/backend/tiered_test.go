package backend_test

import (
	"context"
	"iter"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/backend"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/readings/readingstest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// kept is a database that has kept recent readings for weeks.
func kept(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.New(t)
	now := readingstest.Now()
	if _, err := pool.Exec(t.Context(), `INSERT INTO recent_kept (since, until) VALUES ($1, $2)`, now.AddDate(0, 0, -30), now); err != nil {
		t.Fatal(err)
	}
	return pool
}

// TestConformance holds the two tables to what one is held to. In the place of BigQuery's
// stands PostgreSQL's.
func TestConformance(t *testing.T) {
	t.Parallel()
	for name, pool := range map[string]*pgxpool.Pool{"kept for weeks": kept(t), "just begun": pgtest.New(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			readingstest.Run(t, backend.NewTiered(pgreadings.New(pool, readingstest.Now), pgreadings.NewRecent(pool, readingstest.Now)))
		})
		t.Run(name+", weeks", func(t *testing.T) {
			t.Parallel()
			readingstest.RunHourly(t, backend.NewTiered(pgreadings.New(pool, readingstest.Now), pgreadings.NewRecent(pool, readingstest.Now)), func([]time.Time) {})
		})
	}
}

// asked is a table that notes until when it is asked, and has nothing.
type asked struct {
	backend.Table

	until []time.Time
}

func (a *asked) Append(context.Context, []reading.Reading) error { return nil }

func (a *asked) Range(_ context.Context, _ readings.NodeRef, _, end time.Time) iter.Seq2[reading.Reading, error] {
	a.until = append(a.until, end)
	return func(func(reading.Reading, error) bool) {}
}

func (a *asked) Ranges(ctx context.Context, _ []readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	return a.Range(ctx, readings.NodeRef{}, start, end)
}

func (a *asked) Parts(_ context.Context, _ readings.NodeRef, _, end, _ time.Time, _ time.Duration) ([]readings.Bucket, error) {
	a.until = append(a.until, end)
	return nil, nil
}

func (a *asked) Stats(_ context.Context, _ readings.NodeRef, end time.Time, starts []time.Time) ([]readings.Stats, error) {
	if len(starts) > 0 {
		a.until = append(a.until, end)
	}
	return make([]readings.Stats, len(starts)), nil
}

// TestTheLastDayAsksNothingOfTheTableOfAll: contract 5.12, a sensor's page, its forecast and an export of
// the day cost no query of BigQuery, and a week costs one that ends before today.
func TestTheLastDayAsksNothingOfTheTableOfAll(t *testing.T) {
	t.Parallel()
	pool := kept(t)
	table := &asked{}
	tiered := backend.NewTiered(table, pgreadings.NewRecent(pool, readingstest.Now))
	now, day := readingstest.Now(), 24*time.Hour
	node := readings.NodeRef{ID: "n", Visible: []reading.Span{{}}}
	row := reading.Reading{NodeID: "n", MessageID: "a", Time: now.Add(-time.Hour), Temperature: 20, Humidity: 40}
	if err := tiered.Append(t.Context(), []reading.Reading{row}); err != nil {
		t.Fatal(err)
	}
	for _, all := range []iter.Seq2[reading.Reading, error]{
		tiered.Range(t.Context(), node, now.Add(-day), now), tiered.Ranges(t.Context(), []readings.NodeRef{node}, now.Add(-day), now),
	} {
		seen := 0
		for r, err := range all {
			if seen++; err != nil || r != row {
				t.Errorf("%v, %v", r, err)
			}
		}
		if seen != 1 {
			t.Errorf("%d readings", seen)
		}
	}
	buckets, err := tiered.Buckets(t.Context(), node, now.Add(-day), now, 300)
	if err != nil || len(buckets) != 1 || buckets[0].Count != 1 {
		t.Errorf("%v, %v", buckets, err)
	}
	stats, err := tiered.Stats(t.Context(), node, now, []time.Time{now.Add(-2 * time.Hour), now.Add(-day)})
	if err != nil || stats[0].Count != 1 || stats[1].Count != 1 {
		t.Errorf("%v, %v", stats, err)
	}
	if len(table.until) > 0 {
		t.Errorf("asked until %s", table.until)
	}
	if _, err := tiered.Buckets(t.Context(), node, now.Add(-7*day), now, 300); err != nil {
		t.Error(err)
	}
	if _, err := tiered.Stats(t.Context(), node, now, []time.Time{now.Add(-time.Hour), now.Add(-7 * day)}); err != nil {
		t.Error(err)
	}
	yesterday := now.Truncate(day).Add(-day)
	if diff := cmp.Diff([]time.Time{yesterday, yesterday}, table.until); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
