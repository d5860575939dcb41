package requestlog

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
)

// TestRequestID shows contract 1.9.
func TestRequestID(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		given string
		kept  bool
	}{
		"letters, digits and signs": {"Aa-0_9.z", true},
		"64 characters":             {strings.Repeat("x", 64), true},
		"65 characters":             {strings.Repeat("x", 65), false},
		"none":                      {"", false},
		"a space":                   {"a b", false},
		"a line":                    {"a\nb", false},
		"an umlaut":                 {"ä", false},
		"a slash":                   {"a/b", false},
	} {
		var log bytes.Buffer
		logger := NewLogger(logging.New(&log, slog.LevelInfo, ""))
		handler := Middleware(logger, time.Now, "/health", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		ids := map[string]bool{"": true, c.given: true}
		for range 2 {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			if c.given != "" {
				request.Header.Set(RequestIDHeader, c.given)
			}
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, request)
			id := recorder.Header().Get(RequestIDHeader)
			must.Equal(t, name+": id "+id+" is new", false, ids[id])
			ids[id] = true
			must.Contain(t, name, log.String(), `"request_id":"`+id+`"`)
			must.Equal(t, name+" is kept", c.kept, strings.Contains(log.String(), `"caller_request_id":"`+c.given+`"`))
		}
	}
}
