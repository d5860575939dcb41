package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
)

// Silence is a node of which no reading came for longer than it usually takes.
type Silence struct {
	Channel        int64
	NodeID         string
	SensorName     string // empty: discovered, no sensor yet
	RoomID         int64
	RoomName       string
	GatewayID      string // that sent its newest reading; empty in the open channel
	GatewayName    string
	Newest         time.Time
	Interval       time.Duration // between its readings, usually; zero while unknown
	GatewaySeen    *time.Time    // when its gateway last said that it is there
	LastHeartbeat  *time.Time    // of the node at its gateway
	LastReading    *time.Time
	AcknowledgedAt *time.Time
	AcknowledgedBy string
	Comment        string
}

// Since is when the node began to count as silent.
func (s Silence) Since() time.Time { return incident.SilentFrom(s.Newest, s.Interval) }

// Cause tells where its readings stop.
func (s Silence) Cause(now time.Time) incident.SilenceCause {
	return incident.GatewayReport{Seen: utc(s.GatewaySeen), LastHeartbeat: utc(s.LastHeartbeat), LastReading: utc(s.LastReading)}.Cause(s.Newest, now)
}

// discoveredSilence is how long a node that is no sensor is missed.
const discoveredSilence = 24 * time.Hour

// Silences lists the nodes of a customer that are silent at a time, by id, and the
// enrolled gateways of which all nodes are. A sensor that never sent a reading is not
// silent, it has not begun; a discovered node is missed for a day. Nobody is silent
// while the service itself is late, see [incident.Probe].
func (s *Store) Silences(ctx context.Context, customerID int64, now time.Time) (silent []Silence, gateways map[string]bool, err error) {
	probe, err := s.Probe(ctx)
	if err != nil || probe.Late(now) {
		return nil, nil, err
	}
	found, err := queryAll[Silence](ctx, s, `
		WITH newest AS (
		    SELECT DISTINCT ON (n.node_id) n.*, s.name, s.room_id
		    FROM visible_spans v
		    JOIN sensors s ON s.customer_id = v.customer_id AND s.node_id = v.node_id
		    JOIN node_state n ON n.channel = v.channel AND n.node_id = v.node_id AND n.timestamp >= v.visible_from
		    WHERE v.customer_id = @customer AND v.visible_until = 'infinity'
		    ORDER BY n.node_id, n.timestamp DESC
		), known AS (
		    SELECT * FROM newest
		    UNION ALL
		    SELECT n.*, '', NULL::bigint
		    FROM node_state n
		    WHERE n.channel = @customer AND n.timestamp > @now::timestamptz - @missed::interval
		      AND NOT EXISTS (SELECT FROM sensors s WHERE s.customer_id = @customer AND s.node_id = n.node_id)
		      AND NOT EXISTS (SELECT FROM sensor_tombstones t WHERE t.customer_id = @customer AND t.node_id = n.node_id AND NOT t.lapsed)
		)
		SELECT n.channel, n.node_id, n.name AS sensor_name, COALESCE(n.room_id, 0) AS room_id, COALESCE(r.name, '') AS room_name,
		       COALESCE(n.gateway_id, '') AS gateway_id, COALESCE(g.name, '') AS gateway_name, n.timestamp AS newest,
		       COALESCE(n.usual_interval_s, 0) * interval '1 second' AS interval,
		       g.last_seen AS gateway_seen, h.last_heartbeat, h.last_reading,
		       a.acknowledged_at, COALESCE(a.acknowledged_by, '') AS acknowledged_by, COALESCE(a.comment, '') AS comment
		FROM known n
		LEFT JOIN server_rooms r ON r.id = n.room_id
		LEFT JOIN gateways g ON g.id = n.gateway_id AND g.customer_id = @customer
		LEFT JOIN gateway_nodes h ON h.gateway_id = g.id AND h.node_id = n.node_id
		LEFT JOIN silence_acknowledgements a
		    ON a.customer_id = @customer AND a.channel = n.channel AND a.node_id = n.node_id AND a.newest_at = n.timestamp
		ORDER BY n.node_id`,
		pgx.StrictNamedArgs{"customer": customerID, "now": now, "missed": discoveredSilence})
	if err != nil {
		return nil, nil, fmt.Errorf("silences of customer %d: %w", customerID, err)
	}
	gateways = map[string]bool{}
	for _, node := range found {
		is := probe.Silent(node.Newest, node.Interval, now)
		if is {
			silent = append(silent, node)
		}
		if node.GatewayID != "" {
			before, known := gateways[node.GatewayID]
			gateways[node.GatewayID] = is && (before || !known)
		}
	}
	maps.DeleteFunc(gateways, func(_ string, all bool) bool { return !all })
	// After that: whether all nodes of a gateway are silent depends on its other rooms, too.
	if rooms := RoomsOf(ctx); rooms != nil {
		silent = slices.DeleteFunc(silent, func(n Silence) bool { return !slices.Contains(rooms, n.RoomID) })
	}
	return silent, gateways, nil
}

// AcknowledgeSilences marks silences as seen, again without effect. Each is the
// sensor and its newest reading: when another comes, that silence is over.
func (s *Store) AcknowledgeSilences(ctx context.Context, customerID int64, silences []Silence, by, comment string) error {
	channels, nodes, newest := make([]int64, len(silences)), make([]string, len(silences)), make([]time.Time, len(silences))
	for i, silence := range silences {
		channels[i], nodes[i], newest[i] = silence.Channel, silence.NodeID, silence.Newest
	}
	_, err := s.pool.Exec(ctx, `
		INSERT INTO silence_acknowledgements (customer_id, channel, node_id, newest_at, acknowledged_by, comment)
		SELECT @customer, channel, node_id, newest_at, @by, @comment
		FROM unnest(@channels::bigint[], @nodes::text[], @newest::timestamptz[]) AS n (channel, node_id, newest_at)
		ON CONFLICT DO NOTHING`,
		pgx.StrictNamedArgs{
			"customer": customerID, "by": by, "comment": comment, "channels": channels, "nodes": nodes, "newest": newest,
		})
	return wrap(err, "acknowledge silences of customer %d", customerID)
}
