package logging_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
)

func entry(t *testing.T, line []byte) map[string]any {
	t.Helper()
	var fields map[string]any
	must.Do(t, json.Unmarshal(line, &fields))
	return fields
}

func TestEntryHasCloudLoggingFields(t *testing.T) {
	t.Parallel()
	for level, want := range map[slog.Level]string{
		slog.LevelDebug: "DEBUG", slog.LevelInfo: "INFO", slog.LevelWarn: "WARNING", slog.LevelError: "ERROR",
	} {
		var out bytes.Buffer
		logging.New(&out, slog.LevelDebug, "p").With("node_id", "n1").Log(t.Context(), level, "stored")
		got := entry(t, out.Bytes())
		if got["severity"] != want || got["message"] != "stored" || got["node_id"] != "n1" || got["time"] == nil {
			t.Errorf("level %v wrote %v", level, got)
		}
	}
}

func TestEntryJoinsItsTrace(t *testing.T) {
	t.Parallel()
	span := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
	})
	ctx := trace.ContextWithSpanContext(t.Context(), span)
	var out bytes.Buffer
	logging.New(&out, slog.LevelInfo, "dc-1").With("a", 1).InfoContext(ctx, "stored")
	got := entry(t, out.Bytes())
	must.Equal(t, "trace", any("projects/dc-1/traces/01000000000000000000000000000000"), got["logging.googleapis.com/trace"])
	must.Equal(t, "trace is sampled", any(true), got["logging.googleapis.com/trace_sampled"])
}

func TestEntryUnderItsLevelIsNotWritten(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logging.New(&out, slog.LevelWarn, "").InfoContext(t.Context(), "quiet")
	must.Equal(t, "written", "", out.String())
}
