package redeliverytest

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

// slotRow is a row of node_slots.
type slotRow struct {
	Channel                                                  reading.Channel
	NodeID                                                   string
	Slot                                                     int
	Starts                                                   time.Time
	MinTemperature, MaxTemperature, MinHumidity, MaxHumidity float64
	LastAt                                                   time.Time
	LastTemperature, LastHumidity                            float64
}

type slotKey struct {
	Node reading.Node
	Slot int
}

// checkLiveState compares the live state of the nodes, row by row, with what the readings
// of the history say: the newest of each node, and its day in slots of ten minutes, where
// a slot holds the readings of its newest day.
func checkLiveState(t *testing.T, pool *pgxpool.Pool, history []reading.Reading) {
	t.Helper()
	newest := map[reading.Node]reading.Reading{}
	slots := map[slotKey]slotRow{}
	sorted := slices.Clone(history) // the last of each is the one that stands
	slices.SortFunc(sorted, func(a, b reading.Reading) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.MessageID, b.MessageID), cmp.Compare(a.Temperature, b.Temperature), cmp.Compare(a.Humidity, b.Humidity))
	})
	for _, r := range sorted {
		newest[r.Node()] = r
		starts := r.Time.Truncate(10 * time.Minute)
		key := slotKey{r.Node(), (starts.Hour()*60 + starts.Minute()) / 10}
		s, ok := slots[key]
		if !ok || s.Starts.Before(starts) {
			s = slotRow{r.Channel, r.NodeID, key.Slot, starts, r.Temperature, r.Temperature, r.Humidity, r.Humidity, r.Time, r.Temperature, r.Humidity}
		}
		s.MinTemperature, s.MaxTemperature = min(s.MinTemperature, r.Temperature), max(s.MaxTemperature, r.Temperature)
		s.MinHumidity, s.MaxHumidity = min(s.MinHumidity, r.Humidity), max(s.MaxHumidity, r.Humidity)
		s.LastAt, s.LastTemperature, s.LastHumidity = r.Time, r.Temperature, r.Humidity
		slots[key] = s
	}
	if len(newest) == 0 {
		t.Error("there is no history")
	}

	gotNewest := map[reading.Node]reading.Reading{}
	for _, r := range stored(t, pool, `SELECT channel, node_id, message_id, timestamp, temperature, humidity FROM node_state WHERE timestamp IS NOT NULL`) {
		gotNewest[r.Node()] = r
	}
	must.Equal(t, "newest readings (-history +live)", newest, gotNewest)

	gotSlots := map[slotKey]slotRow{}
	rows := must.Get(pool.Query(t.Context(), `
		SELECT channel, node_id, slot, starts, min_temperature, max_temperature, min_humidity, max_humidity, last_at, last_temperature, last_humidity
		FROM node_slots`))(t)
	for _, s := range must.Get(pgx.CollectRows(rows, pgx.RowToStructByPos[slotRow]))(t) {
		s.Starts, s.LastAt = s.Starts.UTC(), s.LastAt.UTC()
		gotSlots[slotKey{reading.Node{Channel: s.Channel, ID: s.NodeID}, s.Slot}] = s
	}
	must.Equal(t, "slots (-history +live)", slots, gotSlots)
}
