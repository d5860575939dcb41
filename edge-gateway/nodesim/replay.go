package nodesim

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"coldaisle.dev/shared/recording"
)

// Defaults of [ReplayOptions].
const (
	DefaultConcurrency  = 64
	DefaultRetryTimeout = time.Minute
)

// ReplayOptions say what to replay and how.
type ReplayOptions struct {
	Gateway string  // base address; empty if Resolve is given
	Resolve Resolve // asked once
	File    io.Reader

	// Speed is seconds of the recording per second; 0 sends as fast as the gateway
	// answers.
	Speed       float64
	Concurrency int      // requests at a time at most; 0 means DefaultConcurrency
	Humidity    *float64 // % relative humidity for rows without one; nil leaves them out

	// Run stands before the row's line in every message id, so that the ids of two
	// replays differ; empty means four random bytes. With StableIDs the id is the
	// line alone, the same in every run: a gateway that still has the row in its
	// window then takes it for the same reading.
	Run       string
	StableIDs bool

	RetryTimeout time.Duration // wall time for one row's retries; 0 means DefaultRetryTimeout

	// OnResult, if given, is called for every row that was answered: in order for
	// each node, by one goroutine at a time.
	OnResult func(RowResult)

	Clock     func() time.Time
	Transport http.RoundTripper // nil means connections of the package's own
}

// RowResult says under which id a row was sent and what the gateway answered last.
type RowResult struct {
	recording.Row

	MessageID string
	Status    int // of HTTP
	Accepted  bool
	Attempts  int
}

// Result counts a replay.
type Result struct {
	Rows               int // of the file
	SkippedTemperature int // rows without a temperature
	SkippedHumidity    int // rows without a humidity, where ReplayOptions has none either
	Nodes              int
	Sent               int // rows that were sent, once or more
	Accepted           int // rows answered with 200
	Rejected           int // rows the gateway found invalid
	Failed             int // rows given up after RetryTimeout
	Retries            int // posts beyond the first of a row
	Elapsed            time.Duration
	Run                string // what stands before the line in message ids; empty with StableIDs
}

// PerSecond is the rate of accepted readings.
func (r Result) PerSecond() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Accepted) / r.Elapsed.Seconds()
}

// String is the result for a person, a line each.
func (r Result) String() string {
	return fmt.Sprintf("rows %d (skipped: %d without humidity, %d without temperature)\n"+
		"nodes %d\nsent %d\naccepted %d\nrejected %d\nfailed %d\nretries %d\nelapsed %s\nreadings/s %.0f",
		r.Rows, r.SkippedHumidity, r.SkippedTemperature, r.Nodes, r.Sent, r.Accepted, r.Rejected,
		r.Failed, r.Retries, r.Elapsed.Round(time.Millisecond), r.PerSecond())
}

// replayRun is one replay under way.
type replayRun struct {
	options ReplayOptions
	series  *recording.Recording
	base    string
	client  *client
	slots   chan struct{} // holds one token per request in flight
	start   time.Time

	sent, accepted, rejected, failed, retries atomic.Int64

	ledger sync.Mutex
}

// Replay sends a recorded series to a gateway: every node registers and sends
// its rows one after the other, oldest first; nodes do so in parallel. A row
// answered with 429 or 5xx, or not at all, is sent again under the same id.
//
// The result counts what happened even if there is an error. The error is that of
// a malformed file (nothing was sent), of a row that the gateway did not take
// within RetryTimeout (the rest is not sent), or of the context's end.
func Replay(ctx context.Context, options ReplayOptions) (Result, error) {
	r, err := prepare(ctx, options)
	if err != nil {
		return Result{}, fmt.Errorf("replay: %w", err)
	}
	defer r.client.close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var senders sync.WaitGroup
	r.start = r.options.Clock()
	for number, id := range r.series.Nodes {
		senders.Go(func() {
			if err := r.node(ctx, number, r.series.Rows[id]); err != nil {
				stop(err)
			}
		})
	}
	senders.Wait()
	result := r.result()
	if ctx.Err() != nil {
		return result, fmt.Errorf("replay: %w", context.Cause(ctx))
	}
	return result, nil
}

func prepare(ctx context.Context, options ReplayOptions) (*replayRun, error) {
	options.Concurrency = orDefault(options.Concurrency, DefaultConcurrency)
	options.RetryTimeout = orDefault(options.RetryTimeout, DefaultRetryTimeout)
	if options.Clock == nil {
		return nil, errors.New("a clock is required")
	}
	if options.Concurrency < 0 || options.Speed < 0 {
		return nil, fmt.Errorf("concurrency and speed must not be negative: got %d and %g", options.Concurrency, options.Speed)
	}
	switch {
	case options.StableIDs:
		options.Run = ""
	case options.Run == "":
		tag := make([]byte, 4)
		if _, err := rand.Read(tag); err != nil {
			return nil, fmt.Errorf("draw a name for the run: %w", err)
		}
		options.Run = hex.EncodeToString(tag)
	}
	if options.Resolve == nil {
		fixed, err := FixedAddress(options.Gateway)
		if err != nil {
			return nil, err
		}
		options.Resolve = fixed
	}
	recorded, err := recording.Read(options.File, options.Humidity)
	if err != nil {
		return nil, err
	}
	base, err := options.Resolve(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the gateway: %w", err)
	}
	return &replayRun{
		options: options,
		series:  recorded,
		base:    base,
		client:  newClient(options.Concurrency, options.Transport),
		slots:   make(chan struct{}, options.Concurrency),
	}, nil
}

func (r *replayRun) result() Result {
	return Result{
		Rows:               r.series.Total,
		SkippedTemperature: r.series.WithoutTemperature,
		SkippedHumidity:    r.series.WithoutHumidity,
		Nodes:              len(r.series.Nodes),
		Sent:               int(r.sent.Load()),
		Accepted:           int(r.accepted.Load()),
		Rejected:           int(r.rejected.Load()),
		Failed:             int(r.failed.Load()),
		Retries:            int(r.retries.Load()),
		Elapsed:            r.options.Clock().Sub(r.start),
		Run:                r.options.Run,
	}
}

// node sends the rows of one node.
func (r *replayRun) node(ctx context.Context, number int, rows []recording.Row) error {
	address := fmt.Sprintf("10.78.%d.%d", number/250%256, number%250+1)
	body := registration{NodeID: rows[0].NodeID, IPAddr: address}
	attempts := 0
	if _, err := r.deliver(ctx, registerPath, body, &attempts); err != nil {
		return fmt.Errorf("register %s: %w", rows[0].NodeID, err)
	}
	for _, row := range rows {
		if r.options.Speed > 0 {
			due := r.start.Add(time.Duration(float64(row.Time.Sub(r.series.First)) / r.options.Speed))
			if err := wait(ctx, due.Sub(r.options.Clock())); err != nil {
				return err
			}
		}
		if err := r.send(ctx, row); err != nil {
			return err
		}
	}
	return nil
}

// send sends one row until it is answered, and reports the result.
func (r *replayRun) send(ctx context.Context, row recording.Row) error {
	entry := RowResult{Row: row, MessageID: r.messageID(row.Line)}
	r.sent.Add(1)
	status, err := r.deliver(ctx, messagePath, message{
		ID:          entry.MessageID,
		NodeID:      row.NodeID,
		Temperature: row.Temperature,
		Humidity:    row.Humidity,
	}, &entry.Attempts)
	r.retries.Add(int64(max(0, entry.Attempts-1)))
	if err != nil {
		r.failed.Add(1)
		return fmt.Errorf("line %d of %s: %w", row.Line, row.NodeID, err)
	}
	entry.Status, entry.Accepted = status, outcomeOf(status) == accepted
	if entry.Accepted {
		r.accepted.Add(1)
	} else {
		r.rejected.Add(1)
	}
	if r.options.OnResult != nil {
		r.ledger.Lock()
		defer r.ledger.Unlock()
		r.options.OnResult(entry)
	}
	return nil
}

func (r *replayRun) messageID(line int) string {
	if r.options.StableIDs {
		return fmt.Sprintf("row-%d", line)
	}
	return fmt.Sprintf("%s-%d", r.options.Run, line)
}

// The pauses between attempts, in wall time.
const (
	firstPause   = 20 * time.Millisecond
	longestPause = 2 * time.Second
)

// deliver posts a body until the gateway takes or rejects it, and returns the
// status. attempts counts the posts.
func (r *replayRun) deliver(ctx context.Context, path string, body any, attempts *int) (int, error) {
	began := r.options.Clock()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		*attempts++
		status, err := r.post(ctx, path, body)
		if ctx.Err() != nil {
			return 0, fmt.Errorf("interrupted: %w", ctx.Err())
		}
		if err == nil && outcomeOf(status) != retryLater {
			return status, nil
		}
		if r.options.Clock().Sub(began)+pause > r.options.RetryTimeout {
			if err == nil {
				err = fmt.Errorf("status %d", status)
			}
			return 0, fmt.Errorf("given up after %d attempts: %w", *attempts, err)
		}
		if err := wait(ctx, pause); err != nil {
			return 0, err
		}
	}
}

// post sends one request once fewer than Concurrency are in flight.
func (r *replayRun) post(ctx context.Context, path string, body any) (int, error) {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return 0, fmt.Errorf("interrupted: %w", ctx.Err())
	}
	defer func() { <-r.slots }()
	return r.client.post(ctx, r.base, path, body)
}
