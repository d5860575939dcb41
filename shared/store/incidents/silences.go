package incidents

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/store"
)

// Silence is a node whose next reading is overdue by its usual interval.
type Silence struct {
	Channel    int64
	NodeID     string
	SensorName string // empty: discovered, no sensor yet
	RoomID     int64
	RoomName   string
	GatewayID  string // that sent its newest reading; empty in the open channel
	Newest     time.Time
	Interval   time.Duration // between its readings, usually; zero while unknown
}

// Since is when the node began to count as silent.
func (s Silence) Since() time.Time { return incident.SilentFrom(s.Newest, s.Interval) }

// discoveredSilence is how long a silent node that is not yet a sensor is reported.
const discoveredSilence = 24 * time.Hour

// Silences lists a customer's nodes that are silent at a time, by id, and the enrolled
// gateways whose nodes, two or more, are all silent. A sensor that never reported is not silent; a
// discovered node is reported for a day. While the service itself is late no
// node counts as silent, see [incident.Probe], and gateways is nil.
func (s Store) Silences(ctx context.Context, customerID int64, now time.Time) (silent []Silence, gateways map[string]bool, err error) {
	probe, err := s.Probe(ctx)
	if err != nil || probe.Late(now) {
		return nil, nil, err
	}
	found, err := store.All[Silence](ctx, s.db, `
		WITH discovered AS (
		    SELECT n.*
		    FROM node_state n
		    WHERE n.channel = @customer AND n.timestamp > @now::timestamptz - @missed::interval
		      AND NOT EXISTS (SELECT FROM sensors s WHERE s.customer_id = @customer AND s.node_id = n.node_id)
		      AND NOT EXISTS (SELECT FROM sensor_tombstones t WHERE t.customer_id = @customer AND t.node_id = n.node_id)
		), quiet AS ( -- visible or not: whose newest reading may be old
		    SELECT n.node_id, n.gateway_id
		    FROM sensors s
		    JOIN node_state n ON n.channel IN (0, s.customer_id) AND n.node_id = s.node_id
		    WHERE s.customer_id = @customer AND n.timestamp <= @quiet
		    UNION ALL
		    SELECT node_id, gateway_id FROM discovered WHERE timestamp <= @quiet
		), newest AS (
		    SELECT n.*, s.name, s.room_id
		    FROM sensors s
		    CROSS JOIN `+store.NewestOf+` AS n
		    WHERE s.customer_id = @customer
		      AND s.node_id IN ( -- and all of their gateways
		          SELECT node_id FROM quiet
		          UNION ALL
		          SELECT o.node_id
		          FROM quiet q
		          JOIN sensors o ON o.customer_id = @customer
		          JOIN node_state g ON g.channel IN (0, o.customer_id) AND g.node_id = o.node_id AND g.gateway_id = q.gateway_id)
		), known AS (
		    SELECT * FROM newest
		    UNION ALL
		    SELECT *, '', NULL::bigint FROM discovered
		)
		SELECT n.channel, n.node_id, n.name AS sensor_name, COALESCE(n.room_id, 0) AS room_id, COALESCE(r.name, '') AS room_name,
		       COALESCE(n.gateway_id, '') AS gateway_id, n.timestamp AS newest,
		       COALESCE(n.usual_interval_s, 0) * interval '1 second' AS interval
		FROM known n
		LEFT JOIN server_rooms r ON r.id = n.room_id
		WHERE n.timestamp <= @quiet OR n.gateway_id IN (SELECT gateway_id FROM known WHERE timestamp <= @quiet)
		ORDER BY n.node_id`,
		pgx.StrictNamedArgs{"customer": customerID, "now": now, "missed": discoveredSilence, "quiet": now.Add(-incident.MinSilence)})
	if err != nil {
		return nil, nil, fmt.Errorf("silences of customer %d: %w", customerID, err)
	}
	gateways = map[string]bool{}
	nodes, heard := map[string]int{}, map[string]bool{}
	for _, node := range found {
		if !probe.Silent(node.Newest, node.Interval, now) {
			heard[node.GatewayID] = true
			continue
		}
		silent = append(silent, node)
		nodes[node.GatewayID]++
	}
	for gateway, count := range nodes {
		gateways[gateway] = gateway != "" && count > 1 && !heard[gateway] // of one node it is the node's silence
	}
	return silent, gateways, nil
}

// Probe returns the service's timeliness as its probe measures it.
func (s Store) Probe(ctx context.Context) (incident.Probe, error) {
	const never = `TIMESTAMPTZ '0001-01-01 00:00:00+00'`
	probe, err := store.One[incident.Probe](ctx, s.db, nil, `
		SELECT COALESCE(max(published_at), `+never+`) AS published, COALESCE(max(late_at), `+never+`) AS late_at FROM probe`, nil)
	return probe, store.Wrap(err, "probe")
}

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
