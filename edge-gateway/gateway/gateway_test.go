package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/wire"
)

// record keeps what was published and fails while it is told to.
type record struct {
	mu   sync.Mutex
	data []wire.Data
	err  error
}

func (r *record) Publish(_ context.Context, d wire.Data) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.data = append(r.data, d)
	return r.err
}

func (r *record) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *record) last() wire.Data {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.data[len(r.data)-1]
}

// site is a gateway whose clock the test moves.
type site struct {
	t         *testing.T
	handler   http.Handler
	published *record
	mu        sync.Mutex
	now       time.Time
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, published: &record{}, now: time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)}
	s.handler = gateway.New(s.published, s.clock, logging.Discard())
	return s
}

func (s *site) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *site) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
}

func (s *site) send(method, path, body string) (status int, answer string) {
	s.t.Helper()
	request := httptest.NewRequestWithContext(s.t.Context(), method, path, strings.NewReader(body))
	request.RemoteAddr = "192.168.7.9:50123"
	recorder := httptest.NewRecorder()
	s.handler.ServeHTTP(recorder, request)
	if kind := recorder.Header().Get("Content-Type"); path != "/metrics" && kind != "application/json" {
		s.t.Errorf("%s %s: Content-Type %q", method, path, kind)
	}
	return recorder.Code, strings.TrimSpace(recorder.Body.String())
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("n", 50)
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		answer             string
	}{
		"register":                     {"POST", "/api/v1/register", `{"node_id":"n1","ip_addr":"10.0.0.5"}`, 201, `{"message":"Node registered successfully","node_id":"n1"}`},
		"register without address":     {"POST", "/api/v1/register", `{"node_id":"n1"}`, 400, `{"error":"Invalid request body"}`},
		"register with a bad address":  {"POST", "/api/v1/register", `{"node_id":"n1","ip_addr":"closet"}`, 400, `{"error":"Invalid request body"}`},
		"register without node":        {"POST", "/api/v1/register", `{"ip_addr":"10.0.0.5"}`, 400, `{"error":"Invalid request body"}`},
		"register garbage":             {"POST", "/api/v1/register", `node`, 400, `{"error":"Invalid request body"}`},
		"message":                      {"POST", "/api/v1/message", `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":40}`, 200, `{"status":"published","message_id":"a1"}`},
		"message with message_id":      {"POST", "/api/v1/message", `{"message_id":"a1","node_id":"n1","temperature":24.5,"humidity":40}`, 200, `{"status":"published","message_id":"a1"}`},
		"message at the limits":        {"POST", "/api/v1/message", `{"id":"a1","node_id":"` + longest + `","temperature":-40,"humidity":100}`, 200, `{"status":"published","message_id":"a1"}`},
		"message too hot":              {"POST", "/api/v1/message", `{"id":"a1","node_id":"n1","temperature":125.1,"humidity":40}`, 400, `{"error":"Invalid message format"}`},
		"message beyond a float":       {"POST", "/api/v1/message", `{"id":"a1","node_id":"n1","temperature":1e999,"humidity":40}`, 400, `{"error":"Invalid message format"}`},
		"message too humid":            {"POST", "/api/v1/message", `{"id":"a1","node_id":"n1","temperature":20,"humidity":101}`, 400, `{"error":"Invalid message format"}`},
		"message without temperature":  {"POST", "/api/v1/message", `{"id":"a1","node_id":"n1","humidity":40}`, 400, `{"error":"Invalid message format"}`},
		"message without id":           {"POST", "/api/v1/message", `{"node_id":"n1","temperature":20,"humidity":40}`, 400, `{"error":"Invalid message format"}`},
		"message with text for number": {"POST", "/api/v1/message", `{"id":"a1","node_id":"n1","temperature":"20","humidity":40}`, 400, `{"error":"Invalid message format"}`},
		"message of a bad node":        {"POST", "/api/v1/message", `{"id":"a1","node_id":"n 1","temperature":20,"humidity":40}`, 400, `{"error":"Invalid message format"}`},
		"message of nothing":           {"POST", "/api/v1/message", ``, 400, `{"error":"Invalid message format"}`},
		"message over the limit":       {"POST", "/api/v1/message", strings.Repeat(" ", gateway.MaxBody+1), 413, `{"error":"Request body over 65536 bytes"}`},
		"heartbeat":                    {"POST", "/api/v1/heartbeat", `{"node_id":"n1"}`, 200, `{"status":"alive","node_id":"n1","timestamp":"2026-11-20T03:00:00Z"}`},
		"heartbeat of nobody":          {"POST", "/api/v1/heartbeat", `{}`, 400, `{"error":"Invalid request body"}`},
		"nodes":                        {"GET", "/api/v1/nodes", ``, 200, `{"nodes":[],"total":0}`},
		"health":                       {"GET", "/health", ``, 200, `{"status":"healthy","nodes":0}`},
		"unknown path":                 {"GET", "/api/v2/nodes", ``, 404, `{"error":"Not found"}`},
		"wrong method":                 {"GET", "/api/v1/message", ``, 405, `{"error":"Method not allowed"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, answer := newSite(t).send(c.method, c.path, c.body)
			if status != c.status || answer != c.answer {
				t.Errorf("answered %d %s, want %d %s", status, answer, c.status, c.answer)
			}
		})
	}
}

func TestNothingInvalidIsPublished(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.send("POST", "/api/v1/message", `{"id":"a1","node_id":"n1","temperature":200,"humidity":40}`)
	if len(s.published.data) > 0 {
		t.Errorf("published %v", s.published.data)
	}
}

func TestFailedPublishIsToldAndTheRetryIsTheSameReading(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.published.fail(errors.New("uplink down"))
	const body = `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":40}`
	status, answer := s.send("POST", "/api/v1/message", body)
	if status != 500 || answer != `{"error":"Failed to publish to Pub/Sub"}` {
		t.Errorf("answered %d %s", status, answer)
	}
	first := s.published.last().Reading
	s.published.fail(nil)
	s.pass(30 * time.Second)
	if status, _ := s.send("POST", "/api/v1/message", body); status != 200 {
		t.Errorf("the retry was answered %d", status)
	}
	if diff := cmp.Diff(first, s.published.last().Reading); diff != "" {
		t.Errorf("the retry is another reading (-first +retry):\n%s", diff)
	}
	s.send("POST", "/api/v1/message", `{"id":"a1","node_id":"n1","temperature":25,"humidity":40}`)
	if s.published.last().Reading.Identity() == first.Identity() {
		t.Error("the same id with another value is taken for the same reading")
	}
}

func TestSameIDAnHourLaterIsAnotherReading(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const body = `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":40}`
	s.send("POST", "/api/v1/message", body)
	first := s.published.last().Reading.Identity()
	s.pass(61 * time.Minute)
	s.send("POST", "/api/v1/message", body)
	if s.published.last().Reading.Identity() == first {
		t.Error("an id that came round again was taken for a retry")
	}
}

func TestRecentCarriesTheLastHour(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 130 {
		s.send("POST", "/api/v1/message", fmt.Sprintf(`{"id":"%d","node_id":"n1","temperature":%g,"humidity":40.126}`, i, 20+float64(i)/100))
		s.pass(30 * time.Second)
	}
	recent := s.published.last().Recent
	if recent.Len() != 120 || recent.Age[0] != 3600 || recent.Age[119] != 30 {
		t.Fatalf("%d readings, ages %g to %g; want 120, 3600 to 30", recent.Len(), recent.Age[0], recent.Age[recent.Len()-1])
	}
	if recent.Temperature[119] != 21.28 || recent.Humidity[119] != 40.13 {
		t.Errorf("newest is %g °C %g %%, want 21.28 and 40.13", recent.Temperature[119], recent.Humidity[119])
	}
	if err := recent.Validate(); err != nil {
		t.Error(err)
	}
	s.pass(40 * time.Minute)
	s.send("POST", "/api/v1/message", `{"id":"z","node_id":"n1","temperature":20,"humidity":40}`)
	if recent := s.published.last().Recent; recent.Len() != 40 {
		t.Errorf("%d readings of the last hour after a pause of 40 minutes, want 40", recent.Len())
	}
}

func TestFullestMessageStaysUnder2500Bytes(t *testing.T) {
	t.Parallel()
	for _, interval := range []time.Duration{30 * time.Second, 777 * time.Millisecond} {
		s := newSite(t)
		node, id := strings.Repeat("n", 50), strings.Repeat("m", 60)
		for i := range 122 {
			s.send("POST", "/api/v1/message", fmt.Sprintf(`{"id":"%s%d","node_id":%q,"temperature":-39.99,"humidity":99.99}`, id, 100+i, node))
			s.pass(interval)
		}
		encoded, err := wire.EncodeData(s.published.last())
		if err != nil {
			t.Fatal(err)
		}
		if len(encoded) > 2500 {
			t.Errorf("%d bytes at an interval of %s", len(encoded), interval)
		}
	}
}

func TestClockSetBackKeepsTheOrderOfReadings(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.send("POST", "/api/v1/message", `{"id":"1","node_id":"n1","temperature":20,"humidity":40}`)
	first := s.published.last().Reading.Time
	s.pass(-time.Minute)
	s.send("POST", "/api/v1/message", `{"id":"2","node_id":"n1","temperature":20,"humidity":40}`)
	if second := s.published.last().Reading.Time; !second.After(first) {
		t.Errorf("the second reading is of %s, the first of %s", second, first)
	}
}

func TestNodes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.send("POST", "/api/v1/register", `{"node_id":"b","ip_addr":"10.0.0.5"}`)
	s.pass(time.Minute)
	s.send("POST", "/api/v1/register", `{"node_id":"b","ip_addr":"10.0.0.6"}`)
	s.send("POST", "/api/v1/heartbeat", `{"node_id":"a"}`) // after a restart of the gateway
	s.pass(4 * time.Minute)
	s.send("POST", "/api/v1/message", `{"id":"1","node_id":"c","temperature":20,"humidity":40}`)
	s.pass(time.Minute)
	_, answer := s.send("GET", "/api/v1/nodes", "")
	var got struct {
		Nodes []gateway.Node `json:"nodes"`
		Total int            `json:"total"`
	}
	if err := json.Unmarshal([]byte(answer), &got); err != nil {
		t.Fatal(err)
	}
	at := func(minute int) time.Time { return time.Date(2026, 11, 20, 3, minute, 0, 0, time.UTC) }
	want := []gateway.Node{
		{NodeID: "a", Address: "192.168.7.9", RegisteredAt: at(1), LastSeen: at(1), Status: "offline"},
		{NodeID: "b", Address: "10.0.0.6", RegisteredAt: at(0), LastSeen: at(1), Status: "offline"},
		{NodeID: "c", Address: "192.168.7.9", RegisteredAt: at(5), LastSeen: at(5), Status: "online"},
	}
	if diff := cmp.Diff(want, got.Nodes); diff != "" || got.Total != 3 {
		t.Errorf("total %d (-want +got):\n%s", got.Total, diff)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.send("POST", "/api/v1/message", `{"id":"1","node_id":"n1","temperature":20,"humidity":40}`)
	s.send("POST", "/api/v1/message", `{}`)
	s.published.fail(errors.New("down"))
	s.send("POST", "/api/v1/message", `{"id":"2","node_id":"n1","temperature":20,"humidity":40}`)
	_, answer := s.send("GET", "/metrics", "")
	for _, line := range []string{
		"gateway_messages_accepted_total 2", "gateway_messages_published_total 1", "gateway_publish_failures_total 1",
		`gateway_requests_rejected_total{reason="invalid"} 1`, "gateway_nodes 1", "gateway_publish_seconds_count 2",
	} {
		if !strings.Contains(answer+"\n", line+"\n") {
			t.Errorf("no %q in:\n%s", line, answer)
		}
	}
}

func TestServeFinishesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- gateway.Serve(ctx, listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(arrived)
			<-release
			_, _ = io.WriteString(w, "done")
		}), logging.Discard())
	}()
	answered := make(chan string, 1)
	go func() {
		response, err := http.Get("http://" + listener.Addr().String())
		if err != nil {
			answered <- err.Error()
			return
		}
		defer func() { _ = response.Body.Close() }()
		body, _ := io.ReadAll(response.Body)
		answered <- string(body)
	}()
	<-arrived
	stop()
	close(release)
	if got := <-answered; got != "done" {
		t.Errorf("the request under way got %q", got)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// FuzzMessage holds that no body makes the gateway answer with anything but the
// specification's statuses, and that what is published is valid.
func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"id":"a1","node_id":"n1","temperature":24.5,"humidity":40}`))
	f.Add([]byte(`{"message_id":"a1","node_id":"n1","temperature":-0.0,"humidity":1e-300}`))
	f.Add([]byte(`[[[[`))
	f.Fuzz(func(t *testing.T, body []byte) {
		published := &record{}
		handler := gateway.New(published, time.Now, logging.Discard())
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/message", bytes.NewReader(body)))
		switch {
		case recorder.Code == http.StatusOK && len(published.data) == 1:
			if err := published.data[0].Reading.Validate(); err != nil {
				t.Fatalf("published an invalid reading: %v", err)
			}
		case recorder.Code == http.StatusBadRequest && len(published.data) == 0:
		default:
			t.Fatalf("answered %d and published %d readings for %q", recorder.Code, len(published.data), body)
		}
	})
}
