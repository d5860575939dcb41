package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// NodeReading is a reading and the enrolled gateway that sent it; empty in the open
// channel.
type NodeReading struct {
	reading.Reading

	GatewayID string
}

// slotWidth is the width of a row of node_slots.
const slotWidth = 10 * time.Minute

// UpdateNodeStates keeps the newest reading of each node of a batch, and its last day
// in slots. The effect is the same however often, and in whatever order, the readings
// come. It is one round trip and one transaction, with a statement for each table. Rows
// are locked in the order of their keys, those of node_state first: who writes a slot
// has locked its node, so that its held_since is the one in force.
func (s *Store) UpdateNodeStates(ctx context.Context, batch []NodeReading) error {
	n := len(batch)
	channels, nodes, messages, gateways := make([]int64, n), make([]string, n), make([]string, n), make([]string, n)
	times, temperatures, humidities := make([]time.Time, n), make([]float64, n), make([]float64, n)
	starts, slots := make([]time.Time, n), make([]int16, n)
	for i, r := range batch {
		channels[i], nodes[i], messages[i], gateways[i] = int64(r.Channel), r.NodeID, r.MessageID, r.GatewayID
		times[i], temperatures[i], humidities[i] = reading.TruncateTime(r.Time), r.Temperature, r.Humidity
		starts[i] = times[i].UTC().Truncate(slotWidth)
		slots[i] = int16((starts[i].Hour()*60 + starts[i].Minute()) / int(slotWidth.Minutes())) //nolint:gosec // below 144
	}
	err := s.pool.ExecBatch(ctx, func(statements *pgx.Batch) {
		statements.Queue(`
			INSERT INTO node_state AS s (channel, node_id, message_id, timestamp, temperature, humidity, gateway_id)
			SELECT DISTINCT ON (channel, node_id COLLATE "C") channel, node_id, message_id, timestamp, temperature, humidity, NULLIF(gateway_id, '')
			FROM unnest(
			    @channels::bigint[], @nodes::text[], @messages::text[], @times::timestamptz[],
			    @temperatures::float8[], @humidities::float8[], @gateways::text[])
			    AS r (channel, node_id, message_id, timestamp, temperature, humidity, gateway_id)
			ORDER BY channel, node_id COLLATE "C", timestamp DESC, message_id COLLATE "C" DESC
			ON CONFLICT (channel, node_id) DO UPDATE
			SET message_id = EXCLUDED.message_id, timestamp = EXCLUDED.timestamp,
			    temperature = EXCLUDED.temperature, humidity = EXCLUDED.humidity, gateway_id = EXCLUDED.gateway_id,
			    -- It follows the node slowly; an outage counts as a doubled interval.
			    usual_interval_s = COALESCE(
			        s.usual_interval_s + (LEAST(extract(epoch FROM EXCLUDED.timestamp - s.timestamp), 2 * s.usual_interval_s) - s.usual_interval_s) / 8,
			        extract(epoch FROM EXCLUDED.timestamp - s.timestamp))
			WHERE (s.held_since IS NULL OR EXCLUDED.timestamp >= s.held_since)
			  AND (s.timestamp IS NULL OR (EXCLUDED.timestamp, EXCLUDED.message_id COLLATE "C") > (s.timestamp, s.message_id COLLATE "C"))`,
			pgx.StrictNamedArgs{
				"channels": channels, "nodes": nodes, "messages": messages, "times": times,
				"temperatures": temperatures, "humidities": humidities, "gateways": gateways,
			})
		// Of readings of one time the larger is the last: rows have no message id.
		statements.Queue(`
			INSERT INTO node_slots AS s (
			    channel, node_id, slot, starts, min_temperature, max_temperature, min_humidity, max_humidity,
			    last_at, last_temperature, last_humidity)
			SELECT DISTINCT ON (channel, node_id COLLATE "C", slot)
			    channel, node_id, slot, starts, min(temperature), max(temperature), min(humidity), max(humidity), max(timestamp),
			    (array_agg(temperature ORDER BY timestamp DESC, temperature DESC, humidity DESC))[1],
			    (array_agg(humidity ORDER BY timestamp DESC, temperature DESC, humidity DESC))[1]
			FROM unnest(
			    @channels::bigint[], @nodes::text[], @slots::smallint[], @starts::timestamptz[], @times::timestamptz[],
			    @temperatures::float8[], @humidities::float8[])
			    AS r (channel, node_id, slot, starts, timestamp, temperature, humidity)
			WHERE NOT EXISTS (
			    SELECT FROM node_state AS n WHERE n.channel = r.channel AND n.node_id = r.node_id AND r.timestamp < n.held_since)
			GROUP BY channel, node_id, slot, starts
			ORDER BY channel, node_id COLLATE "C", slot, starts DESC
			ON CONFLICT (channel, node_id, slot) DO UPDATE
			SET starts = EXCLUDED.starts,
			    min_temperature = LEAST(EXCLUDED.min_temperature, CASE WHEN s.starts = EXCLUDED.starts THEN s.min_temperature END),
			    max_temperature = GREATEST(EXCLUDED.max_temperature, CASE WHEN s.starts = EXCLUDED.starts THEN s.max_temperature END),
			    min_humidity = LEAST(EXCLUDED.min_humidity, CASE WHEN s.starts = EXCLUDED.starts THEN s.min_humidity END),
			    max_humidity = GREATEST(EXCLUDED.max_humidity, CASE WHEN s.starts = EXCLUDED.starts THEN s.max_humidity END),
			    (last_at, last_temperature, last_humidity) = (
			        SELECT l.at, l.temperature, l.humidity
			        FROM (VALUES (EXCLUDED.last_at, EXCLUDED.last_temperature, EXCLUDED.last_humidity),
			                     (s.last_at, s.last_temperature, s.last_humidity)) AS l (at, temperature, humidity)
			        ORDER BY l.at DESC, l.temperature DESC, l.humidity DESC
			        LIMIT 1)
			-- A slot of an older day is over, and most duplicates change nothing.
			WHERE EXCLUDED.starts > s.starts OR (EXCLUDED.starts = s.starts AND (
			    (EXCLUDED.last_at, EXCLUDED.last_temperature, EXCLUDED.last_humidity) > (s.last_at, s.last_temperature, s.last_humidity)
			    OR EXCLUDED.min_temperature < s.min_temperature OR EXCLUDED.max_temperature > s.max_temperature
			    OR EXCLUDED.min_humidity < s.min_humidity OR EXCLUDED.max_humidity > s.max_humidity))`,
			pgx.StrictNamedArgs{
				"channels": channels, "nodes": nodes, "slots": slots, "starts": starts, "times": times,
				"temperatures": temperatures, "humidities": humidities,
			})
	})
	return wrap(err, "state of %d nodes", n)
}

// nodeState is what a row of node_state tells of the newest reading.
type nodeState struct {
	Channel               int64
	NodeID                string
	Since                 *time.Time // null: from the beginning
	MessageID             *string    // null with the next three: no reading since
	Timestamp             *time.Time
	Temperature, Humidity *float64
}

// NewestReadings returns the newest visible reading of each node as far as ingest has
// kept it. Unknown are the nodes that may have a newer one, with the spans in which it
// may be: of a node without a row, and of a hold that has ended.
func (s *Store) NewestReadings(ctx context.Context, nodes []readings.NodeRef) (newest map[string]reading.Reading, unknown []readings.NodeRef, err error) {
	var channels []int64
	var ids []string
	for _, node := range nodes {
		for _, span := range node.Visible {
			channels, ids = append(channels, int64(span.Channel)), append(ids, node.ID)
		}
	}
	rows, err := queryAll[nodeState](ctx, s, `
		SELECT channel, node_id, CASE WHEN isfinite(held_since) THEN held_since END AS since, message_id, timestamp, temperature, humidity
		FROM node_state
		WHERE (channel, node_id) IN (SELECT * FROM unnest(@channels::bigint[], @nodes::text[]))
		  AND (timestamp IS NOT NULL OR held_since IS NOT NULL) -- else it is a row to lock that nobody has filled`,
		pgx.StrictNamedArgs{"channels": channels, "nodes": ids})
	if err != nil {
		return nil, nil, fmt.Errorf("newest readings of %d nodes: %w", len(nodes), err)
	}
	states := make(map[reading.Node]nodeState, len(rows))
	for _, row := range rows {
		states[reading.Node{Channel: reading.Channel(row.Channel), ID: row.NodeID}] = row
	}
	newest = make(map[string]reading.Reading, len(nodes))
	for _, node := range nodes {
		var open []reading.Span
		for _, span := range node.Visible {
			state, ok := states[reading.Node{Channel: span.Channel, ID: node.ID}]
			switch at := state.Timestamp; {
			case !ok:
				open = append(open, span)
			case at == nil:
				if state.Since != nil && state.Since.After(span.From) {
					open = append(open, span)
				}
			case at.Before(span.From): // and so is all the rest
			case !span.Until.IsZero() && !at.Before(span.Until):
				open = append(open, span)
			default:
				if before, ok := newest[node.ID]; !ok || at.After(before.Time) {
					newest[node.ID] = reading.Reading{
						Channel: span.Channel, NodeID: node.ID, MessageID: *state.MessageID, Time: at.UTC(),
						Temperature: *state.Temperature, Humidity: *state.Humidity,
					}
				}
			}
		}
		best, ok := newest[node.ID]
		open = slices.DeleteFunc(open, func(span reading.Span) bool {
			return ok && !span.Until.IsZero() && !span.Until.After(best.Time)
		})
		if len(open) > 0 {
			unknown = append(unknown, readings.NodeRef{ID: node.ID, Visible: open})
		}
	}
	return newest, unknown, nil
}

// UnfilledNodes returns sensors of any customer whose state nobody has filled, at most so
// many, with the span that goes on: those of a version before there were states.
func (s *Store) UnfilledNodes(ctx context.Context, limit int) ([]readings.NodeRef, error) {
	type row struct {
		NodeID  string
		Channel int64
		From    *time.Time // null: from the beginning
	}
	found, err := queryAll[row](ctx, s, `
		SELECT v.node_id, v.channel, CASE v.channel WHEN 0 THEN NULLIF(v.visible_from, '-infinity') ELSE g.enrolled_at - interval '10 minutes' END AS "from"
		FROM visible_spans v
		LEFT JOIN (SELECT customer_id, min(enrolled_at) AS enrolled_at FROM gateways GROUP BY customer_id) AS g ON g.customer_id = v.customer_id
		LEFT JOIN node_state n ON n.channel = v.channel AND n.node_id = v.node_id
		WHERE v.visible_until = 'infinity' AND (v.channel = 0 OR g.enrolled_at IS NOT NULL)
		  AND n.timestamp IS NULL AND n.held_since IS NULL
		ORDER BY v.channel, v.node_id
		LIMIT @limit`,
		pgx.StrictNamedArgs{"limit": limit})
	if err != nil {
		return nil, fmt.Errorf("unfilled nodes: %w", err)
	}
	nodes := make([]readings.NodeRef, len(found))
	for i, r := range found {
		span := reading.Span{Channel: reading.Channel(r.Channel)}
		if r.From != nil {
			span.From = r.From.UTC()
		}
		nodes[i] = readings.NodeRef{ID: r.NodeID, Visible: []reading.Span{span}}
	}
	return nodes, nil
}

// FillNodeStates notes what history tells of nodes without a row: their newest reading,
// or that there is none in a span that goes on. What ingest has kept meanwhile stays.
func (s *Store) FillNodeStates(ctx context.Context, newest []reading.Reading, empty []readings.NodeRef) error {
	if len(newest) > 0 {
		batch := make([]NodeReading, len(newest))
		for i, r := range newest {
			batch[i].Reading = r
		}
		if err := s.UpdateNodeStates(ctx, batch); err != nil {
			return err
		}
	}
	if len(empty) == 0 {
		return nil
	}
	channels, ids, since := make([]int64, len(empty)), make([]string, len(empty)), make([]*time.Time, len(empty))
	for i, node := range empty {
		span := node.Visible[0]
		channels[i], ids[i] = int64(span.Channel), node.ID
		if !span.From.IsZero() {
			since[i] = &span.From
		}
	}
	_, err := s.pool.Exec(ctx, `
		INSERT INTO node_state AS s (channel, node_id, held_since)
		SELECT channel, node_id, COALESCE(since, '-infinity')
		FROM unnest(@channels::bigint[], @nodes::text[], @since::timestamptz[]) AS e (channel, node_id, since)
		ORDER BY channel, node_id COLLATE "C"
		ON CONFLICT (channel, node_id) DO UPDATE
		SET held_since = EXCLUDED.held_since
		WHERE s.held_since IS NULL AND s.timestamp IS NULL`,
		pgx.StrictNamedArgs{"channels": channels, "nodes": ids, "since": since})
	return wrap(err, "empty state of %d nodes", len(empty))
}
