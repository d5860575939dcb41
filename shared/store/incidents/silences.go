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
// node counts as silent, see [incident.Probe].
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
	type row struct {
		PublishedAt time.Time
		LateAt      *time.Time
	}
	found, err := store.All[row](ctx, s.db, `SELECT published_at, late_at FROM probe`, nil)
	if err != nil || len(found) == 0 {
		return incident.Probe{}, store.Wrap(err, "probe")
	}
	return incident.Probe{Published: found[0].PublishedAt.UTC(), LateAt: store.UTC(found[0].LateAt)}, nil
}
