package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

func TestUsualIntervalFollowsTheNode(t *testing.T) {
	t.Parallel()
	db := open(t)
	at := instant()
	report := func(gaps ...time.Duration) (usual float64) {
		t.Helper()
		for _, gap := range gaps {
			at = at.Add(gap)
			r := reading.Reading{NodeID: "n", MessageID: fmt.Sprint(at, usual), Time: at}
			db.heard(t, r, r) // again changes nothing
			must.Do(t, db.pool.QueryRow(t.Context(), `SELECT coalesce(usual_interval_s, 0) FROM node_state`).Scan(&usual))
		}
		return usual
	}
	must.Equal(t, "after two readings of one time", 0.0, report(0, 0))
	must.Equal(t, "30 s later", 30.0, report(30*time.Second))
	got := report(12 * time.Hour)
	must.Hold(t, got <= 42, "after an outage %g", got)
	got = report(slices.Repeat([]time.Duration{time.Minute}, 60)...)
	must.Hold(t, got >= 55 && got <= 65, "after an hour of a reading a minute %g", got)
	got = report(slices.Repeat([]time.Duration{15 * time.Minute, time.Second, time.Second}, 120)...)
	must.Hold(t, got >= 500 && got <= 900, "of three readings each quarter of an hour %g", got)
	got = report(slices.Repeat([]time.Duration{30 * time.Second}, 100)...)
	must.Hold(t, got <= 100, "since it sends each half minute for an hour %g", got)
	db.sql(t, `UPDATE node_state SET usual_interval_s = NULL`, nil)
	must.Equal(t, "tried once, mounted two weeks later", 3600.0, report(14*24*time.Hour))
	db.sql(t, `UPDATE node_state SET usual_interval_s = NULL`, nil)
	for range 8 { // else it is silent in each quarter of its first nine hours
		got = report(time.Second, time.Second, 15*time.Minute)
		must.Hold(t, got >= 300, "of three readings at once, the first of all, %g", got)
	}
	db.sql(t, `UPDATE node_state SET usual_interval_s = NULL`, nil)
	got = report(slices.Repeat([]time.Duration{5 * time.Second}, 100)...)
	must.Hold(t, got <= 100, "of a new node that sends each five seconds %g", got)
}
