package pgreadings_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/pgreadings"
)

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
