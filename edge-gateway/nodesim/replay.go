package nodesim

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/recording"
)

// ReplayConnections is how many nodes of a replay send at once, each one request after the other.
const ReplayConnections = 64

const (
	retryFor     = time.Minute // a request that failed, in wall time
	firstPause   = 20 * time.Millisecond
	longestPause = 2 * time.Second
)

// Result counts the rows that a replay sent.
type Result struct {
	Accepted, Rejected int
	Elapsed            time.Duration
}

// PerSecond is the rate of accepted rows.
func (r Result) PerSecond() float64 { return float64(r.Accepted) / max(r.Elapsed.Seconds(), 1e-9) }

// replay is a replay under way.
type replay struct {
	client  *http.Client
	gateway string
	run     string // begins message ids, so that those of two replays differ
	clock   func() time.Time

	accepted, rejected atomic.Int64
}

// Replay sends a recording to the gateway at a base address, as fast as it answers. Every
// node registers and sends its rows one after the other, oldest first; [ReplayConnections]
// nodes do so in parallel. A row that is not answered, or with 5xx, 429 or 408, is sent again under
// the same id.
//
// The error is that of a row that the gateway did not accept within a minute, or the context's;
// the rest is not sent.
func Replay(ctx context.Context, gateway string, recorded *recording.Recording, transport http.RoundTripper, clock func() time.Time) (Result, error) {
	r := &replay{
		client: newClient(ReplayConnections, transport), gateway: gateway, run: rand.Text()[:8], clock: clock,
	}
	defer r.client.CloseIdleConnections()
	start := clock()
	nodes, ctx := errgroup.WithContext(ctx)
	nodes.SetLimit(ReplayConnections)
	for number, id := range recorded.Nodes {
		nodes.Go(func() error { return r.node(ctx, number, recorded.Rows[id]) })
	}
	err := nodes.Wait()
	result := Result{Accepted: int(r.accepted.Load()), Rejected: int(r.rejected.Load()), Elapsed: clock().Sub(start)}
	if err != nil {
		return result, fmt.Errorf("replay: %w", err)
	}
	return result, nil
}

func (r *replay) node(ctx context.Context, number int, rows []recording.Row) error {
	id := rows[0].NodeID
	if _, err := r.deliver(ctx, registerPath, registration{NodeID: id, IPAddr: address(78, number)}); err != nil {
		return fmt.Errorf("register %s: %w", id, err)
	}
	for _, row := range rows {
		end, err := r.deliver(ctx, messagePath, message{
			ID: fmt.Sprintf("%s-%d", r.run, row.Line), NodeID: id, Temperature: row.Temperature, Humidity: &row.Humidity,
		})
		switch {
		case err != nil:
			return fmt.Errorf("line %d of %s: %w", row.Line, id, err)
		case end == accepted:
			r.accepted.Add(1)
		default:
			r.rejected.Add(1)
		}
	}
	return nil
}

// deliver posts a body until the gateway accepts or rejects it.
func (r *replay) deliver(ctx context.Context, path string, body any) (outcome, error) {
	began := r.clock()
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		end, err := post(ctx, r.client, r.gateway, path, body)
		if ctx.Err() != nil {
			return 0, fmt.Errorf("interrupted: %w", ctx.Err())
		}
		if end == accepted || end == rejected {
			return end, nil
		}
		if tried := r.clock().Sub(began); tried+wait > retryFor {
			return 0, fmt.Errorf("not accepted within %s: %w", tried, err)
		}
		if err := pause.For(ctx, wait); err != nil {
			return 0, err
		}
	}
}
