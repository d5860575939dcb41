package store_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

type stateRow struct {
	Channel     int64
	NodeID      string
	MessageID   *string
	Temperature *float64
}

func (db fixture) states(t *testing.T) []stateRow {
	t.Helper()
	rows, err := db.pool.Query(t.Context(), `SELECT channel, node_id, message_id, temperature FROM node_state ORDER BY channel, node_id`)
	if err != nil {
		t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[stateRow])
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestNodeStateIsTheNewestReadingInAnyOrder delivers the readings of one node id in
// three channels in disorder, many twice, in batches of any size, by several
// writers at once.
func TestNodeStateIsTheNewestReadingInAnyOrder(t *testing.T) {
	t.Parallel()
	db := open(t)
	var all []store.NodeReading
	for i := range 300 {
		for channel := range reading.Channel(3) {
			all = append(all, store.NodeReading{Reading: reading.Reading{
				Channel: channel, NodeID: fmt.Sprint("n", i%2), MessageID: fmt.Sprintf("m%03d", i/4),
				Time: instant().Add(time.Duration(i/2) * time.Minute), Temperature: float64(i%100) + float64(channel)/4, Humidity: 40,
			}})
		}
	}
	chance := rand.New(rand.NewPCG(1, 1))
	all = append(all, all[:400]...)
	var group sync.WaitGroup
	for writer := range 4 {
		mine := append([]store.NodeReading(nil), all...)
		chance.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
		group.Go(func() {
			for len(mine) > 0 {
				n := min(len(mine), 1+len(mine)*(writer+1)/9)
				if err := db.UpdateNodeStates(t.Context(), mine[:n]); err != nil {
					t.Error(err)
					return
				}
				mine = mine[n:]
			}
		})
	}
	group.Wait()
	var want []stateRow
	for channel := range int64(3) {
		for i := range 2 {
			message, temperature := "m074", float64(98+i)+float64(channel)/4
			want = append(want, stateRow{channel, fmt.Sprint("n", i), &message, &temperature})
		}
	}
	if diff := cmp.Diff(want, db.states(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUsualIntervalFollowsTheNode(t *testing.T) {
	t.Parallel()
	db := open(t)
	at := instant()
	report := func(message string, after time.Duration) float64 {
		t.Helper()
		at = at.Add(after)
		for range 2 { // again changes nothing
			if err := db.UpdateNodeStates(t.Context(), []store.NodeReading{{Reading: reading.Reading{NodeID: "n", MessageID: message, Time: at}}}); err != nil {
				t.Fatal(err)
			}
		}
		var usual *float64
		if err := db.pool.QueryRow(t.Context(), `SELECT usual_interval_s FROM node_state`).Scan(&usual); err != nil {
			t.Fatal(err)
		}
		if usual == nil {
			return 0
		}
		return *usual
	}
	if got := report("a", 0); got != 0 {
		t.Errorf("after one reading %g", got)
	}
	if got := report("b", 30*time.Second); got != 30 {
		t.Errorf("after two readings %g", got)
	}
	if got := report("c", 12*time.Hour); got > 34 { // an outage
		t.Errorf("after an outage %g", got)
	}
	var got float64
	for i := range 60 {
		got = report(fmt.Sprint("d", i), time.Minute)
	}
	if got < 55 || got > 65 {
		t.Errorf("after an hour of a reading a minute %g", got)
	}
}
