package pgreadings_test

import (
	"strconv"
	"testing"
	"time"

	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/readings/readingstest"
)

// TestRecentKeepsTheLastDays lets two processes keep an hourly reading for two weeks: the
// partitions hold no more than four days, and never fewer than are answered from them.
func TestRecentKeepsTheLastDays(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	now := readingstest.Now()
	clock := func() time.Time { return now }
	processes := []*pgreadings.Recent{pgreadings.NewRecent(pool, clock), pgreadings.NewRecent(pool, clock)}
	begun := now
	for i := range 14 * 24 {
		row := reading.Reading{NodeID: "n", MessageID: strconv.Itoa(i), Time: now, Temperature: 20, Humidity: 40}
		late := row
		late.MessageID, late.Time = "late"+row.MessageID, now.AddDate(0, 0, -3)
		for range 2 { // the second changes nothing
			if err := processes[i%2].Append(t.Context(), []reading.Reading{row, late}); err != nil {
				t.Fatal(err)
			}
		}
		for range 6 { // minutes that only the clock tells
			now = now.Add(10 * time.Minute)
			if err := processes[i%2].Append(t.Context(), []reading.Reading{late}); err != nil {
				t.Fatal(err)
			}
		}
		var rows, since int
		from, err := processes[0].From(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := pool.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE timestamp >= $1) FROM recent_readings`, from).Scan(&rows, &since); err != nil {
			t.Fatal(err)
		}
		want := max(0, int(now.Add(-time.Hour).Sub(from)/time.Hour)+1)
		if want > i+1 || rows > 4*24 || since != want {
			t.Fatalf("after %d h: %d rows, %d of them since %s, want %d", i, rows, since, from, want)
		}
	}
	if from, err := processes[0].From(t.Context()); err != nil || !from.Equal(now.Truncate(24*time.Hour).AddDate(0, 0, -1)) || from.Before(begun) {
		t.Errorf("complete from %s, %v", from, err)
	}
}

// TestRecentBeginsAnewAfterAPause: a version that kept none may have run meanwhile.
func TestRecentBeginsAnewAfterAPause(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	now := readingstest.Now()
	recent := pgreadings.NewRecent(pool, func() time.Time { return now })
	add := func() {
		t.Helper()
		if err := recent.Append(t.Context(), []reading.Reading{{NodeID: "n", MessageID: "m", Time: now, Temperature: 20, Humidity: 40}}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, want time.Time) {
		t.Helper()
		if from, err := recent.From(t.Context()); err != nil || !from.Equal(want) {
			t.Errorf("%s: complete from %s, %v, want %s", what, from, err, want)
		}
	}
	never := time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)
	check("at first", never)
	add()
	now = now.Add(time.Minute)
	check("begun at 12:00", readingstest.Now().Add(time.Hour))
	for range 5 {
		now = now.Add(9 * time.Minute)
		add()
	}
	check("short pauses", readingstest.Now().Add(time.Hour))
	now = now.Add(11 * time.Minute)
	check("a pause", never)
	add()
	now = now.Add(time.Minute)
	check("begun at 12:57", readingstest.Now().Add(2*time.Hour))
}
