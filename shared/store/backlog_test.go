package store_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
)

// TestBacklogCallsNobody judges what hot nodes of two rooms measured in an outage of twelve
// hours and send when it is over, each the oldest first: one incident of each room, and nobody
// is called, since nothing in it is in time. Contract 11.1, 11.2.
func TestBacklogCallsNobody(t *testing.T) {
	t.Parallel()
	nodes, every := 24, 30*time.Minute
	if long() {
		nodes, every = 1000, 10*time.Minute
	}
	db := open(t)
	other := db.room(t, db.anna)
	db.sql(t, `INSERT INTO sensors (node_id, customer_id, room_id, name, type, signed_from)
		SELECT 'n' || i, @anna, CASE WHEN i % 3 = 0 THEN @room::bigint ELSE @other::bigint END, 'Rack', 'T', '-infinity' FROM generate_series(0, @last) AS i`,
		pgx.NamedArgs{"anna": db.anna, "room": db.annasRoom, "other": other, "last": nodes - 1})
	random := rand.New(rand.NewPCG(2, 2))
	end := instant().Add(12 * time.Hour)
	deliver := func(i int, at time.Time, temperature float64, arrived time.Time) {
		t.Helper()
		j := incidents.Judged{
			Reading: reading.Reading{
				Channel: reading.Channel(db.anna), NodeID: fmt.Sprint("n", i), MessageID: strconv.FormatInt(at.UnixMicro(), 10), Time: at,
				Temperature: temperature, Humidity: 40,
			},
			GatewayID: fmt.Sprint("gw-", i%2), Arrived: arrived, Defaults: alert.Defaults(),
		}
		must.Do(t, db.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: j.Reading, GatewayID: j.GatewayID}}))
		db.judge(t, j)
	}
	begin := time.Now()
	readings := 0
	for at := instant(); at.Before(end.Add(-time.Hour)); at = at.Add(every) {
		for i := range nodes {
			deliver(i, at.Add(time.Duration(i)*time.Second), 55+random.Float64(), end)
			readings++
		}
		if at.Equal(instant().Add(6 * time.Hour)) {
			for _, i := range db.excursions(t, db.anna, incidents.ExcursionQuery{}) {
				if !i.Late {
					t.Fatalf("while the backlog drains somebody is notified of %+v", i)
				}
			}
		}
	}
	t.Logf("%d readings, %s each", readings, time.Since(begin)/time.Duration(readings))
	for i := range nodes {
		deliver(i, end.Add(-time.Hour+time.Duration(i)*time.Second), 20, end)
	}
	for _, e := range db.excursions(t, db.anna, incidents.ExcursionQuery{}) {
		must.Hold(t, e.Late && !e.Lasting, "%+v", e)
	}
	of := func(room int64) []string { return db.roomIncidents(t, db.anna, room) }
	for _, room := range []int64{db.annasRoom, other} {
		found := of(room)
		must.Hold(t, len(found) == 1 && strings.Contains(found[0], " over "), "incidents of a room: %q", found)
	}
	must.Equal(t, "calls by what was over when it arrived", 0, strings.Count(strings.Join(db.changes(t, db.anna), " "), "!"))
	// One that is hot in time is told of, in its room.
	deliver(0, end, 55, end)
	deliver(3, end, 55, end)
	lasting := lastingOf(db.excursions(t, db.anna, incidents.ExcursionQuery{}))
	must.Hold(t, len(lasting) == 2 && !lasting[0].Late && lasting[0].IncidentID == lasting[1].IncidentID && len(of(db.annasRoom)) == 2,
		"%+v, %q", lasting, of(db.annasRoom))
	must.Equal(t, "calls", 1, strings.Count(strings.Join(db.changes(t, db.anna), " "), "!"))
}
