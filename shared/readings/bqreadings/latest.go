package bqreadings

import (
	"context"
	"time"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// lookbacks are the ranges that are searched for a latest reading, one after
// another. Almost every node reported within the last day, and a query of one day
// costs least.
func lookbacks() []time.Duration {
	const day = 24 * time.Hour
	return []time.Duration{day, 30 * day, beginning}
}

// beginning stands for a search of everything: no reading is older than the
// year 2000.
const beginning time.Duration = 0

// Latest returns the newest visible reading of each node that has one. It looks further
// back for those without a reading. Only a first look at a node asks for it, see package
// run/api/data: no result is cached here.
func (s *Store) Latest(ctx context.Context, nodes []readings.NodeRef) (map[string]reading.Reading, error) {
	now := s.clock()
	newest := make(map[string]reading.Reading, len(nodes))
	until := readings.LatestEnd(now)
	missing, searched := nodes, until
	for _, lookback := range lookbacks() {
		from := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		if lookback != beginning {
			from = now.Add(-lookback)
		}
		var asked []readings.NodeRef
		for _, node := range missing {
			_, found := newest[node.ID]
			if _, visible := visibleFrom(node, time.Time{}, searched); visible && !found { // else nothing of it is further back
				asked = append(asked, node)
			}
		}
		if len(asked) == 0 {
			break
		}
		if err := s.latestSince(ctx, asked, from, until, newest); err != nil {
			return nil, err
		}
		missing, searched = asked, from
	}
	return newest, nil
}

func (s *Store) latestSince(ctx context.Context, nodes []readings.NodeRef, from, until time.Time, into map[string]reading.Reading) error {
	visible := spansOf(nodes...)
	found := rows[readingRow](ctx, s, question{statement: "latest", purpose: readings.Page, parameters: visible.with(
		parameter("ids", visible.ids), parameter("from", from), parameter("until", until))})
	for row, err := range found {
		if err != nil {
			return err
		}
		into[row.NodeID] = row.reading()
	}
	return nil
}
