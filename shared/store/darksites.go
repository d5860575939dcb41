package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// A site is dark that has said nothing for darkAfter. After darkFor it is taken for one
// that was given up.
const (
	darkAfter = 15 * time.Minute
	darkFor   = 30 * 24 * time.Hour
)

// DarkSite is an enrolled gateway that reports no status any more or, without a gateway's
// id, a customer whose gateways that are not enrolled have sent no reading.
type DarkSite struct {
	CustomerID int64
	GatewayID  string
	Since      time.Time // of the last status or reading
}

// DarkSites lists the dark sites of all customers, for who runs the service: customers see
// incidents. While the service itself is late nobody can say whether readings come, and
// enrolled gateways alone are listed.
func (s *Store) DarkSites(ctx context.Context, now time.Time) ([]DarkSite, error) {
	probe, err := s.Probe(ctx)
	if err != nil {
		return nil, err
	}
	dark, err := queryAll[DarkSite](ctx, s, `
		WITH newest AS (
		    SELECT DISTINCT ON (s.customer_id, s.node_id) s.customer_id, n.channel, n.timestamp
		    FROM sensors s
		    JOIN node_state n ON n.node_id = s.node_id
		        AND (n.channel = s.customer_id OR n.channel = 0 AND s.holds_open AND n.timestamp >= COALESCE(s.readable_from, '-infinity'))
		    WHERE NOT @late::boolean AND n.timestamp IS NOT NULL
		    ORDER BY s.customer_id, s.node_id, n.timestamp DESC
		), sites AS (
		    SELECT customer_id, id AS gateway_id, last_seen AS since
		    FROM gateways
		    WHERE revoked_at IS NULL
		    UNION ALL
		    SELECT customer_id, '', max(timestamp)
		    FROM newest
		    WHERE channel = 0
		    GROUP BY customer_id
		)
		SELECT *
		FROM sites
		WHERE since <= @now::timestamptz - @after::interval AND since > @now::timestamptz - @for::interval
		ORDER BY customer_id, gateway_id`,
		pgx.StrictNamedArgs{"now": now, "late": probe.Late(now), "after": darkAfter, "for": darkFor})
	return dark, wrap(err, "dark sites")
}
