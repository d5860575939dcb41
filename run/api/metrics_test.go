package api

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/logging"
)

// scraped is the Accept of Prometheus 2.42, which Debian has.
const scraped = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"

// debian returns the path of a program of a Debian package. CI has it installed.
func debian(tb testing.TB, program, from string) string {
	tb.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		if os.Getenv("CI") == "true" {
			tb.Fatal(err)
		}
		tb.Skipf("%s is not installed (apt-get install %s)", program, from)
	}
	return path
}

// metrics scrapes as Prometheus does, or as accept says.
func (s *testAPI) metrics(tb testing.TB, key, accept string) (kind, text string) {
	tb.Helper()
	request, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, s.url+"/api/v1/metrics", nil)
	if err != nil {
		tb.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Accept", accept)
	got := s.do(tb, request)
	if got.status != 200 {
		tb.Fatalf("%d %s", got.status, got.body)
	}
	return got.header.Get("Content-Type"), string(got.body)
}

// TestMetrics reads the metrics of two rooms as Prometheus does and as curl does, and has
// promtool judge them. Contract 12.8.
func TestMetrics(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	s := newTestAPI(t, func(c *Config) { c.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) } })
	a := s.customer(t)
	hall := a.create(t, "/api/v1/server_rooms/new_room", `{"name":"Hall \"A\\B\""}`)
	lab := a.create(t, "/api/v1/server_rooms/new_room", `{"name":"Lab"}`)
	for id, room := range map[string]int64{"hall-1": hall, "hall-2": hall, "lab-1": lab} {
		a.create(t, "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":%q,"name":"Rack","type":"T","room_id":%d}`, id, room))
	}
	now := s.now()
	s.reading(t, "hall-1", now, 55.5, 40)
	s.judge(t, "hall-1", now, 55.5)
	s.reading(t, "lab-1", now, 20, 50)
	all, limited := a.key(t, `"scope":"read"`), a.key(t, fmt.Sprintf(`"scope":"read","room_ids":[%d]`, lab))
	const room = `room="Hall \"A\\B\""`

	kind, text := s.metrics(t, all.text, scraped)
	if !strings.HasPrefix(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8") || !strings.HasSuffix(text, "\n# EOF") {
		t.Errorf("%s, ends in %q", kind, text[max(0, len(text)-10):])
	}
	for _, want := range []string{
		"# TYPE coldaisle_temperature_celsius gauge\n",
		`coldaisle_temperature_celsius{node_id="hall-1",sensor="Rack",` + room + `,gateway=""} 55.5` + "\n",
		`coldaisle_relative_humidity_ratio{node_id="lab-1",sensor="Rack",room="Lab",gateway=""} 0.5` + "\n",
		`coldaisle_dew_point_celsius{node_id="lab-1",sensor="Rack",room="Lab",gateway=""} 9.25`,
		`coldaisle_last_reading_timestamp_seconds{node_id="lab-1",sensor="Rack",room="Lab",gateway=""} ` +
			strconv.FormatFloat(float64(now.UnixMilli())/1000, 'g', -1, 64) + "\n",
		`coldaisle_sensor_up{node_id="lab-1",sensor="Rack",room="Lab",gateway=""} 1.0` + "\n",
		`coldaisle_sensor_up{node_id="hall-2",sensor="Rack",` + room + `,gateway=""} 0.0` + "\n",
		`coldaisle_incidents{kind="threshold",severity="critical",` + room + `} 1.0` + "\n",
		"coldaisle_probe_lateness_seconds 0.0\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in\n%s", want, text)
		}
	}

	// As curl asks.
	kind, text = s.metrics(t, all.text, "*/*")
	if !strings.HasPrefix(kind, "text/plain; version=0.0.4") || strings.Contains(text, "EOF") {
		t.Errorf("%s: %s", kind, text)
	}
	judge := exec.CommandContext(t.Context(), debian(t, "promtool", "prometheus"), "check", "metrics")
	judge.Stdin = strings.NewReader(text + "\n") // which a reply has lost
	if said, err := judge.CombinedOutput(); err != nil || len(bytes.TrimSpace(said)) > 0 {
		t.Errorf("promtool: %v: %s", err, said)
	}

	// A key for a room.
	if _, text = s.metrics(t, limited.text, scraped); strings.Contains(text, "hall") || strings.Contains(text, "Hall") || !strings.Contains(text, "lab-1") {
		t.Errorf("a key for the lab is told %s", text)
	}

	// Later nothing has come: the values of silent sensors are gone.
	ahead.Store(int64(time.Hour))
	_, text = s.metrics(t, all.text, scraped)
	if strings.Contains(text, "coldaisle_temperature_celsius{") || !strings.Contains(text, `coldaisle_sensor_up{node_id="lab-1",sensor="Rack",room="Lab",gateway=""} 0.0`) ||
		!strings.Contains(text, `coldaisle_incidents{kind="silence",severity="warning",room="Lab"} 1.0`) || !strings.Contains(text, "coldaisle_last_reading_timestamp_seconds{") {
		t.Errorf("an hour later: %s", text)
	}

	if _, text = s.metrics(t, limited.text, scraped); strings.Contains(text, "Hall") || !strings.Contains(text, `coldaisle_incidents{kind="silence"`) {
		t.Errorf("an hour later a key for the lab is told %s", text)
	}

	// Without a sensor there is little to tell, in the right form.
	nobody := s.customer(t)
	if _, text = s.metrics(t, nobody.token, scraped); !strings.HasSuffix(text, "coldaisle_probe_lateness_seconds 0.0\n# EOF") {
		t.Errorf("without sensors: %s", text)
	}
}

// TestMetricsOfASilentGateway counts its silence in each room of its nodes, once, and gives
// the series in order. Contract 12.8.
func TestMetricsOfASilentGateway(t *testing.T) {
	t.Parallel()
	s := newTestAPI(t)
	a := s.customer(t)
	for id, name := range map[string]string{"a-1": "A", "b-1": "B", "c-1": "C", "d-1": "D"} {
		room := a.create(t, "/api/v1/server_rooms/new_room", fmt.Sprintf(`{"name":%q}`, name))
		a.create(t, "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":%q,"name":"Rack","type":"T","room_id":%d}`, id, room))
		if id == "a-1" {
			a.create(t, "/api/v1/sensors/new_sensor", fmt.Sprintf(`{"id":"a-2","name":"Rack","type":"T","room_id":%d}`, room))
		}
	}
	s.silentGateway(t, a, s.now().Add(-10*time.Minute), "a-1", "a-2", "b-1", "c-1")
	s.judge(t, "d-1", s.now(), 55)
	_, text := s.metrics(t, a.token, scraped)
	var got []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "coldaisle_incidents{") {
			got = append(got, strings.TrimSpace(strings.TrimPrefix(line, "coldaisle_incidents")))
		}
	}
	want := []string{
		`{kind="silence",severity="critical",room="A"} 1.0`, `{kind="silence",severity="critical",room="B"} 1.0`,
		`{kind="silence",severity="critical",room="C"} 1.0`, `{kind="threshold",severity="critical",room="D"} 1.0`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// BenchmarkMetrics measures the metrics of 2,000 sensors, as Prometheus asks for them.
// Run it with
//
//	go test ./run/api -run '^$' -bench Metrics -benchtime 100x
func BenchmarkMetrics(b *testing.B) {
	s := newTestAPI(b, func(c *Config) { c.Log = logging.New(io.Discard, slog.LevelInfo, "") })
	s.document = nil
	a := s.customer(b)
	a.fleet(b, 2000)
	key := a.key(b, `"scope":"read"`)
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, s.url+"/api/v1/metrics", nil)
	if err != nil {
		b.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key.text)
	request.Header.Set("Accept", scraped)
	request.Header.Set("Accept-Encoding", "gzip")
	var times []time.Duration
	var size int64
	for b.Loop() {
		began := time.Now()
		response, err := s.client.Do(request)
		if err != nil {
			b.Fatal(err)
		}
		size, err = io.Copy(io.Discard, response.Body)
		times = append(times, time.Since(began))
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || response.Header.Get("Content-Encoding") != "gzip" {
			b.Fatal(response.StatusCode, response.Header, err)
		}
	}
	slices.Sort(times)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(size)/1000, "KB")
	b.ReportMetric(float64(quantile(times, 0.5).Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(quantile(times, 0.99).Microseconds())/1000, "p99-ms")
}
