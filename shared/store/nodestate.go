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

// UpdateNodeStates keeps the newest reading of each node of a batch. It is one
// statement whose effect is the same however often, and in whatever order, the
// readings come. Rows are locked in the order of their keys.
func (s *Store) UpdateNodeStates(ctx context.Context, batch []NodeReading) error {
	n := len(batch)
	channels, nodes, messages, gateways := make([]int64, n), make([]string, n), make([]string, n), make([]string, n)
	times, temperatures, humidities := make([]time.Time, n), make([]float64, n), make([]float64, n)
	for i, r := range batch {
		channels[i], nodes[i], messages[i], gateways[i] = int64(r.Channel), r.NodeID, r.MessageID, r.GatewayID
		times[i], temperatures[i], humidities[i] = reading.TruncateTime(r.Time), r.Temperature, r.Humidity
	}
	_, err := s.pool.Exec(ctx, `
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
	if err != nil {
		return fmt.Errorf("state of %d nodes: %w", n, err)
	}
	return nil
}
