// Package gateway is the HTTP side of the edge gateway: sensor nodes of one
// site register with it, post readings and send heartbeats, and it publishes
// each reading to topic data before it answers.
//
// When Pub/Sub does not acknowledge a reading, the gateway writes it to the outbox
// on disk before it answers the node, and publishes it later under its original
// time: an answered reading is never lost. While Pub/Sub is known to be down, nodes
// are answered at once. While it is up, nothing is written to disk.
//
// A message that Pub/Sub refuses for what is in it (INVALID_ARGUMENT) is given
// up: logged, counted, and its node is answered 500 without "kept". Others are not
// affected. No reading of ours is known to be refused; this guards against limits
// that we do not know of. After [maxRefusals] in a row, with none taken between
// them, the fault may be the topic's (such as a schema that somebody has attached
// to it): from then on refused readings are kept, until one is taken.
//
// The gateway keeps the nodes and each node's last hour in memory. The last hour is
// published with every reading, so that detection needs no query. A restart loses
// it; the list of nodes is kept in a file. Nodes are not
// authenticated: the gateway trusts its network. It bounds and checks everything that
// they send.
//
// edge-gateway's main runs it on site, run/local beside the rest of the system.
package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

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

// The error texts, which the specification words.
const (
	detailBody    = "Invalid request body"
	detailMessage = "Invalid message format"
	detailPublish = "Failed to publish to Pub/Sub"
)

// Those of what the specification does not speak of.
const (
	detailTooLarge = "Request body over 65536 bytes"
	detailSlow     = "Request too slow"
)

// Publisher sends readings to topic data. [ReadingPublisher] is one.
type Publisher interface {
	// Publish returns once Pub/Sub has the message, or by a timeout of its own. The
	// error is [ErrRefused] when Pub/Sub will never take this message.
	Publish(ctx context.Context, m Message) error
	// PublishBacklog sends messages in their order, none in the way of Publish,
	// and returns what came of each.
	PublishBacklog(ctx context.Context, messages []Message) []error
}

// Granted publishes by what it gets for each call, as an enrolled gateway does: while
// nothing is granted, each publish fails at once, and readings go into the outbox.
type Granted func() (Publisher, error)

// Publish implements [Publisher].
func (g Granted) Publish(ctx context.Context, m Message) error {
	granted, err := g()
	if err != nil {
		return err
	}
	return granted.Publish(ctx, m)
}

// PublishBacklog implements [Publisher].
func (g Granted) PublishBacklog(ctx context.Context, messages []Message) []error {
	granted, err := g()
	if err != nil {
		return []error{err} // the first; the others are not tried
	}
	return granted.PublishBacklog(ctx, messages)
}

// Outbox keeps readings that cannot be published. [outbox.Outbox] is one.
type Outbox interface {
	// Append returns once the record is durable.
	Append(r outbox.Record) error
	// Next returns the oldest messages, Consume takes them out.
	Next(n int) ([]outbox.Message, error)
	Consume(messages []outbox.Message) error
	// Before yields what was appended within a time before a message of Next's.
	Before(m outbox.Message, reach time.Duration) iter.Seq[outbox.Message]
	// Since yields what was appended since a time, consumed or not.
	Since(start time.Time) iter.Seq[outbox.Message]
	Stats() outbox.Stats
}

// OutboxRetention is how long an outbox should retain what was consumed: for as long
// as a node may send it once more.
const OutboxRetention = time.Hour

// Config says how a gateway behaves. The zero value is right for tests and
// simulations, where nodes may send as fast as they can.
type Config struct {
	// NodeRate is how many requests a second one node may make over a longer
	// time, NodeBurst how many at once; a rate of 0 is no limit.
	NodeRate  float64
	NodeBurst int
	// AddressRate and AddressBurst are the same for all requests of an address.
	AddressRate  float64
	AddressBurst int
	// MaxNodes bounds the nodes that are remembered, and with them memory: 4 KB
	// each. 0 means 10,000. Further nodes are served without a window.
	MaxNodes int
	// ProbeEvery is how often Pub/Sub is tried while it is away; 0 means 1 s.
	ProbeEvery time.Duration
	// Enrolment is what the gateway is enrolled as; nil for an open gateway.
	Enrolment Enrolment
	// Withheld takes readings of the outbox that may not be published. Without it they
	// stay where they are, and what is behind them waits.
	Withheld Withheld
	// Boot is the machine's; the zero value is the one that it runs in.
	Boot clock.Boot
	// Version is what /health and /metrics say.
	Version string
	// NodesFile keeps the list of nodes over a restart; empty for not at all.
	NodesFile string
	// Discovery tells /health how the gateway is announced; nil for not at all.
	Discovery func() any
	// Checks are asked while Run runs; /health tells what comes of them.
	Checks []Check
	// IdleProbe is how long nothing may be published before the gateway publishes a
	// reading of the probe; 0 for any time.
	IdleProbe time.Duration
	// Degraded says why nodes may not find the gateway; empty for no reason.
	Degraded func() string
	// NodeMetrics is whether /metrics has what the nodes measure.
	NodeMetrics bool
	// Collectors are metrics of the parts beside the gateway.
	Collectors []prometheus.Collector
}

// Gateway answers nodes. It is an [http.Handler]; beside that, Run must run.
type Gateway struct {
	config    Config
	publisher Publisher
	outbox    Outbox
	nodes     *nodeTable
	limiters  *limiters
	uplink    *uplink
	metrics   *metrics
	wake      chan struct{} // for Run: something changed
	live      atomic.Int64  // live readings so far
	// What is logged once in a while: readings that cannot be kept, or that Pub/Sub
	// refuses, and for each node requests that break a rule.
	drops, refusals, withholdings *logLimiter
	outages, diskFaults           *kindLimiter
	verdicts                      verdicts
	rejections                    *notices
	damage                        damage
	boot                          clock.Boot
	columns                       sync.Pool // of *columns
	clock                         func() time.Time
	log                           *slog.Logger
	handler                       http.Handler
}

// New returns a gateway that no node has registered with yet.
func New(config Config, publisher Publisher, box Outbox, clock func() time.Time, log *slog.Logger) *Gateway {
	config.MaxNodes = cmp.Or(config.MaxNodes, 10_000)
	config.ProbeEvery = cmp.Or(config.ProbeEvery, time.Second)
	g := &Gateway{
		config: config, publisher: publisher, outbox: box,
		nodes:    newNodeTable(config.MaxNodes),
		limiters: newLimiters(config.MaxNodes, allowance{config.NodeRate, config.NodeBurst}, allowance{config.AddressRate, config.AddressBurst}),
		uplink:   newUplink(clock()),
		wake:     make(chan struct{}, 1),
		drops:    &logLimiter{}, refusals: &logLimiter{}, withholdings: &logLimiter{}, outages: &kindLimiter{}, diskFaults: &kindLimiter{},
		rejections: &notices{logged: map[string]time.Time{}},
		boot:       orThisBoot(config.Boot),
		clock:      clock, log: log,
	}
	g.metrics = newMetrics(g)
	if config.NodesFile != "" {
		for _, n := range readNodes(config.NodesFile, clock()) {
			g.nodes.remember(n)
		}
	}
	g.Restore(box)
	g.handler = tracing.Middleware("gateway", newRouter(g.routes()))
	return g
}

// Report returns what an enrolled gateway tells of its nodes and its outbox.
func (g *Gateway) Report() (nodes []wire.StatusNode, kept int) {
	return g.nodes.report(), g.outbox.Stats().Pending
}

// Restore reads the windows of nodes, and the readings that may be sent once more, from
// an outbox. New does so; for an outbox that opens later it is called then.
func (g *Gateway) Restore(box Outbox) {
	for m := range box.Since(g.clock().Add(-OutboxRetention)) {
		g.nodes.restore(m.Record)
	}
}

// routes are the handlers by path and method. Each stands in openapi.json.
func (g *Gateway) routes() map[string]map[string]http.HandlerFunc {
	post := func(h http.HandlerFunc) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{http.MethodPost: h}
	}
	get := func(h http.HandlerFunc) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{http.MethodGet: h, http.MethodHead: h}
	}
	return map[string]map[string]http.HandlerFunc{
		"/api/v1/register":  post(g.register),
		"/api/v1/message":   post(g.message),
		"/api/v1/heartbeat": post(g.heartbeat),
		"/api/v1/nodes":     get(g.list),
		"/api/v1/openapi":   get(g.openapi),
		"/health":           get(g.health),
		"/metrics":          get(promhttp.HandlerFor(g.metrics.registry, promhttp.HandlerOpts{}).ServeHTTP),
	}
}

// ServeHTTP answers one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.handler.ServeHTTP(w, r) }

// errorBody is the form of every error (contract 8.2).
type errorBody struct {
	Error string `json:"error"`
	// Reason is the field and the rule that a message breaks.
	Reason string `json:"reason,omitzero"`
	// Kept says that the gateway will deliver the reading all the same.
	Kept bool `json:"kept,omitzero"`
}

func writeError(w http.ResponseWriter, status int, text string) {
	write(w, status, errorBody{Error: text})
}

func write(w http.ResponseWriter, status int, body any) {
	text := encoded(body)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // a node that has gone needs no answer
}

// encoded is a body in JSON.
func encoded(body any) []byte {
	text, err := json.Marshal(body)
	if err != nil {
		text = []byte(`{"error":"Internal server error"}`)
	}
	return append(text, '\n')
}

// newRouter sends requests to the handlers of their paths and methods.
func newRouter(handlers map[string]map[string]http.HandlerFunc) http.Handler {
	mux := httpserver.NewMux(func(w http.ResponseWriter, status int) {
		text := "Not found"
		if status == http.StatusMethodNotAllowed {
			text = "Method not allowed"
		}
		writeError(w, status, text)
	})
	for path, methods := range handlers {
		for method, handler := range methods {
			mux.HandleFunc(method+" "+path, handler)
		}
	}
	return mux
}
