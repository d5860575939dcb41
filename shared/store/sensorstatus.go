package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/reading"
)

// SensorStatus is what the pipeline knows of a node. It spans customers: the
// pipeline serves all of them and shows it to none.
type SensorStatus struct {
	Owned      bool              // it is a customer's sensor: in the open channel, of who holds the id
	Deleted    bool              // it was, and is nobody's now
	Thresholds *alert.Thresholds // its owner's; nil when they never set any
}

// buried is the condition that the sensor of a node was deleted: the tombstone t is
// of the node's channel, and not of a hold that lapsed.
const buried = `t.node_id = n.node_id AND NOT t.lapsed AND ((n.channel = 0 AND t.held_open) OR t.customer_id = n.channel)`

// SensorStatuses returns the status of each node. One that was never a sensor is
// absent.
func (s *Store) SensorStatuses(ctx context.Context, nodes []reading.Node) (map[reading.Node]SensorStatus, error) {
	type row struct {
		Channel        reading.Channel
		NodeID         string
		Owned          bool
		MaxTemperature *float64
		MaxHumidity    *float64
	}
	defaults := alert.Defaults()
	channels, ids := make([]int64, len(nodes)), make([]string, len(nodes))
	for i, node := range nodes {
		channels[i], ids[i] = int64(node.Channel), node.ID
	}
	found, err := queryAll[row](ctx, s, `
		SELECT n.channel, n.node_id, o.customer_id IS NOT NULL AS owned, l.max_temperature, l.max_humidity
		FROM unnest(@channels::bigint[], @ids::text[]) AS n (channel, node_id)
		LEFT JOIN LATERAL (
		    SELECT customer_id
		    FROM sensors s
		    WHERE s.node_id = n.node_id AND ((n.channel = 0 AND s.holds_open) OR s.customer_id = n.channel)
		    LIMIT 1
		) AS o ON true
		-- The version before this one sets a record and leaves it assumed: by its values it is known.
		LEFT JOIN alert_thresholds l ON l.customer_id = o.customer_id
		    AND NOT (l.assumed AND l.max_temperature = @default_temperature AND l.max_humidity = @default_humidity)
		WHERE o.customer_id IS NOT NULL OR EXISTS (SELECT FROM sensor_tombstones t WHERE `+buried+`)`,
		pgx.StrictNamedArgs{
			"channels": channels, "ids": ids,
			"default_temperature": defaults.MaxTemperature, "default_humidity": defaults.MaxHumidity,
		})
	if err != nil {
		return nil, fmt.Errorf("%d nodes: %w", len(ids), err)
	}
	statuses := make(map[reading.Node]SensorStatus, len(found))
	for _, r := range found {
		status := SensorStatus{Owned: r.Owned, Deleted: !r.Owned}
		if r.MaxTemperature != nil && r.MaxHumidity != nil {
			status.Thresholds = &alert.Thresholds{MaxTemperature: *r.MaxTemperature, MaxHumidity: *r.MaxHumidity}
		}
		statuses[reading.Node{Channel: r.Channel, ID: r.NodeID}] = status
	}
	return statuses, nil
}
