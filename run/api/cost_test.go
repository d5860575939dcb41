package api

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"coldaisle.dev/shared/logging"
)

// BenchmarkRequestCost splits what the API adds to a request.
func BenchmarkRequestCost(b *testing.B) {
	cfg := bareConfig(logging.New(io.Discard, slog.LevelInfo, ""))
	handler, err := New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	tokens, err := newTokens(cfg.SecretKey, cfg.Clock)
	if err != nil {
		b.Fatal(err)
	}
	request := httptest.NewRequest(http.MethodGet, healthPath, nil)
	b.Run("health, all of it", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			handler.ServeHTTP(&statusRecorder{}, request)
		}
	})
	b.Run("token", func(b *testing.B) {
		text, err := tokens.issue(7, time.Time{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := tokens.verify(text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("log line", func(b *testing.B) {
		log := requestLogger(cfg.Log)
		e := &requestRecord{requestID: "request", customerID: 7}
		b.ReportAllocs()
		for b.Loop() {
			log.LogAttrs(b.Context(), slog.LevelInfo, "request", httpRequestAttrs(request, e, 200, time.Millisecond)...)
		}
	})
}
