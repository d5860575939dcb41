package api

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	bq "google.golang.org/api/bigquery/v2"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/fairqueue"
	"coldaisle.dev/shared/learn"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/tooltest"
)

// fakeReader is a table of so many readings, made as they are asked for.
type fakeReader struct {
	readings.Reader

	count int
	fail  error // after the last
}

func (f fakeReader) Range(_ context.Context, node readings.NodeRef, start, _ time.Time) iter.Seq2[reading.Reading, error] {
	return func(yield func(reading.Reading, error) bool) {
		for i := range f.count {
			r := reading.Reading{NodeID: node.ID, Time: start.Add(time.Duration(i) * time.Second), Temperature: 20 + float64(i%100)/8, Humidity: 40}
			if !yield(r, nil) {
				return
			}
		}
		if f.fail != nil {
			yield(reading.Reading{}, f.fail)
		}
	}
}

func (f fakeReader) Ranges(ctx context.Context, nodes []readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	return f.Range(ctx, nodes[0], start, end)
}

func (f fakeReader) Buckets(context.Context, readings.NodeRef, time.Time, time.Time, int) ([]readings.Bucket, error) {
	return nil, f.fail
}

const wholeRange = "/api/v1/data/historical/node-1?start_time=2026-01-01&end_time=2027-01-01"

func newHistoryAPI(t *testing.T, table fakeReader) *testCustomer {
	t.Helper()
	_, a := newTestCustomer(t, func(d *Config) { d.Readings = table })
	a.heldSensor(t, "node-1")
	return a
}

// get sends a request whose answer the caller reads as it comes.
func (a *testCustomer) get(t *testing.T, path, encoding string) *http.Response {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), "GET", a.url+path, nil))(t)
	request.Header.Set("Authorization", "Bearer "+a.token)
	request.Header.Set("Accept-Encoding", encoding)
	response := must.Get(a.client.Do(request))(t)
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// TestHistoryStreams reads many readings and watches the heap meanwhile: 20 MB of JSON, at night five times as much.
func TestHistoryStreams(t *testing.T) { //nolint:paralleltest // measures the memory of the process
	tooltest.Long(t)
	sent := 200_000
	if tooltest.Nightly() {
		sent = 1_000_000
	}
	a := newHistoryAPI(t, fakeReader{count: sent})
	for _, encoding := range []string{"identity", "gzip"} {
		heap := func() uint64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := heap()
		response := a.get(t, wholeRange, encoding) //nolint:bodyclose // get closes it
		var body io.Reader = response.Body
		if encoding == "gzip" {
			body = must.Get(gzip.NewReader(response.Body))(t)
		}
		decoder := json.NewDecoder(body)
		must.Get(decoder.Token())(t)
		count, most := 0, uint64(0)
		for decoder.More() {
			var r struct{ Temperature float64 }
			must.Do(t, decoder.Decode(&r))
			if count%50_000 == 25_000 {
				most = max(most, heap())
			}
			count++
		}
		must.Get(decoder.Token())(t)
		must.Equal(t, encoding+": readings", sent, count)
		must.Equal(t, fmt.Sprintf("%s: the heap grew from %d to %d, 4 MiB at most", encoding, before, most), true,
			most <= before+4<<20)
	}
}

// TestHistoryCSV shows contract 5.4.
func TestHistoryCSV(t *testing.T) {
	t.Parallel()
	a := newHistoryAPI(t, fakeReader{count: 3})
	for _, test := range []struct {
		query, accept string
		csv           bool
	}{
		{"&format=csv", "*/*", true},
		{"", "text/csv", true},
		{"", "application/json;q=0.5, text/csv", true},
		{"", "*/*", false},
		{"&format=json", "text/csv", false},
		{"", "application/json, text/csv;q=0.5", false},
	} {
		got := a.send(t, a.token, "GET", wholeRange+test.query, "", map[string]string{"Accept": test.accept})
		kind := "application/json"
		if test.csv {
			kind = "text/csv; charset=utf-8"
			must.Equal(t, test.query+" "+test.accept, "node_id,timestamp,temperature,humidity\nnode-1,2026-01-01T00:00:00Z,20,40\n"+
				"node-1,2026-01-01T00:00:01Z,20.125,40\nnode-1,2026-01-01T00:00:02Z,20.25,40", string(got.body))
		}
		must.Equal(t, test.query+" "+test.accept, kind, got.header.Get("Content-Type"))
	}
}

// TestHistoryFails has HEAD read nothing, a failure at once be 500, and a later one look broken. Contract 5.2.
func TestHistoryFails(t *testing.T) {
	t.Parallel()
	for _, count := range []int{0, 10, 100_000} { // at once, after a few, after a buffer
		a := newHistoryAPI(t, fakeReader{count: count, fail: errors.New("secret cause")})
		head := a.call(t, a.token, "HEAD", wholeRange, "").is(t, 200)
		must.Equal(t, "HEAD", []string{"application/json", ""}, []string{head.header.Get("Content-Type"), string(head.body)})
		for _, encoding := range []string{"identity", "gzip"} {
			response := a.get(t, wholeRange, encoding) //nolint:bodyclose // get closes it
			body, err := io.ReadAll(response.Body)
			if count < 1000 {
				must.Equal(t, encoding, `500 {"detail":"Internal server error"}`, fmt.Sprintf("%d %s", response.StatusCode, body))
			} else if err == nil {
				t.Errorf("%s: half of the readings look whole, %d bytes", encoding, len(body))
			}
		}
	}
}

// TestLimitsAreExplained has a range that holds too much for a scan, or for the time of its operation, or that gets no turn. Contract 5.12.
func TestLimitsAreExplained(t *testing.T) {
	t.Parallel()
	scan := func(purpose readings.Purpose) error {
		return fmt.Errorf("asked: %w", &readings.LimitError{Purpose: purpose, Err: errors.New("secret cause")})
	}
	const shorter = "The range holds more readings than one request may scan; ask for a shorter one, several times"
	const busy = "Too many requests at once; try again in a moment"
	const preview, report = "/api/v1/rules/preview", "/api/v1/data/report/1?start_time=2026-03-01&end_time=2026-03-31"
	for _, c := range []struct {
		fails  error
		path   string
		status int
		detail string
	}{
		{scan(readings.Export), wholeRange, 400, shorter},
		{scan(readings.Export), preview, 400, shorter},
		{scan(readings.Chart), wholeRange + "&max_points=10", 400, "The range holds more readings than one chart may scan; ask for a shorter one"},
		{fmt.Errorf("asked: %w: %w", fairqueue.ErrNoSlot, context.DeadlineExceeded), preview, 503, busy},
		{fmt.Errorf("asked: %w: %w", fairqueue.ErrNoSlot, context.DeadlineExceeded), report, 503, busy},
		{fmt.Errorf("asked: %w: %w", fairqueue.ErrNoSlot, context.DeadlineExceeded), wholeRange, 503, busy},
		{context.DeadlineExceeded, preview, 503, "The preview takes too long; choose fewer days, or rules for fewer sensors"},
		{context.DeadlineExceeded, report, 400, "The report takes too long; choose fewer sensors by limit and after, or a shorter range"},
	} {
		a, method, body := newHistoryAPI(t, fakeReader{fail: c.fails}), "GET", ""
		if c.path == preview {
			method, body = "POST", fmt.Sprintf(`{"days":92,"rules":[%s]}`, fmt.Sprintf(someRule, 30.0, ""))
		}
		a.call(t, a.token, method, c.path, body).says(t, c.status, c.detail)
	}
}

// TestFractionsOfASecond reads times back by every operation that writes them its own way. Contract 1.1.
func TestFractionsOfASecond(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	a.heldSensor(t, "n1")
	begin := s.now().Add(-time.Hour).Truncate(time.Second)
	for i, fraction := range []time.Duration{0, 250 * time.Millisecond, 123_400 * time.Microsecond, 123_450 * time.Microsecond, time.Microsecond} {
		at := begin.Add(time.Duration(i)*time.Second + fraction)
		r := reading.Reading{NodeID: "n1", MessageID: fmt.Sprint("m", i), Time: at, Temperature: 20, Humidity: 40}
		must.Do(t, errors.Join(s.store.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: r}}), s.readings.Append(t.Context(), []reading.Reading{r})))
		s.holdsBefore(t, "n1")
		if i == 1 {
			s.alert(t, "n1", at, 60)
		}
	}
	format := begin.UTC().Format
	want := []string{format("2006-01-02T15:04:05Z")}
	for i, fraction := range []string{"250000", "123400", "123450", "000001"} {
		want = append(want, begin.UTC().Add(time.Duration(i+1)*time.Second).Format("2006-01-02T15:04:05.")+fraction+"Z")
	}
	path := "/api/v1/data/historical/n1?start_time=" + format("2006-01-02T15:04:05Z") + "&end_time=" + begin.Add(time.Minute).UTC().Format("2006-01-02T15:04:05Z")
	for query, length := range map[string]int{"": 5, "&format=csv": 5, "&max_points=1": 1, "&max_points=1&format=csv": 1} {
		s.call(t, a.token, "GET", path+query, "").has(t, 200, want[:length]...)
	}
	for path, at := range map[string]string{
		"/api/v1/data/latest/n1": want[4], "/api/v1/alerts/active": want[1], "/api/v1/alerts/history": want[1], "/api/v1/audit": "Z", "/api/v1/audit?format=csv": "Z",
	} {
		s.call(t, a.token, "GET", path, "").has(t, 200, at)
	}
}

// newReportedRoom returns a room with sensors, and a minute from which on they have sent.
func newReportedRoom(t *testing.T, sensors ...string) (s *testAPI, a *testCustomer, room int64, begin time.Time) {
	t.Helper()
	s, a = newTestCustomer(t)
	room = a.room(t, "Hall")
	a.sensors(t, room, sensors...)
	return s, a, room, s.now().Add(-20 * time.Minute).Truncate(time.Minute)
}

// past stores readings from before their sensors were known, as their customer's.
func (s *testAPI) past(t *testing.T, rows []reading.Reading) {
	t.Helper()
	must.Do(t, s.readings.Append(t.Context(), rows))
	s.execute(t, `UPDATE open_holds SET held_from = '-infinity'`)
}

// What a report counts: a reading until the next, while its node is not silent, and not what has not been yet. Contract 5.13.
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
	s.past(t, rows)
	from := func(begin, end time.Time, more string) string {
		return fmt.Sprintf("/api/v1/data/report/%d?start_time=%s&end_time=%s%s", room, url.QueryEscape(begin.Format(time.RFC3339)), url.QueryEscape(end.Format(time.RFC3339)), more)
	}
	path := func(end time.Time, more string) string { return from(begin, end, more) }
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
		name, path string
		want       sensor
	}{
		{"until now, though it ends later", path(later, ""), sensor{"rack", 13, 2, 1, &low, &high}},
		{"by the limits of another class", path(later, "&allowable=ashrae_a2"), sensor{"rack", 13, 2, 0, &low, &high}},
		{"until the end within a reading's time", path(begin.Add(150*time.Second), ""), sensor{"rack", 2.5, 1.5, 0.5, &low, &high}},
		{"from the begin within a reading's time", from(begin.Add(150*time.Second), begin.Add(6*time.Minute), ""), sensor{"rack", 3.5, 0.5, 0.5, &low, &low}},
	} {
		must.Equal(t, c.name, []sensor{{SensorID: "quiet"}, c.want}, get[[]sensor](t, a, "GET", c.path, ""))
	}
	s.call(t, a.token, "GET", path(begin.Add(32*24*time.Hour), ""), "").is(t, 400)
}

// A sensor that sends three readings at once each quarter of an hour has all of its time covered.
func TestReportOfASlowSensor(t *testing.T) {
	t.Parallel()
	s, a, room, end := newReportedRoom(t, "rack")
	var rows []reading.Reading
	for i := range 36 {
		at := end.Add(time.Duration(i%3)*time.Second - time.Duration(15*(i/3+1))*time.Minute)
		rows = append(rows, reading.Reading{NodeID: "rack", MessageID: strconv.Itoa(i), Time: at, Temperature: 28, Humidity: 45})
	}
	s.past(t, rows)
	path := fmt.Sprintf("/api/v1/data/report/%d?start_time=%s&end_time=%s", room, end.Add(-119*time.Minute).Format(time.RFC3339), end.Format(time.RFC3339))
	s.call(t, a.token, "GET", path, "").has(t, 200, `"minutes_reported":119,"minutes_outside_recommended":119,`)
}

// A minute of a room counts once, however many of its sensors were outside the range in it.
func TestRoomTimeCountsMinutesOnce(t *testing.T) {
	t.Parallel()
	s, a, room, begin := newReportedRoom(t, "rack-1", "rack-2", "quiet")
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
	s.past(t, rows)
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

// A sensor whose gateway was enrolled within the range has no more minutes than have been.
func TestReportOfTwoChannels(t *testing.T) {
	t.Parallel()
	s, a, room, begin := newReportedRoom(t, "rack")
	var rows []reading.Reading
	for minute := range 8 {
		rows = append(rows, reading.Reading{
			NodeID: "rack", MessageID: strconv.Itoa(minute), Time: begin.Add(time.Duration(minute) * time.Minute), Temperature: 28, Humidity: 45,
			Channel: map[bool]reading.Channel{true: reading.Channel(a.id)}[minute >= 5],
		})
	}
	s.past(t, rows)
	for minutes, want := range map[time.Duration]string{
		5: `"minutes_reported":5,"minutes_outside_recommended":5,`, 8: `"minutes_reported":8,"minutes_outside_recommended":8,`,
	} {
		s.call(t, a.token, "GET", fmt.Sprintf("/api/v1/data/report/%d?start_time=%s&end_time=%s", room,
			begin.Format(time.RFC3339), begin.Add(minutes*time.Minute).Format(time.RFC3339)), "").has(t, 200, want)
	}
}

// TestReportOfQuantitiesThatComeApart counts a temperature until the next one, though humidity comes between.
func TestReportOfQuantitiesThatComeApart(t *testing.T) {
	t.Parallel()
	s, a, room, begin := newReportedRoom(t, "rack")
	var rows []reading.Reading
	for minute := range 10 {
		at, hot := begin.Add(time.Duration(minute)*time.Minute), map[bool]float64{true: 33, false: 22}[minute < 4]
		rows = append(rows,
			reading.Reading{NodeID: "rack", MessageID: fmt.Sprint("t", minute), Time: at, Temperature: hot, Humidity: reading.Missing()},
			reading.Reading{NodeID: "rack", MessageID: fmt.Sprint("h", minute), Time: at.Add(time.Second), Temperature: reading.Missing(), Humidity: 45})
	}
	s.past(t, rows)
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

// calm are models by whose calibration nothing ever changes.
type calm struct{}

func (calm) Wait(context.Context, int64) modelstore.Pair {
	past := []anomaly.NodeHours{{Node: "rack"}}
	for hour := range anomaly.Hours {
		past[0].Hours, past[0].At = append(past[0].Hours, anomaly.Hour{}), append(past[0].At, uint8(hour%24)) //nolint:gosec // of a day
	}
	return modelstore.Pair{Calibration: anomaly.Calibrate(past)}
}

// TestUsualBand has each hour's be around the hours before, by the customer's own calibration, if any. Contract 5.14.
func TestUsualBand(t *testing.T) {
	t.Parallel()
	shipped := newTestAPI(t)
	own := newTestAPI(t, func(c *Config) { c.Models = calm{} })
	width := map[*testAPI]float64{}
	for _, s := range []*testAPI{shipped, own} {
		a := s.customer(t)
		a.heldSensor(t, "rack")
		s.execute(t, `UPDATE open_holds SET held_from = '-infinity'`)
		now := s.now().Truncate(time.Hour)
		var rows []reading.Reading
		add := func(from, until int, temperature float64) { // hours before now
			for at := now.Add(time.Duration(-from) * time.Hour); at.Before(now.Add(time.Duration(-until) * time.Hour)); at = at.Add(10 * time.Minute) {
				rows = append(rows, reading.Reading{NodeID: "rack", MessageID: at.Format(time.RFC3339), Time: at, Temperature: temperature, Humidity: 45})
			}
		}
		add(80*24, 70*24, 22) // before the calibration's past
		add(100, 50, 22)
		add(20, 10, 22) // after a day of silence
		add(10, 0, 26)
		must.Do(t, s.readings.Append(t.Context(), rows))
		ask := func(from, until time.Time) []usualBand {
			t.Helper()
			path := fmt.Sprintf("/api/v1/data/usual/rack?start_time=%s&end_time=%s", url.QueryEscape(from.Format(time.RFC3339)), url.QueryEscape(until.Format(time.RFC3339)))
			got := s.call(t, a.token, "GET", path, "")
			bands := into[[]usualBand](t, got)
			a.unless(t, path, got.header.Get("ETag")).is(t, 304)
			return bands
		}
		must.Equal(t, "bands of a past that no calibration knows", 0, len(ask(now.Add(-79*24*time.Hour), now.Add(-71*24*time.Hour))))
		bands := map[int]usualBand{} // by hours before now
		for _, band := range ask(now.Add(-200*time.Hour), now.Add(time.Hour)) {
			bands[int(now.Sub(band.Timestamp).Hours())] = band
		}
		for ago, known := range map[int]bool{150: false, 100: false, 99: true, 60: true, 50: true, 40: false, 25: false, 20: false, 19: true, 8: true, 1: true} {
			_, ok := bands[ago]
			must.Equal(t, fmt.Sprint("known hours ago: ", ago), known, ok)
		}
		for ago, around := range map[int][2]float64{60: {22, 22}, 8: {22, 26}, 1: {26, 22}} { // the hour before, and the middle of the day
			b := bands[ago]
			low, high := min(around[0], around[1])-b.TemperatureLow, b.TemperatureHigh-max(around[0], around[1])
			must.Equal(t, fmt.Sprintf("%d hours ago: %+v, as far below as above", ago, b), true,
				low > 0 && max(low-high, high-low) <= 0.011)
			width[s] = low
		}
		// A part of the range says the same of its hours, and half an hour is its hour.
		must.Equal(t, "the last hour", []usualBand{bands[1]}, ask(now.Add(-30*time.Minute), now))
	}
	says := fmt.Sprintf("±%g °C by a calibration of a node that never changes, ±%g by the shipped one", width[own], width[shipped])
	must.Equal(t, says, true, width[own] < width[shipped]/2)
}

type usualBand struct {
	Timestamp       time.Time `json:"timestamp"`
	TemperatureLow  float64   `json:"temperature_low"`
	TemperatureHigh float64   `json:"temperature_high"`
	DewPointLow     float64   `json:"dew_point_low"`
	DewPointHigh    float64   `json:"dew_point_high"`
}

// persistence is a model that expects no change.
type persistence struct{}

func (persistence) Wait(context.Context, int64) modelstore.Pair {
	return modelstore.Pair{Forecaster: &learn.Forecaster{Info: learn.Info{Name: "persistence"}}}
}

// TestPollsAskNothingOfBigQuery polls as ten open dashboards do, for sensors in every state. Contract 5.8.
func TestPollsAskNothingOfBigQuery(t *testing.T) {
	t.Parallel()
	const dashboards, polls = 10, 4
	server := bqtest.NewQueryServer(t, func(request *bq.QueryRequest) bqtest.Answer {
		t.Errorf("BigQuery was asked %s", request.Query)
		return bqtest.Answer{Status: http.StatusBadRequest, Reason: "invalidQuery"}
	})
	archive := must.Get(bqreadings.Open(context.WithoutCancel(t.Context()), "project", bqreadings.Config{
		Dataset: "sensor_data", Table: "readings", MaxBytes: bqreadings.MaxBytes{Chart: 1 << 30, Export: 1 << 30, Training: 1 << 30}, AppendTimeout: time.Second,
		Emulator: server.URL, StorageEmulator: "127.0.0.1:1",
	}, logging.Discard()))(t)
	t.Cleanup(func() { _ = archive.Close() })
	pool := pgtest.New(t)
	table := pgreadings.New(store.New(pool), nil, time.Now)
	s := newTestAPI(t, func(c *Config) {
		c.Readings = pgreadings.New(store.New(pool), archive, time.Now)
		c.Models = persistence{}
	})
	a := s.customer(t)
	a.enrolled(t, "Basement") // so that there are two channels to look in
	room := a.room(t, "Hall")
	all := []string{"reports", "silent", "never", "deleted", "again", "new"}
	a.sensors(t, room, all...)
	at := time.Now().Truncate(time.Second)
	report := func(id string, channel int64, after time.Duration, temperature float64) {
		t.Helper()
		r := reading.Reading{
			Channel: reading.Channel(channel), NodeID: id, MessageID: fmt.Sprint(after), Time: at.Add(after), Temperature: temperature, Humidity: 40,
		}
		must.Do(t, s.store.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: r}}))
		must.Do(t, table.Append(t.Context(), []reading.Reading{r})) // as ingest does, without the archive
	}
	for i := range 60 {
		report("reports", a.id, time.Duration(i-60)*30*time.Second, 20)
	}
	report("reports", a.id, time.Second, 20)
	report("reports", 0, 0, 90) // older
	s.holdsBefore(t, "silent")
	report("silent", 0, -40*24*time.Hour, 17.5)
	for _, id := range []string{"deleted", "again"} {
		s.call(t, a.token, "DELETE", "/api/v1/sensors/delete_sensor/"+id, "").is(t, 204)
	}
	a.sensors(t, room, "again")

	named := must.Get(json.Marshal(map[string][]string{"node_ids": all}))(t)
	today := fmt.Sprintf("?max_points=720&start_time=%s&end_time=%s", at.Add(-24*time.Hour).UTC().Format(time.RFC3339), at.UTC().Format(time.RFC3339))
	poll := func(reports string, ids ...string) {
		t.Helper()
		found := get[map[string]struct{ Temperature float64 }](t, a, "POST", "/api/v1/data/multi-sensor", string(named))
		must.Equal(t, "multi-sensor", "map[reports:{"+reports+"} silent:{17.5}]", fmt.Sprint(found))
		body, _ := a.overview(t, "")
		must.Equal(t, "sensors in the overview", len(all)-1, len(body.Sensors))
		for _, id := range ids {
			for path, has := range map[string]bool{
				"/api/v1/data/latest/" + id:             id == "reports" || id == "silent",
				"/api/v1/ml/forecast/" + id:             id == "reports", // of what is silent there is none
				"/api/v1/data/historical/" + id + today: id != "deleted",
			} {
				s.call(t, a.token, "GET", path, "").is(t, map[bool]int{true: 200, false: 404}[has])
			}
		}
	}
	var first sync.WaitGroup
	for range dashboards {
		first.Go(func() { poll("20", all...) })
	}
	first.Wait()
	for i := range polls - 1 {
		report("reports", a.id, time.Duration(i+2)*time.Second, 21)
		for d := range dashboards {
			poll("21", all[(i+d)%len(all)])
		}
	}
}

// TestForecastFollowsTheLastReading has one in the state that is not stored: steps are dated from it. Contract 7.11.
func TestForecastFollowsTheLastReading(t *testing.T) {
	t.Parallel()
	table := pgreadings.New(store.New(pgtest.New(t)), nil, time.Now)
	s, a := newTestCustomer(t, func(c *Config) { c.Readings, c.Models = table, persistence{} })
	a.sensors(t, a.room(t, "Hall"), "n1")
	s.holdsBefore(t, "n1")
	newest := time.Now().Truncate(time.Second)
	var stored []reading.Reading
	for i := range 61 {
		r := reading.Reading{NodeID: "n1", MessageID: strconv.Itoa(i), Time: newest.Add(time.Duration(i-60) * 30 * time.Second), Temperature: 20, Humidity: 40}
		must.Do(t, s.store.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: r}}))
		stored = append(stored, r)
	}
	must.Do(t, table.Append(t.Context(), stored[:60]))
	type step struct {
		AheadS                float64 `json:"ahead_s"`
		Timestamp             time.Time
		Temperature, Humidity float64
	}
	got := get[struct {
		LastReading struct{ Timestamp time.Time } `json:"last_reading"`
		Forecast    []step
	}](t, a, "GET", "/api/v1/ml/forecast/n1", "")
	must.Equal(t, "last reading", newest.UTC(), got.LastReading.Timestamp.UTC())
	var want []step
	for _, ahead := range []float64{5, 10, 15, 20} {
		want = append(want, step{ahead, newest.Add(time.Duration(ahead) * time.Second).UTC(), 20, 40})
	}
	must.Equal(t, "forecast", want, got.Forecast)
}
