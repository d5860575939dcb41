package tracing

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

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
