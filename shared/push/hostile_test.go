package push_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/push"
)

// TestHostileEnvelopes posts what Pub/Sub never would. No step sees any of it,
// and the log stays a line for each.
func TestHostileEnvelopes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"arrays, deep":       {strings.Repeat("[", 1<<19), 400},
		"objects, deep":      {strings.Repeat(`{"message":`, 50_000), 400},
		"over a mebibyte":    {`{"message":{"data":"` + strings.Repeat("A", 1<<20) + `"}}`, 202},
		"no base64":          {`{"message":{"messageId":"1","data":"%%%"},"subscription":"s"}`, 400},
		"message of a list":  {`{"message":[],"subscription":"s"}`, 400},
		"attributes nested":  {`{"message":{"messageId":"1","data":"e30=","attributes":{"a":{"b":"c"}}},"subscription":"s"}`, 400},
		"time of nowhere":    {`{"message":{"messageId":"1","data":"e30=","publishTime":"yesterday"},"subscription":"s"}`, 400},
		"attempt beyond int": {`{"message":{"messageId":"1","data":"e30="},"subscription":"s","deliveryAttempt":1e30}`, 400},
		"null":               {`null`, 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			handler := push.Handler(push.Config{DeadLetter: &deadLetters{}, Clock: time.Now, Log: logging.New(&log, slog.LevelInfo, "")}, func(context.Context, push.Message) error {
				t.Error("the step was called")
				return nil
			})
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(c.body)))
			must.Equal(t, "answered", c.status, recorder.Code)
			lines := strings.Count(log.String(), "\n")
			must.Hold(t, lines == 1 && log.Len() <= 2000, "%d lines, %d bytes in the log", lines, log.Len())
		})
	}
}
