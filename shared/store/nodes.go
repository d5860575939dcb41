package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/alert"
)

// Node is what the pipeline must know of an identifier that sends readings.
// It spans customers: the pipeline serves all of them and shows it to none.
type Node struct {
	Owned   bool              // a customer has it as a sensor
	Deleted bool              // a customer had it, and nobody has it now
	Limits  *alert.Thresholds // its owner's; nil when they never set any
}

// Nodes returns what is known of each identifier; one that nobody ever had is
// absent.
func (s *Store) Nodes(ctx context.Context, ids []string) (map[string]Node, error) {
	type row struct {
		NodeID         string
		Owned          bool
		MaxTemperature *float64
		MaxHumidity    *float64
	}
	defaults := alert.Defaults()
	found, err := many[row](ctx, s, `
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
		pgx.NamedArgs{"ids": ids, "default_temperature": defaults.MaxTemperature, "default_humidity": defaults.MaxHumidity})
	if err != nil {
		return nil, fmt.Errorf("%d nodes: %w", len(ids), err)
	}
	nodes := make(map[string]Node, len(found))
	for _, r := range found {
		node := Node{Owned: r.Owned, Deleted: !r.Owned}
		if r.MaxTemperature != nil && r.MaxHumidity != nil {
			node.Limits = &alert.Thresholds{MaxTemperature: *r.MaxTemperature, MaxHumidity: *r.MaxHumidity}
		}
		nodes[r.NodeID] = node
	}
	return nodes, nil
}
