package nodesim

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
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

// replay is a replay under way.
type replay struct {
	client  *http.Client
	gateway string
	run     string // begins message ids, so that those of two replays differ
	clock   func() time.Time
}

// Replay sends a recording to the gateway at a base address, as fast as it answers. Every
// node registers and sends its rows one after the other, oldest first; [ReplayConnections]
// nodes do so in parallel. A row that is not answered, or with 5xx, 429 or 408, is sent again under
// the same id; one that is rejected is not.
//
// The error is that of a row that got no other answer within a minute, or the context's;
// the rest is not sent.
func Replay(ctx context.Context, gateway string, recorded *recording.Recording, transport http.RoundTripper, clock func() time.Time) error {
	r := &replay{client: newClient(ReplayConnections, transport), gateway: gateway, run: rand.Text()[:8], clock: clock}
	defer r.client.CloseIdleConnections()
	nodes, ctx := errgroup.WithContext(ctx)
	nodes.SetLimit(ReplayConnections)
	for number, id := range recorded.Nodes {
		nodes.Go(func() error { return r.node(ctx, number, id, recorded.Rows[id]) })
	}
	if err := nodes.Wait(); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	return nil
}

func (r *replay) node(ctx context.Context, number int, id string, rows []recording.Row) error {
	if err := r.deliver(ctx, registerPath, registration(id, 78, number)); err != nil {
		return fmt.Errorf("register %s: %w", id, err)
	}
	for _, row := range rows {
		m := message{ID: fmt.Sprintf("%s-%d", r.run, row.Line), NodeID: id, Temperature: row.Temperature, Humidity: &row.Humidity}
		if err := r.deliver(ctx, messagePath, m); err != nil {
			return fmt.Errorf("line %d of %s: %w", row.Line, id, err)
		}
	}
	return nil
}

// deliver posts a body until the gateway accepts or rejects it.
func (r *replay) deliver(ctx context.Context, path string, body any) error {
	began := r.clock()
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		end, err := post(ctx, r.client, r.gateway, path, body)
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted: %w", ctx.Err())
		}
		if end == accepted || end == rejected {
			return nil
		}
		if tried := r.clock().Sub(began); tried+wait > retryFor {
			return fmt.Errorf("not accepted within %s: %w", tried, err)
		}
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
	}
}
