package store_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/tooltest"
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
	table := pgreadings.New(db.DB, nil, time.Now)
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

// site is a simulated fleet: nodes of enrolled gateways that send every 30 s to 2 min
// with jitter and lose readings, and are cut at random.
type site struct {
	nodes   []*simNode
	byID    map[string]*simNode
	pending []pipeline.NodeReading // what the service has not taken yet
}

type simNode struct {
	id, gateway string
	interval    time.Duration
	loss        float64
	next        time.Time
	newest      time.Time // that the service has
	cut, back   time.Time
	told        bool
}

func (n *simNode) isCut(at time.Time) bool { return !at.Before(n.cut) && at.Before(n.back) }

const simTick = 10 * time.Second

// TestSilences24Hours simulates nodes that are cut at random. Each silence is told
// within its time and ten seconds, none falsely; a gateway that is cut is silent as a
// whole; while the service itself is late, and after, nobody is blamed. Contract 11.4.
func TestSilences24Hours(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	count, lasts, gateways := 60, 150*time.Minute, 6
	if long() {
		count, lasts, gateways = 5000, 24*time.Hour, 100
	}
	db := open(t)
	random := rand.New(rand.NewPCG(3, 1))
	begin, end := instant(), instant().Add(lasts)
	gatewayCut := begin.Add(60 * time.Minute)
	s := site{byID: map[string]*simNode{}}
	for i := range count {
		n := &simNode{id: fmt.Sprint("n", i), gateway: fmt.Sprintf("gw-%d", i%gateways), interval: 30 * time.Second, loss: 0.05}
		if i%7 == 0 { // three of its intervals are longer than five minutes
			n.interval, n.loss = 2*time.Minute, 0
		}
		n.next = begin.Add(time.Duration(random.Int64N(int64(n.interval))))
		n.cut, n.back = end, end
		if i%3 == 0 {
			n.cut = begin.Add(20*time.Minute + time.Duration(random.Int64N(int64(lasts-time.Hour))))
			n.back = n.cut.Add(20*time.Minute + time.Duration(random.IntN(40))*time.Minute)
		}
		if n.gateway == "gw-1" {
			n.cut, n.back = gatewayCut, gatewayCut.Add(30*time.Minute)
		}
		s.nodes = append(s.nodes, n)
		s.byID[n.id] = n
	}
	db.sql(t, `INSERT INTO sensors (node_id, customer_id, room_id, name, type, signed_from)
		SELECT 'n' || i, @anna, @room, 'Rack', 'T', '-infinity' FROM generate_series(0, @last) AS i`,
		pgx.NamedArgs{"anna": db.anna, "room": db.annasRoom, "last": count - 1})
	outage, over := begin.Add(110*time.Minute), begin.Add(122*time.Minute)
	var probed time.Time
	told, whole, known, largest := 0, 0, 0, time.Duration(0)
	for now := begin; now.Before(end); now = now.Add(simTick) {
		s.send(random, db, now)
		late := !now.Before(outage) && now.Before(over)
		if !late {
			s.deliver(t, db)
			if now.Sub(probed) >= time.Minute {
				probed = now
				must.Do(t, db.RecordProbe(t.Context(), now, now))
			}
		}
		must.Do(t, db.Settle(t.Context(), db.anna, now))
		blamed, cutGateways := db.toldSilent(t)
		for id := range blamed {
			if n := s.byID[id]; !n.cut.Before(now) || !n.back.After(n.newest) { // it was not cut since then
				t.Fatalf("%s after %s: %s is blamed, its newest reading is %s old", now.Sub(begin), n.interval, n.id, now.Sub(n.newest))
			}
		}
		silent, _, err := db.Silences(t.Context(), db.anna, now)
		must.Do(t, err)
		for _, silence := range silent {
			n := s.byID[silence.NodeID]
			if !blamed[n.id] {
				t.Fatalf("%s is silent and not told", n.id)
			}
			if due := incident.SilentFrom(silence.Newest, silence.Interval); !n.told {
				n.told = true
				told++
				if due.Before(outage) || due.Sub(over) > 7*time.Minute { // else it waits again, see incident.Probe
					largest = max(largest, now.Sub(due))
				}
			}
		}
		if late && now.Sub(outage) <= 3*time.Minute {
			known = len(blamed)
		} else if late && len(blamed) > known {
			t.Fatalf("%d nodes are blamed while the service is late", len(blamed)-known)
		}
		settled := now.Before(outage) || now.Sub(over) > 7*time.Minute
		for _, n := range s.nodes {
			interval := n.interval * 6 / 5 // as lost and late readings make it appear
			if due := incident.SilentFrom(n.newest, interval).Add(simTick); settled && n.isCut(now) && n.newest.Before(n.cut.Add(time.Second)) && now.After(due) && !blamed[n.id] {
				t.Fatalf("%s: %s is cut for %s and not told", now.Sub(begin), n.id, now.Sub(n.cut))
			}
		}
		if cutGateways["gw-1"] && now.Sub(gatewayCut) > 6*time.Minute && now.Before(gatewayCut.Add(30*time.Minute)) {
			whole++
		}
	}
	must.Hold(t, largest <= simTick && told >= count/4 && whole >= 20,
		"%d silences told, the last %s after its time; the gateway was silent as a whole %d times", told, largest, whole)
	t.Logf("%d silences told, at most %s after their time", told, largest)
}

// toldSilent are the nodes of whose silence people are told, and the gateways that are silent as a whole.
func (db fixture) toldSilent(t *testing.T) (nodes, gateways map[string]bool) {
	t.Helper()
	rows := must.Get(db.pool.Query(t.Context(), `
		SELECT e.node_id, CASE WHEN e.of_gateway THEN e.gateway_id ELSE '' END
		FROM excursions e
		JOIN room_incidents i ON i.id = e.incident_id AND i.lasting AND i.cause = 'silent'
		WHERE e.kind = 'silence' AND e.lasting`))(t)
	nodes, gateways = map[string]bool{}, map[string]bool{}
	var node, gateway string
	must.Get(pgx.ForEachRow(rows, []any{&node, &gateway}, func() error {
		nodes[node], gateways[gateway] = true, true
		return nil
	}))(t)
	return nodes, gateways
}

// send makes the readings until now: they wait until the service takes them.
func (s *site) send(random *rand.Rand, db fixture, now time.Time) {
	for _, n := range s.nodes {
		for !n.next.After(now) {
			at := n.next
			n.next = at.Add(n.interval + time.Duration(random.NormFloat64()*float64(n.interval)/60))
			if n.isCut(at) || random.Float64() < n.loss {
				continue
			}
			s.pending = append(s.pending, pipeline.NodeReading{GatewayID: n.gateway, Reading: reading.Reading{
				Channel: reading.Channel(db.anna), NodeID: n.id, MessageID: strconv.FormatInt(at.UnixMicro(), 10), Time: reading.TruncateTime(at), Temperature: 22, Humidity: 40,
			}})
		}
	}
}

func (s *site) deliver(t *testing.T, db fixture) {
	t.Helper()
	if len(s.pending) == 0 {
		return
	}
	must.Do(t, db.UpdateNodeStates(t.Context(), s.pending))
	for _, r := range s.pending {
		n := s.byID[r.NodeID]
		if r.Time.After(n.newest) {
			n.newest, n.told = r.Time, false
		}
	}
	s.pending = s.pending[:0]
}

// TestDarkSites has several sites, of which one after the other falls silent.
func TestDarkSites(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1", "n2", "never")
	db.sensor(t, db.bruno, db.brunosRoom, "theirs")
	keep := func(node string, channel int64, minute int) {
		t.Helper()
		r := judged(node, 60*minute, 20).Reading
		r.Channel = reading.Channel(channel)
		db.heard(t, r)
	}
	at := func(minute int) time.Time { return clock(60 * minute) }
	want := func(when string, minute int, sites ...incidents.DarkSite) {
		t.Helper()
		dark := must.Get(db.DarkSites(t.Context(), at(minute)))(t)
		must.Equal(t, when, sites, dark, cmpopts.EquateEmpty(), cmpopts.EquateApproxTime(0))
	}
	keep("n1", 0, 0)
	keep("n2", 0, 10)
	keep("theirs", 0, 20)
	basement, attic, revoked := db.enrolled(t, db.anna), db.enrolled(t, db.anna), db.enrolled(t, db.anna)
	seen := func(g accounts.Gateway, minute int) {
		t.Helper()
		db.sql(t, `UPDATE gateways SET last_seen = @at WHERE id = @id`, pgx.NamedArgs{"at": at(minute), "id": g.ID})
	}
	seen(basement, 0)
	seen(attic, 20)
	seen(revoked, 0)
	must.Do(t, db.RevokeGateway(t.Context(), db.anna, revoked.ID))

	annas := incidents.DarkSite{CustomerID: db.anna, Since: at(10)}
	cellar := incidents.DarkSite{CustomerID: db.anna, GatewayID: basement.ID, Since: at(0)}
	want("all are well", 14)
	want("one gateway of two, while others go on", 24, cellar)
	want("one node of two sent within 15 minutes", 20, cellar)
	want("the open site of a customer too", 34, annas, cellar)
	want("given up after a month", 31*24*60)

	keep("theirs", db.bruno, 25) // through an enrolled gateway from now on
	seen(attic, 60)
	want("after enrolment", 60, annas, cellar)
	must.Do(t, db.RecordProbe(t.Context(), at(50), at(50)))
	want("the service is late itself", 60, cellar)
}

// TestProbe delivers readings of the probe: a steady stream in disorder and twice, and
// one that was late or came after a gap.
func TestProbe(t *testing.T) {
	t.Parallel()
	start := instant()
	type delivery struct{ published, received time.Duration }
	var steady []delivery
	for i := range 30 {
		d := delivery{time.Duration(i) * time.Minute, time.Duration(i)*time.Minute + time.Second}
		steady = append(steady, d, d)
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(steady), func(i, j int) {
		if i/4 == j/4 {
			steady[i], steady[j] = steady[j], steady[i]
		}
	})
	for name, c := range map[string]struct {
		readings []delivery
		want     incident.Probe
	}{
		"none":   {},
		"steady": {steady, incident.Probe{Published: start.Add(29 * time.Minute)}},
		"received late": {
			[]delivery{{0, 0}, {time.Minute, 2*time.Minute + time.Second}, {2 * time.Minute, 2 * time.Minute}},
			incident.Probe{Published: start.Add(2 * time.Minute), LateAt: start.Add(2*time.Minute + time.Second)},
		},
		"after a gap": {
			[]delivery{{0, 0}, {3 * time.Minute, 3 * time.Minute}, {4 * time.Minute, 4 * time.Minute}},
			incident.Probe{Published: start.Add(4 * time.Minute), LateAt: start.Add(3 * time.Minute)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			for _, d := range c.readings {
				must.Do(t, db.RecordProbe(t.Context(), start.Add(d.published), start.Add(d.received)))
			}
			must.Equal(t, "probe", c.want, must.Get(db.Probe(t.Context()))(t))
		})
	}
}
