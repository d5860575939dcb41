package tracing

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

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
