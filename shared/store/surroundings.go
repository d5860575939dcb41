package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/reading"
)

// JudgedBy is by what detection judges the readings of a node.
type JudgedBy string

// What a reading is judged by.
const (
	ByWindow    JudgedBy = "window"     // the readings before it, which came with it
	ByLiveState JudgedBy = "live_state" // what ingest keeps: none came with it
)

// RoomNode is a sensor in its room, or next to it.
type RoomNode struct {
	reading.Node

	RoomID int64
}

// NodeAir is what detection compares a node with: its newest reading, what it learned
// of it, and its last readings in slots of ten minutes.
type NodeAir struct {
	reading.Node

	At                    time.Time // zero: no reading
	Temperature, Humidity float64   // °C, % relative humidity
	Interval              float64   // s, usual between readings; 0 if it is not known
	Width                 float64   // see [anomaly.Width]; 0 if nothing was learned yet
	JudgedBy              JudgedBy  // empty if nothing was judged yet
	Slots                 []SlotAir // ascending
}

// SlotAir is the last reading in a slot of ten minutes, counted since 1970.
type SlotAir struct {
	Slot                  int64
	Temperature, Humidity float64
}

// RoomNodes returns the nodes of a customer's room that have sent something, and those
// of their other sensors that are named.
func (s *Store) RoomNodes(ctx context.Context, customerID, roomID int64, named []string) ([]RoomNode, error) {
	type row struct {
		Channel int64
		NodeID  string
		RoomID  int64
	}
	found, err := queryAll[row](ctx, s, `
		SELECT n.channel, n.node_id, s.room_id
		FROM sensors s
		JOIN node_state n ON n.node_id = s.node_id AND (n.channel = s.customer_id OR (n.channel = 0 AND s.holds_open))
		WHERE s.customer_id = @customer AND (s.room_id = @room OR s.node_id = ANY(@named::text[])) AND n.timestamp IS NOT NULL
		ORDER BY n.node_id COLLATE "C", n.channel`,
		pgx.StrictNamedArgs{"customer": customerID, "room": roomID, "named": named})
	if err != nil {
		return nil, fmt.Errorf("nodes of room %d: %w", roomID, err)
	}
	nodes := make([]RoomNode, len(found))
	for i, r := range found {
		nodes[i] = RoomNode{Node: reading.Node{Channel: reading.Channel(r.Channel), ID: r.NodeID}, RoomID: r.RoomID}
	}
	return nodes, nil
}

// NodesAir returns what is known of nodes, with their readings in the slots from one
// until before another. Nodes without a reading are absent.
func (s *Store) NodesAir(ctx context.Context, nodes []reading.Node, from, until int64) ([]NodeAir, error) {
	type row struct {
		Channel               int64
		NodeID                string
		At                    time.Time
		Temperature, Humidity float64
		Interval, Width       float64
		JudgedBy              string
		Slots                 []int64
		Temperatures          []float64
		Humidities            []float64
	}
	channels, ids := keysOf(nodes)
	var slots []int16
	for slot := from; slot < until; slot++ {
		slots = append(slots, int16(slot%144))
	}
	width := int64(anomaly.SlotWidth / time.Second)
	found, err := queryAll[row](ctx, s, `
		SELECT n.channel, n.node_id, n.timestamp AS at, n.temperature, n.humidity, COALESCE(n.usual_interval_s, 0) AS interval,
		       COALESCE(l.interval_width, 0) AS width, COALESCE(l.judged_by, '') AS judged_by, d.slots, d.temperatures, d.humidities
		FROM unnest(@channels::bigint[], @nodes::text[]) AS k (channel, node_id)
		JOIN node_state n ON n.channel = k.channel AND n.node_id = k.node_id AND n.timestamp IS NOT NULL
		LEFT JOIN node_learning l ON l.channel = n.channel AND l.node_id = n.node_id
		LEFT JOIN LATERAL (
		    SELECT array_agg(extract(epoch FROM starts)::bigint / @width::bigint ORDER BY starts) AS slots,
		           array_agg(last_temperature ORDER BY starts) AS temperatures, array_agg(last_humidity ORDER BY starts) AS humidities
		    FROM node_slots
		    WHERE channel = n.channel AND node_id = n.node_id AND slot = ANY(@slots::smallint[])
		      AND starts >= @from AND starts < @until AND (n.held_since IS NULL OR last_at >= n.held_since)
		) AS d ON true`,
		pgx.StrictNamedArgs{
			"channels": channels, "nodes": ids, "slots": slots, "width": width,
			"from": time.Unix(from*width, 0).UTC(), "until": time.Unix(until*width, 0).UTC(),
		})
	if err != nil {
		return nil, fmt.Errorf("air of %d nodes: %w", len(nodes), err)
	}
	all := make([]NodeAir, len(found))
	for i, r := range found {
		all[i] = NodeAir{
			Node: reading.Node{Channel: reading.Channel(r.Channel), ID: r.NodeID}, At: r.At.UTC(),
			Temperature: r.Temperature, Humidity: r.Humidity, Interval: r.Interval, Width: r.Width, JudgedBy: JudgedBy(r.JudgedBy),
		}
		for j, slot := range r.Slots {
			all[i].Slots = append(all[i].Slots, SlotAir{Slot: slot, Temperature: r.Temperatures[j], Humidity: r.Humidities[j]})
		}
	}
	return all, nil
}

// Learned is what detection learned of a node since it last said so.
type Learned struct {
	reading.Node

	Wider    float64 // to be added to the width
	JudgedBy JudgedBy
}

// KeepLearned adds what several instances of detection learned of nodes: each adds what
// its own readings taught. first is the width of a node of which nothing was learned.
func (s *Store) KeepLearned(ctx context.Context, learned []Learned, first float64) error {
	nodes, wider, by := make([]reading.Node, len(learned)), make([]float64, len(learned)), make([]string, len(learned))
	for i, l := range learned {
		nodes[i], wider[i], by[i] = l.Node, l.Wider, string(l.JudgedBy)
	}
	channels, ids := keysOf(nodes)
	_, err := s.pool.Exec(ctx, `
		INSERT INTO node_learning AS l (channel, node_id, interval_width, judged_by)
		SELECT channel, node_id, GREATEST(0.1, @first::float8 + wider), judged_by
		FROM unnest(@channels::bigint[], @nodes::text[], @wider::float8[], @by::text[]) AS k (channel, node_id, wider, judged_by)
		ORDER BY channel, node_id COLLATE "C"
		ON CONFLICT (channel, node_id) DO UPDATE
		SET interval_width = GREATEST(0.1, l.interval_width + EXCLUDED.interval_width - @first::float8), judged_by = EXCLUDED.judged_by`,
		pgx.StrictNamedArgs{"channels": channels, "nodes": ids, "wider": wider, "by": by, "first": first})
	return wrap(err, "what was learned of %d nodes", len(learned))
}

func keysOf(nodes []reading.Node) (channels []int64, ids []string) {
	channels, ids = make([]int64, len(nodes)), make([]string, len(nodes))
	for i, node := range nodes {
		channels[i], ids[i] = int64(node.Channel), node.ID
	}
	return channels, ids
}
