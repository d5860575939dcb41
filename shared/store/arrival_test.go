package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/tooltest"
)

// happened is what is told of an excursion, whatever the order of arrival.
type happened struct {
	Start, End, PeakTime time.Time
	Lasting              bool
	Peak                 float64
	Reopened             int
}

func (db fixture) happened(t *testing.T, node string) []happened {
	t.Helper()
	return db.happenedByRule(t, node, 0)
}

// happenedByRule is happened of one rule; 0 is of all.
func (db fixture) happenedByRule(t *testing.T, node string, rule int64) []happened {
	t.Helper()
	found := db.excursions(t, db.anna, incidents.ExcursionQuery{SensorID: node})
	slices.Reverse(found)
	var all []happened
	for _, i := range found {
		if rule != 0 && i.RuleID != rule {
			continue
		}
		all = append(all, happened{i.StartTime.UTC(), i.EndTime.UTC(), i.PeakTime.UTC(), i.Lasting, i.Peak, i.Reopened})
	}
	return all
}

// TestOrderOfArrivalChangesNothing delivers days of readings in order, in disorder of up to
// three hours, in bursts of which each comes newest first, and the newest of all first, one
// in ten twice. The excursions of each rule are those of its preview.
func TestOrderOfArrivalChangesNothing(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	days := 2
	if long() {
		days = 31
	}
	db := open(t)
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
	} {
		node := fmt.Sprintf("n%d", len(order.name))
		room := db.room(t, db.anna)
		db.sensor(t, db.anna, room, node)
		db.judge(t, series.inPlaces(random, node, order.place)...)
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
			got := db.happenedByRule(t, node, rule.ID)
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

// TestWindowsRoundNothing has a node that sends each second, whose messages wait up to a
// minute and are delivered twice: the windows that stand in for what is late have rounded
// times, but what is told has the readings' own.
func TestWindowsRoundNothing(t *testing.T) {
	t.Parallel()
	db := open(t)
	for seed := range uint64(4) {
		node := fmt.Sprintf("n%d", seed)
		db.sensor(t, db.anna, db.annasRoom, node)
		random := rand.New(rand.NewPCG(17, seed))
		var points []incident.Point
		for i := range 90 {
			at := instant().Add(time.Duration(i)*time.Second + time.Duration(random.IntN(900_000))*time.Microsecond)
			temperature := 20.0
			if i >= 30 && i < 60 {
				temperature = 60 + float64(i%7)
			}
			points = append(points, incident.Point{Time: at, Temperature: temperature, Humidity: 40})
		}
		type placed struct {
			incidents.Judged

			place int
		}
		var all []placed
		for i, p := range points {
			j := judged(node, 0, p.Temperature)
			j.Time, j.MessageID, j.Arrived = p.Time, fmt.Sprint("m", i), p.Time
			for _, before := range points[:i] {
				j.Window.Age = append(j.Window.Age, p.Time.Sub(before.Time).Seconds())
				j.Window.Temperature, j.Window.Humidity = append(j.Window.Temperature, before.Temperature), append(j.Window.Humidity, 40)
			}
			for range 1 + random.IntN(5)/4 {
				all = append(all, placed{j, i + random.IntN(60)*(random.IntN(4)/3)})
			}
		}
		slices.SortStableFunc(all, func(a, b placed) int { return a.place - b.place })
		for _, j := range all {
			db.judge(t, j.Judged)
		}
		want := []happened{{
			Start: points[30].Time, End: points[60].Time, PeakTime: points[34].Time, Peak: 66,
		}}
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
		must.Do(t, db.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: j.Reading}}))
		must.Do(t, pgreadings.New(db.pool, nil, time.Now).Append(t.Context(), []reading.Reading{j.Reading}))
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
		found, err := db.Unjudged(t.Context())
		if err != nil || len(found) != 1 || found[0].NodeID != "n1" || !found[0].Time.Equal(now.Add(-10*time.Second)) || found[0].Time.Location() != time.UTC {
			t.Fatalf("%+v, %v", found, err)
		}
		found[0].Arrived, found[0].Defaults = now, hot.Defaults
		db.judge(t, found...)
		got := db.happened(t, "n1")
		must.Hold(t, len(got) == 1 && !got[0].Lasting && got[0].End.Equal(now.Add(-20*time.Second)), "%+v", got)
	}
}
