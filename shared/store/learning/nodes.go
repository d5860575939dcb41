package learning

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
)

// CustomersWithSensors lists the customers who have sensors, by id.
func (s Store) CustomersWithSensors(ctx context.Context) ([]int64, error) {
	return store.Values[int64](ctx, s.db, `SELECT DISTINCT customer_id FROM sensors ORDER BY customer_id`, nil,
		"customers with sensors")
}

// PlacedNode is a sensor with its room.
type PlacedNode struct {
	readings.NodeRef

	RoomID int64
}

// PlacedNodes lists a customer's sensors, ordered by room.
func (s Store) PlacedNodes(ctx context.Context, customerID int64) ([]PlacedNode, error) {
	type row struct {
		NodeID string
		RoomID int64
	}
	found, err := store.All[row](ctx, s.db, `SELECT node_id, room_id FROM sensors WHERE customer_id = @customer`,
		store.Args{"customer": customerID}, "sensors of customer %d", customerID)
	if err != nil {
		return nil, err
	}
	rooms := make(map[string]int64, len(found))
	for _, r := range found {
		rooms[r.NodeID] = r.RoomID
	}
	visible, err := accounts.New(s.db).VisibleNodes(ctx, customerID, slices.Collect(maps.Keys(rooms)))
	placed := make([]PlacedNode, len(visible))
	for i, node := range visible {
		placed[i] = PlacedNode{NodeRef: node, RoomID: rooms[node.ID]}
	}
	slices.SortFunc(placed, func(a, b PlacedNode) int {
		return cmp.Or(cmp.Compare(a.RoomID, b.RoomID), cmp.Compare(a.ID, b.ID))
	})
	return placed, err
}

// RightEpisodes lists the anomalies of a customer's nodes that were judged right and ended
// after a time, by node, oldest first.
func (s Store) RightEpisodes(ctx context.Context, customerID int64, since time.Time) (map[string][]anomaly.Episode, error) {
	type row struct {
		NodeID             string
		StartTime, EndTime time.Time
	}
	found, err := store.All[row](ctx, s.db, `
		SELECT node_id, start_time, end_time
		FROM excursions
		WHERE customer_id = @customer AND kind = 'anomaly' AND verdict = 'right' AND merged_into IS NULL AND end_time > @since
		ORDER BY start_time, id`,
		store.Args{"customer": customerID, "since": since}, "episodes of customer %d that were right", customerID)
	right := map[string][]anomaly.Episode{}
	for _, r := range found {
		right[r.NodeID] = append(right[r.NodeID], anomaly.Episode{Start: r.StartTime, End: r.EndTime})
	}
	return right, err
}
