package incidents

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/store"
)

// A site is dark after darkAfter without a message, and counts as abandoned after darkFor.
const (
	darkAfter = 15 * time.Minute
	darkFor   = 30 * 24 * time.Hour
)

// DarkSite is an enrolled gateway that has stopped reporting its status or, without a
// gateway's id, a customer whose unenrolled gateways have stopped sending readings.
type DarkSite struct {
	CustomerID int64
	GatewayID  string
	Since      time.Time // of the last status or reading
}

// DarkSites lists the dark sites of all customers for the operator of the service; customers
// see incidents. While the service itself is late it cannot know whether readings arrive,
// so only enrolled gateways are listed.
func (s Store) DarkSites(ctx context.Context, now time.Time) ([]DarkSite, error) {
	probe, err := s.Probe(ctx)
	if err != nil {
		return nil, err
	}
	dark, err := store.All[DarkSite](ctx, s.db, `
		WITH sites AS (
		    SELECT customer_id, id AS gateway_id, last_seen AS since
		    FROM gateways
		    WHERE revoked_at IS NULL
		    UNION ALL
		    SELECT customer_id, '', max(timestamp)
		    FROM live_states
		    WHERE channel = 0 AND NOT @late::boolean
		    GROUP BY customer_id
		)
		SELECT *
		FROM sites
		WHERE since <= @now::timestamptz - @after::interval AND since > @now::timestamptz - @for::interval
		ORDER BY customer_id, gateway_id`,
		pgx.StrictNamedArgs{"now": now, "late": probe.Late(now), "after": darkAfter, "for": darkFor})
	return dark, store.Wrap(err, "dark sites")
}
