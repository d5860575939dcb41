package learning

import (
	"context"
	"time"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

// JudgedBy is the basis on which detection judges a node's readings.
type JudgedBy string

// The bases.
const (
	ByWindow    JudgedBy = "window"     // the readings before it, which came with it
	ByLiveState JudgedBy = "live_state" // the state that ingest stores, because none came with it
)

// NodeAir is the state of a node against which detection compares its neighbours: its newest
// reading, its learned values, and its last values in each slot of ten minutes. Values are as
// measured: the beginning of a correction is no change.
type NodeAir struct {
	reading.Node

	RoomID                int64     // the room that it is in now
	At                    time.Time // zero: no reading
	Temperature, Humidity float64   // °C, % relative humidity
	Width                 float64   // see [anomaly.Width]; 0 if nothing was learned yet
	JudgedBy              JudgedBy  // empty if nothing was judged yet
	// The last reading in each slot that has one, ascending; slots are counted since 1970.
	Slots                    []int64
	Temperatures, Humidities []float64
}

// RoomNodes returns the nodes of a customer's room that have sent a reading, and the named
// ones of the customer's other sensors.
func (s Store) RoomNodes(ctx context.Context, customerID, roomID int64, named []string) ([]reading.Node, error) {
	return store.All[reading.Node](ctx, s.db, `
		SELECT n.channel, n.node_id AS id
		FROM sensors s
		CROSS JOIN `+store.NewestOf+` AS n
		WHERE s.customer_id = @customer AND (s.room_id = @room OR s.node_id = ANY(@named::text[]))
		ORDER BY n.node_id COLLATE "C"`,
		store.Args{"customer": customerID, "room": roomID, "named": named}, "nodes of room %d", roomID)
}

// NodesAir returns the state of a customer's nodes with their readings in a range of slots, the last
// excluded. Nodes without a reading are absent.
func (s Store) NodesAir(ctx context.Context, customerID int64, nodes []reading.Node, from, until int64) ([]NodeAir, error) {
	channels, ids := store.NodeKeys(nodes)
	var slots []int16
	for slot := from; slot < until; slot++ {
		slots = append(slots, int16(slot%144))
	}
	width := int64(anomaly.SlotWidth / time.Second)
	type row struct {
		NodeAir

		TemperatureAt, HumidityAt time.Time

		Lasts       []time.Time // of the slots
		Corrections reading.Corrections
	}
	rows, err := store.All[row](ctx, s.db, `
		SELECT n.channel, n.node_id AS id, o.room_id, n.timestamp AS at,
		       CASE WHEN n.temperature_at > n.timestamp - @width * interval '1 second' THEN n.temperature ELSE 'NaN' END AS temperature,
		       CASE WHEN n.humidity_at > n.timestamp - @width * interval '1 second' THEN n.humidity ELSE 'NaN' END AS humidity,
		       COALESCE(n.temperature_at, n.timestamp) AS temperature_at, COALESCE(n.humidity_at, n.timestamp) AS humidity_at,
		       COALESCE(l.interval_width, 0) AS width, COALESCE(l.judged_by, '') AS judged_by, d.slots, d.temperatures, d.humidities, d.lasts, `+store.CorrectionsOf+`
		FROM unnest(@channels::bigint[], @nodes::text[]) AS k (channel, node_id)
		CROSS JOIN LATERAL ( -- forces the primary key: a plan for few nodes would compare each with all
		    SELECT * FROM node_state s WHERE s.channel = k.channel AND s.node_id = k.node_id AND s.timestamp IS NOT NULL LIMIT 1) AS n
		JOIN sensors o ON o.node_id = k.node_id AND o.customer_id = @customer -- a cached room may have nodes that are another's by now
		LEFT JOIN node_learning l ON l.channel = n.channel AND l.node_id = n.node_id
		LEFT JOIN LATERAL (
		    SELECT array_agg(extract(epoch FROM starts)::bigint / @width::bigint ORDER BY starts) AS slots,
		           array_agg(last_at ORDER BY starts) AS lasts, array_agg(COALESCE(last_temperature, 'NaN') ORDER BY starts) AS temperatures,
		           array_agg(COALESCE(last_humidity, 'NaN') ORDER BY starts) AS humidities
		    FROM node_slots
		    WHERE channel = n.channel AND node_id = n.node_id AND slot = ANY(@slots::smallint[])
		      AND starts >= @from AND starts < @until
		) AS d ON true`,
		store.Args{
			"customer": customerID, "channels": channels, "nodes": ids, "slots": slots, "width": width,
			"from": time.Unix(from*width, 0).UTC(), "until": time.Unix(until*width, 0).UTC(),
		}, "air of %d nodes", len(nodes))
	found := make([]NodeAir, len(rows))
	for i, r := range rows {
		r.At = r.At.UTC()
		r.Temperature, _ = r.Corrections.Measured(r.TemperatureAt, r.Temperature, r.Humidity)
		_, r.Humidity = r.Corrections.Measured(r.HumidityAt, r.Temperature, r.Humidity)
		for j, at := range r.Lasts {
			r.Temperatures[j], r.Humidities[j] = r.Corrections.Measured(at, r.Temperatures[j], r.Humidities[j])
		}
		found[i] = r.NodeAir
	}
	return found, err
}

// Learned is what detection has learned of a node since its last report.
type Learned struct {
	reading.Node

	Wider    float64 // is added to the width
	JudgedBy JudgedBy
}

// RecordLearned adds what an instance of detection learned of a customer's nodes to what other instances did.
// first is the width of a node before anything was learned of it.
func (s Store) RecordLearned(ctx context.Context, customerID int64, learned []Learned, first float64) error {
	nodes, wider, by := make([]reading.Node, len(learned)), make([]float64, len(learned)), make([]string, len(learned))
	for i, l := range learned {
		nodes[i], wider[i], by[i] = l.Node, l.Wider, string(l.JudgedBy)
	}
	channels, ids := store.NodeKeys(nodes)
	return s.db.Exec(ctx, `
		INSERT INTO node_learning AS l (channel, node_id, interval_width, judged_by)
		SELECT channel, node_id, GREATEST(0.1, @first::float8 + wider), judged_by
		FROM unnest(@channels::bigint[], @nodes::text[], @wider::float8[], @by::text[]) AS k (channel, node_id, wider, judged_by)
		WHERE EXISTS (SELECT FROM sensors o WHERE o.node_id = k.node_id AND o.customer_id = @customer)
		ORDER BY channel, node_id COLLATE "C"
		ON CONFLICT (channel, node_id) DO UPDATE
		SET interval_width = GREATEST(0.1, l.interval_width + EXCLUDED.interval_width - @first::float8), judged_by = EXCLUDED.judged_by`,
		store.Args{"channels": channels, "nodes": ids, "wider": wider, "by": by, "first": first, "customer": customerID},
		"what was learned of %d nodes", len(learned))
}
