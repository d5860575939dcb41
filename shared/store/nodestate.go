package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/reading"
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
	if err != nil {
		return fmt.Errorf("state of %d nodes: %w", n, err)
	}
	return nil
}
