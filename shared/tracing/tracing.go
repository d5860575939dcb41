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
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
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
