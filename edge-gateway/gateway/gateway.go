// Package gateway is the HTTP side of the edge gateway: the sensor nodes of a site
// register with it, post readings and send heartbeats, and it publishes each reading
// to topic data before it answers.
//
// When Pub/Sub does not acknowledge a reading, the gateway writes it to the outbox
// on disk before it answers the node, and publishes it later under its original
// time: an answered reading is never lost. While Pub/Sub is known to be down, nodes
// are answered at once. While it is up, no reading is written to disk.
//
// A message that Pub/Sub refuses for its content (INVALID_ARGUMENT) is discarded:
// logged, counted, and its node is answered 500 without "kept". Others are not
// affected. No valid reading is known to be refused; this guards against limits that
// nobody has documented. After [maxRefusals] in a row the topic may be at fault, such
// as by a new schema: from then on refused readings are kept, until one is
// acknowledged.
//
// The gateway has the nodes and each node's last hour in memory. The last hour is
// published with every reading, so that detection needs no query. A restart loses it,
// but for the readings in the outbox; the list of nodes is saved in a file. Nodes are
// not authenticated: the gateway trusts its network. It bounds and validates all that
// they send.
//
// edge-gateway's main runs it on site, run/local together with the rest of the system.
package gateway

import (
	"cmp"
	"context"
	_ "embed"
	"iter"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"coldaisle.dev/edge-gateway/clock"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/httpserver"
	"coldaisle.dev/shared/tracing"
	"coldaisle.dev/shared/wire"
)

// MaxBody is the largest request body, in bytes; a node's are under 200.
const MaxBody = 64 << 10

// The texts of errors that the specification gives.
const (
	detailBody    = "Invalid request body"
	detailMessage = "Invalid message format"
	detailPublish = "Failed to publish to Pub/Sub"
)

// Publisher sends readings to topic data. [ReadingPublisher] is one.
type Publisher interface {
	// Publish sends messages in their order, those that are not live without delaying those that
	// are. It returns once Pub/Sub has answered for each, or by a timeout of its own. The error of a
	// message is [ErrRefused] when Pub/Sub will never accept it.
	Publish(ctx context.Context, live bool, messages ...Message) []error
}

// PublishFunc is a [Publisher] that publishes one message after the other.
type PublishFunc func(ctx context.Context, m Message) error

// Publish implements [Publisher].
func (f PublishFunc) Publish(ctx context.Context, _ bool, messages ...Message) []error {
	errs := make([]error, len(messages))
	for i, m := range messages {
		errs[i] = f(ctx, m)
	}
	return errs
}

// Granted returns the publisher of the current access token, or why there is none. As a
// [Publisher] it then fails each publish at once, and readings go into the outbox.
type Granted func() (Publisher, error)

// Publish implements [Publisher].
func (g Granted) Publish(ctx context.Context, live bool, messages ...Message) []error {
	granted, err := g()
	if err != nil {
		return slices.Repeat([]error{err}, len(messages))
	}
	return granted.Publish(ctx, live, messages...)
}

// Outbox keeps readings that cannot be published. [outbox.Outbox] is one.
type Outbox interface {
	// AppendAll returns once the records are durable, or an error for each that is not.
	AppendAll(records []outbox.Record) []error
	// Next returns the oldest messages, Consume takes them out.
	Next(n int) ([]outbox.Message, error)
	Consume(messages []outbox.Message) error
	// Before yields the messages appended within reach before a message that Next returned.
	Before(m outbox.Message, reach time.Duration) iter.Seq[outbox.Message]
	// Since yields the messages appended since a time, consumed or not.
	Since(start time.Time) iter.Seq[outbox.Message]
	Stats() outbox.Stats
}

// OutboxRetention is how long an outbox should retain consumed readings: for as long as a
// node may send them again.
const OutboxRetention = time.Hour

// Config configures a gateway. The zero value is right for tests and
// simulations, where nodes may send as fast as they can.
type Config struct {
	// NodeRate is how many requests a second one node may make over a longer
	// time, NodeBurst how many at once; a rate of 0 is no limit.
	NodeRate  float64
	NodeBurst int
	// AddressRate is the same for all requests of an address; twice as many may come at once.
	AddressRate float64
	// MaxNodes bounds the nodes that are remembered, and with them memory: 4 KB
	// each. 0 means 10,000. Further nodes are served without a window.
	MaxNodes int
	// ProbeEvery is how often Pub/Sub is tried while it is unavailable; 0 means 1 s.
	ProbeEvery time.Duration
	// Enrolment signs messages and dates readings; nil for an open gateway.
	Enrolment Enrolment
	// Withheld receives readings of the outbox that may not be published. Without it they
	// stay in the outbox, and those behind them wait.
	Withheld Outbox
	// Boot is for tests; the zero value is this machine's.
	Boot clock.Boot
	// Version is shown by /health.
	Version string
	// NodesFile saves the list of nodes over a restart; empty for none.
	NodesFile string
	// Discovery returns how the gateway is announced, for /health; nil if it is not.
	Discovery func() any
	// Checks with an interval run while Run runs; /health reports the errors of all.
	Checks []Check
	// IdleProbe is how long nothing may be published before the gateway publishes a
	// reading of the probe; 0 for any time.
	IdleProbe time.Duration
	// NodeMetrics adds the nodes' newest readings to /metrics.
	NodeMetrics bool
	// Batches names the sources that may send batches. It must be valid.
	Batches SourcesFile
	// Collectors are the metrics of other parts of the program.
	Collectors []prometheus.Collector
}

// Gateway is the [http.Handler] that nodes call; Run must run as long. Its parts: requests
// answers nodes, sender publishes readings or stores them in the outbox, drain delivers the
// outbox, monitor runs checks and serves /health.
type Gateway struct {
	config   Config
	nodes    *nodeTable
	requests *requests
	sender   *sender
	drain    *drain
	monitor  *monitor
	metrics  *metrics
	handler  http.Handler
}

// New returns a gateway that no node has registered with yet.
func New(config Config, publisher Publisher, box Outbox, now func() time.Time, log *slog.Logger) *Gateway {
	config.MaxNodes = cmp.Or(config.MaxNodes, 10_000)
	config.ProbeEvery = cmp.Or(config.ProbeEvery, time.Second)
	if config.Boot.Uptime == nil {
		config.Boot = clock.ThisBoot()
	}
	g := &Gateway{config: config, nodes: newNodeTable(config.MaxNodes), metrics: newMetrics()}
	g.sender = &sender{
		publisher: publisher, outbox: box, nodes: g.nodes, uplink: newUplink(now()), metrics: g.metrics, events: newEventLog(log, now),
		signer: &signer{config.Enrolment, config.Boot, now},
		clock:  now, log: log, wake: make(chan struct{}, 1),
	}
	g.drain = &drain{sender: g.sender, outbox: box, withheld: config.Withheld, probeEvery: config.ProbeEvery, pacer: newBatchPacer()}
	g.monitor = &monitor{
		config: &g.config, nodes: g.nodes, sender: g.sender, drain: g.drain, log: log, errs: map[string]error{},
		sources: newSources(config.Batches.Sources, g.metrics),
	}
	telegraf, _ := prepareTelegraf(config.Batches.Telegraf) // it is valid
	g.requests = &requests{
		nodes: g.nodes, sender: g.sender, limiters: newLimiters(&g.config), metrics: g.metrics, rejections: newEventLog(log, now),
		monitor: g.monitor, telegrafFields: telegraf, clock: now, log: log,
	}
	g.metrics.register(g)
	for _, n := range readNodes(config.NodesFile, now()) {
		g.nodes.remember(n)
	}
	g.Restore(box)
	mux := httpserver.NewMux(func(w http.ResponseWriter, status int) {
		text := "Not found"
		if status == http.StatusMethodNotAllowed {
			text = "Method not allowed"
		}
		write(w, status, errorBody{Error: text})
	})
	for pattern, handler := range g.routes() {
		mux.HandleFunc(pattern, handler)
	}
	// A page of the internet could have a browser on this network post readings.
	pages := http.NewCrossOriginProtection()
	pages.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusForbidden, errorBody{Error: "Not for pages of another origin"})
	}))
	guarded := pages.Handler(mux)
	g.handler = tracing.Middleware("gateway", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rebound(r) {
			write(w, http.StatusForbidden, errorBody{Error: "A browser may call by the address, a name without dots or one in .local"})
			return
		}
		guarded.ServeHTTP(w, r)
	}))
	return g
}

// rebound reports whether a browser calls by a name of which a page's owner may have given this
// address: to the browser the page is then of our origin. Other programs call by any name.
func rebound(r *http.Request) bool {
	_, browser := r.Header["Accept-Language"] // a page can empty it, but not take it away
	// fetch of Node.js has it too, but no browser sends one of these without the other, nor can a page.
	browser = browser && (r.Header.Get("Sec-Fetch-Mode") == "" || r.Header.Get("Sec-Fetch-Site") != "")
	host := strings.Trim(strings.TrimSuffix(strings.ToLower(hostOf(r.Host)), "."), "[]")
	_, err := netip.ParseAddr(host)
	return browser && err != nil && strings.Contains(host, ".") && !strings.HasSuffix(host, ".local")
}

// Report returns the nodes and the readings in the outbox, for an enrolled gateway's
// status.
func (g *Gateway) Report() (nodes []wire.StatusNode, kept int) {
	return g.nodes.report(), g.sender.outbox.Stats().Pending
}

// Restore reads the windows of nodes, and the readings that may be sent again, from an
// outbox, but none of another enrolment. New calls it; for an outbox that opens later, call it then.
func (g *Gateway) Restore(box Outbox) {
	for m := range box.Since(g.sender.clock().Add(-OutboxRetention)) {
		if m.Enrolment == g.sender.signer.enrolmentID() {
			g.nodes.restore(m.Record)
		}
	}
}

// Run delivers the outbox, oldest first, behind the live readings, watches for
// Pub/Sub's return while it is unavailable, runs the checks and saves the list of nodes. It
// ends with its context; the error is always nil, for an errgroup.
func (g *Gateway) Run(ctx context.Context) error {
	var background sync.WaitGroup
	background.Go(func() { g.saveNodes(ctx) })
	background.Go(func() { g.sender.probeIdle(ctx, g.config.IdleProbe) })
	for _, c := range g.config.Checks {
		if c.Run != nil {
			background.Go(func() { g.monitor.watch(ctx, c) })
		}
	}
	defer background.Wait()
	g.drain.run(ctx)
	return nil
}

// routes are the handlers by method and path. openapi.json describes each.
func (g *Gateway) routes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"POST /api/v1/register":  g.requests.register,
		"POST /api/v1/message":   g.requests.message,
		"POST /api/v1/heartbeat": g.requests.heartbeat,
		"POST /api/v1/telegraf":  g.requests.telegraf,
		"POST /api/v1/readings":  g.requests.readings,
		"GET /api/v1/nodes":      g.requests.list,
		"GET /api/v1/openapi":    serveDocument,
		"GET /health":            g.monitor.health,
		"GET /metrics":           promhttp.HandlerFor(g.metrics.registry, promhttp.HandlerOpts{}).ServeHTTP,
	}
}

// document is the OpenAPI document. It is written by hand, because the handlers are
// plain net/http; tests check every answer and every route against it.
//
//go:embed openapi.json
var document []byte

// serveDocument is for developers of firmware for nodes.
func serveDocument(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(document) // a client that has gone needs no answer
}

// ServeHTTP answers one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.handler.ServeHTTP(w, r) }

// errorBody is the form of every error (contract 8.1).
type errorBody struct {
	Error string `json:"error"`
	// Reason is the field and the rule that a message breaks.
	Reason string `json:"reason,omitzero"`
	// Kept says that the gateway has the reading and will deliver it.
	Kept bool `json:"kept,omitzero"`
}

func write(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":"Internal server error"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) //nolint:gosec // JSON; a node that has gone needs no answer
}
