package redeliverytest

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"google.golang.org/grpc"

	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/pubsubtest"
)

func openQueue(tb testing.TB, config queue.Config, options ...grpc.DialOption) (*queue.Queue, *pubsub.Client) {
	tb.Helper()
	config.DatabaseURL, config.Project, config.Log = pgtest.URL(tb), project, logging.Discard()
	if config.Clock == nil {
		config.Clock = time.Now
	}
	q := must.Get(queue.Open(tb.Context(), config))(tb)
	tb.Cleanup(q.Close)
	return q, pubsubtest.Dial(tb, q.Address, project, options...)
}

// pushTo runs a queue until the test ends or stop is called.
func pushTo(tb testing.TB, q *queue.Queue, functions map[string]http.Handler) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	var running sync.WaitGroup
	running.Go(func() { q.Run(ctx, functions) })
	stop = func() { cancel(); running.Wait() }
	tb.Cleanup(stop)
	return stop
}
