package readingstest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// RunHistory is the conformance suite of [readings.HistoryReader]. The store must be
// empty and used by no other test: a history is that of all nodes.
func RunHistory(t *testing.T, store interface {
	readings.Appender
	readings.HistoryReader
},
) {
	t.Helper()
	first := Now().Add(-time.Hour)
	var rows []reading.Reading
	for i := range 10 {
		when := first.Add(time.Duration(i) * time.Minute)
		rows = append(rows, at("often", fmt.Sprintf("o%d", i), when, float64(i), 40))
		if i < 2 {
			rows = append(rows, at("seldom", fmt.Sprintf("s%d", i), when, 20, 41))
		}
	}
	enrolled := at("seldom", "e", first, 20, 41) // in another channel it is another node
	enrolled.Channel = 7
	rows = append(rows, enrolled, at("often", "o9", first.Add(9*time.Minute+time.Second), 9, 40)) // the second is a copy
	rows = append(rows, at("before", "b", first.Add(-time.Microsecond), 20, 42), at("often", "o", Now(), 99, 43))
	for range 2 { // stored twice, counted once
		if err := store.Append(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
	}
	history := func(limit int) (messages []string) {
		t.Helper()
		for r, err := range store.History(t.Context(), first, Now(), limit) {
			if err != nil {
				t.Fatal(err)
			}
			messages = append(messages, fmt.Sprint(r.NodeID, r.Channel, " ", r.MessageID))
		}
		return messages
	}
	want := []string{"often0 o7", "often0 o8", "often0 o9", "seldom0 s0", "seldom0 s1", "seldom7 e"}
	if diff := cmp.Diff(want, history(12)); diff != "" {
		t.Errorf("four of each node, one of them a copy (-want +got):\n%s", diff)
	}
	if all := history(1000); len(all) != 13 {
		t.Errorf("%d readings of the range, want 13: %v", len(all), all)
	}
	if none := history(1); len(none) != 0 {
		t.Errorf("fewer than nodes, and yet %v", none)
	}
	for r, err := range store.History(t.Context(), first.Add(-time.Hour), first.Add(-time.Minute), 10) {
		t.Errorf("in a range without readings: %v, %v", r, err)
	}
	for r, err := range store.History(t.Context(), first, Now(), 12) {
		if err != nil || r != at("often", "o7", first.Add(7*time.Minute), 7, 40) {
			t.Errorf("first is %+v, %v", r, err)
		}
		break
	}
}
