package pgreadings_test

import (
	"context"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/readings/readingstest"
)

// aggregates are hours of a day each, and what a run said.
type aggregates struct {
	run   readings.Aggregated
	hours map[time.Time]int64 // how many readings
	asked []time.Time
	fail  error
}

func (a *aggregates) Aggregated(_ context.Context, since time.Time) (readings.Aggregated, error) {
	if !a.run.Started.After(since) {
		return readings.Aggregated{}, nil
	}
	return a.run, nil
}

func (a *aggregates) HoursOf(_ context.Context, days []time.Time) iter.Seq2[readings.Hour, error] {
	a.asked = days
	return func(yield func(readings.Hour, error) bool) {
		for hour, count := range a.hours {
			if slices.Contains(days, hour.Truncate(24*time.Hour)) {
				h := readings.Hour{NodeID: "n", Channel: 7, Bucket: readings.Bucket{Start: hour, Stats: readings.Stats{Count: count}}}
				if !yield(h, nil) {
					return
				}
			}
		}
		if a.fail != nil {
			yield(readings.Hour{}, a.fail)
		}
	}
}

// TestHoursAreCopied copies a month at first, then the days that were aggregated again:
// hours that are no more are gone, days that are too old too, and a copy that fails
// half-way changes nothing.
func TestHoursAreCopied(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	now := readingstest.Now()
	midnight := now.Truncate(day)
	pool := pgtest.New(t)
	copied := pgreadings.NewHours(pool, func() time.Time { return now })
	source := &aggregates{hours: map[time.Time]int64{}}
	for at := midnight.Add(-40 * day); at.Before(midnight); at = at.Add(day) {
		source.hours[at.Add(5*time.Hour)] = 1
		source.hours[at.Add(6*time.Hour)] = 2
	}
	refresh := func(want error) {
		t.Helper()
		if err := copied.Refresh(t.Context(), source); (err == nil) != (want == nil) {
			t.Fatalf("%v, want %v", err, want)
		}
	}
	check := func(what string, from, until time.Time) {
		t.Helper()
		first, last, err := copied.Range(t.Context())
		if err != nil || !first.Equal(from) || !last.Equal(until) {
			t.Errorf("%s: copied from %s until %s, %v", what, first, last, err)
		}
		want := maps.Clone(source.hours)
		maps.DeleteFunc(want, func(at time.Time, _ int64) bool { return at.Before(from) || !at.Before(until) })
		found, err := copied.Hours(t.Context(), "n", []reading.Span{{Channel: 7, From: from.AddDate(0, 0, -9), Until: midnight}, {Channel: 7, From: midnight}})
		got := map[time.Time]int64{}
		for _, hour := range found {
			got[hour.Start.UTC()] = hour.Count
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil || len(found) != len(got) {
			t.Errorf("%s: (-want +got), %v:\n%s", what, err, diff)
		}
		if others, err := copied.Hours(t.Context(), "n", []reading.Span{{From: from}}); err != nil || len(others) > 0 {
			t.Errorf("%s: of another channel %v, %v", what, others, err)
		}
	}
	refresh(nil)
	check("before a run", time.Time{}, time.Time{})
	source.run = readings.Aggregated{Started: now, Until: midnight, Days: []time.Time{midnight.Add(-day)}}
	refresh(nil)
	check("at first", midnight.Add(-31*day), midnight)

	late := midnight.Add(-3 * day)
	delete(source.hours, late.Add(5*time.Hour))
	source.hours[late.Add(6*time.Hour)] = 9
	now = now.Add(day)
	source.hours[midnight.Add(5*time.Hour)] = 4
	source.run = readings.Aggregated{Started: now, Until: midnight.Add(day), Days: []time.Time{late, midnight, late, midnight.Add(-300 * day)}}
	source.fail = context.DeadlineExceeded
	refresh(source.fail)
	if first, last, err := copied.Range(t.Context()); err != nil || !first.Equal(midnight.Add(-31*day)) || !last.Equal(midnight) {
		t.Errorf("after a failure: copied from %s until %s, %v", first, last, err)
	}
	source.fail = nil
	refresh(nil)
	check("changed", midnight.Add(-30*day), midnight.Add(day))
	if diff := cmp.Diff([]time.Time{late, midnight}, source.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	source.asked = nil
	refresh(nil)
	if source.asked != nil {
		t.Errorf("copied again: %s", source.asked)
	}
	source.run.Started, source.run.All = now.Add(time.Hour), true
	refresh(nil)
	if len(source.asked) != 31 {
		t.Errorf("copied %d days", len(source.asked))
	}
	check("all again", midnight.Add(-30*day), midnight.Add(day))
}
