package push_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/logmetrics"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/pubsubtest"
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
	must.Equal(t, "", example(), must.Get(push.Decode([]byte(body)))(t))
}

// TestHandlerAnswers shows contract 9.5, also to what Pub/Sub never posts: no step sees any of that, and the log
// stays a line for each.
func TestHandlerAnswers(t *testing.T) {
	t.Parallel()
	body := encode(t, example())
	fails := func(err error) push.HandleFunc { return func(context.Context, push.Message) error { return err } }
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
		step := c.step
		if step == nil {
			step = func(context.Context, push.Message) error {
				t.Errorf("%s: the step was called", name)
				return nil
			}
		}
		status, logged := post(t, push.Config{DeadLetter: &deadLetters{}}, http.MethodPost, c.body, step)
		must.Equal(t, name+" is answered", c.want, status)
		must.Contain(t, name+": the log", logged, c.logged)
		must.Equal(t, name+": lines of the log", min(len(c.logged), 1), strings.Count(logged, "\n"))
		must.Hold(t, len(logged) <= 2000 || c.step != nil, "%s: %d bytes in the log", name, len(logged))
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

// FuzzDecode holds that no body makes the decoder panic, and that what it accepts means the same after another trip.
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

// deadLetters is a dead letter topic that keeps what it is given, or fails.
type deadLetters struct {
	err error

	mu         sync.Mutex
	data       [][]byte
	attributes []map[string]string
}

func (d *deadLetters) Publish(ctx context.Context, data []byte, attributes map[string]string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil || ctx.Err() != nil {
		return errors.Join(d.err, ctx.Err())
	}
	d.data, d.attributes = append(d.data, data), append(d.attributes, attributes)
	return nil
}

// answer delivers a message to a function and returns the answer's status and the log.
func answer(t *testing.T, dead push.DeadLetter, m push.Message, step push.HandleFunc) (status int, logged string) {
	t.Helper()
	var lines bytes.Buffer
	log := logging.New(&lines, slog.LevelInfo, "p")
	counters := logmetrics.New(log, "ingest", time.Hour, time.Now)
	handler := push.Handler(push.Config{Function: "ingest", DeadLetter: dead, Clock: time.Now, Log: log, Counters: counters}, step)
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(encode(t, m))))
	counters.Flush(t.Context())
	return recorder.Code, lines.String()
}

// TestClassesOfFailure shows contract 9.5: which failures are delivered again, and
// from which attempt on the others are in the dead letter.
func TestClassesOfFailure(t *testing.T) {
	t.Parallel()
	fails := func(err error) push.HandleFunc {
		return func(context.Context, push.Message) error { return fmt.Errorf("store: %w", err) }
	}
	postgres := func(code string) push.HandleFunc { return fails(&pgconn.PgError{Code: code}) }
	const never = 0
	for name, c := range map[string]struct {
		step   push.HandleFunc
		from   int // the first attempt that is put into the dead letter
		reason push.Reason
		before int // status before
	}{
		"a dependency is away":       {fails(errors.New("connection refused")), never, "", http.StatusServiceUnavailable},
		"a context ended":            {fails(context.DeadlineExceeded), never, "", http.StatusServiceUnavailable},
		"PostgreSQL starts":          {postgres("57P03"), never, "", http.StatusServiceUnavailable},
		"PostgreSQL is full":         {postgres("53100"), never, "", http.StatusServiceUnavailable},
		"PostgreSQL is not migrated": {postgres("42P01"), never, "", http.StatusServiceUnavailable},
		"malformed":                  {fails(push.Permanent(push.ReasonMalformed, errors.New("no JSON"))), 1, push.ReasonMalformed, 0},
		"unknown run":                {fails(push.Permanent(push.ReasonUnknownRun, errors.New("run 7"))), 1, push.ReasonUnknownRun, 0},
		"a value that no column has": {postgres("22003"), 5, push.ReasonRejected, http.StatusServiceUnavailable},
		"a constraint":               {postgres("23514"), 5, push.ReasonRejected, http.StatusServiceUnavailable},
		"a row refused":              {fails(push.Unexpected(push.ReasonRejected, errors.New("row refused"))), 5, push.ReasonRejected, http.StatusServiceUnavailable},
		"a panic":                    {func(context.Context, push.Message) error { panic("nil map") }, 5, push.ReasonPanic, http.StatusInternalServerError},
	} {
		for _, attempt := range []int{1, 4, 5, 6, 99} {
			var dead deadLetters
			m := example()
			m.DeliveryAttempt = attempt
			status, logged := answer(t, &dead, m, c.step)
			want, counter := c.before, `"messages_failed":1`
			if c.from != never && attempt >= c.from {
				want, counter = http.StatusAccepted, `"messages_dead_lettered":1`
				must.Hold(t, len(dead.attributes) == 1 && dead.attributes[0][push.AttributeReason] == string(c.reason),
					"%s, attempt %d: in the dead letter: %v", name, attempt, dead.attributes)
			} else if len(dead.data) != 0 {
				t.Errorf("%s, attempt %d is in the dead letter: %v", name, attempt, dead.attributes)
			}
			must.Hold(t, status == want && strings.Contains(logged, counter),
				"%s, attempt %d answered %d, want %d; logged %s", name, attempt, status, want, logged)
		}
	}
}

// TestDeadLetterIsTheOriginal holds that an envelope comes back as it was, whatever was in it, and that the topic
// takes it: publisher and limits are Pub/Sub's. Contract 9.9.
func TestDeadLetterIsTheOriginal(t *testing.T) {
	t.Parallel()
	const traced = "4bf92f3577b34da6a3ce929d0e0e4736"
	for name, c := range map[string]struct {
		change func(*push.Message)
		want   func(*push.Message)
		cause  string
	}{
		"as it is": {},
		"with a trace": {change: func(m *push.Message) {
			m.Attributes["googclient_traceparent"] = "00-" + traced + "-b7ad6b7169203331-01"
		}},
		"without data": {change: func(m *push.Message) { m.Data = nil }},
		"whose attributes somebody forged": {
			change: func(m *push.Message) {
				m.Attributes[push.AttributeFunction], m.Attributes[push.AttributePublishTime] = "train", "2020-01-01T00:00:00Z"
				m.Attributes[push.ForwardedSubscription], m.Attributes[push.ForwardedPublishTime] = "projects/p/subscriptions/train", "2020-01-01T00:00:00Z"
				m.Attributes["dead_letter_trace"] = "0"
			},
			want: func(m *push.Message) { m.Attributes = map[string]string{"node_id": "n1"} },
		},
		"with as many attributes as fit": {change: func(m *push.Message) { many(m, 94) }},
		"with more attributes than fit": {
			change: func(m *push.Message) { many(m, 95) },
			want:   func(m *push.Message) { m.Attributes = map[string]string{} },
		},
		"with an error that no attribute takes": {cause: "\xff\x00" + strings.Repeat("é", 2000)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pubsubtest.Start(t, pubsubtest.Limits())
			pubsubtest.Topics(t, server, "p", "data-dead-letter")
			topic := publisher.NewSingle(pubsubtest.Client(t, server, "p"), "data-dead-letter", time.Minute)
			t.Cleanup(topic.Stop)
			m := example()
			if c.change != nil {
				c.change(&m)
			}
			cause := cmp.Or(c.cause, "no JSON")
			status, logged := answer(t, topic, m, func(context.Context, push.Message) error {
				return push.Permanent(push.ReasonMalformed, errors.New(cause))
			})
			must.Equal(t, "answered", http.StatusAccepted, status)
			must.Contain(t, "the log", logged, push.DeadLetterMessage, `"reason":"malformed"`)
			published := server.Messages()[0]
			got := must.Get(push.DecodeDeadLetter(published.ID, published.Data, published.Attributes))(t)
			want := push.DeadLettered{Message: m, Function: "ingest", Reason: push.ReasonMalformed, Error: cause}
			if c.want != nil {
				c.want(&want.Message)
			}
			want.Message.Subscription, want.Message.OrderingKey = "", ""
			if want.Message.Attributes["googclient_traceparent"] != "" {
				want.Trace = traced
			}
			if c.cause != "" {
				must.Hold(t, len(got.Error) <= 1024 && len(got.Error) >= 1000 && utf8.ValidString(got.Error) && strings.HasSuffix(got.Error, "é"),
					"the error is %d bytes: %q", len(got.Error), got.Error)
				want.Error = got.Error
			}
			must.Equal(t, "", want, got)
		})
	}
}

func many(m *push.Message, n int) {
	m.Attributes = map[string]string{}
	for i := range n {
		m.Attributes["a"+strconv.Itoa(i)] = strings.Repeat("v", 1024)
	}
}

// TestDeadLetterThatFailsIsNotLost holds that a message is delivered again that could
// not be put into the dead letter, and that a handler whose time is over still can.
func TestDeadLetterThatFailsIsNotLost(t *testing.T) {
	t.Parallel()
	dead := &deadLetters{err: errors.New("topic is away")}
	refuses := func(context.Context, push.Message) error {
		return push.Permanent(push.ReasonMalformed, errors.New("no JSON"))
	}
	status, logged := answer(t, dead, example(), refuses)
	must.Equal(t, "answered", http.StatusServiceUnavailable, status)
	must.Contain(t, "the log", logged, "topic is away", `"messages_failed":1`)
	must.Hold(t, !strings.Contains(logged, push.DeadLetterMessage), "logged %s", logged)
	m := example()
	m.DeliveryAttempt = push.MaxUnexpectedAttempts
	status, logged = answer(t, dead, m, func(context.Context, push.Message) error { panic("nil map") })
	must.Equal(t, "a panic answered", http.StatusInternalServerError, status)
	must.Contain(t, "the log of a panic", logged, "push_test.go")

	dead.err = nil
	handler := push.Handler(push.Config{DeadLetter: dead, Clock: time.Now, Log: logging.Discard()}, refuses)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(encode(t, example()))))
	must.Equal(t, "answered after its context ended", http.StatusAccepted, recorder.Code)
	must.Equal(t, "in the dead letter", 1, len(dead.data))
}

// TestDecodeDeadLetterOfPubSub reads what Pub/Sub adds when it moves a message itself,
// which wins over attributes that only look like a function's.
func TestDecodeDeadLetterOfPubSub(t *testing.T) {
	t.Parallel()
	moved := func() map[string]string {
		return map[string]string{
			"node_id": "n1",
			// As documented at https://cloud.google.com/pubsub/docs/handling-failures#track-delivery-attempts.
			"CloudPubSubDeadLetterSourceDeliveryCount":       "100",
			"CloudPubSubDeadLetterSourceSubscription":        "detect",
			"CloudPubSubDeadLetterSourceSubscriptionProject": "p",
			"CloudPubSubDeadLetterSourceTopicPublishTime":    "2026-11-20T03:00:00.123+00:00",
		}
	}
	want := push.DeadLettered{
		Function: "detect", Reason: push.ReasonExhausted,
		Message: push.Message{
			ID: "9", Data: []byte("{}"), Attributes: map[string]string{"node_id": "n1"}, DeliveryAttempt: 100,
			PublishTime: time.Date(2026, 11, 20, 3, 0, 0, 123e6, time.UTC),
		},
	}
	forged := moved()
	forged[push.AttributeFunction], forged[push.AttributePublishTime], forged[push.AttributeReason] = "ingest", "2020-01-01T00:00:00Z", "panic"
	long := moved()
	long["CloudPubSubDeadLetterSourceSubscription"] = "projects/p/subscriptions/detect"
	for name, attributes := range map[string]map[string]string{"moved": moved(), "forged": forged, "full name": long} {
		got := must.Get(push.DecodeDeadLetter("9", []byte("{}"), attributes))(t)
		must.Equal(t, name, want, got)
	}
	for _, missing := range []string{"CloudPubSubDeadLetterSourceSubscription", "CloudPubSubDeadLetterSourceTopicPublishTime", "CloudPubSubDeadLetterSourceDeliveryCount"} {
		attributes := moved()
		delete(attributes, missing)
		got, err := push.DecodeDeadLetter("9", nil, attributes)
		must.Hold(t, err != nil, "without %s: %+v", missing, got)
	}
}

// FuzzDecodeDeadLetter holds that no message of a dead letter topic makes the decoder
// panic, and that what it accepts can be posted to a function.
func FuzzDecodeDeadLetter(f *testing.F) {
	f.Add("ingest", "malformed", "1", "2026-11-20T03:00:00Z", "", "", "")
	f.Add("", "", "", "", "projects/p/subscriptions/detect", "100", "2026-11-20T03:00:00Z")
	f.Fuzz(func(t *testing.T, function, reason, attempt, published, subscription, count, forwarded string) {
		attributes := map[string]string{
			"node_id": "n1", push.AttributeFunction: function, push.AttributeReason: reason, push.AttributeAttempt: attempt, push.AttributePublishTime: published,
		}
		if subscription != "" {
			attributes[push.ForwardedSubscription], attributes[push.ForwardedDeliveryCount], attributes[push.ForwardedPublishTime] = subscription, count, forwarded
		}
		dead, err := push.DecodeDeadLetter("9", []byte("{}"), attributes)
		if err != nil {
			return
		}
		must.Hold(t, dead.Function != "" && len(dead.Message.Attributes) == 1, "accepted %v as %+v", attributes, dead)
		body, err := push.Encode(dead.Message)
		if err != nil {
			return // a year that RFC 3339 cannot write
		}
		if again, err := push.Decode(body); err != nil || !again.PublishTime.Equal(dead.Message.PublishTime) {
			t.Fatalf("%+v is posted as %+v, %v", dead, again, err)
		}
	})
}
