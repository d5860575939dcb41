package pgreadings_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/pgreadings"
)

// sampling holds a sample to what it promises: few days, all nodes, many hours, no
// more readings than asked for, none that is not visible, and the same one again.
func sampling(t *testing.T, store *pgreadings.Store) {
	t.Helper()
	start := present().AddDate(0, 0, -28)
	var nodes []readings.NodeRef
	for i := range 8 {
		id := fmt.Sprintf("sampled-%d", i)
		nodes = append(nodes, readings.NodeRef{ID: id, Visible: []reading.Span{{Channel: reading.Channel(i % 2), From: start.AddDate(0, 0, i)}}})
		var rows []reading.Reading
		for when := start; when.Before(present()); when = when.Add(time.Hour) {
			for channel := range reading.Channel(2) {
				r := at(id, strconv.Itoa(len(rows)), when, 20+float64(channel), 40)
				r.Channel = channel
				rows = append(rows, r)
			}
		}
		must.Do(t, store.Append(t.Context(), rows))
	}
	sample := func(rows int) (all []reading.Reading) {
		for r, err := range store.Sample(t.Context(), nodes, start, present(), rows) {
			must.Do(t, err)
			all = append(all, r)
		}
		return all
	}
	all := sample(8 * 8 * 240) // of each node eight stretches of two readings
	days, hours, weeks, perNode := map[string]bool{}, map[int]bool{}, map[int]bool{}, map[string]int{}
	for _, r := range all {
		days[r.Time.Format(time.DateOnly)], hours[r.Time.Hour()], weeks[int(r.Time.Sub(start)/(7*24*time.Hour))] = true, true, true
		perNode[r.NodeID]++
		node := nodes[r.NodeID[len(r.NodeID)-1]-'0']
		span := node.Visible[0]
		must.Hold(t, r.Channel == span.Channel && !r.Time.Before(span.From), "not visible: %+v", r)
	}
	must.Hold(t, len(days) == 4 && len(weeks) == 4 && len(hours) == 24 && len(perNode) == len(nodes) && perNode["sampled-0"] == 8*2,
		"%d days, %d weeks, %d hours, %v", len(days), len(weeks), len(hours), perNode)
	must.Equal(t, "another sample (-before +again)", all, sample(8*8*240))
	few := sample(16)
	must.Hold(t, len(few) <= 16 && len(few) >= 8, "%d readings of 16", len(few))
}
