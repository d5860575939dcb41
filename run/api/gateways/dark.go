package gateways

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
)

// LogDarkSites logs each dark site, by gateway and customer. Terraform derives a metric and an
// alert from it, so that the operator hears of one dark site among many.
func LogDarkSites(ctx context.Context, db *store.DB, now time.Time, log *slog.Logger) {
	dark, err := incidents.New(db).DarkSites(ctx, now)
	if err != nil && ctx.Err() == nil {
		log.WarnContext(ctx, "looking for dark sites failed, retrying", "error", err.Error())
	}
	for _, site := range dark {
		gateway := cmp.Or(site.GatewayID, "not enrolled")
		log.WarnContext(ctx, "a site is dark", "gateway", gateway, "customer_id", site.CustomerID, "dark_s", int64(now.Sub(site.Since).Seconds()))
	}
}
