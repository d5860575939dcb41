// Package function hosts one function of the pipeline in the Functions Framework
// and gives it what the framework lacks: clients that are opened by the first
// message instead of before the port opens, a timeout for every message, and a
// shutdown that lets messages in flight finish.
//
// The init of each entrypoint registers what [Handler] returns with the framework
// and does nothing else: only it runs before the first message. In production the
// buildpack supplies the main, locally functions/serve does. Both only call the
// framework's Start, so they behave alike. The entrypoint is the root package of the
// deployed archive and calls the framework itself, because the buildpack looks for
// it among that package's direct imports (see run/tools/release/archive). Nothing
// else may import this package: it ends the process.
package function

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/closing"
	"coldaisle.dev/shared/cloudsql"
	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/logmetrics"
	"coldaisle.dev/shared/publisher"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/tracing"
)

const (
	// handlerTimeout ends a message that hangs, before Pub/Sub's acknowledgement
	// deadline of 60 s leads to its redelivery.
	handlerTimeout = 50 * time.Second
	// openTimeout bounds an attempt to open the clients.
	openTimeout = 20 * time.Second
	// deadLetterTimeout bounds a publish to the dead letter topic with the library's
	// own retries.
	deadLetterTimeout = 4 * time.Second
	// drainTimeout is how long messages in flight may take after SIGTERM. Cloud
	// Run kills an instance 10 s after it.
	drainTimeout = 8 * time.Second
	// metricsInterval is how often counters are written to the log.
	metricsInterval = time.Minute
)

// Deps are the dependencies of a function besides its config.
type Deps struct {
	PubSub   *pubsub.Client
	Database *pgxpool.Pool
	// Clients are closed after the last message, or if the function fails to open.
	Clients  *closing.Stack
	Log      *slog.Logger
	Counters *logmetrics.Counters
	Clock    func() time.Time
}

// Opener opens a function and its clients, which it pushes onto deps.Clients. ctx bounds only
// the opening: clients must outlive it.
type Opener[C Config] func(ctx context.Context, config C, deps Deps) (push.HandleFunc, error)

// CommonConfig is the config that every function has. Embed it.
type CommonConfig struct {
	// Project is the Google Cloud project that everything belongs to.
	Project string `env:"PROJECT_ID,required,notEmpty"`
	// DeadLetterTopic is the dead letter topic of the function's own subscription, for the
	// messages that it refuses.
	DeadLetterTopic string `env:"DEAD_LETTER_TOPIC,required,notEmpty"`
	Database        cloudsql.Config
	Tracing         tracing.Config
}

func (c CommonConfig) commonConfig() CommonConfig { return c }

// Config is a function's own config with [CommonConfig] embedded.
type Config interface{ commonConfig() CommonConfig }

// checked is a function's config whose validation includes that of [CommonConfig].
type checked[C Config] struct{ Config C }

// Validate implements [config.Validator].
func (c checked[C]) Validate() error {
	var own error
	if v, ok := any(c.Config).(config.Validator); ok {
		own = v.Validate()
	}
	return errors.Join(own, c.Config.commonConfig().Database.Validate())
}

// Process is the process around a function.
type Process struct {
	Environ []string // as of os.Environ
	Log     io.Writer
	Errors  io.Writer
	Clock   func() time.Time
	Exit    func(code int)
}

// ThisProcess is the process that an entrypoint runs in.
func ThisProcess() Process {
	return Process{Environ: os.Environ(), Log: os.Stdout, Errors: os.Stderr, Clock: time.Now, Exit: os.Exit} //nolint:forbidigo // an entrypoint's
}

// Handler returns the HTTP handler of a function; SIGTERM ends the program. A missing
// or malformed variable ends it at once with status 1: an instance that could only
// fail must not count as started. Where FUNCTION_TARGET names another function of the
// same program, it is nil and the config is not read.
func Handler[C Config](process Process, name string, open Opener[C]) http.HandlerFunc {
	target, err := config.Load[struct {
		Name string `env:"FUNCTION_TARGET"`
	}](process.Environ)
	if err == nil && target.Name != "" && target.Name != name {
		return nil
	}
	loaded, err := config.Load[checked[C]](process.Environ)
	cfg, common := loaded.Config, loaded.Config.commonConfig()
	if err != nil {
		config.PrintError(process.Errors, name, err)
		process.Exit(1)
		return nil
	}
	log := logging.New(process.Log, slog.LevelInfo, common.Project)
	counters := logmetrics.New(log, name, metricsInterval, process.Clock)
	host := NewHost(name, log, counters, process.Clock, func(ctx context.Context) (*Opened, error) {
		opened := &Opened{}
		deps := Deps{Clients: &opened.Clients, Log: log, Counters: counters, Clock: process.Clock}
		var err error
		if opened.DeadLetter, err = openCommon(ctx, name, common, &deps); err == nil {
			opened.Handle, err = open(ctx, cfg, deps)
		}
		if err != nil {
			return nil, errors.Join(err, opened.Clients.Close())
		}
		return opened, nil
	})
	go exitOnSignal(host, process.Exit)
	return host.ServeHTTP
}

// openCommon opens the clients that every function has, and returns the publisher of dead
// letters.
func openCommon(ctx context.Context, name string, common CommonConfig, deps *Deps) (push.DeadLetter, error) {
	stop, err := tracing.Start(context.WithoutCancel(ctx), common.Tracing, name)
	if err != nil {
		return nil, err
	}
	deps.Clients.Push("traces", func() error { //nolint:contextcheck // the context of opening has long ended when this runs
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return stop(ctx)
	})
	deps.PubSub, err = pubsub.NewClient(context.WithoutCancel(ctx), common.Project)
	if err != nil {
		return nil, fmt.Errorf("open Pub/Sub: %w", err)
	}
	deps.Clients.Push("Pub/Sub", deps.PubSub.Close)
	// One request for each message: Pub/Sub refuses a whole request for one bad message.
	deadLetter := publisher.NewSingle(deps.PubSub, common.DeadLetterTopic, deadLetterTimeout)
	deps.Clients.Push("dead letter topic", closing.NoError(deadLetter.Stop))
	pool, closePool, err := cloudsql.Open(ctx, common.Database)
	if err != nil {
		return nil, err
	}
	deps.Clients.Push("database pool", closing.NoError(closePool))
	deps.Database = pool
	return deadLetter, nil
}

// exitOnSignal waits for the signal to stop, drains the host and ends the process.
// Nothing waits for its goroutine, which runs as long as the process.
func exitOnSignal(host *Host, exit func(int)) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if err := host.Drain(ctx); err != nil {
		exit(1)
		return
	}
	exit(0)
}

// Opened is a function with its clients.
type Opened struct {
	Handle     push.HandleFunc
	DeadLetter push.DeadLetter
	Clients    closing.Stack // closed after the last message
}

// Host serves a function that the first message opens.
type Host struct {
	function *coalesce.Once[Opened]
	handler  http.Handler
	log      *slog.Logger
	counters *logmetrics.Counters
	clock    func() time.Time

	mu       sync.Mutex
	draining bool
	inFlight sync.WaitGroup
}

// NewHost returns a host. The first message calls open; after a failure the next one does.
func NewHost(name string, log *slog.Logger, counters *logmetrics.Counters, clock func() time.Time, open func(ctx context.Context) (*Opened, error)) *Host {
	h := &Host{log: log, counters: counters, clock: clock}
	h.function = coalesce.NewOnce(func(ctx context.Context) (*Opened, error) {
		// Not on the message's own context: the clients serve others after it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
		defer cancel()
		return open(ctx)
	}, nil)
	h.handler = push.Handler(push.Config{Function: name, DeadLetter: h, Clock: clock, Log: log, Counters: counters}, h.handle)
	return h
}

// ServeHTTP answers one push request.
func (h *Host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	if h.draining {
		h.mu.Unlock()
		w.Header().Set("Connection", "close")
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
		return
	}
	h.inFlight.Add(1)
	h.mu.Unlock()
	defer h.inFlight.Done()
	ctx, cancel := context.WithTimeout(r.Context(), handlerTimeout)
	defer cancel()
	// A client that sends its body byte by byte must not hold the instance
	// either. Not every writer has deadlines; the framework's has.
	_ = http.NewResponseController(w).SetReadDeadline(h.clock().Add(handlerTimeout))
	h.handler.ServeHTTP(w, r.WithContext(ctx))
	// The answer must be on its way before the process may end.
	_ = http.NewResponseController(w).Flush()
}

func (h *Host) handle(ctx context.Context, m push.Message) error {
	f, err := h.function.Get(ctx)
	if err != nil {
		return fmt.Errorf("open clients: %w", err)
	}
	return f.Handle(ctx, m)
}

// Publish implements [push.DeadLetter] with the function's own dead letter topic.
func (h *Host) Publish(ctx context.Context, data []byte, attributes map[string]string) error {
	f, err := h.function.Get(ctx)
	if err != nil {
		return fmt.Errorf("open clients: %w", err)
	}
	return f.DeadLetter.Publish(ctx, data, attributes)
}

// Drain refuses new messages, waits for those in flight until ctx ends, closes
// the clients and writes the last counters. Pub/Sub delivers unfinished messages again, to
// another instance.
func (h *Host) Drain(ctx context.Context) error {
	h.mu.Lock()
	h.draining = true
	h.mu.Unlock()
	done := make(chan struct{})
	go func() { h.inFlight.Wait(); close(done) }()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = fmt.Errorf("messages still in flight: %w", ctx.Err())
		h.log.WarnContext(ctx, "shutdown with messages in flight", "error", err.Error())
	}
	if f := h.function.Take(); f != nil && err == nil {
		if err := f.Clients.Close(); err != nil {
			h.log.WarnContext(ctx, "close failed", "error", err.Error())
		}
	}
	h.counters.Flush(ctx)
	return err
}
