package store_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
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
	if diff := gocmp.Diff(want, db.states(t)); diff != "" {
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

type slotRow struct {
	Slot                           int16
	Starts                         time.Time
	MinTemperature, MaxTemperature float64
	MinHumidity, MaxHumidity       float64
	LastAt                         time.Time
	LastTemperature, LastHumidity  float64
}

// slots are those of node n.
func (db fixture) slots(t *testing.T, channel int64) []slotRow {
	t.Helper()
	rows, err := db.pool.Query(t.Context(), `
		SELECT slot, starts, min_temperature, max_temperature, min_humidity, max_humidity, last_at, last_temperature, last_humidity
		FROM node_slots
		WHERE channel = $1 AND node_id = 'n'
		ORDER BY slot`, channel)
	if err != nil {
		t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[slotRow])
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i].Starts, found[i].LastAt = found[i].Starts.UTC(), found[i].LastAt.UTC()
	}
	return found
}

// TestNodeSlotsAreTheLastDayInAnyOrder delivers 30 hours of a node in two channels in
// disorder, with duplicates and two readings of one time, by several writers at once,
// and compares with slots that are computed from the readings in order.
func TestNodeSlotsAreTheLastDayInAnyOrder(t *testing.T) {
	t.Parallel()
	db := open(t)
	var all []store.NodeReading
	want := map[reading.Channel]map[int16]slotRow{0: {}, 1: {}}
	for i := range 600 {
		for channel := range reading.Channel(2) {
			at := instant().Add(time.Duration(i/2*2) * 3 * time.Minute)
			r := reading.Reading{
				Channel: channel, NodeID: "n", MessageID: fmt.Sprint("m", i), Time: at,
				Temperature: float64(i*7%50) + float64(channel)/4, Humidity: float64(i * 3 % 100),
			}
			all = append(all, store.NodeReading{Reading: r})
			starts := at.Truncate(10 * time.Minute)
			slot := int16(starts.Sub(starts.Truncate(24*time.Hour)) / (10 * time.Minute))
			now, ok := want[channel][slot]
			if !ok || now.Starts.Before(starts) {
				now = slotRow{slot, starts, r.Temperature, r.Temperature, r.Humidity, r.Humidity, at, r.Temperature, r.Humidity}
			}
			now.MinTemperature, now.MaxTemperature = min(now.MinTemperature, r.Temperature), max(now.MaxTemperature, r.Temperature)
			now.MinHumidity, now.MaxHumidity = min(now.MinHumidity, r.Humidity), max(now.MaxHumidity, r.Humidity)
			if at.After(now.LastAt) || r.Temperature > now.LastTemperature {
				now.LastAt, now.LastTemperature, now.LastHumidity = at, r.Temperature, r.Humidity
			}
			want[channel][slot] = now
		}
	}
	chance := rand.New(rand.NewPCG(1, 2))
	all = append(all, all[:300]...)
	var group sync.WaitGroup
	for writer := range 4 {
		mine := slices.Clone(all)
		chance.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
		group.Go(func() {
			for batch := range slices.Chunk(mine, 20+60*writer) {
				if err := db.UpdateNodeStates(t.Context(), batch); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	for channel, slots := range want {
		ordered := slices.SortedFunc(maps.Values(slots), func(a, b slotRow) int { return cmp.Compare(a.Slot, b.Slot) })
		if len(ordered) < 100 {
			t.Fatalf("only %d slots", len(ordered))
		}
		if diff := gocmp.Diff(ordered, db.slots(t, int64(channel))); diff != "" {
			t.Errorf("channel %d (-want +got):\n%s", channel, diff)
		}
	}
}

func TestLateReadingLeavesTheSlotOfANewerDay(t *testing.T) {
	t.Parallel()
	db := open(t)
	at := time.Date(2026, 11, 20, 23, 59, 59, 0, time.UTC) // of the last slot
	keep := func(at time.Time, temperature float64) {
		t.Helper()
		r := reading.Reading{NodeID: "n", MessageID: fmt.Sprint(temperature), Time: at, Temperature: temperature, Humidity: 40}
		if err := db.UpdateNodeStates(t.Context(), []store.NodeReading{{Reading: r}}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(starts time.Time, low, high, last float64) {
		t.Helper()
		got := db.slots(t, 0)
		if len(got) != 1 || got[0].Slot != 143 || !got[0].Starts.Equal(starts) ||
			got[0].MinTemperature != low || got[0].MaxTemperature != high || got[0].LastTemperature != last {
			t.Errorf("slots %+v", got)
		}
	}
	keep(at, 20)
	keep(at.Add(-24*time.Hour), 90)
	want(at.Truncate(10*time.Minute), 20, 20, 20)
	keep(at.Add(-time.Minute), 25)
	want(at.Truncate(10*time.Minute), 20, 25, 20)
	keep(at.Add(24*time.Hour), 22)
	want(at.Add(24*time.Hour).Truncate(10*time.Minute), 22, 22, 22)
}

// TestSlotsOfAHoldBeginEmpty: what a former holder's node sent is in none of them,
// however late it comes.
func TestSlotsOfAHoldBeginEmpty(t *testing.T) {
	t.Parallel()
	db := open(t)
	before := store.NodeReading{Reading: reading.Reading{NodeID: "n", MessageID: "m", Time: time.Now().Add(-time.Minute), Temperature: 20}}
	keep := func(r store.NodeReading) {
		t.Helper()
		if err := db.UpdateNodeStates(t.Context(), []store.NodeReading{r}); err != nil {
			t.Fatal(err)
		}
	}
	keep(before)
	if got := db.slots(t, 0); len(got) != 1 {
		t.Fatalf("before the hold %+v", got)
	}
	db.claim(t, db.anna, db.room(t, db.anna), "n")
	keep(before)
	if got := db.slots(t, 0); len(got) != 0 {
		t.Errorf("of the time before the hold %+v", got)
	}
	after := before
	after.Time = time.Now().Add(time.Minute)
	keep(after)
	if got := db.slots(t, 0); len(got) != 1 {
		t.Errorf("after the first reading %+v", got)
	}
}

// TestNewestReadingsAreWithinTheSpans: the state of a node answers for the spans that it
// knows, and names the others. Contract 4.8.
func TestNewestReadingsAreWithinTheSpans(t *testing.T) {
	t.Parallel()
	t0 := instant()
	at := func(hours int) time.Time { return t0.Add(time.Duration(hours) * time.Hour) }
	for name, c := range map[string]struct {
		kept    map[reading.Channel]int // hours of the newest readings
		since   *int                    // hours, of the open channel
		spans   []reading.Span
		want    int // 0 for none
		unknown []reading.Span
	}{
		"no row":                       {spans: []reading.Span{{}}, unknown: []reading.Span{{}}},
		"nothing visible":              {kept: map[reading.Channel]int{0: 5}},
		"within":                       {kept: map[reading.Channel]int{0: 5}, spans: []reading.Span{{From: at(5)}}, want: 5},
		"before the hold":              {kept: map[reading.Channel]int{0: 5}, spans: []reading.Span{{From: at(6)}}},
		"after a hold that has ended":  {kept: map[reading.Channel]int{0: 5}, spans: []reading.Span{{Until: at(5)}}, unknown: []reading.Span{{Until: at(5)}}},
		"another's channel":            {kept: map[reading.Channel]int{1: 5}, spans: []reading.Span{{}}, unknown: []reading.Span{{}}},
		"a hold that begins empty":     {since: new(3), spans: []reading.Span{{From: at(3)}}},
		"older than an empty hold":     {since: new(3), spans: []reading.Span{{From: at(2)}}, unknown: []reading.Span{{From: at(2)}}},
		"a former hold, empty again":   {since: new(3), spans: []reading.Span{{Until: at(2)}, {From: at(3)}}, unknown: []reading.Span{{Until: at(2)}}},
		"a former hold, newer reading": {kept: map[reading.Channel]int{0: 5}, spans: []reading.Span{{Until: at(2)}, {From: at(3)}}, want: 5},
		"the newest of two channels": {
			kept: map[reading.Channel]int{0: 5, 7: 6}, spans: []reading.Span{{}, {Channel: 7}}, want: 6,
		},
		"one channel of two": {
			kept: map[reading.Channel]int{0: 5}, spans: []reading.Span{{}, {Channel: 7}}, want: 5, unknown: []reading.Span{{Channel: 7}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			for channel, hours := range c.kept {
				r := reading.Reading{Channel: channel, NodeID: "n", MessageID: "m", Time: at(hours), Temperature: float64(hours)}
				if err := db.UpdateNodeStates(t.Context(), []store.NodeReading{{Reading: r}}); err != nil {
					t.Fatal(err)
				}
			}
			if c.since != nil {
				db.sql(t, `INSERT INTO node_state (channel, node_id, held_since) VALUES (0, 'n', @since)`, pgx.NamedArgs{"since": at(*c.since)})
			}
			newest, unknown, err := db.NewestReadings(t.Context(), []readings.NodeRef{{ID: "n", Visible: c.spans}})
			if err != nil {
				t.Fatal(err)
			}
			var want []readings.NodeRef
			if c.unknown != nil {
				want = []readings.NodeRef{{ID: "n", Visible: c.unknown}}
			}
			if diff := gocmp.Diff(want, unknown); diff != "" {
				t.Errorf("unknown (-want +got):\n%s", diff)
			}
			if r, ok := newest["n"]; ok != (c.want != 0) || ok && (!r.Time.Equal(at(c.want)) || r.Temperature != float64(c.want)) {
				t.Errorf("newest %+v", newest)
			}
		})
	}
}

// TestFilledStateIsKnown: what history has told of a node is known from then on, that
// there is nothing too, and never replaces what ingest has kept or another holds.
func TestFilledStateIsKnown(t *testing.T) {
	t.Parallel()
	db := open(t)
	old := reading.Reading{NodeID: "old", MessageID: "m", Time: instant(), Temperature: 20}
	newer := old
	newer.Time, newer.Temperature, newer.NodeID = instant().Add(time.Minute), 30, "newer"
	db.claim(t, db.anna, db.annasRoom, "claimed")
	db.sql(t, `INSERT INTO node_state (channel, node_id) VALUES (0, 'locked')`, pgx.NamedArgs{})
	if err := db.UpdateNodeStates(t.Context(), []store.NodeReading{{Reading: newer}}); err != nil {
		t.Fatal(err)
	}
	span := func(id string) readings.NodeRef { return readings.NodeRef{ID: id, Visible: []reading.Span{{}}} }
	nodes := []readings.NodeRef{span("old"), span("newer"), span("none"), span("locked"), span("claimed")}
	if _, unknown, err := db.NewestReadings(t.Context(), nodes); err != nil || len(unknown) != 4 {
		t.Fatalf("unknown before: %v, %v", unknown, err)
	}
	late, claimed := old, old
	late.NodeID, claimed.NodeID = "newer", "claimed"
	for range 2 {
		if err := db.FillNodeStates(t.Context(), []reading.Reading{old, late, claimed}, nodes[1:]); err != nil {
			t.Fatal(err)
		}
		newest, unknown, err := db.NewestReadings(t.Context(), nodes)
		if err != nil || len(unknown) != 1 || unknown[0].ID != "claimed" {
			t.Errorf("unknown: %v, %v", unknown, err)
		}
		if len(newest) != 2 || newest["old"] != old || newest["newer"] != newer {
			t.Errorf("newest %+v", newest)
		}
	}
	// Ingest goes on from there.
	newer.NodeID = "none"
	if err := db.UpdateNodeStates(t.Context(), []store.NodeReading{{Reading: newer}}); err != nil {
		t.Fatal(err)
	}
	if newest, _, err := db.NewestReadings(t.Context(), nodes); err != nil || newest["none"] != newer {
		t.Errorf("newest %+v, %v", newest, err)
	}
}
