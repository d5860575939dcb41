package gateway_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"coldaisle.dev/edge-gateway/announce"
	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// TestSameIDAnHourLaterIsAnotherReading shows contract 8.7.
func TestSameIDAnHourLaterIsAnotherReading(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const body = `{"id":"a1","node_id":"n1","temperature":24.5,"humidity":40}`
	s.send("POST", "/api/v1/message", body)
	first := s.published.last().Reading.Identity()
	s.pass(61 * time.Minute)
	s.send("POST", "/api/v1/message", body)
	must.Hold(t, s.published.last().Reading.Identity() != first, "an id that came round again was taken for a retry")
}

// TestRecentCarriesTheLastHour shows contract 9.1.
func TestRecentCarriesTheLastHour(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i := range 130 {
		s.send("POST", "/api/v1/message", fmt.Sprintf(`{"id":"%d","node_id":"n1","temperature":%g,"humidity":40.126}`, i, 20+float64(i)/100))
		s.pass(30 * time.Second)
	}
	recent := s.published.last().Recent
	last := recent.Len() - 1
	must.Equal(t, "readings before the newest of the last hour", 119, last)
	must.Equal(t, "ages", []float64{3600, 30}, []float64{recent.Age[0], recent.Age[last]})
	newest := []float64{recent.Temperature[last], recent.Humidity[last]}
	must.Equal(t, "the newest one's values", []float64{21.28, 40.13}, newest)
	must.Do(t, recent.Validate())
	s.pass(40 * time.Minute)
	s.send("POST", "/api/v1/message", `{"id":"z","node_id":"n1","temperature":20,"humidity":40}`)
	must.Equal(t, "readings of the last hour after a pause of 40 minutes", 40, s.published.last().Recent.Len())
}

// TestFullestMessageHasAtMost1000Bytes shows contract 9.1: what Pub/Sub counts, the attributes
// of an enrolled gateway, a trace, the publish time and the message id among it.
func TestFullestMessageHasAtMost1000Bytes(t *testing.T) {
	t.Parallel()
	worst := "gw-" + strings.Repeat("a", 37)
	for name, c := range map[string]struct {
		interval  time.Duration
		late      time.Duration // at most
		id        string        // of 61 characters; three digits follow
		decimals  int
		spread    float64
		enrolment string
		entries   int // that ride along at least
	}{
		"a node of the specification":    {30 * time.Second, 20 * time.Millisecond, "01234567", 1, 0.5, "", 119},
		"of an enrolled gateway":         {30 * time.Second, 20 * time.Millisecond, "01234567", 1, 0.5, "gw-4f7q2m5n3xk6d2hwz7ab", 110},
		"longest names":                  {30 * time.Second, 20 * time.Millisecond, strings.Repeat("m", 61), 1, 0.5, "", 110},
		"short interval":                 {777 * time.Millisecond, 20 * time.Millisecond, strings.Repeat("m", 61), 2, 0.5, "", 90},
		"an id that JSON must escape":    {30 * time.Second, 20 * time.Millisecond, strings.Repeat(`"`, 61), 1, 0.5, "", 90},
		"values with all their digits":   {30 * time.Second, 20 * time.Millisecond, strings.Repeat("m", 61), 15, 0.5, "", 80},
		"everything at its worst":        {30 * time.Second, 29 * time.Second, strings.Repeat(`"`, 61), 15, 50, worst, 30},
		"everything, many in an instant": {0, 0, strings.Repeat(`"`, 61), 15, 50, worst, 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := gateway.Config{}
			if c.enrolment != "" {
				config.Enrolment = enrolledAs(c.enrolment)
			}
			s := newSiteWith(t, config, nil)
			random := rand.New(rand.NewPCG(1, 2))
			for i := range 122 {
				body := must.Get(json.Marshal(map[string]any{
					"id": c.id + strconv.Itoa(100+i), "node_id": strings.Repeat("n", 50),
					"temperature": strconv.FormatFloat(-39+c.spread*random.Float64(), 'f', c.decimals, 64),
					"humidity":    strconv.FormatFloat(49+c.spread*random.Float64(), 'f', c.decimals, 64),
				}))(t)
				s.send("POST", "/api/v1/message", string(body))
				s.pass(c.interval + time.Duration(float64(c.late)*random.Float64()))
			}
			got := s.published.last()
			if size := s.published.size(); size > 1000 || got.Recent.Len() < c.entries {
				t.Errorf("%d bytes with %d earlier readings, want at most 1000 with %d", size, got.Recent.Len(), c.entries)
			}
		})
	}
}

// enrolledAs is an enrolment with a key of zeros.
type enrolledAs string

func (e enrolledAs) ID() string { return string(e) }

func (e enrolledAs) Sign(at time.Time, age wire.Age, data []byte) map[string]string {
	return wire.SignData(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), string(e), at, age, data)
}

func (enrolledAs) Time([16]byte, time.Duration) (time.Time, bool) { return time.Time{}, false }
func (enrolledAs) Revoked() bool                                  { return false }

// TestClockSetBack shows contract 8.6.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]time.Duration{
		"not at all": 0, "while slewed": 300 * time.Millisecond, "by a minute": time.Minute, "by a day": 24 * time.Hour,
	} {
		s := newSite(t)
		s.send("POST", "/api/v1/message", `{"id":"1","node_id":"n1","temperature":20,"humidity":40}`)
		first := s.published.last().Reading
		s.pass(-back)
		// The same id: a node that counts and was started again.
		s.send("POST", "/api/v1/message", `{"id":"1","node_id":"n1","temperature":21,"humidity":40}`)
		second := s.published.last()
		want := reading.TruncateTime(s.clock())
		if back < time.Minute { // they stay two, in their order
			want = first.Time.Add(time.Microsecond)
		}
		must.Equal(t, name+": the second reading's time", want, second.Reading.Time)
		// Whatever the clock did, what rides along is in order and in the past.
		for i := range 3 {
			s.pass(20 * time.Second)
			s.send("POST", "/api/v1/message", fmt.Sprintf(`{"id":"%d","node_id":"n1","temperature":20,"humidity":40}`, 10+i))
			must.Do(t, s.published.last().Recent.Validate())
		}
		got := s.published.last().Recent.Len()
		must.Hold(t, got >= 3, "%s: %d readings ride along, want the 3 since the clock was set or more", name, got)
		// A retry is recognised though the clock was set.
		s.send("POST", "/api/v1/message", `{"id":"1","node_id":"n1","temperature":21,"humidity":40}`)
		must.Equal(t, name+": the retry became", second.Reading, s.published.last().Reading)
	}
}

// TestNodes shows contract 8.4.
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
	var got struct {
		Nodes []gateway.NodeInfo `json:"nodes"`
		Total int                `json:"total"`
	}
	must.Do(t, json.Unmarshal([]byte(s.get("/api/v1/nodes")), &got))
	at := func(minute int) time.Time { return time.Date(2026, 11, 20, 3, minute, 0, 0, time.UTC) }
	want := []gateway.NodeInfo{
		{NodeID: "a", Address: "192.168.7.9", RegisteredAt: at(1), LastSeen: at(1), Status: "offline"},
		{NodeID: "b", Address: "10.0.0.6", RegisteredAt: at(0), LastSeen: at(1), Status: "offline"},
		{NodeID: "c", Address: "192.168.7.9", RegisteredAt: at(5), LastSeen: at(5), Status: "online"},
	}
	must.Equal(t, "nodes", want, got.Nodes)
	must.Equal(t, "total", 3, got.Total)
}

// TestKeptReadingsOfANode shows contract 8.6: a node that could not reach the gateway
// sends what it kept behind the newest reading, with each one's age.
func TestKeptReadingsOfANode(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	send := func(id string, age any) wire.Data {
		t.Helper()
		must.Equal(t, "answer", 200, s.message(fmt.Sprintf(`{"id":%q,"node_id":"n1","temperature":20,"humidity":40,"age_s":%v}`, id, age)))
		return s.published.last()
	}
	send("before", 0)
	s.pass(10 * time.Minute)
	newest := send("newest", 0)
	for i, c := range []struct {
		id    string
		age   any
		taken time.Duration // before now
		after int           // readings that ride along
	}{
		{"second", 120, 120 * time.Second, 1},
		{"first", `"240.5"`, 240500 * time.Millisecond, 1},
		{"third", 60, 60 * time.Second, 3},
		{"third, of the same moment", 60, 60*time.Second - time.Microsecond, 4},
	} {
		got := send(c.id, c.age)
		must.Equal(t, c.id+" is of", s.clock().Add(-c.taken), got.Reading.Time)
		must.Equal(t, fmt.Sprintf("readings are sent with number %d", i), c.after, got.Recent.Len())
	}
	s.pass(20 * time.Second)
	must.Equal(t, "sent again with its age it became", newest.Reading, send("newest", 20).Reading)
	got := send("now", 0)
	if err := got.Recent.Validate(); err != nil || got.Recent.Len() != 6 {
		t.Errorf("%d readings are sent with the next one, want all 6: %v", got.Recent.Len(), err)
	}
	for i := range 130 { // a window that is full
		s.pass(20 * time.Second)
		send(strconv.Itoa(i), 0)
	}
	if got := send("older than the window", 3600); got.Reading.Time != s.clock().Add(-time.Hour) || got.Recent.Len() != 0 {
		t.Errorf("of %s with %d readings, want an hour before %s with none", got.Reading.Time, got.Recent.Len(), s.clock())
	}
	must.Equal(t, "readings are sent with the next one", 120, send("x", 0).Recent.Len())
}

// TestNodesSurviveARestart shows contract 8.4.
func TestNodesSurviveARestart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "nodes.json")
	config := gateway.Config{NodesFile: file, MaxNodes: 3}
	box := openBox(t, t.TempDir(), time.Now)
	s := newSiteWith(t, config, box)
	s.send("POST", "/api/v1/register", `{"node_id":"old","ip_addr":"10.0.0.5"}`)
	s.pass(time.Hour)
	s.send("POST", "/api/v1/register", `{"node_id":"n1","ip_addr":"10.0.0.6"}`)
	s.run()
	must.Eventually(t, "the file of the nodes", func() bool {
		content, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(content), "10.0.0.6")
	})
	want := s.get("/api/v1/nodes")
	list := func(later time.Duration) string {
		t.Helper()
		again := newSiteWith(t, config, box) // as after kill -9: nothing more is written
		again.pass(time.Hour + later)
		again.open(config, box)
		return again.get("/api/v1/nodes")
	}
	must.Equal(t, "after a restart", want, list(0))
	must.Contain(t, "the list", want, `"registered_at":"2026-11-20T03:00:00Z"`)
	if got := list(23*time.Hour + 30*time.Minute); strings.Contains(got, `"old"`) || !strings.Contains(got, `"n1"`) {
		t.Errorf("a day after the last word of one %s", got)
	}
	for name, begun := range map[string]time.Time{"1970": time.Unix(60, 0), "the year of its systemd": s.clock().AddDate(-3, 0, 0)} {
		must.Contain(t, "the list of a machine that begins in "+name, list(begun.Sub(s.clock())), `"total":2`)
	}
	for name, content := range map[string]string{
		"half a file":     `[{"node_id":"n1","ip`,
		"another file":    `{"nodes":7}`,
		"foreign entries": `[{"node_id":"n 1","ip_addr":"10.0.0.5","last_seen":"2026-11-20T04:00:00Z"},{"node_id":"n1","ip_addr":"closet","last_seen":"2026-11-20T04:00:00Z"}]`,
		"far too much":    "[" + strings.Repeat(" ", 5<<20) + `{"node_id":"n1","ip_addr":"10.0.0.5","last_seen":"2026-11-20T04:00:00Z"}]`,
	} {
		must.Do(t, os.WriteFile(file, []byte(content), 0o600))
		must.Equal(t, fmt.Sprintf("of %s the gateway makes", name), `{"nodes":[],"total":0}`, list(0))
	}
	full := fmt.Sprintf(`[%s]`, strings.TrimSuffix(strings.Repeat(`{"node_id":"n%d","ip_addr":"10.0.0.5","last_seen":"2026-11-20T04:00:00Z"},`, 9), ","))
	must.Do(t, os.WriteFile(file, fmt.Appendf(nil, full, 1, 2, 3, 4, 5, 6, 7, 8, 9), 0o600))
	must.Contain(t, "the list with room for 3 nodes", list(0), `"total":3`)
}

// noOutbox is an outbox that cannot be opened.
func noOutbox(reason error) *outbox.Late {
	box := outbox.NewLate(func() (*outbox.Outbox, error) { return nil, reason }, time.Now)
	_ = box.Open()
	return box
}

// record is a Pub/Sub that keeps what was published, unless its verdict on a message is an
// error. kept says that the message comes from the outbox.
type record struct {
	mu      sync.Mutex
	data    []wire.Data
	newest  gateway.Message
	tried   int
	verdict func(ctx context.Context, m gateway.Message, kept bool) error // nil takes all
}

func (r *record) Publish(ctx context.Context, live bool, messages ...gateway.Message) []error {
	errs := make([]error, len(messages))
	for i, m := range messages {
		errs[i] = r.publish(ctx, m, !live)
	}
	return errs
}

func (r *record) publish(ctx context.Context, m gateway.Message, kept bool) error {
	r.mu.Lock()
	r.tried++
	verdict := r.verdict
	r.mu.Unlock()
	if verdict != nil {
		if err := verdict(ctx, m, kept); err != nil {
			return err
		}
	}
	published := time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC) // after what any clock here says
	data, err := wire.DecodeData(m.Data, published)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.data = append(r.data, data)
	r.newest = m
	return nil
}

// judge sets the verdict on what comes from now on.
func (r *record) judge(verdict func(ctx context.Context, m gateway.Message, kept bool) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verdict = verdict
}

func (r *record) fail(err error) { r.judge(but("", err)) }

// errRefused is how Pub/Sub refuses a message: the topic says more about it.
var errRefused = fmt.Errorf("too long: %w", gateway.ErrRefused)

// but is the verdict of a Pub/Sub that takes all but the messages of the nodes whose ids begin so.
func but(node string, err error) func(context.Context, gateway.Message, bool) error {
	return func(_ context.Context, m gateway.Message, _ bool) error {
		if strings.HasPrefix(m.NodeID, node) {
			return err
		}
		return nil
	}
}

func (r *record) last() wire.Data {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.data) == 0 {
		return wire.Data{}
	}
	return r.data[len(r.data)-1]
}

// size is how many bytes Pub/Sub counts of the newest message, if it is part of a trace and has waited for hours.
func (r *record) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	attributes := maps.Clone(r.newest.Attributes)
	attributes["age_ms"], attributes["googclient_traceparent"] = "1234567890123", strings.Repeat("0", 55)
	size := len(r.newest.Data) + 20 + 16 // publish time and message id
	for name, value := range attributes {
		size += len(name) + len(value)
	}
	return size
}

func (r *record) all() []wire.Data {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clip(r.data)
}

// tries is how often publishing was tried.
func (r *record) tries() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tried
}

// site is a gateway whose clock the test moves.
type site struct {
	tb        testing.TB
	gateway   *gateway.Gateway
	published *record
	box       *outbox.Outbox // nil where the test has its own
	log       logtest.Buffer
	mu        sync.Mutex
	now       time.Time
}

func newSite(tb testing.TB) *site {
	tb.Helper()
	return newSiteWith(tb, gateway.Config{}, nil)
}

// newSiteWith returns a site over an outbox, or over a new one.
func newSiteWith(tb testing.TB, config gateway.Config, box gateway.Outbox) *site {
	tb.Helper()
	s := &site{tb: tb, published: &record{}, now: time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)}
	if box == nil {
		s.box = openBox(tb, tb.TempDir(), s.clock)
		box = s.box
	}
	s.open(config, box)
	return s
}

// open makes a gateway of the site, as a restart does.
func (s *site) open(config gateway.Config, box gateway.Outbox) {
	config.Version = "v1"
	config.Discovery = func() any {
		return announce.State{Instance: "monitor-gateway._http._tcp.local", Host: "monitor-gateway.local"}
	}
	s.gateway = gateway.New(config, s.published, box, s.clock, logging.New(&s.log, slog.LevelInfo, ""))
}

func openBox(tb testing.TB, dir string, clock func() time.Time) *outbox.Outbox {
	tb.Helper()
	box := must.Get(outbox.Open(dir, outbox.Options{Retain: gateway.OutboxRetention, Clock: clock}))(tb)
	tb.Cleanup(func() { _ = box.Close() })
	return box
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
	s.tb.Helper()
	return s.sendFrom(method, path, strings.NewReader(body))
}

func (s *site) sendFrom(method, path string, body io.Reader) (status int, answer string) {
	s.tb.Helper()
	request := httptest.NewRequestWithContext(s.tb.Context(), method, path, body)
	request.RemoteAddr = "192.168.7.9:50123"
	recorder := serve(s.tb, s.gateway, request)
	kind := recorder.Header().Get("Content-Type")
	must.Hold(s.tb, path == "/metrics" || kind == "application/json", "%s %s: Content-Type %q", method, path, kind)
	return recorder.Code, strings.TrimSpace(recorder.Body.String())
}

// serve has a gateway answer, as the document says.
func serve(tb testing.TB, gateway http.Handler, request *http.Request) *httptest.ResponseRecorder {
	tb.Helper()
	recorder := httptest.NewRecorder()
	gateway.ServeHTTP(recorder, request)
	matchesDocument(tb, request, recorder)
	return recorder
}

// message posts a reading and returns the status.
func (s *site) message(body string) int {
	s.tb.Helper()
	status, _ := s.send(http.MethodPost, "/api/v1/message", body)
	return status
}

// kept is how a reading is answered that the outbox has.
const kept = `500 {"error":"Failed to publish to Pub/Sub","kept":true}`

// answer posts a reading and returns status and body.
func (s *site) answer(body string) string {
	s.tb.Helper()
	status, answer := s.send(http.MethodPost, "/api/v1/message", body)
	return fmt.Sprintf("%d %s", status, answer)
}

func (s *site) get(path string) string {
	s.tb.Helper()
	_, answer := s.send(http.MethodGet, path, "")
	return answer
}

// run runs the gateway's background work.
func (s *site) run() (stop func()) { return background(s.tb, s.gateway.Run) }

// background runs something until the test ends, or until it is stopped.
func background(tb testing.TB, run func(context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	tb.Cleanup(stop)
	return stop
}

func (s *site) health() string { return s.get("/health") }

// delivered waits until so many readings were published, and returns them.
func (s *site) delivered(n int) []wire.Data {
	s.tb.Helper()
	must.Eventually(s.tb, "delivery", func() bool { return len(s.published.all()) == n })
	return s.published.all()
}
