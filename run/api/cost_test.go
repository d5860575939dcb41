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
	a, err := build(bareConfig(logging.New(io.Discard, slog.LevelInfo, "")))
	if err != nil {
		b.Fatal(err)
	}
	handler, err := a.handler()
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
		text, err := a.tokens.issue(7, time.Time{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := a.tokens.verify(text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("log line", func(b *testing.B) {
		e := &requestRecord{requestID: "request", customerID: 7}
		b.ReportAllocs()
		for b.Loop() {
			a.log.LogAttrs(b.Context(), slog.LevelInfo, "request", a.httpRequestAttrs(request, e, 200, time.Millisecond)...)
		}
	})
}
