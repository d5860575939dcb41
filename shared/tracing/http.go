package tracing

import (
	"net/http"
	"strings"

	"github.com/felixge/httpsnoop"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

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
