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

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// endless is a table of so many readings, made as they are asked for.
type endless struct {
	readings.Reader

	count int
	fail  error // after the last
}

func (e endless) Range(_ context.Context, node readings.NodeRef, start, _ time.Time) iter.Seq2[reading.Reading, error] {
	return func(yield func(reading.Reading, error) bool) {
		for i := range e.count {
			r := reading.Reading{NodeID: node.ID, Time: start.Add(time.Duration(i) * time.Second), Temperature: 20 + float64(i%100)/8, Humidity: 40}
			if !yield(r, nil) {
				return
			}
		}
		if e.fail != nil {
			yield(reading.Reading{}, e.fail)
		}
	}
}

const wholeRange = "/api/v1/data/historical/node-1?start_time=2026-01-01&end_time=2027-01-01"

func newHistoryAPI(t *testing.T, table endless) *testCustomer {
	t.Helper()
	s := newTestAPI(t, func(d *Config) { d.Readings = table })
	a := s.customer(t)
	room := a.create(t, "/api/v1/server_rooms/new_room", `{"name":"Hall"}`)
	a.create(t, "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":"node-1","name":"Rack","type":"DHT22","room_id":%d}`, room))
	return a
}

// get sends a request whose answer the caller reads as it comes.
func (a *testCustomer) get(t *testing.T, path string, header map[string]string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response, err := a.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// TestHistoryStreams reads a million readings and watches the heap meanwhile.
func TestHistoryStreams(t *testing.T) { //nolint:paralleltest // measures the memory of the process
	const million = 1_000_000
	a := newHistoryAPI(t, endless{count: million})
	for _, encoding := range []string{"identity", "gzip"} {
		heap := func() uint64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := heap()
		response := a.get(t, wholeRange, map[string]string{"Accept-Encoding": encoding}) //nolint:bodyclose // get closes it
		var body io.Reader = response.Body
		if encoding == "gzip" {
			unpacked, err := gzip.NewReader(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			body = unpacked
		}
		decoder := json.NewDecoder(body)
		if _, err := decoder.Token(); err != nil {
			t.Fatal(err)
		}
		count, most := 0, uint64(0)
		for decoder.More() {
			var r struct{ Temperature float64 }
			if err := decoder.Decode(&r); err != nil {
				t.Fatal(err)
			}
			if count%100_000 == 50_000 {
				most = max(most, heap())
			}
			count++
		}
		if _, err := decoder.Token(); err != nil || count != million {
			t.Errorf("%s: %d readings, %v", encoding, count, err)
		}
		const allowed = 4 << 20
		if most > before+allowed {
			t.Errorf("%s: the heap grew by %d KiB", encoding, (most-before)>>10)
		}
	}
}

// TestHistoryCSV shows contract 5.4.
func TestHistoryCSV(t *testing.T) {
	t.Parallel()
	a := newHistoryAPI(t, endless{count: 3})
	for name, test := range map[string]struct {
		path   string
		header map[string]string
		csv    bool
	}{
		"by format":               {wholeRange + "&format=csv", nil, true},
		"by Accept":               {wholeRange, map[string]string{"Accept": "text/csv"}, true},
		"by the heavier Accept":   {wholeRange, map[string]string{"Accept": "application/json;q=0.5, text/csv"}, true},
		"any":                     {wholeRange, map[string]string{"Accept": "*/*"}, false},
		"JSON by format":          {wholeRange + "&format=json", map[string]string{"Accept": "text/csv"}, false},
		"JSON by the heavier one": {wholeRange, map[string]string{"Accept": "application/json, text/csv;q=0.5"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := a.get(t, test.path, test.header) //nolint:bodyclose // get closes it
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			if !test.csv {
				if response.Header.Get("Content-Type") != "application/json" || !json.Valid(body) {
					t.Errorf("%s %s", response.Header.Get("Content-Type"), body)
				}
				return
			}
			want := "node_id,timestamp,temperature,humidity\n" +
				"node-1,2026-01-01T00:00:00Z,20,40\nnode-1,2026-01-01T00:00:01Z,20.125,40\nnode-1,2026-01-01T00:00:02Z,20.25,40\n"
			if string(body) != want || response.Header.Get("Content-Type") != "text/csv; charset=utf-8" {
				t.Errorf("%s\n%s", response.Header.Get("Content-Type"), body)
			}
		})
	}
}

// TestHistoryFails shows both ways to fail: before the first reading with a
// 500, after it with an answer that no client takes for whole. Contract 5.5.
func TestHistoryFails(t *testing.T) {
	t.Parallel()
	for name, count := range map[string]int{"at once": 0, "after a few": 10, "after a buffer": 100_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newHistoryAPI(t, endless{count: count, fail: errors.New("secret cause")})
			for _, encoding := range []string{"identity", "gzip"} {
				response := a.get(t, wholeRange, map[string]string{"Accept-Encoding": encoding}) //nolint:bodyclose // get closes it
				body, err := io.ReadAll(response.Body)
				if count < 1000 {
					if response.StatusCode != 500 || string(body) != `{"detail":"Internal server error"}` {
						t.Errorf("%s: %d %s", encoding, response.StatusCode, body)
					}
				} else if err == nil {
					t.Errorf("%s: half of the readings look whole, %d bytes", encoding, len(body))
				}
			}
		})
	}
}

// TestHistoryHead asks for the header alone: the table is not read for it.
func TestHistoryHead(t *testing.T) {
	t.Parallel()
	a := newHistoryAPI(t, endless{fail: errors.New("the table was read")})
	got := a.call(t, a.token, http.MethodHead, wholeRange, "")
	if got.status != 200 || got.header.Get("Content-Type") != "application/json" || len(got.body) > 0 {
		t.Errorf("%d %v %s", got.status, got.header, got.body)
	}
}

// limited is a table of which every question would scan too much.
type limited struct{ readings.Reader }

func (limited) Range(context.Context, readings.NodeRef, time.Time, time.Time) iter.Seq2[reading.Reading, error] {
	return func(yield func(reading.Reading, error) bool) {
		yield(reading.Reading{}, fmt.Errorf("asked: %w", &readings.LimitError{Purpose: readings.Export, Err: errors.New("secret cause")}))
	}
}

func (limited) Ranges(ctx context.Context, _ []readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	return limited{}.Range(ctx, readings.NodeRef{}, start, end)
}

func (limited) Buckets(context.Context, readings.NodeRef, time.Time, time.Time, int) ([]readings.Bucket, error) {
	return nil, &readings.LimitError{Purpose: readings.Chart, Err: errors.New("secret cause")}
}

func (limited) Stats(context.Context, readings.NodeRef, time.Time, []time.Time) ([]readings.Stats, error) {
	return nil, &readings.LimitError{Purpose: readings.Page, Err: errors.New("secret cause")}
}

// TestLimitsOfScansAreExplained shows contract 5.11.
func TestLimitsOfScansAreExplained(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t, func(d *Config) { d.Readings = limited{} })
	a := s.customer(t)
	room := a.create(t, "/api/v1/server_rooms/new_room", `{"name":"Hall"}`)
	a.create(t, "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":"node-1","name":"Rack","type":"DHT22","room_id":%d}`, room))
	shorter := `{"detail":"The range holds more readings than one request may scan; ask for a shorter one, several times"}`
	preview := `{"days":30,"rules":[{"name":"Hot","quantity":"temperature","direction":"above","limit":30,"for_s":60,"clear_for_s":60,"clear_margin":1,"enabled":true,"severity":"warning"}]}`
	for name, want := range map[string]struct {
		method, path, body string
		status             int
		answer             string
	}{
		"export":  {http.MethodGet, wholeRange, "", 400, shorter},
		"preview": {http.MethodPost, "/api/v1/rules/preview", preview, 400, shorter},
		"chart": {
			http.MethodGet, wholeRange + "&max_points=10", "", 400,
			`{"detail":"The range holds more readings than one chart may scan; ask for a shorter one"}`,
		},
		"page": {
			http.MethodGet, "/api/v1/data/stats/node-1", "", 503,
			`{"detail":"There are more readings than this question may scan; the operator can allow more by BIGQUERY_MAX_BYTES_PAGE"}`,
		},
	} {
		if got := a.call(t, a.token, want.method, want.path, want.body); got.status != want.status || string(got.body) != want.answer {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
}
