package gateway_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
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
	"coldaisle.dev/shared/wire"
)

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

// size is how many bytes Pub/Sub counts of the newest message, if it is part of a trace and
// has waited for hours.
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
	if kind := recorder.Header().Get("Content-Type"); path != "/metrics" && kind != "application/json" {
		s.tb.Errorf("%s %s: Content-Type %q", method, path, kind)
	}
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
