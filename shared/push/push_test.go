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

// post posts a body to a function and returns the answer's status and the log.
func post(t *testing.T, config push.Config, method string, body []byte, step push.HandleFunc) (status int, logged string) {
	t.Helper()
	var lines bytes.Buffer
	config.Log = logging.New(&lines, slog.LevelInfo, "p")
	if config.Clock == nil {
		config.Clock = time.Now
	}
	recorder := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(t.Context(), method, "/", bytes.NewReader(body))
	push.Handler(config, step).ServeHTTP(recorder, request)
	return recorder.Code, lines.String()
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

// TestHandlerAnswers shows contract 9.5, also to what Pub/Sub never posts: no step sees any of that, and the log
// stays a line for each.
func TestHandlerAnswers(t *testing.T) {
	t.Parallel()
	body := encode(t, example())
	fails := func(err error) push.HandleFunc {
		return func(context.Context, push.Message) error { return err }
	}
	panics := func(context.Context, push.Message) error { panic("nil map") }
	malformed := push.Permanent(push.ReasonMalformed, errors.New("humidity 140"))
	spaces := func(n int) []byte { return bytes.Repeat([]byte(" "), n) }
	largest := append(encode(t, example()), spaces(push.MaxBody)...)[:push.MaxBody]
	const noPush = "not a Pub/Sub push message"
	message := func(fields string) []byte {
		return []byte(`{"message":{"messageId":"1",` + fields + `},"subscription":"s"}`)
	}
	for name, c := range map[string]struct {
		body   []byte
		step   push.HandleFunc // nil where it sees nothing
		want   int
		logged string
	}{
		"done":                  {body, fails(nil), http.StatusNoContent, ""},
		"at the limit":          {largest, fails(nil), http.StatusNoContent, ""},
		"a retry can help":      {body, fails(errors.New("database away")), http.StatusServiceUnavailable, "database away"},
		"no retry helps":        {body, fails(malformed), http.StatusAccepted, "humidity 140"},
		"panic":                 {body, panics, http.StatusInternalServerError, "push_test.go"},
		"garbage":               {[]byte("hello"), nil, http.StatusBadRequest, noPush},
		"no message":            {[]byte(`{"subscription":"s"}`), nil, http.StatusBadRequest, "no message"},
		"null":                  {[]byte(`null`), nil, http.StatusBadRequest, "no message"},
		"data not base64":       {message(`"data":"###"`), nil, http.StatusBadRequest, noPush},
		"over the limit":        {append(bytes.Clone(largest), ' '), nil, http.StatusAccepted, `"reason":"too_large"`},
		"larger than Pub/Sub's": {spaces(16<<20 + 1), nil, http.StatusRequestEntityTooLarge, "over limit"},
		"arrays, deep":          {bytes.Repeat([]byte("["), 1<<19), nil, http.StatusBadRequest, noPush},
		"objects, deep":         {bytes.Repeat([]byte(`{"message":`), 50_000), nil, http.StatusBadRequest, noPush},
		"message of a list":     {[]byte(`{"message":[],"subscription":"s"}`), nil, http.StatusBadRequest, noPush},
		"attributes nested":     {message(`"data":"e30=","attributes":{"a":{"b":"c"}}`), nil, http.StatusBadRequest, noPush},
		"time of nowhere":       {message(`"data":"e30=","publishTime":"yesterday"`), nil, http.StatusBadRequest, noPush},
		"attempt beyond int":    {[]byte(`{"message":{"messageId":"1"},"deliveryAttempt":1e30}`), nil, http.StatusBadRequest, noPush},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := c.step
			if step == nil {
				step = func(context.Context, push.Message) error {
					t.Error("the step was called")
					return nil
				}
			}
			status, logged := post(t, push.Config{DeadLetter: &deadLetters{}}, http.MethodPost, c.body, step)
			must.Equal(t, "answered", c.want, status)
			must.Contain(t, "the log", logged, c.logged)
			must.Equal(t, "lines of the log", min(len(c.logged), 1), strings.Count(logged, "\n"))
			must.Hold(t, len(logged) <= 2000 || c.step != nil, "%d bytes in the log", len(logged))
		})
	}
	status, _ := post(t, push.Config{}, http.MethodGet, nil, fails(nil))
	must.Equal(t, "GET", http.StatusMethodNotAllowed, status)
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
		clock := push.Config{Clock: func() time.Time { return now }}
		post(t, clock, http.MethodPost, []byte(body), func(_ context.Context, m push.Message) error {
			got = m.PublishTime
			return nil
		})
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
	_, logged := post(t, push.Config{}, http.MethodPost, encode(t, m), func(context.Context, push.Message) error { return errors.New("away") })
	must.Contain(t, "the log of the refusal", logged, "projects/p/traces/"+id)
}
