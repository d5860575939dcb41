package store_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/tooltest"
)

// long is for make incidents: the months and days of which the tests take a part.
func long() bool { return os.Getenv("INCIDENTS") == "long" }

// judgeWorker is what the test binary does as a process that is killed: it judges the
// readings that come on standard input, a JSON value a line, and says so of each.
func judgeWorker(address string) int {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, address)
	if err != nil {
		return 1
	}
	defer pool.Close()
	s := pgtest.NewStores(pool)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var j incidents.Judged
		if json.Unmarshal(lines.Bytes(), &j) != nil || s.Judge(ctx, j) != nil {
			return 1
		}
		fmt.Println("judged")
	}
	return 0
}

// killed runs the deliveries through so many processes, each of which is killed while
// it judges; what a killed one has not answered is delivered again.
func killed(t *testing.T, address string, deliveries []incidents.Judged, kills int) {
	t.Helper()
	const inFlight = 20
	random := rand.New(rand.NewPCG(11, 11))
	for process := 0; len(deliveries) > 0; process++ {
		worker := exec.CommandContext(t.Context(), os.Args[0])
		worker.Env = append(os.Environ(), "JUDGE_WORKER="+address)
		in := must.Get(worker.StdinPipe())(t)
		out := must.Get(worker.StdoutPipe())(t)
		must.Do(t, worker.Start())
		share := len(deliveries)
		if process < kills {
			share = len(deliveries)/(kills+1-process) + random.IntN(10)
		}
		batch := deliveries[:min(share, len(deliveries))]
		go feed(in, batch)
		answers, answered := bufio.NewScanner(out), 0
		for answers.Scan() {
			if answered++; process < kills && answered >= len(batch)-inFlight/2 {
				_ = worker.Process.Kill() // it has the next ones in hand
				break
			}
		}
		_ = worker.Wait()
		if process >= kills && answered < len(deliveries) {
			t.Fatalf("the last process judged %d of %d", answered, len(deliveries))
		}
		deliveries = deliveries[answered:]
	}
}

func feed(in io.WriteCloser, batch []incidents.Judged) {
	encoder := json.NewEncoder(in)
	for _, j := range batch {
		if encoder.Encode(j) != nil {
			return // it was killed
		}
	}
	_ = in.Close()
}

// sown is a node's time with excursions in it: its values wander around the limit of the
// rule, out of it and back within the rule's times, and each excursion is one.
type sown struct {
	points     []incident.Point
	excursions int
	window     int // how many of the readings before come with each
}

const (
	wanderEvery = 5 * time.Minute
	wanderLimit = 30.0
)

func wanderRule() incident.Rule {
	return incident.Rule{
		Quantity: incident.Temperature, Direction: incident.Above, Limit: wanderLimit, For: 10 * time.Minute, ClearMargin: 0.5, ClearFor: 10 * time.Minute,
		Severity: incident.Warning, Enabled: true,
	}
}

func sow(random *rand.Rand, days int) sown {
	s := sown{window: 12}
	count := days * 24 * 12
	for len(s.points) < count {
		calm := 60 + random.IntN(120)
		for range calm { // at the limit, now and then above it for one reading
			s.add(wanderLimit - 0.6 + random.Float64()*0.5 + 0.3*float64(random.IntN(30)/29))
		}
		s.excursions++
		for i := range 6 + random.IntN(40) {
			value := wanderLimit + 0.2 + random.Float64()*3
			if i > 3 && i%4 == 0 { // back by less than the margin, or by more for one reading
				value = wanderLimit - 0.4 - 0.5*float64(random.IntN(2))
			}
			s.add(value)
		}
		for range 4 {
			s.add(wanderLimit - 2)
		}
	}
	return s
}

func (s *sown) add(temperature float64) {
	s.points = append(s.points, incident.Point{
		Time: instant().Add(time.Duration(len(s.points)) * wanderEvery), Temperature: math.Round(temperature*100) / 100, Humidity: 40,
	})
}

// inPlaces are the readings in the order of their places, one in ten twice.
func (s *sown) inPlaces(random *rand.Rand, node string, place func(i int) int) []incidents.Judged {
	type placed struct {
		incidents.Judged

		place int
	}
	var all []placed
	for i, p := range s.points {
		j := incidents.Judged{
			Reading: reading.Reading{NodeID: node, MessageID: fmt.Sprint("m", i), Time: p.Time, Temperature: p.Temperature, Humidity: p.Humidity},
			Arrived: p.Time.Add(time.Second), Defaults: alert.Defaults(),
		}
		for _, before := range s.points[max(0, i-s.window):i] {
			j.Window.Age = append(j.Window.Age, p.Time.Sub(before.Time).Seconds())
			j.Window.Temperature, j.Window.Humidity = append(j.Window.Temperature, before.Temperature), append(j.Window.Humidity, before.Humidity)
		}
		for range 1 + random.IntN(10)/9 {
			all = append(all, placed{j, place(i)})
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int { return a.place - b.place })
	arriving := make([]incidents.Judged, len(all))
	for i, p := range all {
		arriving[i] = p.Judged
	}
	return arriving
}

// happened is what is told of an excursion, whatever the order of arrival.
type happened struct {
	Start, End, PeakTime time.Time
	Lasting              bool
	Peak                 float64
	Reopened             int
}

// happened is what is told of a node, oldest first, by one rule or by all.
func (db fixture) happened(t *testing.T, node string, rule ...int64) (all []happened) {
	t.Helper()
	for _, i := range slices.Backward(db.excursions(t, db.anna, incidents.ExcursionQuery{SensorID: node})) {
		if len(rule) == 0 || i.RuleID == rule[0] {
			all = append(all, happened{i.StartTime.UTC(), i.EndTime.UTC(), i.PeakTime.UTC(), i.Lasting, i.Peak, i.Reopened})
		}
	}
	return all
}

// TestOrderOfArrivalChangesNothing delivers days of readings in order, in disorder of up to three hours, in bursts of
// which each comes newest first, the newest of all first, and through ten processes that are killed while they judge,
// one in ten twice. Values wander around the limits: the excursions of each rule are those of its preview, one for
// each that was sown. Contract 11.1, 11.5.
func TestOrderOfArrivalChangesNothing(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	days := 2
	if long() {
		days = 31
	}
	address, db := openTraced(t, nil)
	rules := []incident.Rule{
		wanderRule(),
		{Quantity: incident.Temperature, Direction: incident.Above, Limit: wanderLimit},
		{Quantity: incident.Temperature, Direction: incident.Below, Limit: wanderLimit - 1, For: 5 * time.Minute, ClearMargin: 0.5},
		{Quantity: incident.Humidity, Direction: incident.Above, Limit: wanderLimit + 12, ClearMargin: 1, ClearFor: 20 * time.Minute},
		{Quantity: incident.TemperatureRate, Direction: incident.Above, Limit: 10, ClearFor: 10 * time.Minute},
	}
	for i := range rules {
		rules[i].Severity, rules[i].Enabled = incident.Warning, true
		rules[i] = must.Get(db.CreateRule(t.Context(), db.anna, rules[i]))(t)
	}
	random := rand.New(rand.NewPCG(13, 13))
	series := sow(random, days)
	for i := range series.points {
		series.points[i].Humidity = series.points[i].Temperature + 10
	}
	inOrder := make([][]happened, len(rules))
	var toldInOrder []string
	for _, order := range []struct {
		name  string
		place func(i int) int
	}{
		{"in order", func(i int) int { return i }},
		{"shuffled by three hours", func(i int) int { return i + random.IntN(36) }},
		{"in bursts", func(i int) int { return i/24*24 + 23 - i%24 }},
		{"newest first", func(i int) int { return -i }},
		{"through killed processes", func(i int) int { return i + random.IntN(8) }},
	} {
		node := fmt.Sprintf("n%d", len(order.name))
		room := db.roomWith(t, node)
		if all := series.inPlaces(random, node, order.place); strings.Contains(order.name, "killed") {
			killed(t, address, all, 10)
		} else {
			db.judge(t, all...)
		}
		must.Do(t, db.Settle(t.Context(), db.anna, series.points[len(series.points)-1].Time.Add(time.Hour)))
		people := db.roomIncidents(t, db.anna, room)
		if toldInOrder == nil {
			toldInOrder = people
		}
		diff := cmp.Diff(toldInOrder, people)
		must.Hold(t, diff == "" && len(people) >= days, "incidents %s (-in order +got):\n%s", order.name, diff)
		var parts []incident.Part
		for r, rule := range rules {
			for _, i := range rule.Preview(series.points) {
				parts = append(parts, rule.Part(node, i))
			}
			got := db.happened(t, node, rule.ID)
			if inOrder[r] == nil {
				inOrder[r] = got
				var previewed []incident.Excursion
				for _, h := range got {
					previewed = append(previewed, incident.Excursion{
						Stretch: incident.Stretch{Start: h.Start, End: h.End, Lasting: h.Lasting, Peak: h.Peak, PeakTime: h.PeakTime}, Reopened: h.Reopened,
					})
				}
				if diff := cmp.Diff(rule.Preview(series.points), previewed); diff != "" || len(got) < days || (r == 0 && len(got) != series.excursions) {
					t.Errorf("rule %d: %d incidents of %d excursions (-preview +in order):\n%s", r, len(got), series.excursions, diff)
				}
			}
			must.Equal(t, fmt.Sprint("rule ", r, " ", order.name), inOrder[r], got)
		}
		db.gathers(t, room, parts)
	}
}

// TestClockAheadEndsNothing has a node that is hot throughout, and one quiet reading of a
// clock three hours ahead: once the clock is right again, the incident lasts.
func TestClockAheadEndsNothing(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.sql(t, `UPDATE sensors SET placed_at = placed_at - interval '1 day'`, nil)
	db.sql(t, `UPDATE open_holds SET held_from = held_from - interval '1 day'`, nil)
	now := db.now(t).Truncate(time.Second)
	at := func(ahead time.Duration, temperature float64) incidents.Judged {
		j := judged("n1", int(ahead/time.Second), temperature)
		j.Time, j.Arrived = now.Add(ahead), now.Add(ahead)
		return j
	}
	db.judge(t, at(-10*time.Minute, 60), at(3*time.Hour, 20), at(-8*time.Minute, 58), at(-7*time.Minute, 58))
	found := db.happened(t, "n1")
	must.Hold(t, len(found) == 1 && found[0].Lasting && found[0].Start.Equal(now.Add(-10*time.Minute)) && found[0].End.Equal(now.Add(-7*time.Minute)),
		"hot before and after a clock that was ahead: %+v", found)
}

// TestBacklogReplaysNothingWithinAnIncident delivers the backlog of a node that was hot
// throughout: its newest reading, its oldest, then the others, newest first. Once the incident
// is known from end to end, no reading within it has the raw readings replayed.
func TestBacklogReplaysNothingWithinAnIncident(t *testing.T) {
	t.Parallel()
	var replays replayCount
	_, db := openTraced(t, &replays)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	const last = 40
	at := func(i int) incidents.Judged {
		j := judged("n1", i*600, 60)
		j.Arrived = j.Time.Add(time.Second) // it was published at once
		return j
	}
	db.judge(t, at(last), at(0))
	known := replays.Load()
	must.Hold(t, known != 0, "the oldest reading had nothing replayed")
	for i := last - 1; i > 0; i-- {
		db.judge(t, at(i))
	}
	must.Equal(t, fmt.Sprintf("replays for the %d readings within the incident", last-1), int32(0), replays.Load()-known)
	want := []happened{{Start: instant(), End: at(last).Time, PeakTime: instant(), Lasting: true, Peak: 60}}
	must.Equal(t, "", want, db.happened(t, "n1"))
}

// replayCount counts the queries that replay a node's raw readings.
type replayCount struct{ atomic.Int32 }

func (c *replayCount) TraceQueryStart(ctx context.Context, _ *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	if strings.Contains(query.SQL, "FROM sensor_data.readings r") {
		c.Add(1)
	}
	return ctx
}

func (*replayCount) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestWindowsRoundNothing has a node that sends each second, whose messages wait up to a minute and are delivered
// twice: the windows that stand in for what is late have rounded times, but what is told has the readings' own.
func TestWindowsRoundNothing(t *testing.T) {
	t.Parallel()
	db := open(t)
	for seed := range uint64(4) {
		node := fmt.Sprintf("n%d", seed)
		db.sensor(t, db.anna, db.annasRoom, node)
		random := rand.New(rand.NewPCG(17, seed))
		s := sown{window: 90}
		for i := range 90 {
			at := instant().Add(time.Duration(i)*time.Second + time.Duration(random.IntN(900_000))*time.Microsecond)
			temperature := 20.0
			if i >= 30 && i < 60 {
				temperature = 60 + float64(i%7)
			}
			s.points = append(s.points, incident.Point{Time: at, Temperature: temperature, Humidity: 40})
		}
		db.judge(t, s.inPlaces(random, node, func(i int) int { return i + random.IntN(60)*(random.IntN(4)/3) })...)
		want := []happened{{Start: s.points[30].Time, End: s.points[60].Time, PeakTime: s.points[34].Time, Peak: 66}}
		must.Equal(t, fmt.Sprint("seed ", seed), want, db.happened(t, node))
	}
}

// TestUnjudged has an instance pass a quiet reading by, because its cached status did not
// know yet that the rule remembers something: it is found, and ends the incident at its own
// time, also where an earlier one was passed by before it.
func TestUnjudged(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "quiet")
	db.sql(t, `UPDATE sensors SET placed_at = '2000-01-01'`, nil)
	now := time.Now().Truncate(time.Microsecond)
	at := func(node string, ago time.Duration, temperature float64) incidents.Judged {
		j := judged(node, 0, temperature)
		j.Time, j.MessageID, j.Arrived = now.Add(-ago), ago.String(), now.Add(-ago)
		return j
	}
	ingested := func(j incidents.Judged) {
		t.Helper()
		db.heard(t, j.Reading)
		must.Do(t, pgreadings.New(db.DB, nil, time.Now).Append(t.Context(), []reading.Reading{j.Reading}))
	}
	hot := at("n1", 30*time.Second, 60)
	ingested(hot)
	db.judge(t, hot)
	must.Equal(t, "unjudged, of one that was judged", 0, len(must.Get(db.Unjudged(t.Context()))(t)))
	for _, ago := range []time.Duration{20 * time.Second, 10 * time.Second} {
		ingested(at("n1", ago, 20))
		ingested(at("quiet", ago, 20))
	}
	for range 2 {
		found := one(t, "unjudged", must.Get(db.Unjudged(t.Context()))(t))
		must.Equal(t, "unjudged", fmt.Sprint("n1 ", now.Add(-10*time.Second).UTC()), fmt.Sprint(found.NodeID, " ", found.Time))
		found.Arrived, found.Defaults = now, hot.Defaults
		db.judge(t, found)
		got := db.happened(t, "n1")
		must.Hold(t, len(got) == 1 && !got[0].Lasting && got[0].End.Equal(now.Add(-20*time.Second)), "%+v", got)
	}
}

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
			Reading: measured(fmt.Sprint("n", i), at, temperature), GatewayID: fmt.Sprint("gw-", i%2), Arrived: arrived, Defaults: alert.Defaults(),
		}
		j.Channel = reading.Channel(db.anna)
		db.ingested(t, j)
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
	must.Equal(t, "calls by what was over when it arrived", 0, db.calls(t))
	// One that is hot in time is told of, in its room.
	deliver(0, end, 55, end)
	deliver(3, end, 55, end)
	lasting := lastingOf(db.excursions(t, db.anna, incidents.ExcursionQuery{}))
	must.Hold(t, len(lasting) == 2 && !lasting[0].Late && lasting[0].IncidentID == lasting[1].IncidentID && len(of(db.annasRoom)) == 2,
		"%+v, %q", lasting, of(db.annasRoom))
	must.Equal(t, "calls", 1, db.calls(t))
}
