package tracing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"coldaisle.dev/shared/must"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestPipelineEndToEnd sends one trace from a request over a message to a step, as a reading goes. It is the one test
// that touches the process's provider, and so not parallel.
func TestPipelineEndToEnd(t *testing.T) { //nolint:paralleltest // installs the process-wide provider
	spans := tracetest.NewInMemoryExporter()
	stop := setProvider(memoryExporter{spans}, 1, "test")

	var attributes map[string]string
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/message", func(w http.ResponseWriter, r *http.Request) {
		attributes = Inject(r.Context(), nil)
		w.WriteHeader(http.StatusInternalServerError)
	})
	request := httptest.NewRequest(http.MethodPost, "/api/v1/message", nil)
	request.Header.Set("Traceparent", parent)
	Middleware("gateway", mux).ServeHTTP(httptest.NewRecorder(), request)

	ctx := Extract(t.Context(), attributes)
	ctx, end := StartSpan(ctx, "append reading")
	queried := QueryTracer{}.TraceQueryStart(ctx, nil, pgx.TraceQueryStartData{SQL: "\n  INSERT INTO readings VALUES (@secret)", Args: []any{"value"}})
	QueryTracer{}.TraceQueryEnd(queried, nil, pgx.TraceQueryEndData{Err: errors.New("away")})
	end(errors.New("table is away"))
	must.Do(t, stop(t.Context()))

	got := spans.GetSpans()
	if len(got) != 3 {
		t.Fatalf("%d spans, want the request's, the query's and the step's", len(got))
	}
	server, query, step := got[0], got[1], got[2]
	must.Hold(t, query.Name == "postgres INSERT" && query.Parent.SpanID() == step.SpanContext.SpanID(),
		"query %q is not the step's", query.Name)
	for _, a := range query.Attributes {
		must.Hold(t, a.Value.AsString() != "value", "a span tells a parameter's value")
	}
	must.Hold(t, server.Name == "POST /api/v1/message" && step.Name == "append reading",
		"names %q and %q", server.Name, step.Name)
	must.Equal(t, "trace", "0af7651916cd43dd8448eb211c80319c", server.SpanContext.TraceID().String())
	must.Equal(t, "parent of the step", server.SpanContext.SpanID(), step.Parent.SpanID())
	must.Hold(t, step.Status.Description == "table is away" && server.Status.Description != "",
		"failures are not marked: %+v, %+v", step.Status, server.Status)
}

// memoryExporter holds its spans over a shutdown, which the exporter itself would drop.
type memoryExporter struct{ *tracetest.InMemoryExporter }

func (memoryExporter) Shutdown(context.Context) error { return nil }

// TestOff shows that without an endpoint a caller's trace passes through and nothing else happens.
func TestOff(t *testing.T) { //nolint:paralleltest // must not run beside the test that installs a provider
	stop := must.Get(Start(t.Context(), Config{}, "test"))(t)
	var inside trace.SpanContext
	handler := Middleware("api", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		inside = trace.SpanContextFromContext(r.Context())
	}))
	request := httptest.NewRequest(http.MethodGet, "/health", nil)
	handler.ServeHTTP(httptest.NewRecorder(), request)
	must.Hold(t, !inside.IsValid(), "a trace began though tracing is off")
	request.Header.Set("Traceparent", parent)
	handler.ServeHTTP(httptest.NewRecorder(), request)
	must.Equal(t, fmt.Sprintf("the caller's trace did not pass through: %v", inside), "0af7651916cd43dd8448eb211c80319c", inside.TraceID().String())
	ctx := (QueryTracer{}).TraceQueryStart(t.Context(), nil, pgx.TraceQueryStartData{SQL: "SELECT 1"})
	must.Hold(t, ctx == t.Context(), "a query outside of any trace made a span")
	must.Equal(t, "attributes without a trace", map[string]string(nil), Inject(t.Context(), nil))
	must.Do(t, stop(t.Context()))
}

// TestTracestateIsLeftBehind has a caller of a request, and a publisher of a
// message, send the longest tracestate that the W3C lets pass.
func TestTracestateIsLeftBehind(t *testing.T) { //nolint:paralleltest // must not run beside the tests that install a provider
	var members []string
	for i := range 32 {
		members = append(members, fmt.Sprintf("vendor%d=%s", i, strings.Repeat("v", 256)))
	}
	state := strings.Join(members, ",")
	var attributes map[string]string
	handler := Middleware("gateway", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		attributes = Inject(r.Context(), nil)
	}))
	request := httptest.NewRequest(http.MethodPost, "/", nil)
	request.Header.Set("Traceparent", parent)
	request.Header.Set("Tracestate", state)
	handler.ServeHTTP(httptest.NewRecorder(), request)
	want := map[string]string{messageAttribute: parent}
	must.Equal(t, "attributes of a request", want, attributes)
	ctx := Extract(t.Context(), map[string]string{messageAttribute: parent, "googclient_tracestate": state})
	must.Equal(t, "attributes of a message", want, Inject(ctx, nil))
}

// TestExport sends spans to a collector over HTTP.
func TestExport(t *testing.T) { //nolint:paralleltest // installs the process-wide provider
	var posts atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/v1/traces" && len(body) > 0 {
			posts.Add(1)
		}
		w.WriteHeader(http.StatusOK)
	}))
	t.Cleanup(collector.Close)
	stop := must.Get(Start(t.Context(), Config{Endpoint: collector.URL + "/", SampleRatio: 1}, "test"))(t)
	_, end := StartSpan(t.Context(), "step")
	end(nil)
	must.Do(t, stop(t.Context()))
	must.Hold(t, posts.Load() != 0, "the collector got no span")
}
