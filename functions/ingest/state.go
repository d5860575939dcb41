package ingest

import (
	"context"
	"time"

	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/store"
)

// Bounds of one statement about the states of nodes.
const (
	maxStates    = 500
	stateTimeout = 5 * time.Second
)

// StateStore is the metadata database.
type StateStore interface {
	UpdateNodeStates(ctx context.Context, batch []store.NodeReading) error
	KeepProbe(ctx context.Context, published, received time.Time) error
}

// States keeps the newest reading of each node: the readings of concurrent messages
// in one statement. It implements [NodeStates].
type States struct {
	store StateStore
	clock func() time.Time
	group *coalesce.Group[store.NodeReading, struct{}]
}

// NewStates returns the states of a metadata database.
func NewStates(states StateStore, clock func() time.Time) *States {
	return &States{store: states, clock: clock, group: coalesce.New(func(ctx context.Context, batch []store.NodeReading) ([]struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, stateTimeout)
		defer cancel()
		return make([]struct{}, len(batch)), states.UpdateNodeStates(ctx, batch)
	}, coalesce.Options[store.NodeReading]{MaxItems: maxStates})}
}

// Keep implements [NodeStates].
func (s *States) Keep(ctx context.Context, r store.NodeReading) error {
	_, err := s.group.Do(ctx, r)
	return err
}

// KeepProbe implements [NodeStates].
func (s *States) KeepProbe(ctx context.Context, published time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	err := s.store.KeepProbe(ctx, published, s.clock())
	return max(0, s.clock().Sub(published)), err // clocks differ
}
