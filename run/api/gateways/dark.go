package gateways

import (
	"context"
	"log/slog"
	"time"

	"coldaisle.dev/shared/store"
)

// darkInterval is how often [Watch.Run] looks.
const darkInterval = 5 * time.Minute

// Watch logs each dark site, by gateway and customer. Terraform makes a metric and an
// alert of it: who runs the service hears of one site among many.
type Watch struct {
	Store *store.Store
	Clock func() time.Time
	Log   *slog.Logger
}

// Run looks every five minutes until ctx ends; it then returns nil.
func (w *Watch) Run(ctx context.Context) error {
	ticker := time.NewTicker(darkInterval)
	defer ticker.Stop()
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (w *Watch) look(ctx context.Context) {
	now := w.Clock()
	dark, err := w.Store.DarkSites(ctx, now)
	if err != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "dark sites cannot be looked for, which is tried again", "error", err.Error())
	}
	for _, site := range dark {
		gateway := site.GatewayID
		if gateway == "" {
			gateway = "not enrolled"
		}
		w.Log.WarnContext(ctx, "a site is dark", "gateway", gateway, "customer_id", site.CustomerID, "dark_s", int64(now.Sub(site.Since).Seconds()))
	}
}
