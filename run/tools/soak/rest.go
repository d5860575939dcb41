package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/run/tools/soak/cluster"
)

// rest waits until no gateway keeps anything back and everything published is
// delivered; what died of bad luck is replayed.
func (s *soak) rest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, gateway := range s.plant.Gateways {
		if err := emptied(ctx, gateway); err != nil {
			return err
		}
	}
	if err := s.plant.PubSub.Drain(ctx); err != nil {
		return err
	}
	if err := s.trained(ctx); err != nil {
		return err
	}
	dead, err := s.plant.PubSub.DeadLetters(ctx)
	if err != nil || dead == 0 {
		return err
	}
	s.say("replaying %d dead letters", dead)
	if err := s.plant.Replay(ctx); err != nil {
		return err
	}
	return s.plant.PubSub.Drain(ctx)
}

// trained waits for the end of the training run that verdicts may have begun,
// where there is a function that trains.
func (s *soak) trained(ctx context.Context) error {
	if s.plant.Functions["train"] == nil {
		return nil
	}
	db, err := s.plant.Database.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	for {
		var running bool
		err := db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM model_training_runs WHERE status = 'running')`).Scan(&running)
		if err == nil && !running {
			return nil
		}
		if err != nil || !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("a training run does not end: %w", errors.Join(err, ctx.Err()))
		}
	}
}

// emptied waits until a gateway publishes and keeps nothing back.
func emptied(ctx context.Context, p *cluster.Process) error {
	for {
		h, err := health(ctx, p)
		if err == nil && h.Publishing.Up && h.Outbox.Readings == 0 {
			return nil
		}
		if !pause(ctx, 20*time.Millisecond) {
			return fmt.Errorf("%s keeps %d readings: %w", p.Name, h.Outbox.Readings, ctx.Err())
		}
	}
}

// health is what a gateway says of itself.
func health(ctx context.Context, p *cluster.Process) (gateway.Health, error) {
	var h gateway.Health
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL()+"/health", nil)
	if err != nil {
		return h, fmt.Errorf("health of %s: %w", p.Name, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return h, fmt.Errorf("health of %s: %w", p.Name, err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(&h); err != nil {
		return h, fmt.Errorf("health of %s: %w", p.Name, err)
	}
	return h, nil
}
