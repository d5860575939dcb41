package store_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
)

// roomIncidents are the incidents of a customer's room, oldest first: cause, severity, begin
// and end in seconds after the instant, and how many excursions they have. Zero is of no room.
func (db fixture) roomIncidents(t *testing.T, customer, room int64) []string {
	t.Helper()
	rows := must.Get(db.pool.Query(t.Context(), `
		SELECT concat_ws(' ', i.cause, i.severity, CASE WHEN actual THEN 'actual' ELSE 'expected' END, extract(epoch FROM i.start_time - $3)::int,
		       CASE WHEN i.breaking THEN 'breaks' WHEN i.lasting THEN 'lasts' ELSE 'over' END || ' ' || CASE WHEN i.breaking THEN '' ELSE extract(epoch FROM i.end_time - $3)::int::text END,
		       (SELECT count(*) FROM excursions e WHERE e.incident_id = i.id AND e.merged_into IS NULL))
		FROM room_incidents i
		WHERE i.customer_id = $1 AND COALESCE(i.room_id, 0) = $2 AND i.merged_into IS NULL
		ORDER BY i.start_time, i.cause`, customer, room, instant()))(t)
	return must.Get(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
}

// changes are the events of the log, "!" after those that call.
func (db fixture) changes(t *testing.T, customer int64) []string {
	t.Helper()
	rows := must.Get(db.pool.Query(t.Context(), `
		SELECT event || CASE WHEN calls THEN '!' ELSE '' END FROM incident_changes WHERE customer_id = $1 ORDER BY number`, customer))(t)
	return must.Get(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
}

// calls is how many of them call.
func (db fixture) calls(t *testing.T) int {
	t.Helper()
	return strings.Count(strings.Join(db.changes(t, db.anna), " "), "!")
}

func (db fixture) settle(t *testing.T, second int) {
	t.Helper()
	must.Do(t, db.Settle(t.Context(), db.anna, clock(second)))
}

// TestRoomIncidentSurvivesChanges edits the rule, moves a sensor and deletes one in
// mid-incident: excursions end, the room's incident goes on for ten minutes, still taken.
func TestRoomIncidentSurvivesChanges(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	rule := db.rule(t, incident.Rule{Limit: 27})
	db.judge(t, judged("n1", 0, 30))
	db.act(t, db.only(t, 1).ID, 1, incident.EventTaken)
	rule.Limit = 28
	must.Get(db.UpdateRule(t.Context(), db.anna, rule))(t)
	db.settle(t, 30)
	must.Equal(t, "the rule was edited", []string{"too_hot warning actual 0 lasts 0 1"}, db.roomIncidents(t, db.anna, db.annasRoom))
	// As if it had been edited half a minute after the first reading.
	db.sql(t, `ALTER TABLE rules DISABLE TRIGGER USER`, nil)
	db.sql(t, `UPDATE rules SET changed_at = '2026-03-01 12:00:30Z'`, nil)
	db.sql(t, `ALTER TABLE rules ENABLE TRIGGER USER`, nil)
	db.judge(t, judged("n1", 60, 30), judged("n2", 70, 30))
	must.Equal(t, "it fires again", []string{"too_hot warning actual 0 breaks  3"}, db.roomIncidents(t, db.anna, db.annasRoom))
	second := db.room(t, db.anna)
	db.move(t, "n2", second)
	db.sql(t, `UPDATE sensors SET placed_at = '2026-03-01 12:01:40Z'`, nil)
	db.judge(t, judged("n2", 130, 30))
	db.settle(t, 140)
	must.Equal(t, "where it went", []string{"too_hot warning actual 130 breaks  1"}, db.roomIncidents(t, db.anna, second))
	must.Equal(t, "where it was", []string{"too_hot warning actual 0 breaks  3"}, db.roomIncidents(t, db.anna, db.annasRoom))
	must.Do(t, db.DeleteSensor(t.Context(), db.anna, "n1"))
	db.settle(t, 150)
	var taken bool
	must.Do(t, db.pool.QueryRow(t.Context(), `SELECT taken_at IS NOT NULL FROM room_incidents WHERE room_id = $1`, db.annasRoom).Scan(&taken))
	must.Equal(t, "still taken", true, taken)
	must.Equal(t, "without sensors", []string{"too_hot warning actual 0 lasts 70 3"}, db.roomIncidents(t, db.anna, db.annasRoom))
	db.settle(t, 670)
	must.Equal(t, "ten minutes after the last reading", []string{"too_hot warning actual 0 over 70 3"}, db.roomIncidents(t, db.anna, db.annasRoom))
	must.Equal(t, "calls", 2, db.calls(t))
}

// TestNodeIsPutIntoARoomInMidIncident takes what lasts along.
func TestNodeIsPutIntoARoomInMidIncident(t *testing.T) {
	t.Parallel()
	db := open(t)
	j := func(second int) incidents.Judged {
		one := judged("n9", second, 60)
		one.Channel = reading.Channel(db.anna)
		return one
	}
	db.judge(t, j(0))
	must.Equal(t, "not placed", []string{"too_hot critical actual 0 breaks  1"}, db.roomIncidents(t, db.anna, 0))
	must.Get(db.CreateSensor(t.Context(), db.anna, sensorOf("n9", db.annasRoom)))(t)
	db.sql(t, `UPDATE sensors SET signed_from = '-infinity', placed_at = '2026-01-01'`, nil)
	db.judge(t, j(30), j(60))
	db.settle(t, 61)
	must.Equal(t, "in the room", []string{"too_hot critical actual 0 breaks  1"}, db.roomIncidents(t, db.anna, db.annasRoom))
	must.Equal(t, "not placed", 0, len(db.roomIncidents(t, db.anna, 0)))
}

// TestTwoInstancesTellOnce judges sixteen nodes of one room at once, from several instances.
func TestTwoInstancesTellOnce(t *testing.T) {
	t.Parallel()
	db := open(t)
	const nodes = 16
	for k := range nodes {
		db.sensor(t, db.anna, db.annasRoom, fmt.Sprint("n", k))
	}
	var judging sync.WaitGroup
	for k := range nodes {
		judging.Go(func() {
			for s := 0; s < 120; s += 30 {
				must.Fail(t, "judged", db.Judge(t.Context(), judged(fmt.Sprint("n", k), s+k, 60)), nil)
			}
		})
	}
	judging.Wait()
	must.Equal(t, "incidents", []string{fmt.Sprintf("too_hot critical actual 0 breaks  %d", nodes)}, db.roomIncidents(t, db.anna, db.annasRoom))
	var count, last, started int
	must.Do(t, db.pool.QueryRow(t.Context(), `SELECT count(*), max(number), count(*) FILTER (WHERE event = 'started') FROM incident_changes`).Scan(&count, &last, &started))
	must.Equal(t, "numbers without gaps", count, last)
	must.Equal(t, "begins", 1, started)
}

// TestToldSurvivesACrash: functions on one machine commit without waiting for the disk, but not what a watch acts on.
func TestToldSurvivesACrash(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.sql(t, `ALTER ROLE CURRENT_USER IN DATABASE `+pgx.Identifier{db.pool.Config().ConnConfig.Database}.Sanitize()+` SET synchronous_commit = off`, nil)
	db.pool.Reset()
	db.sql(t, `
		CREATE FUNCTION must_be_durable() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		    IF current_setting('synchronous_commit') <> 'on' THEN RAISE 'change % may be undone', NEW.number; END IF;
		    RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER must_be_durable AFTER INSERT ON incident_changes DEFERRABLE INITIALLY DEFERRED
		    FOR EACH ROW EXECUTE FUNCTION must_be_durable()`, nil)
	db.judge(t, judged("n1", 0, 60))
	must.Equal(t, "changes", []string{"started!"}, db.changes(t, db.anna))
}

// TestSilenceLeavesAHistory lets a node fall silent and come back, and delivers late what it
// had kept; its readings are of the present, since the database's clock ends a silence.
func TestSilenceLeavesAHistory(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	now := time.Now().UTC().Truncate(time.Second)
	state := func(node string, ago time.Duration) {
		t.Helper()
		db.heard(t, measured(node, now.Add(-ago), 22))
	}
	state("n1", 20*time.Minute)
	state("n2", time.Minute)
	told := func() (text string) {
		t.Helper()
		must.Do(t, db.Settle(t.Context(), db.anna, now))
		err := db.pool.QueryRow(t.Context(), `
			SELECT concat_ws(' ', i.cause, i.severity, CASE WHEN i.breaking THEN 'breaks' ELSE 'heard' END, e.lasting, e.late, NULLIF(e.resolution, ''),
			       extract(epoch FROM $1 - e.start_time)::int, extract(epoch FROM $1 - e.end_time)::int)
			FROM room_incidents i JOIN excursions e ON e.incident_id = i.id`, now).Scan(&text)
		must.Do(t, err)
		return text
	}
	must.Equal(t, "silent", "silent warning breaks t f 900 900", told())
	must.Equal(t, "the same", "silent warning breaks t f 900 900", told())
	state("n1", 15*time.Minute)
	must.Equal(t, "what it kept ends nothing", "silent warning breaks t t 900 900", told())
	state("n1", 10*time.Second)
	must.Equal(t, "heard", "silent warning heard f t cleared 900 10", told())
	state("n1", 12*time.Minute)
	must.Equal(t, "the rest", "silent warning heard f t cleared 900 10", told())
	must.Equal(t, "told", []string{"started!", "cleared"}, db.changes(t, db.anna))
	// Ten minutes that have passed since.
	db.sql(t, `UPDATE excursions SET end_time = start_time + interval '4 min'`, nil)
	db.sql(t, `UPDATE room_incidents SET end_time = start_time + interval '4 min'`, nil)
	must.Equal(t, "over", "silent warning heard f t cleared 900 660", told())
	must.Equal(t, "told", []string{"started!", "cleared", "ended"}, db.changes(t, db.anna))
}

// TestSilentGatewayIsOneIncident over all rooms of its nodes; a node of another gateway is one of its room, and one that
// was silent while the others reported stays so.
func TestSilentGatewayIsOneIncident(t *testing.T) {
	t.Parallel()
	db := open(t)
	second := db.room(t, db.anna)
	third := db.room(t, db.anna)
	db.sensor(t, db.anna, third, "old")
	db.heardBy(t, "gw-a", judged("old", -3600, 22).Reading)
	defer func() {
		must.Equal(t, "of the old", []string{"silent warning actual -3300 breaks  1"}, db.roomIncidents(t, db.anna, third))
	}()
	for k := range 6 {
		db.sensor(t, db.anna, []int64{db.annasRoom, second}[k%2], fmt.Sprint("n", k))
		gateway := []string{"gw-a", "gw-a", "gw-b"}[k/2]
		db.heardBy(t, gateway, judged(fmt.Sprint("n", k), []int{0, 290}[k/5], 22).Reading)
	}
	db.settle(t, 299)
	must.Equal(t, "the old alone", []string{"started!"}, db.changes(t, db.anna))
	db.settle(t, 310)
	must.Equal(t, "of the gateway", []string{"silent critical actual 300 breaks  4"}, db.roomIncidents(t, db.anna, 0))
	must.Equal(t, "of the room", []string{"silent warning actual 300 breaks  1"}, db.roomIncidents(t, db.anna, db.annasRoom))
	must.Equal(t, "of the other", 0, len(db.roomIncidents(t, db.anna, second)))
	db.settle(t, 600)
	must.Equal(t, "now all of the second gateway", []string{"silent critical actual 300 breaks  4", "silent critical actual 300 breaks  2"}, db.roomIncidents(t, db.anna, 0))
	must.Equal(t, "the room's redirects", 0, len(db.roomIncidents(t, db.anna, db.annasRoom)))
	must.Equal(t, "Bruno's", 0, len(db.changes(t, db.bruno)))
	// Who found them silent was cut off before telling it, and they are heard again.
	db.sql(t, `DELETE FROM room_incidents`, nil)
	for k := range 6 {
		db.heardBy(t, []string{"gw-a", "gw-a", "gw-b"}[k/2], judged(fmt.Sprint("n", k), 605, 22).Reading)
	}
	must.Do(t, db.SettleAll(t.Context(), clock(610)))
	must.Equal(t, "untold until it was over", []string{"silent critical actual 300 lasts 605 2", "silent critical actual 300 lasts 605 4"},
		slices.Sorted(slices.Values(db.roomIncidents(t, db.anna, 0))))
}

// TestSilentNodeOfAGateway is not the gateway's silence: a sensor of it reports, or it is its only node.
func TestSilentNodeOfAGateway(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	heard := func(node string, at int, gateway string, channel int64) {
		r := judged(node, at, 22).Reading
		r.Channel = reading.Channel(channel)
		db.heardBy(t, gateway, r)
	}
	heard("n1", 290, "gw-a", 0)
	heard("unplugged", 0, "gw-a", db.anna) // both discovered
	heard("tried", 0, "gw-a", db.anna)
	heard("n2", 0, "gw-b", 0)
	db.settle(t, 310)
	must.Equal(t, "of the discovered", slices.Repeat([]string{"silent warning actual 300 breaks  1"}, 2), db.roomIncidents(t, db.anna, 0))
	must.Equal(t, "of the room", []string{"silent warning actual 300 breaks  1"}, db.roomIncidents(t, db.anna, db.annasRoom))
}

// TestGatewayLosesItsLastSensor when that is deleted, which reports still or is silent, too: what was silent before stays of its room.
func TestGatewayLosesItsLastSensor(t *testing.T) {
	t.Parallel()
	for _, deleted := range []int{3610, 3910} {
		db := openWith(t, "n1", "n2", "n3")
		for node, at := range map[string]int{"n1": 0, "n2": 1, "n3": 3600} {
			db.heardBy(t, "gw-a", judged(node, at, 22).Reading)
		}
		db.settle(t, 310)
		db.settle(t, deleted)
		must.Do(t, db.DeleteSensor(t.Context(), db.anna, "n3"))
		db.settle(t, deleted+60)
		must.Equal(t, "of the room", []string{"silent warning actual 300 breaks  2"}, db.roomIncidents(t, db.anna, db.annasRoom))
	}
}

// TestSettleAllIsForEverybody settles each account, and a second time changes nothing.
func TestSettleAllIsForEverybody(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.sensor(t, db.bruno, db.brunosRoom, "b1")
	db.judge(t, judged("n1", 0, 60), judged("b1", 0, 60), judged("n1", 30, 20), judged("b1", 30, 20))
	for range 2 {
		must.Do(t, db.SettleAll(t.Context(), clock(720)))
	}
	for _, customer := range []int64{db.anna, db.bruno} {
		must.Equal(t, "told", []string{"started!", "cleared", "ended"}, db.changes(t, customer))
	}
	db.heard(t, judged("b1", 600, 22).Reading)
	for k, want := range [][]string{{"started!", "cleared", "ended"}, {"started!", "cleared", "ended", "started!"}} {
		must.Do(t, db.SettleAll(t.Context(), clock(899+k)))
		must.Equal(t, "a node falls silent", want, db.changes(t, db.bruno))
	}
}

// TestDiscoveredNodeIsMissedForADay: then what lasted of it ends, too, since there is no sensor that could be deleted.
func TestDiscoveredNodeIsMissedForADay(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	discovered := judged("tried", 0, 60)
	discovered.Channel = reading.Channel(db.anna)
	db.ingested(t, discovered, judged("n1", 0, 60))
	lasting := func(hours int) (all []string) {
		t.Helper()
		for range 2 { // what the first ends has been over for ten minutes
			must.Do(t, db.SettleAll(t.Context(), clock(hours*3600)))
			hours++
		}
		for _, i := range db.lasting(t, hours*3600) {
			all = append(all, fmt.Sprint(i.Cause, " ", i.NodeID))
		}
		slices.Sort(all)
		return all
	}
	must.Equal(t, "within the day", []string{"silent ", "silent tried", "too_hot ", "too_hot tried"}, lasting(20))
	must.Equal(t, "after it", []string{"silent ", "too_hot "}, lasting(24))
	must.Equal(t, "memories", 1, db.count(t, `SELECT count(*) FROM rule_memory`, nil))
	must.Equal(t, "not measured any longer", 2, db.count(t, `SELECT count(*) FROM excursions WHERE node_id = 'tried' AND resolution = 'not_measured'`, nil))
}

// TestWithdrawnByALateReading tells an incident that a late reading shows never to have been.
func TestWithdrawnByALateReading(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.rule(t, incident.Rule{Limit: 27, For: 5 * time.Minute})
	db.judge(t, judged("n1", 0, 30), judged("n1", 300, 30))
	must.Equal(t, "told", []string{"started!"}, db.changes(t, db.anna))
	db.judge(t, judged("n1", 150, 20))
	must.Equal(t, "withdrawn", []string{"started!", "withdrawn"}, db.changes(t, db.anna))
	must.Equal(t, "nothing is left", 0, len(db.roomIncidents(t, db.anna, db.annasRoom)))
}

// TestMigrationGathersWhatThereWas upgrades a database of the version before with incidents
// in groups: each group is an incident of its cause, and the old ones are read as before.
func TestMigrationGathersWhatThereWas(t *testing.T) {
	t.Parallel()
	pool := older(t, 1)
	must.Get(pool.Exec(t.Context(), `
		INSERT INTO customers (email, username, password_hash) VALUES ('a@example.com', 'anna12', 'x');
		INSERT INTO incidents (customer_id, kind, channel, node_id, room_id, room_name, quantity, direction, limit_value, severity, start_time, end_time, lasting, resolution, peak, peak_time, finding)
		SELECT 1, kind, 0, node, room, 'Hall', quantity, direction, 27, severity, '2026-03-01 12:00Z'::timestamptz + start * interval '1 min', '2026-03-01 12:00Z'::timestamptz + until * interval '1 min',
		       lasting, CASE WHEN lasting THEN '' ELSE 'cleared' END, 30, '2026-03-01 12:00Z', finding::jsonb
		FROM (VALUES ('threshold', 'a', 1, 'temperature', 'above', 'warning', 0, 10, false, NULL), ('threshold', 'b', 1, 'temperature', 'above', 'critical', 5, 20, false, NULL),
		             ('threshold', 'a', 1, 'temperature', 'above', 'warning', 100, 110, true, NULL), ('threshold', 'b', 1, 'temperature', 'above', 'critical', 300, 310, true, NULL),
		             ('threshold', 'c', 1, 'humidity', 'below', 'warning', 0, 10, false, NULL), ('forecast', 'c', 2, 'temperature', 'above', 'warning', 0, 10, false, NULL),
		             ('anomaly', 'd', NULL, 'temperature', 'above', 'warning', 0, 10, false, '{"cause": "unchanged"}'),
		             ('anomaly', 'e', 2, 'temperature', 'above', 'warning', 0, 10, false, '{"cause": "own", "value": 1, "low": 2, "high": 3}'))
		    AS v (kind, node, room, quantity, direction, severity, start, until, lasting, finding);
		INSERT INTO incident_groups (incident_id, group_id) VALUES (1, 1), (2, 1)`))(t)
	must.Do(t, store.Migrate(t.Context(), pool))
	rows := must.Get(pool.Query(t.Context(), `
		SELECT concat_ws(' ', room_id, i.node_id, cause, severity, actual, lasting, parts, (SELECT string_agg(node_id, '' ORDER BY node_id) FROM excursions e WHERE e.incident_id = i.id))
		FROM room_incidents i ORDER BY room_id, cause, start_time`))(t)
	must.Equal(t, "incidents", []string{
		"1  too_dry warning t f 1 c", "1  too_hot critical t f 2 ab", "1  too_hot critical t t 2 ab", "2  too_cold warning f f 1 e", "2  too_hot warning f f 1 c", "d sensor warning f f 1 d",
	}, must.Get(pgx.CollectRows(rows, pgx.RowTo[string]))(t))
	var old int
	must.Do(t, pool.QueryRow(t.Context(), `SELECT count(xmin) FROM incidents`).Scan(&old))
	must.Equal(t, "read by the version before", 8, old)
}

// TestSilentSensorMoves takes its silence along, while another falls silent where it was.
func TestSilentSensorMoves(t *testing.T) {
	t.Parallel()
	for k := range 4 { // places are settled in any order
		t.Run(strconv.Itoa(k), func(t *testing.T) {
			t.Parallel()
			db := openWith(t, "n0", "n1")
			second := db.room(t, db.anna)
			db.heard(t, judged("n1", 0, 22).Reading, judged("n0", 70, 22).Reading, judged("n0", 100, 22).Reading)
			db.settle(t, 300)
			db.move(t, "n1", second)
			db.settle(t, 400)
			db.settle(t, 405)
			must.Equal(t, "where it was", []string{"silent warning actual 400 breaks  1"}, db.roomIncidents(t, db.anna, db.annasRoom))
			must.Equal(t, "where it is", []string{"silent warning actual 300 breaks  1"}, db.roomIncidents(t, db.anna, second))
			changes := len(db.changes(t, db.anna))
			db.settle(t, 410)
			must.Equal(t, "nothing more is told", changes, len(db.changes(t, db.anna)))
			for _, i := range db.lasting(t, 410) {
				want := map[int64]string{db.annasRoom: "No reading for more than 5 min, usually one every 30 s", second: "No reading for more than 5 min"}
				must.Equal(t, "reason", want[i.RoomID], i.Worst.Reason)
			}
		})
	}
}

// TestSilenceOutlivesALateService goes on while the service is late and after, and when a look
// comes with an earlier time.
func TestSilenceOutlivesALateService(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.heard(t, judged("n1", 0, 22).Reading)
	probe := func(second int) { must.Do(t, db.RecordProbe(t.Context(), clock(second), clock(second))) }
	for _, second := range []int{0, 60, 120, 180, 240, 300} {
		probe(second)
	}
	db.settle(t, 310)
	db.settle(t, 290) // of a probe that was delivered again
	db.settle(t, 320)
	probe(1000) // after a gap
	db.settle(t, 1010)
	db.settle(t, 1200)
	for second := 1060; second <= 1400; second += 60 {
		probe(second)
	}
	db.settle(t, 1400)
	must.Equal(t, "told once", []string{"started!"}, db.changes(t, db.anna))
	must.Equal(t, "it lasts", []string{"silent warning actual 300 breaks  1"}, db.roomIncidents(t, db.anna, db.annasRoom))
	must.Do(t, db.DeleteSensor(t.Context(), db.anna, "n1"))
	db.settle(t, 1410)
	must.Equal(t, "without the sensor", []string{"silent warning actual 300 lasts 1410 1"}, db.roomIncidents(t, db.anna, db.annasRoom))
}

// TestDuplicateFromBeforeAMoveChangesNothing delivers a reading of the old room again.
func TestDuplicateFromBeforeAMoveChangesNothing(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.judge(t, judged("n1", 0, 60), judged("n1", 200, 60), judged("n1", 330, 20))
	second := db.room(t, db.anna)
	db.move(t, "n1", second)
	db.sql(t, `UPDATE sensors SET placed_at = '2026-03-01 12:06:00Z'`, nil)
	before := db.changes(t, db.anna)
	db.judge(t, arrived(judged("n1", 200, 60), 400))
	db.settle(t, 410)
	must.Equal(t, "told", before, db.changes(t, db.anna))
	must.Equal(t, "in the new room", 0, len(db.roomIncidents(t, db.anna, second)))
}

// TestRedeliveryCallsNobody has a taken excursion stand for hours, and then a message
// delivered again that arrived in its first minutes: it changes nothing that people know.
func TestRedeliveryCallsNobody(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.judge(t, judged("n1", 0, 60))
	db.act(t, db.only(t, 30).ID, 30, incident.EventTaken)
	db.judge(t, judged("n1", 3900, 60))
	db.settle(t, 3901)
	before := db.changes(t, db.anna)
	db.judge(t, judged("n1", 120, 60.1)) // a new peak, of which people know
	must.Equal(t, "", before, db.changes(t, db.anna))
	db.judge(t, judged("n1", 4000, 63.2))
	must.Equal(t, "risen by a unit", "worse!", db.changes(t, db.anna)[len(before)])
}

// TestFindingOfAnotherCauseDescribesTheIncident has an anomaly turn from unusual to a rise of temperature:
// that then describes its incident, until the temperature falls.
func TestFindingOfAnotherCauseDescribesTheIncident(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	find := func(second int, score, value, low, high float64) {
		t.Helper()
		j := judged("n1", second, 22)
		j.Findings = []incident.Finding{{
			Kind: incident.KindAnomaly, Holds: true, Score: score, Cause: "own_temperature_1h", Reason: "odd", Severity: incident.Warning,
			Quantity: incident.Temperature, Value: value, Low: low, High: high, Probability: 1e-5,
		}}
		db.judge(t, j)
	}
	find(0, 3, 22, 20, 24)
	must.Equal(t, "", []string{"unusual warning expected 0 breaks  1"}, db.roomIncidents(t, db.anna, db.annasRoom))
	find(60, 5, 26, 20, 24)
	must.Equal(t, "", []string{"too_hot warning expected 0 breaks  2"}, db.roomIncidents(t, db.anna, db.annasRoom))
	find(90, 3, 22, 20, 24) // less, of another cause
	must.Equal(t, "", []string{"too_hot warning expected 0 breaks  2"}, db.roomIncidents(t, db.anna, db.annasRoom))
	find(120, 4, 19, 20, 24)
	must.Equal(t, "the opposite", []string{"too_hot warning expected 0 lasts 120 2", "too_cold warning expected 120 breaks  1"}, db.roomIncidents(t, db.anna, db.annasRoom))
	find(150, 3, 22, 20, 24)
	find(750, 3, 22, 20, 24)
	must.Equal(t, "another for ten minutes", []string{"too_hot warning expected 0 over 120 2", "too_cold warning expected 120 breaks  2"}, db.roomIncidents(t, db.anna, db.annasRoom))
}

// TestTakenRiseThatFellMutesNobody has a rack warm, be taken, and come back: the next rack that is
// too hot calls, as a new incident, although the fall was told as well.
func TestTakenRiseThatFellMutesNobody(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	rose, fell := anomaly(6), anomaly(6)
	rose.Cause, rose.Value, rose.Low, rose.High = "temperature_change", 36, 20, 24
	fell.Cause, fell.Value, fell.Low, fell.High = "temperature_change", 22, 34, 38
	db.judge(t, found("n1", 0, rose), judged("n1", 10, 60))
	db.act(t, db.only(t, 20).ID, 20, incident.EventTaken)
	for second := 30; second < 700; second += 30 {
		db.judge(t, found("n1", second, fell))
	}
	db.settle(t, 700)
	db.judge(t, judged("n2", 710, 55))
	must.Equal(t, "", []string{"too_hot critical actual 0 over 30 2", "too_cold warning expected 30 breaks  1", "too_hot critical actual 710 breaks  1"},
		db.roomIncidents(t, db.anna, db.annasRoom))
	changes := db.changes(t, db.anna)
	must.Equal(t, "the second rack", "started!", changes[len(changes)-1])
}

// TestMissingQuantityIsOfTheSensor: humidity stops while the temperature goes on. Contract 11.11.
func TestMissingQuantityIsOfTheSensor(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2", "n3")
	now := time.Now().UTC().Truncate(time.Second)
	state := func(node string, ago time.Duration, temperature, humidity float64) {
		t.Helper()
		r := measured(node, now.Add(-ago), temperature)
		r.Humidity = humidity
		db.heard(t, r)
	}
	told := func() (text string) {
		t.Helper()
		must.Do(t, db.SettleAll(t.Context(), now))
		must.Do(t, db.Settle(t.Context(), db.anna, now))
		err := db.pool.QueryRow(t.Context(), `
			SELECT string_agg(concat_ws(' ', i.cause, CASE WHEN NOT i.actual THEN 'expected' END, e.kind, e.quantity, e.lasting, NULLIF(e.resolution, '')), ', ' ORDER BY e.id)
			FROM excursions e LEFT JOIN room_incidents i ON i.id = e.incident_id`).Scan(&text)
		must.Do(t, err)
		return text
	}
	state("n1", 8*24*time.Hour, 22, 40) // never again: a probe without humidity took its place
	state("n1", time.Second, 22, reading.Missing())
	for minutes := range time.Duration(20) { // humidity each 5 minutes, the last 6 minutes ago
		humidity := reading.Missing()
		if minutes%5 == 0 && minutes < 15 {
			humidity = 40
		}
		state("n3", (16-minutes)*time.Minute, 22, humidity)
	}
	state("n2", 21*time.Minute, 22, 90)
	state("n2", 20*time.Minute, 22, 90)
	db.sql(t, `
		INSERT INTO excursions (customer_id, kind, channel, node_id, room_id, rule_id, quantity, direction, limit_value, severity, start_time, end_time, lasting, peak, peak_time, risen_at)
		SELECT customer_id, 'threshold', 0, node_id, room_id, 1, 'humidity', 'above', 50, 'critical', now() - interval '20 min', now(), true, 90, now(), now()
		FROM sensors
		WHERE node_id = 'n2'`, nil)
	state("n2", time.Second, 22, reading.Missing())
	must.Equal(t, "while it is missing", "too_humid threshold humidity f not_measured, sensor missing humidity t", told())
	must.Equal(t, "told again", "too_humid threshold humidity f not_measured, sensor missing humidity t", told())
	state("n2", 0, reading.Missing(), 41)
	must.Equal(t, "heard again", "too_humid threshold humidity f not_measured, sensor missing humidity f cleared", told())
}
