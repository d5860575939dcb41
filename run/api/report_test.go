package api

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

// What a report counts: each reading until the next, five minutes at most, and never
// what has not been yet. Contract 5.13.
func TestReportCountsMinutesOutsideRanges(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.room(t, "Hall")
	a.sensors(t, room, "quiet", "rack")
	begin := s.now().Add(-20 * time.Minute).Truncate(time.Second)
	var rows []reading.Reading
	for i, at := range []struct {
		minute      int
		temperature float64
	}{{0, 20}, {1, 28}, {2, 33}, {3, 20}, {13, 21}} {
		rows = append(rows, reading.Reading{
			NodeID: "rack", MessageID: strconv.Itoa(i), Time: begin.Add(time.Duration(at.minute) * time.Minute), Temperature: at.temperature, Humidity: 45,
		})
	}
	must.Do(t, s.readings.Append(t.Context(), rows))
	s.execute(t, `UPDATE open_holds SET held_from = '-infinity'`)
	path := func(end time.Time, more string) string {
		return fmt.Sprintf("/api/v1/data/report/%d?start_time=%s&end_time=%s%s", room, url.QueryEscape(begin.Format(time.RFC3339)), url.QueryEscape(end.Format(time.RFC3339)), more)
	}
	low, high := 20.0, 33.0
	type sensor struct {
		SensorID    string   `json:"sensor_id"`
		Reported    float64  `json:"minutes_reported"`
		Recommended float64  `json:"minutes_outside_recommended"`
		Allowable   float64  `json:"minutes_outside_allowable"`
		Lowest      *float64 `json:"min_temperature"`
		Highest     *float64 `json:"max_temperature"`
	}
	later := begin.Add(30 * 24 * time.Hour)
	for _, c := range []struct {
		name string
		path string
		want sensor
	}{
		{"until now, though it ends later", path(later, ""), sensor{"rack", 13, 2, 1, &low, &high}},
		{"by the limits of another class", path(later, "&allowable=ashrae_a2"), sensor{"rack", 13, 2, 0, &low, &high}},
		{"until the end within a reading's time", path(begin.Add(150*time.Second), ""), sensor{"rack", 2.5, 1.5, 0.5, &low, &high}},
	} {
		must.Equal(t, c.name, []sensor{{SensorID: "quiet"}, c.want}, get[[]sensor](t, a, http.MethodGet, c.path, ""))
	}
	s.call(t, a.token, "GET", path(begin.Add(32*24*time.Hour), ""), "").is(t, 400)
}

// A minute of a room counts once, however many of its sensors were outside the range in it.
func TestRoomTimeCountsMinutesOnce(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.room(t, "Hall")
	a.sensors(t, room, "rack-1", "rack-2", "quiet")
	begin := s.now().Add(-20 * time.Minute).Truncate(time.Minute)
	var rows []reading.Reading
	for node, hot := range map[string][2]int{"rack-1": {0, 4}, "rack-2": {2, 6}} { // minutes from, until
		for minute := range 10 {
			temperature := 22.0
			if minute >= hot[0] && minute < hot[1] {
				temperature = 29 + 4*float64(hot[0]/2) // rack-2 is outside A1 too
			}
			rows = append(rows, reading.Reading{
				NodeID: node, MessageID: strconv.Itoa(minute), Time: begin.Add(time.Duration(minute) * time.Minute), Temperature: temperature, Humidity: 45,
			})
		}
	}
	must.Do(t, s.readings.Append(t.Context(), rows))
	s.execute(t, `UPDATE open_holds SET held_from = '-infinity'`)
	at := func(end time.Time) string {
		return fmt.Sprintf("/api/v1/data/report/%d/time?start_time=%s&end_time=%s", room, begin.Format(time.RFC3339), end.Format(time.RFC3339))
	}
	for minutes, want := range map[time.Duration]string{
		12: `{"minutes":12,"minutes_reported":12,"minutes_outside_recommended":6,"minutes_outside_allowable":4}`,
		3:  `{"minutes":3,"minutes_reported":3,"minutes_outside_recommended":3,"minutes_outside_allowable":1}`,
	} {
		got := s.call(t, a.token, "GET", at(begin.Add(minutes*time.Minute)), "").is(t, 200)
		must.Equal(t, "the room's time", want, string(got.body))
	}
}

// TestReportOfQuantitiesThatComeApart counts a temperature until the next one, though humidity comes between.
func TestReportOfQuantitiesThatComeApart(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.room(t, "Hall")
	a.sensors(t, room, "rack")
	begin := s.now().Add(-20 * time.Minute).Truncate(time.Minute)
	var rows []reading.Reading
	for minute := range 10 {
		at, hot := begin.Add(time.Duration(minute)*time.Minute), map[bool]float64{true: 33, false: 22}[minute < 4]
		rows = append(rows,
			reading.Reading{NodeID: "rack", MessageID: fmt.Sprint("t", minute), Time: at, Temperature: hot, Humidity: reading.Missing()},
			reading.Reading{NodeID: "rack", MessageID: fmt.Sprint("h", minute), Time: at.Add(time.Second), Temperature: reading.Missing(), Humidity: 45})
	}
	must.Do(t, s.readings.Append(t.Context(), rows))
	s.execute(t, `UPDATE open_holds SET held_from = '-infinity'`)
	for path, want := range map[string]string{
		"":      `"minutes_reported":10,"minutes_outside_recommended":4,"minutes_outside_allowable":4,`,
		"/time": `"minutes_reported":10,"minutes_outside_recommended":4,"minutes_outside_allowable":4}`,
	} {
		s.call(t, a.token, "GET", fmt.Sprintf("/api/v1/data/report/%d%s?start_time=%s&end_time=%s", room, path, begin.Format(time.RFC3339), begin.Add(10*time.Minute).Format(time.RFC3339)), "").has(t, 200, want)
	}
}

// A room is read in parts that together are the whole, and who asks for too much is told what to choose. Contract 5.13.
func TestReportInParts(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	room := a.room(t, "Hall")
	s.execute(t, fmt.Sprintf(`
		INSERT INTO sensors (node_id, customer_id, room_id, name, type, signed_from)
		SELECT 'n' || i, %d, %d, 'Rack', 'T', '-infinity' FROM generate_series(1, 150) AS i`, a.id, room))
	end := s.now().UTC().Truncate(time.Hour)
	ask := func(days int, more string) reply {
		return s.call(t, a.token, "GET", fmt.Sprintf("/api/v1/data/report/%d?start_time=%s&end_time=%s%s", room,
			end.AddDate(0, 0, -days).Format(time.RFC3339), end.Format(time.RFC3339), more), "")
	}
	ids := func(got reply) (ids []string) {
		t.Helper()
		for _, sensor := range into[[]struct {
			SensorID string `json:"sensor_id"`
		}](t, got) {
			ids = append(ids, sensor.SensorID)
		}
		return ids
	}
	whole := ids(ask(20, ""))
	must.Equal(t, "20 days of the room, in order", []any{150, true}, []any{len(whole), slices.IsSorted(whole)})
	part := ask(31, "&limit=70")
	parts := ids(part)
	for next := part.next(t); next != ""; next = part.next(t) {
		part = s.call(t, a.token, "GET", next, "")
		parts = append(parts, ids(part)...)
	}
	must.Equal(t, "parts of 31 days", whole, parts)
	ask(31, "").says(t, 400, "At most 100 sensors can be read of this range at once; choose fewer by limit and after, or a shorter range")
	ask(31, "&limit=0").says(t, 400, "limit: expected number >= 1")
}
