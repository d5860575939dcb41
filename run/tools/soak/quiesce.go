package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"coldaisle.dev/edge-gateway/doctor"
	"coldaisle.dev/shared/pause"
)

// quiesce waits until every outbox is empty and every message is delivered, and then
// redelivers the dead letters.
func (s *soak) quiesce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, quiesceTimeout)
	defer cancel()
	for _, gateway := range s.cluster.Gateways {
		if err := waitOutboxEmpty(ctx, gateway.URL); err != nil {
			return err
		}
	}
	if err := s.cluster.PubSub.Queue.Drain(ctx); err != nil {
		return err
	}
	if err := s.waitTraining(ctx); err != nil {
		return err
	}
	dead := s.cluster.PubSub.Queue.Counts().DeadLettered
	if dead == 0 {
		return nil
	}
	s.logf("redelivering %d dead letters", dead)
	if err := s.cluster.Redeliver(ctx); err != nil {
		return err
	}
	return s.cluster.PubSub.Queue.Drain(ctx)
}

// waitTraining waits for the end of a training run that verdicts may have started.
func (s *soak) waitTraining(ctx context.Context) error {
	for {
		var running bool
		err := s.cluster.Database.Pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM model_training_runs WHERE status = 'running')`).Scan(&running)
		if err == nil && !running {
			return nil
		}
		if err != nil || pause.For(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("a training run does not end: %w", errors.Join(err, ctx.Err()))
		}
	}
}

// waitOutboxEmpty waits until a gateway's uplink is up and its outbox is empty.
func waitOutboxEmpty(ctx context.Context, url string) error {
	for {
		h, err := doctor.Health(ctx, url)
		if err == nil && h.Publishing.Up && h.Outbox.Readings == 0 {
			return nil
		}
		if pause.For(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("%s has %d readings in its outbox: %w", url, h.Outbox.Readings, ctx.Err())
		}
	}
}
