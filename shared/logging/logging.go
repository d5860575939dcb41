// Package logging writes structured logs in the fields that Cloud Logging
// understands (severity, message, time, trace), so that one line is one entry
// with the right level and joins its trace.
// See https://cloud.google.com/logging/docs/structured-logging.
package logging

import (
	"context"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// The special fields by which Cloud Logging joins an entry to its trace.
const (
	traceKey   = "logging.googleapis.com/trace"
	spanKey    = "logging.googleapis.com/spanId"
	sampledKey = "logging.googleapis.com/trace_sampled"
)

// New returns a logger that writes JSON lines to w. project is the Google Cloud
// project whose traces the entries belong to; empty outside Google Cloud, where
// entries then carry the bare trace id.
func New(w io.Writer, level slog.Level, project string) *slog.Logger {
	lines := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: cloudLoggingKeys})
	return slog.New(handler{Handler: lines, project: project})
}

// Discard returns a logger that writes nothing, for tests and benchmarks.
func Discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// cloudLoggingKeys renames slog's own fields to Cloud Logging's.
func cloudLoggingKeys(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.MessageKey:
		a.Key = "message"
	case slog.LevelKey:
		a.Key = "severity"
		if level, ok := a.Value.Any().(slog.Level); ok {
			a.Value = slog.StringValue(severity(level))
		}
	}
	return a
}

func severity(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return "ERROR"
	case level >= slog.LevelWarn:
		return "WARNING"
	case level >= slog.LevelInfo:
		return "INFO"
	default:
		return "DEBUG"
	}
}

// handler adds the trace of the context that a line was logged with.
type handler struct {
	slog.Handler

	project string
}

func (h handler) Handle(ctx context.Context, record slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		name := span.TraceID().String()
		if h.project != "" {
			name = "projects/" + h.project + "/traces/" + name
		}
		record.AddAttrs(
			slog.String(traceKey, name),                  //nolint:sloglint // Cloud Logging's own name
			slog.String(spanKey, span.SpanID().String()), //nolint:sloglint // Cloud Logging's own name
			slog.Bool(sampledKey, span.IsSampled()),      //nolint:sloglint // Cloud Logging's own name
		)
	}
	return h.Handler.Handle(ctx, record) //nolint:wrapcheck // slog drops it
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{Handler: h.Handler.WithAttrs(attrs), project: h.project}
}

func (h handler) WithGroup(name string) slog.Handler {
	return handler{Handler: h.Handler.WithGroup(name), project: h.project}
}
