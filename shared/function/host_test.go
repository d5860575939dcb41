package function_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"coldaisle.dev/shared/closing"
	"coldaisle.dev/shared/function"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/logmetrics"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/push"
)

type opener = func(context.Context) (*function.Opened, error)

func host(t *testing.T, open opener) (*function.Host, *httptest.Server, *bytes.Buffer) {
	t.Helper()
	var lines bytes.Buffer
	log := logging.New(&lines, slog.LevelInfo, "")
	h := function.NewHost("test", log, logmetrics.New(log, "test", time.Hour, time.Now), time.Now, open)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return h, server, &lines
}

func post(t *testing.T, url string) int {
	t.Helper()
	body := must.Get(push.Encode(push.Message{ID: "1", Data: []byte("x"), PublishTime: time.Unix(1, 0)}))(t)
	response, err := http.Post(url, "application/json", bytes.NewReader(body))
	must.Do(t, err)
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode
}

func TestHostOpensOnceWithTheFirstMessage(t *testing.T) {
	t.Parallel()
	var opened atomic.Int64
	_, server, _ := host(t, func(context.Context) (*function.Opened, error) {
		opened.Add(1)
		return &function.Opened{Handle: func(context.Context, push.Message) error { return nil }}, nil
	})
	must.Equal(t, "opened before any message", int64(0), opened.Load())
	var posts sync.WaitGroup
	for range 20 {
		posts.Go(func() { must.Equal(t, "answered", http.StatusNoContent, post(t, server.URL)) })
	}
	posts.Wait()
	must.Equal(t, "openings", int64(1), opened.Load())
}

type fails struct{}

func (fails) Publish(context.Context, []byte, map[string]string) error {
	return errors.New("topic is away")
}

// TestHostPutsIntoItsDeadLetter holds that a refused message goes where the opened
// function says, under the function's name.
func TestHostPutsIntoItsDeadLetter(t *testing.T) {
	t.Parallel()
	pubsub := pubsubtest.Start(t)
	pubsubtest.Topics(t, pubsub, "p", "dead")
	topic := publisher.NewSingle(pubsubtest.Client(t, pubsub, "p"), "dead", time.Minute)
	t.Cleanup(topic.Stop)
	refuses := func(context.Context, push.Message) error {
		return push.Permanent(push.ReasonMalformed, errors.New("no JSON"))
	}
	_, server, _ := host(t, func(context.Context) (*function.Opened, error) {
		return &function.Opened{Handle: refuses, DeadLetter: topic}, nil
	})
	must.Equal(t, "answered", http.StatusAccepted, post(t, server.URL))
	if dead := pubsub.Messages(); len(dead) != 1 || dead[0].Attributes[push.AttributeFunction] != "test" || string(dead[0].Data) != "x" {
		t.Errorf("in the dead letter: %v", dead)
	}
	_, server, _ = host(t, func(context.Context) (*function.Opened, error) {
		return &function.Opened{Handle: refuses, DeadLetter: fails{}}, nil
	})
	must.Equal(t, "while the topic is away: answered", http.StatusServiceUnavailable, post(t, server.URL))
}

func TestHostDrains(t *testing.T) {
	t.Parallel()
	started, release := make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	var messages atomic.Int64
	h, server, lines := host(t, func(context.Context) (*function.Opened, error) {
		step := func(ctx context.Context, _ push.Message) error {
			if messages.Add(1) > 1 {
				return nil
			}
			close(started)
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		opened := &function.Opened{Handle: step}
		opened.Clients.Push("client", closing.NoError(func() { ended.Store(true) }))
		return opened, nil
	})
	answered := make(chan int, 1)
	go func() { answered <- post(t, server.URL) }()
	<-started
	drained := make(chan error, 1)
	go func() { drained <- h.Drain(t.Context()) }()
	must.Eventually(t, "a draining host takes no messages", func() bool { return post(t, server.URL) == http.StatusServiceUnavailable })
	must.Hold(t, !ended.Load(), "clients closed under a message in flight")
	close(release)
	must.Do(t, <-drained)
	must.Equal(t, "message in flight", http.StatusNoContent, <-answered)
	must.Hold(t, ended.Load(), "clients not closed")
	must.Contain(t, "the last counters", lines.String(), `"messages_processed":`)
}

func TestHostDrainEnds(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	h, server, _ := host(t, func(context.Context) (*function.Opened, error) {
		return &function.Opened{Handle: func(ctx context.Context, _ push.Message) error {
			close(started)
			<-ctx.Done()
			return ctx.Err()
		}}, nil
	})
	ctx, abandon := context.WithCancel(t.Context())
	var posting sync.WaitGroup
	posting.Go(func() {
		body, _ := push.Encode(push.Message{ID: "1"})
		request, _ := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, bytes.NewReader(body))
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
		}
	})
	<-started
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	must.Fail(t, "drain of a hanging message", h.Drain(short), context.DeadlineExceeded)
	abandon()
	posting.Wait()
}

// OwnConfig is a function's part of the config; it refuses a topic.
type OwnConfig struct {
	Topic string `env:"ALERT_TOPIC"`
}

func (c OwnConfig) Validate() error {
	if c.Topic == "bad" {
		return errors.New("ALERT_TOPIC is bad")
	}
	return nil
}

// TestHandlerRefusesSettings shows that what is missing or malformed is the only error, and that
// otherwise the function's own settings and the database's are refused at once.
func TestHandlerRefusesSettings(t *testing.T) {
	t.Parallel()
	type settings struct {
		function.CommonConfig
		OwnConfig
	}
	const database = "DATABASE_URL, or INSTANCE_CONNECTION_NAME, DB_USER and DB_NAME, are required\n"
	for environ, want := range map[string]string{
		"": "probe: PROJECT_ID is required and not set\nprobe: DEAD_LETTER_TOPIC is required and not set\n",
		"PROJECT_ID=p DEAD_LETTER_TOPIC=d DB_MAX_CONNS=many": "probe: DB_MAX_CONNS is not a valid whole number\n",
		"PROJECT_ID=p DEAD_LETTER_TOPIC=d ALERT_TOPIC=good":  "probe: config: " + database,
		"PROJECT_ID=p DEAD_LETTER_TOPIC=d ALERT_TOPIC=bad":   "probe: config: ALERT_TOPIC is bad\nprobe: " + database,
	} {
		var output bytes.Buffer
		code := -1
		function.Handler(function.Process{
			Environ: strings.Fields(environ), Errors: &output, Exit: func(c int) { code = c }, Clock: time.Now,
		}, "probe", func(context.Context, settings, function.Deps) (push.HandleFunc, error) {
			return nil, errors.New("never opened")
		})
		must.Hold(t, code == 1 && output.String() == want,
			"%s: exit %d, %q, want %q", environ, code, output.String(), want)
	}
}

// TestClientsAreClosedWhenTheFunctionDoesNotOpen has a function open a client and then
// fail; the next message opens it again.
func TestClientsAreClosedWhenTheFunctionDoesNotOpen(t *testing.T) {
	t.Setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1") // never called
	type settings struct{ function.CommonConfig }
	var opened, closed atomic.Int32
	handler := function.Handler(function.Process{
		Environ: []string{"PROJECT_ID=p", "DEAD_LETTER_TOPIC=d", "DATABASE_URL=postgres://nobody@127.0.0.1:1/none"}, Log: t.Output(), Clock: time.Now,
	}, "probe", func(_ context.Context, _ settings, deps function.Deps) (push.HandleFunc, error) {
		opened.Add(1)
		deps.Clients.Push("client", closing.NoError(func() { closed.Add(1) }))
		return nil, errors.New("no database")
	})
	for range 2 {
		recorder := httptest.NewRecorder()
		handler(recorder, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"message":{"messageId":"1","data":"e30="},"subscription":"s"}`)))
		must.Hold(t, recorder.Code >= http.StatusInternalServerError, "answered %d", recorder.Code)
	}
	must.Hold(t, opened.Load() == 2 && closed.Load() == 2,
		"opened %d times, closed %d, want 2 and 2", opened.Load(), closed.Load())
}
