package pgreadings_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/pgreadings"
)

// archive is a table without an archive of its own, in the place of BigQuery's. It counts
// the queries.
type archive struct {
	*pgreadings.Store

	queries int
	longest time.Duration // 0 for no limit; longer ranges of nodes fail
}

func newArchive(t *testing.T) *archive {
	t.Helper()
	return &archive{Store: pgreadings.New(pgtest.New(t), nil, present)}
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
		conformance(t, pgreadings.New(pgtest.New(t), nil, present))
	})
	t.Run("with an archive", func(t *testing.T) {
		t.Parallel()
		conformance(t, pgreadings.New(pgtest.New(t), newArchive(t), present))
	})
}

func TestHistory(t *testing.T) {
	t.Parallel()
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		history(t, func(clock func() time.Time) *pgreadings.Store { return pgreadings.New(pgtest.New(t), nil, clock) })
	})
	t.Run("with an archive", func(t *testing.T) {
		t.Parallel()
		pool := pgtest.New(t)
		history(t, func(clock func() time.Time) *pgreadings.Store { return pgreadings.New(pool, newArchive(t), clock) })
		var oldest time.Time
		var marks int
		must.Do(t, pool.QueryRow(t.Context(), `
			SELECT (SELECT min(timestamp) FROM sensor_data.readings), (SELECT count(*) FROM sensor_data.marked_hours)`).Scan(&oldest, &marks))
		age := present().Sub(oldest)
		must.Hold(t, age <= 10*24*time.Hour, "the oldest raw reading is %s old", age)
	})
}

// TestChartsDoNotReadTheArchive: contract 5.12, no page, chart or statistic of ordinary use costs
// a query of BigQuery.
func TestChartsDoNotReadTheArchive(t *testing.T) {
	t.Parallel()
	all := newArchive(t)
	store := pgreadings.New(pgtest.New(t), all, present)
	now, day := present(), 24*time.Hour
	node := readings.NodeRef{ID: "n", Visible: []reading.Span{{}}}
	row := reading.Reading{NodeID: "n", MessageID: "a", Time: now.Add(-time.Hour), Temperature: 20, Humidity: 40}
	must.Do(t, store.Append(t.Context(), []reading.Reading{row}))
	for _, days := range []int{1, 7, 30, 365} {
		if days <= 7 {
			for _, err := range store.Range(t.Context(), node, now.Add(-time.Duration(days)*day), now) {
				must.Hold(t, err == nil, "%v", err)
			}
		}
		buckets := must.Get(store.Buckets(t.Context(), node, now.Add(-time.Duration(days)*day), now, 300))(t)
		must.Hold(t, len(buckets) == 1 && buckets[0].Count == 1, "%d days: %v", days, buckets)
	}
	stats := must.Get(store.Stats(t.Context(), node, now, []time.Time{now.Add(-2 * time.Hour), now.Add(-30 * day)}))(t)
	must.Hold(t, stats[0].Count == 1 && stats[1].Count == 1, "%v", stats)
	must.Equal(t, "queries of the archive", 0, all.queries)
	if _, err := store.Buckets(t.Context(), node, now.Add(-40*day), now.Add(-39*day), 300); err != nil || all.queries != 1 {
		t.Errorf("a day of last month: %d queries, %v; want 1", all.queries, err)
	}
}

// TestHourlyPartsOfADay: a short range of the past has its own parts, even if they are an hour long.
func TestHourlyPartsOfADay(t *testing.T) {
	t.Parallel()
	now, pool := present(), pgtest.New(t)
	store := pgreadings.New(pool, newArchive(t), func() time.Time { return now })
	start := now.Truncate(time.Hour).Add(-30*time.Minute - 24*time.Hour)
	var rows []reading.Reading
	for i := -2; i < 24*4; i++ {
		rows = append(rows, reading.Reading{NodeID: "n", MessageID: strconv.Itoa(i), Time: start.Add(time.Duration(i) * 15 * time.Minute), Temperature: float64(i), Humidity: 40})
	}
	must.Do(t, store.Append(t.Context(), rows))
	must.Do(t, store.Maintain(t.Context()))
	now = now.AddDate(0, 0, 12)
	must.Do(t, store.Maintain(t.Context()))
	node := readings.NodeRef{ID: "n", Visible: []reading.Span{{}}}
	buckets := must.Get(store.Buckets(t.Context(), node, start, start.Add(24*time.Hour), 24))(t)
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
	store := pgreadings.New(pool, nil, clock)
	must.Do(t, store.Maintain(t.Context()))
	row := reading.Reading{NodeID: "n", MessageID: "a", Time: now, Temperature: 20, Humidity: 40}
	must.Do(t, store.Append(t.Context(), []reading.Reading{row}))
	now = now.AddDate(0, 0, 10)
	errs := make(chan error)
	for range 2 {
		go func() { errs <- pgreadings.New(pool, nil, clock).Maintain(t.Context()) }()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	must.Do(t, store.Maintain(t.Context()))
	var hours, count int
	if err := pool.QueryRow(t.Context(), `SELECT count(*), sum(count) FROM sensor_data.hours`).Scan(&hours, &count); err != nil || hours != 1 || count != 1 {
		t.Errorf("%d hours of %d readings, %v", hours, count, err)
	}
}

// TestHoursOfAClockThatWasAhead: on one machine the clock was a month ahead. Once it is
// right, charts and statistics have all readings again.
func TestHoursOfAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	now := present()
	store := pgreadings.New(pgtest.New(t), nil, func() time.Time { return now })
	maintain := func() {
		t.Helper()
		must.Do(t, store.Maintain(t.Context()))
	}
	maintain()
	now = now.AddDate(0, 1, 0)
	maintain()
	now = present()
	row := reading.Reading{NodeID: "n", MessageID: "a", Time: now, Temperature: 20, Humidity: 40}
	must.Do(t, store.Append(t.Context(), []reading.Reading{row}))
	maintain()
	node := readings.NodeRef{ID: "n", Visible: []reading.Span{{}}}
	stats := must.Get(store.Stats(t.Context(), node, now.Add(time.Second), []time.Time{now.AddDate(0, 0, -30)}))(t)
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
			store := pgreadings.New(pool, all, func() time.Time { return now })
			must.Do(t, store.Maintain(t.Context()))
			rows := []reading.Reading{at("a", "now", now, 20, 40)}
			for i := range 50 {
				when := now.AddDate(0, 0, -400+8*i-12).Truncate(time.Hour)
				rows = append(rows, at("a", "late", when, 20, 40), at("b", "late", when, 21, 41))
			}
			must.Do(t, store.Append(t.Context(), rows))
			now = now.AddDate(0, 0, 12)
			if err := store.Maintain(t.Context()); (err != nil) != c.fails {
				t.Error(err)
			}
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
	maintain := func() {
		t.Helper()
		must.Do(t, store.Maintain(t.Context()))
	}
	maintain() // of an empty table

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
			maintain()
		}
		now = a.at
		add(t, store, a.Reading, a.Reading)
	}
	now = end
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
					parts, err := store.Buckets(t.Context(), ref, start, end, n)
					for _, part := range parts {
						got[part.Start] = part.Stats
					}
					must.Hold(t, err == nil && len(parts) == len(got) && len(parts) <= n,
						"%s: %s: %d buckets of %d, %v", when, name, len(parts), n, err)
					must.Equal(t, fmt.Sprintf("%s: %s of %s in %d", when, name, span, n), want, got, cmpopts.EquateApprox(0, 1e-9), cmpopts.EquateNaNs())
				}
			}
			// Short parts of a range that is not raw any more.
			start, until := first.Add(26*time.Hour+5*time.Minute), first.Add(50*time.Hour)
			want := readings.Stats{}
			for _, r := range collect(t, store, ref, start, until) {
				want.Add(r)
			}
			parts, err := store.Buckets(t.Context(), ref, start, until, 300)
			var count int64
			for _, part := range parts {
				count += part.Count
			}
			must.Hold(t, err == nil && count == want.Count,
				"%s: %s: short parts count %d, %v, want %d", when, name, count, err, want.Count)
			starts := []time.Time{end.Add(-time.Hour), end.AddDate(0, 0, -7), end.AddDate(0, 0, -11)}
			wants := make([]readings.Stats, len(starts))
			for i, start := range starts {
				for _, r := range summed(start) {
					wants[i].Add(r)
				}
			}
			got, err := store.Stats(t.Context(), ref, end, starts)
			diff := cmp.Diff(wants, got, cmpopts.EquateApprox(0, 1e-9), cmpopts.EquateNaNs())
			must.Hold(t, diff == "" && err == nil, "%s: statistics of %s (-want +got), %v:\n%s", when, name, err, diff)
		}
	}
	settle := func() { // marked hours wait for others
		now = now.Add(2 * time.Hour)
		maintain()
		maintain()
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
