package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// prefix is what the Pub/Sub client library puts before the keys of a trace in
// a message's attributes.
const prefix = "googclient_"

// Inject writes the trace of ctx into the attributes of a message about to be
// published and returns them; nil attributes become a map only when there is a
// trace.
func Inject(ctx context.Context, attributes map[string]string) map[string]string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return attributes
	}
	if attributes == nil {
		attributes = make(map[string]string, 1)
	}
	propagation.TraceContext{}.Inject(ctx, messageCarrier(attributes))
	return attributes
}

// Extract returns ctx within the trace that a message's attributes carry, or
// unchanged when they carry none.
func Extract(ctx context.Context, attributes map[string]string) context.Context {
	if attributes[prefix+"traceparent"] == "" {
		return ctx
	}
	return joinTrace(ctx, messageCarrier(attributes))
}

// joinTrace returns ctx within the trace of a carrier. It drops the tracestate:
// nothing of ours reads it, any client can make it as long as a header may be, and
// Pub/Sub refuses a message with an attribute of more than 1,024 bytes.
func joinTrace(ctx context.Context, carrier propagation.TextMapCarrier) context.Context {
	caller := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, carrier))
	if !caller.IsRemote() {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, caller.WithTraceState(trace.TraceState{}))
}

// messageCarrier reads and writes the keys of a trace with the library's prefix.
type messageCarrier map[string]string

func (c messageCarrier) Get(key string) string { return c[prefix+key] }

func (c messageCarrier) Set(key, value string) { c[prefix+key] = value }

func (c messageCarrier) Keys() []string {
	keys := make([]string, 0, 2)
	for key := range c {
		if name, ok := strings.CutPrefix(key, prefix); ok {
			keys = append(keys, name)
		}
	}
	return keys
}
