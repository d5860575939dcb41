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

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/pipeline"
)

type stateRow struct {
	Channel     int64
	NodeID      string
	MessageID   *string
	Temperature *float64
	Humidity    *float64
}

func (db fixture) states(t *testing.T) []stateRow {
	t.Helper()
	rows := must.Get(db.pool.Query(t.Context(), `SELECT channel, node_id, message_id, temperature, humidity FROM node_state ORDER BY channel, node_id`))(t)
	return must.Get(pgx.CollectRows(rows, pgx.RowToStructByName[stateRow]))(t)
}

// heardInDisorder has four writers at once keep all of the readings, each in an order and in batches of its own.
func (db fixture) heardInDisorder(t *testing.T, all []pipeline.NodeReading) {
	t.Helper()
	chance := rand.New(rand.NewPCG(1, 1))
	var group sync.WaitGroup
	for range 4 {
		mine := slices.Clone(all)
		chance.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
		sizes := rand.New(rand.NewPCG(chance.Uint64(), 1))
		group.Go(func() {
			for len(mine) > 0 {
				n := min(len(mine), 1+sizes.IntN(300))
				must.Fail(t, "heard", db.UpdateNodeStates(t.Context(), mine[:n]), nil)
				mine = mine[n:]
			}
		})
	}
	group.Wait()
}

// TestNodeStateIsTheNewestReadingInAnyOrder delivers the readings of one node id in three channels in disorder,
// many twice, in batches of any size, by several writers at once.
func TestNodeStateIsTheNewestReadingInAnyOrder(t *testing.T) {
	t.Parallel()
	db := open(t)
	var all []pipeline.NodeReading
	for i := range 300 {
		for channel := range reading.Channel(3) {
			r := reading.Reading{
				Channel: channel, NodeID: fmt.Sprint("n", i%2), MessageID: fmt.Sprintf("m%03d", i/4),
				Time: instant().Add(time.Duration(i/2) * time.Minute), Temperature: float64(i%100) + float64(channel)/4, Humidity: float64(i % 100),
			}
			if channel == 2 { // each quantity apart
				*[...]*float64{&r.Temperature, &r.Humidity}[i/2%2] = reading.Missing()
			}
			all = append(all, pipeline.NodeReading{Reading: r})
		}
	}
	db.heardInDisorder(t, append(all, all[:400]...))
	var want []stateRow
	for channel := range int64(3) {
		for i := range 2 {
			message, temperature, humidity := "m074", float64(98+i)+float64(channel)/4, float64(98+i)
			if channel == 2 {
				humidity -= 2
			}
			want = append(want, stateRow{channel, fmt.Sprint("n", i), &message, &temperature, &humidity})
		}
	}
	// An older reading with the first value of its quantity changes that alone.
	db.heard(t,
		reading.Reading{Channel: 3, NodeID: "n", MessageID: "new", Time: clock(60), Temperature: 20, Humidity: reading.Missing()},
		reading.Reading{Channel: 3, NodeID: "n", MessageID: "old", Time: clock(0), Temperature: reading.Missing(), Humidity: 40})
	want = append(want, stateRow{3, "n", new("new"), new(20.0), new(40.0)})
	must.Equal(t, "", want, db.states(t))
}

func TestUsualIntervalFollowsTheNode(t *testing.T) {
	t.Parallel()
	db := open(t)
	at := instant()
	report := func(message string, after time.Duration) float64 {
		t.Helper()
		at = at.Add(after)
		r := reading.Reading{NodeID: "n", MessageID: message, Time: at}
		db.heard(t, r, r) // again changes nothing
		var usual *float64
		must.Do(t, db.pool.QueryRow(t.Context(), `SELECT usual_interval_s FROM node_state`).Scan(&usual))
		if usual == nil {
			return 0
		}
		return *usual
	}
	must.Equal(t, "after one reading", 0.0, report("a", 0))
	if got := report("a2", 0); got != 0 { // another of the same time
		t.Errorf("after two readings of one time %g", got)
	}
	must.Equal(t, "30 s later", 30.0, report("b", 30*time.Second))
	if got := report("c", 12*time.Hour); got > 34 { // an outage
		t.Errorf("after an outage %g", got)
	}
	var got float64
	for i := range 60 {
		got = report(fmt.Sprint("d", i), time.Minute)
	}
	must.Hold(t, got >= 55 && got <= 65, "after an hour of a reading a minute %g", got)
	db.sql(t, `UPDATE node_state SET usual_interval_s = NULL`, nil)
	must.Equal(t, "tried once, mounted two weeks later", 3600.0, report("e", 14*24*time.Hour))
}

type slotRow struct {
	Slot                           int16
	Starts                         time.Time
	MinTemperature, MaxTemperature float64
	MinHumidity, MaxHumidity       float64
	LastAt                         time.Time
	LastTemperature, LastHumidity  float64
}

func (db fixture) slots(t *testing.T, channel int64) []slotRow {
	t.Helper()
	rows := must.Get(db.pool.Query(t.Context(), `
		SELECT slot, starts, min_temperature, max_temperature, min_humidity, max_humidity, last_at, last_temperature, last_humidity
		FROM node_slots
		WHERE channel = $1 AND node_id = 'n'
		ORDER BY slot`, channel))(t)
	found := must.Get(pgx.CollectRows(rows, pgx.RowToStructByName[slotRow]))(t)
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
	var all []pipeline.NodeReading
	want := map[reading.Channel]map[int16]slotRow{0: {}, 1: {}}
	for i := range 600 {
		for channel := range reading.Channel(2) {
			at := instant().Add(time.Duration(i/2*2) * 3 * time.Minute)
			r := reading.Reading{
				Channel: channel, NodeID: "n", MessageID: fmt.Sprint("m", i), Time: at,
				Temperature: float64(i*7%50) + float64(channel)/4, Humidity: float64(i * 3 % 100),
			}
			all = append(all, pipeline.NodeReading{Reading: r})
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
	db.heardInDisorder(t, append(all, all[:300]...))
	for channel, slots := range want {
		ordered := slices.SortedFunc(maps.Values(slots), func(a, b slotRow) int { return cmp.Compare(a.Slot, b.Slot) })
		if len(ordered) < 100 {
			t.Fatalf("only %d slots", len(ordered))
		}
		must.Equal(t, fmt.Sprint("channel ", channel), ordered, db.slots(t, int64(channel)))
	}
}

func TestLateReadingLeavesTheSlotOfANewerDay(t *testing.T) {
	t.Parallel()
	db := open(t)
	at := time.Date(2026, 3, 20, 23, 59, 59, 0, time.UTC) // of the last slot
	want := func(starts time.Time, low, high, last float64) {
		t.Helper()
		got := db.slots(t, 0)
		must.Hold(t, len(got) == 1 && got[0].Slot == 143 && got[0].Starts.Equal(starts) && got[0].MinTemperature == low && got[0].MaxTemperature == high && got[0].LastTemperature == last,
			"slots %+v", got)
	}
	db.heard(t, measured("n", at, 20))
	db.heard(t, measured("n", at.Add(-24*time.Hour), 90))
	want(at.Truncate(10*time.Minute), 20, 20, 20)
	db.heard(t, measured("n", at.Add(-time.Minute), 25))
	want(at.Truncate(10*time.Minute), 20, 25, 20)
	db.heard(t, measured("n", at.Add(24*time.Hour), 22))
	want(at.Add(24*time.Hour).Truncate(10*time.Minute), 22, 22, 22)
}

// TestNewestReadingsAreWithinTheSpans: contract 4.8.
func TestNewestReadingsAreWithinTheSpans(t *testing.T) {
	t.Parallel()
	t0 := instant()
	at := func(hours int) time.Time { return t0.Add(time.Duration(hours) * time.Hour) }
	for name, c := range map[string]struct {
		open, own, others int // hours of the newest reading in each channel; 0 for none
		holds             []reading.Span
		anothers          reading.Span
		want              int // 0 for none
	}{
		"no row":                         {holds: []reading.Span{{}}},
		"no hold":                        {open: 5},
		"within":                         {open: 5, holds: []reading.Span{{From: at(5)}}, want: 5},
		"before the hold":                {open: 5, holds: []reading.Span{{From: at(6)}}},
		"within a hold that has ended":   {open: 5, holds: []reading.Span{{Until: at(6)}}, want: 5},
		"after a hold that has ended":    {open: 5, holds: []reading.Span{{Until: at(5)}}},
		"another's channel":              {others: 5, holds: []reading.Span{{}}},
		"a former hold, empty again":     {holds: []reading.Span{{Until: at(2)}, {From: at(3)}}},
		"a former hold, newer reading":   {open: 5, holds: []reading.Span{{Until: at(2)}, {From: at(3)}}, want: 5},
		"a signed sensor, newer reading": {open: 9, own: 6, holds: []reading.Span{{Until: at(5)}}, want: 6},
		"the newest of two channels":     {open: 5, own: 6, holds: []reading.Span{{}}, want: 6},
		"another's hold":                 {open: 5, holds: []reading.Span{{From: at(6)}}, anothers: reading.Span{Until: at(6)}},
		"holds of a clock put back":      {open: 5, holds: []reading.Span{{From: at(1), Until: at(7)}, {From: at(4)}}, want: 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openWith(t, "n")
			db.sql(t, `DELETE FROM open_holds`, nil)
			hold := func(customer int64, hold reading.Span) {
				db.sql(t, `INSERT INTO open_holds VALUES ('n', @customer, COALESCE(@from, '-infinity'::timestamptz), COALESCE(@until, 'infinity'::timestamptz))`,
					pgx.NamedArgs{"customer": customer, "from": store.OrNull(hold.From), "until": store.OrNull(hold.Until)})
			}
			for _, span := range c.holds {
				hold(db.anna, span)
			}
			if c.anothers != (reading.Span{}) {
				hold(db.bruno, c.anothers)
			}
			for channel, hours := range map[reading.Channel]int{reading.Open: c.open, reading.Channel(db.anna): c.own, reading.Channel(db.bruno): c.others} {
				if hours > 0 {
					r := measured("n", at(hours), float64(hours))
					r.Channel = channel
					db.heard(t, r)
				}
			}
			newest := must.Get(db.NewestReadings(t.Context(), db.anna, []string{"n", "unknown"}))(t)
			if r, ok := newest["n"]; ok != (c.want != 0) || ok && (!r.Time.Equal(at(c.want)) || r.Temperature != float64(c.want)) {
				t.Errorf("newest %+v", newest)
			}
			live := must.Get(db.LiveSensors(t.Context(), db.anna))(t)
			must.Hold(t, len(live) == 1 && (live[0].Timestamp != nil) == (c.want != 0) && (c.want == 0 || (live[0].Timestamp.Equal(at(c.want)) && *live[0].Temperature == float64(c.want))),
				"live %+v", live)
			others := must.Get(db.NewestReadings(t.Context(), db.bruno, []string{"n"}))(t)
			must.Hold(t, len(others) == 0, "another customer sees %+v", others)
		})
	}
}

// TestRowAheadOfTheClockIsPassedOver: while the clock was wrong, readings were stored with
// times that lie ahead. Once it is right, the next reading is the newest.
func TestRowAheadOfTheClockIsPassedOver(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n")
	now := db.now(t)
	newest := func() float64 {
		t.Helper()
		live := one(t, "live sensors", must.Get(db.LiveSensors(t.Context(), db.anna))(t))
		found := must.Get(db.NewestReadings(t.Context(), db.anna, []string{"n"}))(t)
		if live.Temperature == nil {
			return 0
		}
		must.Equal(t, "the overview shows", found["n"].Temperature, *live.Temperature)
		return *live.Temperature
	}
	db.heard(t, measured("n", now.Add(-time.Hour), 20))
	// The clock was a year ahead.
	db.sql(t, `UPDATE node_state SET timestamp = timestamp + interval '1 year', temperature = 25`, nil)
	db.sql(t, `UPDATE node_slots SET starts = starts + interval '1 year', last_at = last_at + interval '1 year'`, nil)
	must.Equal(t, "a reading of next year is shown", 0.0, newest())
	db.heard(t, measured("n", now.Add(-time.Hour), 60))
	must.Equal(t, "newest", 60.0, newest())
	db.heard(t, measured("n", now.Add(time.Hour), 21)) // delivered again
	must.Equal(t, "newest after a reading that lies ahead", 60.0, newest())
	slots := db.slots(t, 0)
	must.Hold(t, len(slots) == 1 && slots[0].LastTemperature == 60 && !slots[0].Starts.After(now), "slots %+v", slots)
}

// TestDeadNodeIsShownAndSilentAfterTheClockWasAhead: a node at 60 °C sends its last reading
// while the clock is a year ahead. Once the clock is right, its last reading from before is
// shown, and the node becomes silent. A sensor that was created meanwhile is shown, too.
func TestDeadNodeIsShownAndSilentAfterTheClockWasAhead(t *testing.T) {
	t.Parallel()
	db := openWith(t, "hot")
	db.sensor(t, db.bruno, db.brunosRoom, "new")
	// The hold began before the reading.
	db.sql(t, `UPDATE open_holds SET held_from = held_from - interval '1 day' WHERE node_id = 'hot'`, nil)
	now := reading.TruncateTime(db.now(t)).Add(-30 * time.Minute)
	table := pgreadings.New(db.pool, nil, time.Now)
	ingest := func(node string, at time.Time, temperature float64) {
		t.Helper()
		r := measured(node, at, temperature)
		db.heard(t, r)
		must.Do(t, table.Append(t.Context(), []reading.Reading{r}))
	}
	shown := func(customer int64) string {
		t.Helper()
		live := one(t, "live sensors", must.Get(db.LiveSensors(t.Context(), customer))(t))
		if live.Temperature == nil {
			return "nothing"
		}
		return fmt.Sprint(*live.Temperature, " ", live.Timestamp.UTC())
	}
	silent := func(at time.Time) int {
		t.Helper()
		found, _, err := db.Silences(t.Context(), db.anna, at)
		must.Do(t, err)
		return len(found)
	}
	probe := func(at time.Time) { must.Do(t, db.RecordProbe(t.Context(), at, at)) }
	last := now.Add(-20 * time.Minute)
	ingest("hot", last.Add(-time.Minute), 59)
	ingest("hot", last, 60)
	probe(now.Add(-time.Minute))
	// The clock is a year ahead. That of the test's database is not, so the rows are moved.
	must.Do(t, table.Append(t.Context(), []reading.Reading{measured("hot", now.AddDate(1, 0, 0), 61)}))
	db.sql(t, `UPDATE node_state SET message_id = '61', timestamp = timestamp + interval '1 year', temperature = 61 WHERE node_id = 'hot'`, nil)
	db.sql(t, `UPDATE probe SET published_at = published_at + interval '1 year', received_at = received_at + interval '1 year', late_at = now() + interval '1 year'`, nil)
	db.sql(t, `UPDATE open_holds SET held_from = held_from + interval '1 year' WHERE node_id = 'new'`, nil)

	probe(now) // the clock is right again
	must.Equal(t, "shown of the dead node", fmt.Sprint("60 ", last.UTC()), shown(db.anna))
	must.Equal(t, "nodes are silent as soon as the clock is right", 0, silent(now))
	for minute := range 10 {
		probe(now.Add(time.Duration(minute) * time.Minute))
	}
	must.Equal(t, "nodes are silent after 9 minutes", 1, silent(now.Add(9*time.Minute)))
	ingest("new", db.now(t), 22)
	got := shown(db.bruno)
	must.Hold(t, got != "nothing", "the sensor that was created while the clock was ahead is not shown")
}
