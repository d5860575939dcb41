package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/run/soak/plant"
)

// emptied waits until a gateway publishes and keeps nothing back.
func emptied(ctx context.Context, p *plant.Process) error {
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
func health(ctx context.Context, p *plant.Process) (gateway.Health, error) {
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
