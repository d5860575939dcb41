package push_test

import (
	"bytes"
	"context"
	"errors"
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

func example() push.Message {
	return push.Message{
		ID:              "7001",
		Data:            []byte(`{"node_id":"n1"}`),
		Attributes:      map[string]string{"node_id": "n1"},
		OrderingKey:     "n1",
		PublishTime:     time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC),
		Subscription:    "projects/p/subscriptions/ingest",
		DeliveryAttempt: 3,
	}
}

func encode(t *testing.T, m push.Message) []byte {
	t.Helper()
	return must.Get(push.Encode(m))(t)
}

func TestDecodeReadsWhatPubSubPosts(t *testing.T) {
	t.Parallel()
	// The body in the form that Pub/Sub documents, both spellings of its fields included.
	body := `{
	  "message": {
	    "attributes": {"node_id": "n1"},
	    "data": "eyJub2RlX2lkIjoibjEifQ==",
	    "messageId": "7001", "message_id": "7001",
	    "orderingKey": "n1",
	    "publishTime": "2026-11-20T03:00:00Z", "publish_time": "2026-11-20T03:00:00Z"
	  },
	  "subscription": "projects/p/subscriptions/ingest",
	  "deliveryAttempt": 3
	}`
	got := must.Get(push.Decode([]byte(body)))(t)
	must.Equal(t, "", example(), got)
}

// TestHandlerAnswers shows contract 9.5.
func TestHandlerAnswers(t *testing.T) {
	t.Parallel()
	body := encode(t, example())
	fails := func(err error) push.HandleFunc {
		return func(context.Context, push.Message) error { return err }
	}
	largest := append(encode(t, example()), bytes.Repeat([]byte(" "), push.MaxBody)...)[:push.MaxBody]
	for name, c := range map[string]struct {
		method string
		body   []byte
		step   push.HandleFunc
		want   int
		logged string
	}{
		"done":                  {http.MethodPost, body, fails(nil), http.StatusNoContent, ""},
		"at the limit":          {http.MethodPost, largest, fails(nil), http.StatusNoContent, ""},
		"a retry can help":      {http.MethodPost, body, fails(errors.New("database away")), http.StatusServiceUnavailable, "database away"},
		"no retry helps":        {http.MethodPost, body, fails(push.Permanent(push.ReasonMalformed, errors.New("humidity 140"))), http.StatusAccepted, "humidity 140"},
		"panic":                 {http.MethodPost, body, func(context.Context, push.Message) error { panic("nil map") }, http.StatusInternalServerError, "push_test.go"},
		"GET":                   {http.MethodGet, nil, fails(nil), http.StatusMethodNotAllowed, ""},
		"garbage":               {http.MethodPost, []byte("hello"), fails(nil), http.StatusBadRequest, "not a Pub/Sub push message"},
		"no message":            {http.MethodPost, []byte(`{"subscription":"s"}`), fails(nil), http.StatusBadRequest, "no message"},
		"data not base64":       {http.MethodPost, []byte(`{"message":{"data":"###"}}`), fails(nil), http.StatusBadRequest, "not a Pub/Sub push message"},
		"over the limit":        {http.MethodPost, append(bytes.Clone(largest), ' '), fails(nil), http.StatusAccepted, `"reason":"too_large"`},
		"larger than Pub/Sub's": {http.MethodPost, bytes.Repeat([]byte(" "), 16<<20+1), fails(nil), http.StatusRequestEntityTooLarge, "over limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var logged bytes.Buffer
			handler := push.Handler(push.Config{DeadLetter: &deadLetters{}, Clock: time.Now, Log: logging.New(&logged, slog.LevelInfo, "")}, c.step)
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), c.method, "/", bytes.NewReader(c.body)))
			must.Equal(t, "answered", c.want, answer.Code)
			must.Hold(t, strings.Contains(logged.String(), c.logged) && (c.logged != "" || logged.Len() == 0),
				"logged %q, want it to hold %q", logged.String(), c.logged)
		})
	}
}

// TestHandlerPassesThePublishTime checks the time that a step gets: from
// Pub/Sub, or from the clock for a message that somebody posts by hand.
func TestHandlerPassesThePublishTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.FixedZone("far", 3600))
	for body, want := range map[string]time.Time{
		`{"message":{"messageId":"1","publishTime":"2026-11-20T03:00:00Z"}}`: time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC),
		`{"message":{"messageId":"1"}}`:                                      now.UTC(),
	} {
		var got time.Time
		handler := push.Handler(push.Config{Clock: func() time.Time { return now }, Log: logging.Discard()}, func(_ context.Context, m push.Message) error {
			got = m.PublishTime
			return nil
		})
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body)))
		must.Equal(t, body+" is published at", want, got)
	}
}

// FuzzDecode holds that no body makes the decoder panic, and that what it
// accepts means the same after another trip.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"message":{"data":"e30=","messageId":"1","publishTime":"2026-11-20T03:00:00Z"},"subscription":"s"}`))
	f.Add([]byte(`{"message":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		first, err := push.Decode(body)
		if err != nil {
			return
		}
		again, err := push.Encode(first)
		if err != nil {
			return // a year that RFC 3339 cannot write
		}
		second := must.Get(push.Decode(again))(t)
		if !bytes.Equal(first.Data, second.Data) || first.ID != second.ID || !first.PublishTime.Equal(second.PublishTime) {
			t.Fatalf("changed by a round trip: %+v, then %+v", first, second)
		}
	})
}

func TestHandlerJoinsTheTraceOfTheMessage(t *testing.T) {
	t.Parallel()
	const id = "0af7651916cd43dd8448eb211c80319c"
	m := example()
	m.Attributes = map[string]string{"googclient_traceparent": "00-" + id + "-b7ad6b7169203331-01"}
	var lines bytes.Buffer
	handler := push.Handler(push.Config{Clock: time.Now, Log: logging.New(&lines, slog.LevelInfo, "p")}, func(context.Context, push.Message) error {
		return errors.New("away")
	})
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(encode(t, m)))
	handler.ServeHTTP(httptest.NewRecorder(), request)
	must.Contain(t, "the log of the refusal", lines.String(), "projects/p/traces/"+id)
}

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
