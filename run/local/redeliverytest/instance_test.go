package redeliverytest

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/shared/function/functiontest"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/reading"
)

// instance is a function behind a network that fails.
type instance struct {
	*functiontest.Process

	tb      testing.TB
	network string // its URL

	mu     sync.Mutex
	chance *rand.Rand
	killed int
}

// start runs an instance of a function behind its own network.
func start(t *testing.T, program, function string, environ []string) *instance {
	t.Helper()
	i := &instance{
		tb: t, Process: functiontest.Start(t, program, append([]string{"FUNCTION_TARGET=" + function}, environ...)...),
		chance: rand.New(rand.NewPCG(3, uint64(len(function)))),
	}
	network := httptest.NewServer(i)
	t.Cleanup(network.Close)
	i.network = network.URL
	return i
}

// ServeHTTP passes a message on: nine of ten times once.
func (i *instance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	i.mu.Lock()
	dice := i.chance.IntN(40)
	i.mu.Unlock()
	if dice == 0 { // lost on the way
		http.Error(w, "lost", http.StatusBadGateway)
		return
	}
	status := forward(r.Context(), i.URL, body)
	switch dice {
	case 1, 2: // done, and the answer lost
		status = http.StatusBadGateway
	case 3: // delivered twice
		status = forward(r.Context(), i.URL, body)
	}
	w.WriteHeader(status)
}

func forward(ctx context.Context, target string, body []byte) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return http.StatusBadGateway
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return http.StatusBadGateway // killed
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// kills kills the instance twice a second, without warning, and starts another,
// until the returned function is called. Where starting takes long, as on a busy
// machine, it lives for twice as long as that took, or nothing would get done.
func (i *instance) kills(ctx context.Context, running *sync.WaitGroup) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	running.Go(func() {
		for life := 500 * time.Millisecond; ; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(life):
			}
			i.Kill()
			began := time.Now()
			if err := i.Start(context.WithoutCancel(ctx)); err != nil {
				i.tb.Error(err)
				return
			}
			life = max(500*time.Millisecond, 2*time.Since(began))
			i.mu.Lock()
			i.killed++
			i.mu.Unlock()
		}
	})
	return stop
}

// deaths is how often the instance was killed.
func (i *instance) deaths() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.killed
}

// stored reads the readings that a query of a database finds.
func stored(t *testing.T, pool *pgxpool.Pool, query string) []reading.Reading {
	t.Helper()
	rows := must.Get(pool.Query(t.Context(), query))(t)
	return must.Get(pgx.CollectRows(rows, func(row pgx.CollectableRow) (r reading.Reading, err error) {
		err = row.Scan(&r.Channel, &r.NodeID, &r.MessageID, &r.Time, &r.Temperature, &r.Humidity)
		r.Time = r.Time.UTC()
		return r, err
	}))(t)
}

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
