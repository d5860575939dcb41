package api

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
)

// BenchmarkRequestCost measures what the API adds to a request without a token.
func BenchmarkRequestCost(b *testing.B) {
	handler := must.Get(New(bareConfig(logging.New(io.Discard, slog.LevelInfo, ""))))(b)
	request := httptest.NewRequest(http.MethodGet, healthPath, nil)
	b.ReportAllocs()
	for b.Loop() {
		handler.ServeHTTP(&discard{header: http.Header{}}, request)
	}
}

// discard keeps no part of an answer.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}
