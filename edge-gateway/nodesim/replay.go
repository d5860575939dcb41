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
	DefaultConcurrency = 64
	DefaultGiveUp      = time.Minute
)

// ReplayOptions say what to replay and how.
type ReplayOptions struct {
	Gateway string  // base address; empty if Resolve is given
	Resolve Resolve // asked once
	File    io.Reader

	// Speed is seconds of the record per second; 0 sends as fast as the gateway
	// answers.
	Speed       float64
	Concurrency int      // requests at a time at most; 0 means DefaultConcurrency
	Humidity    *float64 // % relative humidity for rows without one; nil leaves them out

	// Run goes before the row's line in every message id and so keeps the ids of
	// two replays apart; empty means four random bytes. With StableIDs the ids
	// are of the line alone, the same in every run: a gateway that still has a
	// row in its window then knows it again.
	Run       string
	StableIDs bool

	RetryTimeout time.Duration // wall time for one row's retries; 0 means DefaultGiveUp

	// Ledger, if given, is told of every row that was answered, in order for
	// each node, by one goroutine at a time.
	OnResult func(RowResult)

	Clock     func() time.Time
	Transport http.RoundTripper // nil means connections of the package's own
}

// RowResult is the end of one row: under which id it was sent and what the gateway
// said last.
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
	SkippedHumidity    int // rows without a humidity, none being given for them
	Nodes              int
	Sent               int // rows that were sent, once or more
	Accepted           int // rows answered with 200
	Rejected           int // rows the gateway found invalid
	Failed             int // rows given up without a lasting answer
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
	slots   chan struct{} // holds one token per request under way
	start   time.Time

	sent, accepted, rejected, failed, retries atomic.Int64

	ledger sync.Mutex
}

// Replay sends a recorded series to a gateway: every node registers and sends
// its rows one after the other, oldest first; nodes do so in parallel. A row
// answered with 429 or 5xx, or not at all, is sent again under the same id.
//
// The result counts what happened also when the error is not nil: a malformed
// file (nothing was sent), a row that the gateway would not take within GiveUp
// (the rest is not sent), or the context's end.
func Replay(ctx context.Context, options ReplayOptions) (Result, error) {
	p, err := prepare(ctx, options)
	if err != nil {
		return Result{}, fmt.Errorf("replay: %w", err)
	}
	defer p.client.close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var senders sync.WaitGroup
	p.start = p.options.Clock()
	for number, id := range p.series.Nodes {
		senders.Go(func() {
			if err := p.node(ctx, number, p.series.Rows[id]); err != nil {
				stop(err)
			}
		})
	}
	senders.Wait()
	result := p.result()
	if ctx.Err() != nil {
		return result, fmt.Errorf("replay: %w", context.Cause(ctx))
	}
	return result, nil
}

func prepare(ctx context.Context, options ReplayOptions) (*replayRun, error) {
	options.Concurrency = orDefault(options.Concurrency, DefaultConcurrency)
	options.RetryTimeout = orDefault(options.RetryTimeout, DefaultGiveUp)
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

func (p *replayRun) result() Result {
	return Result{
		Rows:               p.series.Total,
		SkippedTemperature: p.series.WithoutTemperature,
		SkippedHumidity:    p.series.WithoutHumidity,
		Nodes:              len(p.series.Nodes),
		Sent:               int(p.sent.Load()),
		Accepted:           int(p.accepted.Load()),
		Rejected:           int(p.rejected.Load()),
		Failed:             int(p.failed.Load()),
		Retries:            int(p.retries.Load()),
		Elapsed:            p.options.Clock().Sub(p.start),
		Run:                p.options.Run,
	}
}

// node sends the rows of one node.
func (p *replayRun) node(ctx context.Context, number int, rows []recording.Row) error {
	address := fmt.Sprintf("10.78.%d.%d", number/250%256, number%250+1)
	body := registration{NodeID: rows[0].NodeID, IPAddr: address}
	attempts := 0
	if _, err := p.deliver(ctx, registerPath, body, &attempts); err != nil {
		return fmt.Errorf("register %s: %w", rows[0].NodeID, err)
	}
	for _, row := range rows {
		if p.options.Speed > 0 {
			due := p.start.Add(time.Duration(float64(row.Time.Sub(p.series.First)) / p.options.Speed))
			if err := wait(ctx, due.Sub(p.options.Clock())); err != nil {
				return err
			}
		}
		if err := p.send(ctx, row); err != nil {
			return err
		}
	}
	return nil
}

// send brings one row to its end.
func (p *replayRun) send(ctx context.Context, row recording.Row) error {
	entry := RowResult{Row: row, MessageID: p.messageID(row.Line)}
	p.sent.Add(1)
	status, err := p.deliver(ctx, messagePath, message{
		ID:          entry.MessageID,
		NodeID:      row.NodeID,
		Temperature: row.Temperature,
		Humidity:    row.Humidity,
	}, &entry.Attempts)
	p.retries.Add(int64(max(0, entry.Attempts-1)))
	if err != nil {
		p.failed.Add(1)
		return fmt.Errorf("line %d of %s: %w", row.Line, row.NodeID, err)
	}
	entry.Status, entry.Accepted = status, judge(status) == accepted
	if entry.Accepted {
		p.accepted.Add(1)
	} else {
		p.rejected.Add(1)
	}
	if p.options.OnResult != nil {
		p.ledger.Lock()
		defer p.ledger.Unlock()
		p.options.OnResult(entry)
	}
	return nil
}

func (p *replayRun) messageID(line int) string {
	if p.options.StableIDs {
		return fmt.Sprintf("row-%d", line)
	}
	return fmt.Sprintf("%s-%d", p.options.Run, line)
}

// The pauses between attempts, in wall time.
const (
	firstPause   = 20 * time.Millisecond
	longestPause = 2 * time.Second
)

// deliver posts a body until the gateway has taken or refused it, whose status
// it returns; attempts counts the posts.
func (p *replayRun) deliver(ctx context.Context, path string, body any, attempts *int) (int, error) {
	began := p.options.Clock()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		*attempts++
		status, err := p.post(ctx, path, body)
		if ctx.Err() != nil {
			return 0, fmt.Errorf("interrupted: %w", ctx.Err())
		}
		if err == nil && judge(status) != retryLater {
			return status, nil
		}
		if p.options.Clock().Sub(began)+pause > p.options.RetryTimeout {
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

// post sends one request when fewer than Concurrency are under way.
func (p *replayRun) post(ctx context.Context, path string, body any) (int, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return 0, fmt.Errorf("interrupted: %w", ctx.Err())
	}
	defer func() { <-p.slots }()
	return p.client.post(ctx, p.base, path, body)
}
