// Package gateway is the HTTP side of the edge gateway: sensor nodes of one
// site register with it, post readings and send heartbeats, and it publishes
// each reading to topic data before it answers.
//
// It keeps in memory which nodes there are and each one's last hour, which
// rides along with every reading so that detection needs no query; a restart
// loses no more than that. It trusts the local network, as the specification
// has it, but not what is sent: everything is bounded and checked.
//
// edge-gateway's main runs it on site, run/local beside the rest of the system.
package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"coldaisle.dev/shared/tracing"
	"coldaisle.dev/shared/wire"
)

// MaxBody is the largest request body, in bytes; a node's are under 200.
const MaxBody = 64 << 10

// The error texts of the specification.
const (
	detailBody    = "Invalid request body"
	detailMessage = "Invalid message format"
	detailPublish = "Failed to publish to Pub/Sub"
)

// Publisher sends a reading to topic data and returns once Pub/Sub has it.
type Publisher interface {
	Publish(ctx context.Context, data wire.Data) error
}

// Gateway answers nodes. It is an [http.Handler].
type Gateway struct {
	publisher Publisher
	nodes     *nodes
	metrics   *metrics
	clock     func() time.Time
	log       *slog.Logger
	handler   http.Handler
}

// New returns a gateway that no node has registered with yet.
func New(publisher Publisher, clock func() time.Time, log *slog.Logger) *Gateway {
	g := &Gateway{publisher: publisher, nodes: newNodes(), clock: clock, log: log}
	g.metrics = newMetrics(func() float64 { return float64(g.nodes.count()) })
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/register", g.register)
	mux.HandleFunc("POST /api/v1/message", g.message)
	mux.HandleFunc("POST /api/v1/heartbeat", g.heartbeat)
	mux.HandleFunc("GET /api/v1/nodes", g.list)
	mux.HandleFunc("GET /health", g.health)
	mux.Handle("GET /metrics", promhttp.HandlerFor(g.metrics.registry, promhttp.HandlerOpts{}))
	g.handler = tracing.Middleware("gateway", jsonErrors(mux))
	return g
}

// ServeHTTP answers one request.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.handler.ServeHTTP(w, r) }

// Health is the body of GET /health.
type Health struct {
	Status string `json:"status"`
	Nodes  int    `json:"nodes"`
}

func (g *Gateway) health(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, Health{Status: "healthy", Nodes: g.nodes.count()})
}

// errorBody is the specification's form of a gateway error.
type errorBody struct {
	Error string `json:"error"`
}

func fail(w http.ResponseWriter, status int, text string) {
	write(w, status, errorBody{Error: text})
}

func write(w http.ResponseWriter, status int, body any) {
	encoded, err := json.Marshal(body)
	if err != nil {
		status, encoded = http.StatusInternalServerError, []byte(`{"error":"Internal server error"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(encoded, '\n')) // a node that has gone needs no answer
}

// decode reads a JSON body into a request. It has answered when it returns
// false.
func (g *Gateway) decode(w http.ResponseWriter, r *http.Request, into any, detail string) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			g.metrics.rejected.WithLabelValues("too_large").Inc()
			fail(w, http.StatusRequestEntityTooLarge, "Request body over 65536 bytes")
			return false
		}
		g.metrics.rejected.WithLabelValues("unreadable").Inc()
		fail(w, http.StatusBadRequest, detail)
		return false
	}
	if err := json.Unmarshal(body, into); err != nil {
		g.metrics.rejected.WithLabelValues("malformed").Inc()
		fail(w, http.StatusBadRequest, detail)
		return false
	}
	return true
}

// jsonErrors gives what the router itself answers, unknown paths and wrong
// methods, the specification's form.
func jsonErrors(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		probe := discarded{header: http.Header{}}
		mux.ServeHTTP(&probe, r)
		if probe.status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", probe.header.Get("Allow"))
			fail(w, http.StatusMethodNotAllowed, "Method not allowed")
			return
		}
		fail(w, http.StatusNotFound, "Not found")
	})
}

// discarded takes the router's plain answer for its status alone.
type discarded struct {
	header http.Header
	status int
}

func (d *discarded) Header() http.Header         { return d.header }
func (d *discarded) Write(b []byte) (int, error) { return len(b), nil }
func (d *discarded) WriteHeader(status int)      { d.status = status }
