package pgreadings_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/pgreadings"
)

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
