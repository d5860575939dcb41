// Package tracing follows a reading with OpenTelemetry from the POST at the gateway over
// Pub/Sub and the functions to the stored row, and a request of the API to its queries.
//
// It is off unless OTEL_EXPORTER_OTLP_ENDPOINT is set: then no span starts here. A caller's
// trace is passed on either way, so that log lines carry its id. Its tracestate is dropped.
//
// A main or entrypoint calls [Start] once; everything else uses
//
//	handler = tracing.Middleware("gateway", handler)        // one server span per request
//	attributes = tracing.Inject(ctx, attributes)            // before a publish to Pub/Sub
//	ctx = tracing.Extract(ctx, message.Attributes)          // in a function, from a push message
//	ctx, end := tracing.StartSpan(ctx, "append reading")        // a step worth seeing
//	defer func() { end(err) }()
//
// The trace travels in the attribute googclient_traceparent, as the Pub/Sub
// client library writes it, so that the library's own spans join the trace where
// they are turned on. A span is named after a step, never a customer or a node.
package tracing

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/felixge/httpsnoop"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// scope names this package as the source of its spans.
const scope = "coldaisle.dev/shared/tracing"

// Config is the environment of tracing, with the names of the OpenTelemetry specification.
// The exporter reads the other OTEL_EXPORTER_OTLP_ variables (headers, compression,
// timeout) itself.
type Config struct {
	// Endpoint is the base URL of an OTLP/HTTP collector; empty turns tracing off.
	Endpoint string `env:"OTEL_EXPORTER_OTLP_ENDPOINT"`
	// SampleRatio is the share of the traces that begin here that is recorded, 0 to 1. For
	// a trace from outside the caller has decided.
	SampleRatio float64 `env:"OTEL_TRACES_SAMPLER_ARG" envDefault:"1"`
}

// Start begins to export the spans of a service. The returned function sends the spans
// still held and ends the export; call it last. Without an endpoint both do nothing.
func Start(ctx context.Context, config Config, service string) (stop func(context.Context) error, err error) {
	if config.Endpoint == "" {
		return func(context.Context) error { return nil }, nil
	}
	// Below the base URL as the OpenTelemetry specification says.
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(strings.TrimSuffix(config.Endpoint, "/")+"/v1/traces"))
	if err != nil {
		return nil, fmt.Errorf("trace exporter to %s: %w", config.Endpoint, err)
	}
	return setProvider(exporter, config.SampleRatio, service), nil
}

// setProvider makes an exporter the destination of every span of the process.
func setProvider(exporter sdk.SpanExporter, ratio float64, service string) func(context.Context) error {
	provider := sdk.NewTracerProvider(
		sdk.WithBatcher(exporter),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(ratio))),
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", service))),
	)
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{}) // of Google's client libraries
	return func(ctx context.Context) error {
		// The process makes no more spans.
		otel.SetTracerProvider(noop.NewTracerProvider())
		if err := provider.Shutdown(ctx); err != nil {
			return fmt.Errorf("stop trace export: %w", err)
		}
		return nil
	}
}

// StartSpan starts a span for a step of the work that ctx belongs to. The returned
// function ends it and marks it failed when given an error. Off, both are free.
func StartSpan(ctx context.Context, step string) (context.Context, func(error)) {
	ctx, span := otel.Tracer(scope).Start(ctx, step)
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// Middleware joins each request to its caller's trace (W3C traceparent). When
// tracing is on, it makes a server span, named after the pattern of the route:
// never the path, which contains identifiers.
func Middleware(component string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := joinTrace(r.Context(), r.Header.Get("Traceparent"))
		ctx, span := otel.Tracer(scope).Start(ctx, component, trace.WithSpanKind(trace.SpanKindServer))
		if !span.IsRecording() {
			// The log lines carry the id of the caller's trace even when no span is made.
			if ctx != r.Context() {
				r = r.WithContext(ctx)
			}
			next.ServeHTTP(w, r)
			return
		}
		defer span.End()
		r = r.WithContext(ctx)
		answer := httpsnoop.CaptureMetrics(next, w, r)
		if r.Pattern != "" {
			span.SetName(r.Method + " " + strings.TrimPrefix(r.Pattern, r.Method+" "))
		}
		span.SetAttributes(
			attribute.String("http.request.method", r.Method),
			attribute.String("http.route", r.Pattern),
			attribute.Int("http.response.status_code", answer.Code),
		)
		if answer.Code >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, http.StatusText(answer.Code))
		}
	})
}

// messageAttribute carries the trace of a message, under the name that the Pub/Sub client
// library uses.
const messageAttribute = "googclient_traceparent"

// traceparent is the key that the W3C's propagation reads and writes.
const traceparent = "traceparent"

// Inject writes the trace of ctx into the attributes of a message about to be published
// and returns them. Nil attributes become a map only when there is a trace.
func Inject(ctx context.Context, attributes map[string]string) map[string]string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return attributes
	}
	if attributes == nil {
		attributes = make(map[string]string, 1)
	}
	header := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, header)
	attributes[messageAttribute] = header[traceparent]
	return attributes
}

// Extract returns ctx within the trace that a message's attributes carry, or unchanged
// when they carry none.
func Extract(ctx context.Context, attributes map[string]string) context.Context {
	return joinTrace(ctx, attributes[messageAttribute])
}

// joinTrace returns ctx within the trace of a caller, without the caller's tracestate: we do not
// read it, any client can make it as long as a header may be, and Pub/Sub refuses a message with
// an attribute of more than 1,024 bytes.
func joinTrace(ctx context.Context, caller string) context.Context {
	if caller == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceparent: caller})
}

// QueryTracer makes a span of each query of a PostgreSQL pool that belongs to a recorded
// trace: set it as the Tracer of the pool's connections. A span is named after the
// statement's first word and has its text, with the names of parameters and never their
// values.
type QueryTracer struct{}

// TraceQueryStart implements [pgx.QueryTracer].
func (QueryTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return ctx
	}
	statement := strings.TrimSpace(data.SQL)
	verb, _, _ := strings.Cut(statement, " ")
	ctx, _ = otel.Tracer(scope).Start(ctx, "postgres "+strings.ToUpper(strings.TrimSpace(verb)),
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("db.system.name", "postgresql"), attribute.String("db.query.text", statement)))
	return context.WithValue(ctx, queryKey{}, struct{}{})
}

// queryKey marks the context of a span that TraceQueryStart made, so that no
// other is ended for it.
type queryKey struct{}

// TraceQueryEnd implements [pgx.QueryTracer].
func (QueryTracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if ctx.Value(queryKey{}) == nil {
		return
	}
	span := trace.SpanFromContext(ctx)
	if data.Err != nil {
		span.SetStatus(codes.Error, "query failed")
	}
	span.End()
}
