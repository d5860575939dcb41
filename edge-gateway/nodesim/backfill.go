package nodesim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"coldaisle.dev/edge-gateway/nodesim/fault"
)

var errRefused = errors.New("refused")

// Backfill posts the nodes' readings between two times to the gateway at a base address, as fast as
// it answers: one reading of each node at once, and the next ones when all are answered. The gateway's
// clock must return the time that step was last called with.
func (s *Simulation) Backfill(ctx context.Context, gateway string, from, to time.Time, every time.Duration, step func(at time.Time) error) error {
	for at := from; at.Before(to); at = at.Add(every) {
		if err := step(at); err != nil {
			return err
		}
		posts, ctx := errgroup.WithContext(ctx)
		for _, n := range s.nodes {
			posts.Go(func() error {
				m := n.message(at.Sub(s.started))
				end, err := post(ctx, s.client, gateway, m.path(), m)
				if end != accepted {
					return fmt.Errorf("reading of %s at %s is not accepted: %w", n.id, at.Format(time.RFC3339), cmp.Or(err, errRefused))
				}
				return nil
			})
		}
		if err := posts.Wait(); err != nil {
			return err //nolint:wrapcheck // it names the reading
		}
	}
	return nil
}

// Faulty reports whether a fault changes what a node measures at a time.
func (s *Simulation) Faulty(node string, at time.Time) bool {
	return slices.ContainsFunc(s.nodes, func(n *device) bool {
		return n.id == node && slices.ContainsFunc(s.faults(n.number, at.Sub(s.started)), func(f fault.Fault) bool { return f.Affects(at) })
	})
}
