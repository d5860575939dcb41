package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/alert"
)

// SensorStatus is what the pipeline knows of a node id. It spans customers: the
// pipeline serves all of them and shows it to none.
type SensorStatus struct {
	Owned      bool              // a customer has it as a sensor
	Deleted    bool              // a customer had it, and nobody has it now
	Thresholds *alert.Thresholds // its owner's; nil when they never set any
}

// SensorStatuses returns the status of each node id. One that was never a sensor
// is absent.
func (s *Store) SensorStatuses(ctx context.Context, ids []string) (map[string]SensorStatus, error) {
	type row struct {
		NodeID         string
		Owned          bool
		MaxTemperature *float64
		MaxHumidity    *float64
	}
	defaults := alert.Defaults()
	found, err := queryAll[row](ctx, s, `
		SELECT s.node_id, true AS owned, t.max_temperature, t.max_humidity
		FROM sensors s
		-- The version before this one sets a record and leaves it assumed: by its values it is known.
		LEFT JOIN alert_thresholds t ON t.customer_id = s.customer_id
		    AND NOT (t.assumed AND t.max_temperature = @default_temperature AND t.max_humidity = @default_humidity)
		WHERE s.node_id = ANY(@ids)
		UNION ALL
		SELECT DISTINCT d.node_id, false, NULL::double precision, NULL::double precision
		FROM sensor_tombstones d
		WHERE d.node_id = ANY(@ids)
		  AND NOT EXISTS (SELECT FROM sensors s WHERE s.node_id = d.node_id)`,
		pgx.StrictNamedArgs{"ids": ids, "default_temperature": defaults.MaxTemperature, "default_humidity": defaults.MaxHumidity})
	if err != nil {
		return nil, fmt.Errorf("%d nodes: %w", len(ids), err)
	}
	nodes := make(map[string]SensorStatus, len(found))
	for _, r := range found {
		node := SensorStatus{Owned: r.Owned, Deleted: !r.Owned}
		if r.MaxTemperature != nil && r.MaxHumidity != nil {
			node.Thresholds = &alert.Thresholds{MaxTemperature: *r.MaxTemperature, MaxHumidity: *r.MaxHumidity}
		}
		nodes[r.NodeID] = node
	}
	return nodes, nil
}
