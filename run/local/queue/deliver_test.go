package queue

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
)

// afterQuery is called when a query has its rows, before its caller has them.
type afterQuery func()

func (afterQuery) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (f afterQuery) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) { f() }

// TestNothingIsDeliveredAfterRun has Run end while a reader of the table has rows that it has not looked at.
func TestNothingIsDeliveredAfterRun(t *testing.T) {
	t.Parallel()
	q := must.Get(Open(t.Context(), Config{DatabaseURL: pgtest.URL(t), Project: "test", Clock: time.Now, Log: logging.Discard()}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ending := func(other *subscription) bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return other.pending
	}
	config := q.pool.Config()
	config.ConnConfig.Tracer = afterQuery(func() {
		if ctx.Err() == nil {
			other := q.subscriptions["train"] // which has no function here
			q.mu.Lock()
			other.pending = false
			q.mu.Unlock()
			cancel()
			for !ending(other) {
				time.Sleep(time.Millisecond) // between two looks
			}
		}
	})
	q.pool.Close()
	q.pool = must.Get(pgxpool.NewWithConfig(t.Context(), config))(t)
	var calls atomic.Int64
	released := make(chan struct{})
	q.Run(ctx, map[string]http.Handler{"ingest": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		calls.Add(1)
		<-released
	})})
	must.Get(q.Publish(t.Context(), &pubsubpb.PublishRequest{
		Topic: TopicName("test", TopicData), Messages: []*pubsubpb.PubsubMessage{{Data: []byte("late")}},
	}))(t)
	q.mu.Lock()
	must.Equal(t, "messages are delivered after Run", 0, q.subscriptions["ingest"].held)
	q.mu.Unlock()
	close(released)
	q.Close()
	must.Equal(t, "calls after Run", int64(0), calls.Load())
}
