package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/api/option"

	"coldaisle.dev/edge-gateway/enrolment"
	"coldaisle.dev/edge-gateway/gateway"
)

// topic publishes to Pub/Sub: for an open gateway once Google's libraries find credentials,
// for an enrolled one while it has a token of the API. Until then every publish fails, readings
// go into the outbox, and it looks for credentials at most once in PROBE_EVERY.
type topic struct {
	gateway.Granted // ready

	session *enrolment.Session // nil for an open gateway
	connect func(enrolment.Target) (*gateway.ReadingPublisher, error)
	every   time.Duration
	clock   func() time.Time
	log     *slog.Logger

	mu        sync.Mutex
	target    enrolment.Target
	publisher *gateway.ReadingPublisher // at target; nil before the first publish
	err       error                     // of the last attempt to connect
	tried     time.Time
}

// newTopic returns the topic of an enrolled gateway, or, without a session, of an open one.
func newTopic(
	ctx context.Context, s Config, session *enrolment.Session, clock func() time.Time, log *slog.Logger, options ...option.ClientOption,
) *topic {
	if session != nil && s.Emulator == "" {
		options = append(options, option.WithTokenSource(session))
	}
	t := &topic{session: session, target: enrolment.Target{ProjectID: s.ProjectID, Topic: s.DataTopic}, every: s.ProbeEvery, clock: clock, log: log}
	t.Granted = func() (gateway.Publisher, error) { return t.ready(ctx) }
	t.connect = func(target enrolment.Target) (*gateway.ReadingPublisher, error) {
		return gateway.Connect(context.WithoutCancel(ctx), target.ProjectID, target.Topic, s.PublishTimeout, options...)
	}
	return t
}

// ready returns the current publisher, or why there is none.
func (t *topic) ready(ctx context.Context) (*gateway.ReadingPublisher, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.session != nil {
		if err := t.session.Ready(); err != nil {
			return nil, err
		}
		if target := t.session.Target(); t.target != target {
			t.stop()
			t.target = target
		}
	}
	if t.publisher != nil {
		return t.publisher, nil
	}
	if t.err != nil && t.clock().Sub(t.tried).Abs() < t.every {
		return nil, t.err
	}
	before := t.err
	t.publisher, t.err = t.connect(t.target)
	t.tried = t.clock()
	if before != nil && t.err == nil {
		t.log.InfoContext(ctx, "credentials found")
	}
	return t.publisher, t.err
}

// await waits for the first status of an enrolled gateway.
func (t *topic) await(ctx context.Context) {
	if t.session != nil {
		select {
		case <-t.session.Tried():
		case <-ctx.Done():
		}
	}
}

// close publishes the messages still held and closes the connection.
func (t *topic) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stop()
}

// stop closes the connection if there is one; the lock is held.
func (t *topic) stop() {
	if t.publisher != nil {
		t.publisher.Stop()
	}
	t.publisher, t.err = nil, nil
}
