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
	"runtime"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
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
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+path, nil))(t)
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
		if _, err := decoder.Token(); err != nil || count != sent {
			t.Errorf("%s: %d readings, %v", encoding, count, err)
		}
		if most > before+4<<20 {
			t.Errorf("%s: the heap grew by %d KiB", encoding, (most-before)>>10)
		}
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
		got := a.send(t, a.token, http.MethodGet, wholeRange+test.query, "", map[string]string{"Accept": test.accept})
		kind := "application/json"
		if test.csv {
			kind = "text/csv; charset=utf-8"
			must.Equal(t, test.query+" "+test.accept, "node_id,timestamp,temperature,humidity\nnode-1,2026-01-01T00:00:00Z,20,40\n"+
				"node-1,2026-01-01T00:00:01Z,20.125,40\nnode-1,2026-01-01T00:00:02Z,20.25,40", string(got.body))
		}
		must.Equal(t, test.query+" "+test.accept, kind, got.header.Get("Content-Type"))
	}
}

// TestHistoryFails shows both ways to fail: before the first reading with a
// 500, after it with an answer that no client takes for whole. Contract 5.2.
func TestHistoryFails(t *testing.T) {
	t.Parallel()
	for _, count := range []int{0, 10, 100_000} { // at once, after a few, after a buffer
		a := newHistoryAPI(t, fakeReader{count: count, fail: errors.New("secret cause")})
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

// TestHistoryHead asks for the header alone: the table is not read for it.
func TestHistoryHead(t *testing.T) {
	t.Parallel()
	a := newHistoryAPI(t, fakeReader{fail: errors.New("the table was read")})
	got := a.call(t, a.token, http.MethodHead, wholeRange, "").is(t, 200)
	must.Equal(t, "Content-Type, body", []string{"application/json", ""}, []string{got.header.Get("Content-Type"), string(got.body)})
}

// TestLimitsAreExplained has a range that holds too much for a scan, or for the time of its operation. Contract 5.12.
func TestLimitsAreExplained(t *testing.T) {
	t.Parallel()
	scan := func(purpose readings.Purpose) error {
		return fmt.Errorf("asked: %w", &readings.LimitError{Purpose: purpose, Err: errors.New("secret cause")})
	}
	const shorter = "The range holds more readings than one request may scan; ask for a shorter one, several times"
	const preview, report = "/api/v1/rules/preview", "/api/v1/data/report/1?start_time=2026-03-01&end_time=2026-03-31"
	for _, c := range []struct {
		fails        error
		path, detail string
	}{
		{scan(readings.Export), wholeRange, shorter},
		{scan(readings.Export), preview, shorter},
		{scan(readings.Chart), wholeRange + "&max_points=10", "The range holds more readings than one chart may scan; ask for a shorter one"},
		{context.DeadlineExceeded, preview, "The preview takes too long; choose fewer days, or rules for fewer sensors"},
		{context.DeadlineExceeded, report, "The report takes too long; choose fewer sensors by limit and after, or a shorter range"},
	} {
		a, method, body := newHistoryAPI(t, fakeReader{fail: c.fails}), http.MethodGet, ""
		if c.path == preview {
			method, body = http.MethodPost, fmt.Sprintf(`{"days":92,"rules":[%s]}`, fmt.Sprintf(someRule, 30.0, ""))
		}
		a.call(t, a.token, method, c.path, body).says(t, 400, c.detail)
	}
}

// TestFractionsOfASecond reads times of every length of fraction back, by every operation that
// writes them in its own way: with six digits or without a fraction. Contract 1.1.
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
		s.call(t, a.token, http.MethodGet, path+query, "").has(t, 200, want[:length]...)
	}
	for path, at := range map[string]string{
		"/api/v1/data/latest/n1": want[4], "/api/v1/alerts/active": want[1], "/api/v1/alerts/history": want[1], "/api/v1/audit": "Z", "/api/v1/audit?format=csv": "Z",
	} {
		s.call(t, a.token, http.MethodGet, path, "").has(t, 200, at)
	}
}
