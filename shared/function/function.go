// Package function hosts one step of the pipeline in the Functions Framework
// and gives it what the framework lacks: clients made with the first message
// instead of before the port opens, an end to every message, and a shutdown
// that lets messages in flight finish.
//
// The entrypoint of each function registers what [Handler] returns with the
// framework from its init and does nothing else; in production the buildpack
// supplies the main, locally the function's own. Neither knows more than the
// framework's Start, so both behave alike. The entrypoint calls the framework
// itself: the buildpack looks for that among the direct imports of the archive's
// root package (see run/tools/release/archive). Nothing else may import this package: it ends the
// process.
package function

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/logmetrics"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/tracing"
)

const (
	// stepTimeout ends a message that hangs, before Pub/Sub's acknowledgement
	// deadline of 60 s makes it deliver the message a second time.
	stepTimeout = 50 * time.Second
	// openTimeout ends an attempt to make the clients.
	openTimeout = 20 * time.Second
	// drainTimeout is how long messages in flight may take after SIGTERM. Cloud
	// Run kills an instance 10 s after it.
	drainTimeout = 8 * time.Second
	// metricsInterval is how often counters are written to the log.
	metricsInterval = time.Minute
)

// Tools are what a step is built with besides its settings.
type Tools struct {
	Log   *slog.Logger
	Tally *logmetrics.Tally
	Clock func() time.Time
}

// Open makes a step and its clients. The returned function closes them after
// the last message. ctx bounds the making only: clients must outlive it.
type Open[S Settings] func(ctx context.Context, settings S, tools Tools) (push.Step, func(), error)

// Common are the settings that every function has. Embed them.
type Common struct {
	// Project is the Google Cloud project that everything belongs to.
	Project string `env:"PROJECT_ID,required,notEmpty"`
	Tracing tracing.Config
}

func (c Common) common() Common { return c }

// Settings are a function's own with [Common] embedded.
type Settings interface{ common() Common }

// Program is the process around a function: what an entrypoint takes from it.
type Program struct {
	Environ []string // as of os.Environ
	Log     io.Writer
	Errors  io.Writer
	Clock   func() time.Time
	Exit    func(code int)
}

// Handler returns the HTTP function of a step; SIGTERM ends the program. A missing
// or malformed setting ends it at once with status 1: an instance that could only
// fail must not count as started.
func Handler[S Settings](program Program, name string, open Open[S]) http.HandlerFunc {
	settings, err := config.Load[S](program.Environ)
	if err != nil {
		config.Report(program.Errors, name, err)
		program.Exit(1)
		return nil
	}
	shared := settings.common()
	log := logging.New(program.Log, slog.LevelInfo, shared.Project)
	counts := logmetrics.New(log, name, metricsInterval, program.Clock)
	host := NewHost(log, counts, program.Clock, func(ctx context.Context) (push.Step, func(), error) {
		stop, err := tracing.Start(context.WithoutCancel(ctx), shared.Tracing, name)
		if err != nil {
			return nil, nil, err
		}
		step, end, err := open(ctx, settings, Tools{Log: log, Tally: counts, Clock: program.Clock})
		if err != nil {
			_ = stop(ctx)
			return nil, nil, err
		}
		return step, func() { //nolint:contextcheck // the context of opening has long ended when this runs
			end()
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if err := stop(ctx); err != nil {
				log.WarnContext(ctx, "last spans were not exported", "error", err.Error())
			}
		}, nil
	})
	go exitOnSignal(host, program.Exit)
	return host.ServeHTTP
}

// exitOnSignal is the one goroutine without an owner: it lives as long as the
// process and ends it.
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

// Host serves a step that is opened with the first message.
type Host struct {
	open    func(ctx context.Context) (push.Step, func(), error)
	handler http.Handler
	log     *slog.Logger
	tally   *logmetrics.Tally
	clock   func() time.Time

	opening chan struct{} // holds a token while someone opens the step

	mu       sync.Mutex
	step     push.Step
	end      func()
	draining bool
	inFlight sync.WaitGroup
}

// NewHost returns a host; open is called by the first message, and again by the
// next one when it failed.
func NewHost(log *slog.Logger, counts *logmetrics.Tally, clock func() time.Time, open func(ctx context.Context) (push.Step, func(), error)) *Host {
	h := &Host{open: open, log: log, tally: counts, clock: clock, opening: make(chan struct{}, 1)}
	h.handler = push.Handler(log, clock, h.handle)
	return h
}

// ServeHTTP takes one push request.
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
	ctx, cancel := context.WithTimeout(r.Context(), stepTimeout)
	defer cancel()
	// A client that sends its body byte by byte must not hold the instance
	// either. Not every writer has deadlines; the framework's has.
	_ = http.NewResponseController(w).SetReadDeadline(h.clock().Add(stepTimeout))
	h.handler.ServeHTTP(w, r.WithContext(ctx))
	// The answer must be on its way before the process may end.
	_ = http.NewResponseController(w).Flush()
}

func (h *Host) handle(ctx context.Context, m push.Message) error {
	step, err := h.opened(ctx)
	if err != nil {
		return err
	}
	err = step(ctx, m)
	switch {
	case err == nil:
		h.tally.Add(ctx, "messages_done", 1)
	case push.IsPermanent(err):
		h.tally.Add(ctx, "messages_refused", 1)
	default:
		h.tally.Add(ctx, "messages_failed", 1)
	}
	return err
}

// opened returns the step, made by whichever message comes first.
func (h *Host) opened(ctx context.Context) (push.Step, error) {
	if step := h.current(); step != nil {
		return step, nil
	}
	select {
	case h.opening <- struct{}{}:
		defer func() { <-h.opening }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for clients: %w", ctx.Err())
	}
	if step := h.current(); step != nil {
		return step, nil
	}
	// Not on the message's own context: the clients serve others after it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	step, end, err := h.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("open clients: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.step, h.end = step, end
	return step, nil
}

func (h *Host) current() push.Step {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.step
}

// Drain refuses new messages, waits for those in flight until ctx ends, closes
// the clients and writes the last counters. What was not finished is delivered
// again by Pub/Sub, to another instance.
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
	h.mu.Lock()
	end := h.end
	h.end = nil
	h.mu.Unlock()
	if end != nil && err == nil {
		end()
	}
	h.tally.Flush(ctx)
	return err
}
