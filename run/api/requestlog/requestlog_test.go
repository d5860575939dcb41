package requestlog

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"coldaisle.dev/shared/logging"
)

// BenchmarkLogLine writes the line of one request.
func BenchmarkLogLine(b *testing.B) {
	log := NewLogger(logging.New(io.Discard, slog.LevelInfo, ""))
	request := httptest.NewRequest(http.MethodGet, "/health", nil)
	rec := &requestRecord{requestID: "request", customerID: 7}
	b.ReportAllocs()
	for b.Loop() {
		log.LogAttrs(b.Context(), slog.LevelInfo, "request", httpRequestAttrs(request, rec, 200, time.Millisecond)...)
	}
}
