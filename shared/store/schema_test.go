package store_test

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/store/pipeline"
)

// The statements of a writer that has never seen the store. Each has defaults
// that the schema takes, so that a case changes one value and no other rule
// can refuse it.
const (
	insertCustomer = `INSERT INTO customers (email, username, password_hash)
		VALUES (COALESCE(@email, 'c@example.com'), COALESCE(@username, 'carla1'), COALESCE(@hash, 'hash'))`
	insertRoom   = `INSERT INTO server_rooms (name, customer_id) VALUES (COALESCE(@name, 'R'), COALESCE(@customer::bigint, @anna))`
	insertSensor = `INSERT INTO sensors (node_id, name, type, room_id, customer_id, position)
		VALUES (COALESCE(@node, 'n2'), COALESCE(@name, 'N'), COALESCE(@type, 'T'),
		    COALESCE(@room::bigint, @annas), COALESCE(@customer::bigint, @anna), @position)`
	insertAlert = `INSERT INTO alerts (customer_id, sensor_id, alert_type, message, message_id, value, threshold)
		VALUES (COALESCE(@customer::bigint, @anna), COALESCE(@node, 'n'), COALESCE(@type, 'humidity'), 'm', COALESCE(@message, 'a'), 1, 1)`
	insertThresholds = `INSERT INTO alert_thresholds (customer_id, max_temperature, max_humidity)
		VALUES (COALESCE(@customer::bigint, @bruno), COALESCE(@temperature::float8, 50), COALESCE(@humidity::float8, 50))`
	insertPrediction = `INSERT INTO prediction_feedback (sensor_id, timestamp, feedback, used_in_training, message_id, sampling_probability, score, model_version)
		VALUES (COALESCE(@node, 'n'), '2026-03-01Z', @feedback, COALESCE(@used::bool, false),
		    COALESCE(@message, ''), COALESCE(@probability::float8, 1), @score, @version)`
	insertRun = `INSERT INTO model_training_runs (customer_id, status, completed_at, model_type, training_data_count, validated_data_count, model_version, triggered_by)
		VALUES (@customer, COALESCE(@status, 'completed'), @completed, COALESCE(@type, 'both'), @rows, @validated, @version, COALESCE(@by, 'manual'))`
	insertCorrection = `INSERT INTO corrections (customer_id, node_id, from_time, temperature_offset, humidity_offset, certificate, added_by, withdrawn_by, withdrawn_at)
		VALUES (@anna, 'n1', now() + COALESCE(@ahead::interval, interval '1 hour'), COALESCE(@temperature::float8, 0), COALESCE(@humidity::float8, 0), @certificate, 'Anna',
		    CASE WHEN @withdrawn::interval IS NOT NULL THEN 'Anna' END, now() + @withdrawn::interval)`
	insertReading = `INSERT INTO sensor_data.readings_20260301 (node_id, timestamp, message_id, temperature, humidity, uncorrected_temperature)
		VALUES (COALESCE(@node, 'n'), '2026-03-01 10:00Z', COALESCE(@message, 'a'), COALESCE(@temperature::float8, 20), COALESCE(@humidity::float8, 40), @measured)`
)

func TestSchemaHoldsEveryLimitAgainstAnyWriter(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.sql(t, `CREATE TABLE sensor_data.readings_20260301 PARTITION OF sensor_data.readings
		FOR VALUES FROM ('2026-03-01Z') TO ('2026-03-02Z')`, nil)
	db.sql(t, insertPrediction, pgx.NamedArgs{"message": "judged"})
	db.sql(t, insertRun, pgx.NamedArgs{"status": "running", "customer": db.anna})
	text := func(length int) string { return strings.Repeat("ä", length) }
	ascii := func(length int) string { return strings.Repeat("a", length) }
	const completed = "2026-03-01 12:00Z"
	type values = pgx.NamedArgs
	tests := []struct {
		rule, statement string
		within, beyond  values // nil within: the defaults
	}{
		{"email of 120", insertCustomer, values{"email": text(120)}, values{"email": text(121)}},
		{"email not empty", insertCustomer, nil, values{"email": ""}},
		{"email unique in any case", insertCustomer, nil, values{"email": "ANNA12@Example.com"}},
		{"username of 6", insertCustomer, values{"username": text(6)}, values{"username": text(5)}},
		{"username of 12", insertCustomer, values{"username": text(12)}, values{"username": text(13)}},
		{"username unique in any case", insertCustomer, nil, values{"username": "Anna12"}},
		{"offset of 10 °C", insertCorrection, values{"temperature": 10.0}, values{"temperature": 10.01}},
		{"offset of -10 °C", insertCorrection, values{"temperature": -10.0}, values{"temperature": -10.01}},
		{"offset of 30 %", insertCorrection, values{"humidity": 30.0}, values{"humidity": 30.01}},
		{"offset of -30 %", insertCorrection, values{"humidity": -30.0}, values{"humidity": -30.01}},
		{"offset of hundredths", insertCorrection, values{"temperature": 0.07}, values{"temperature": 0.075}},
		{"certificate of 200", insertCorrection, values{"certificate": text(200)}, values{"certificate": text(201)}},
		{"five minutes ahead", insertCorrection, values{"ahead": "5 minutes 10 seconds"}, values{"ahead": "4 minutes 59 seconds"}},
		{"withdrawn four minutes before", insertCorrection, values{"withdrawn": "56 minutes"}, values{"withdrawn": "56 minutes 1 second"}},
		{"password hash of 120", insertCustomer, values{"hash": text(120)}, values{"hash": text(121)}},
		{"password hash not empty", insertCustomer, nil, values{"hash": ""}},

		{"room name of 120", insertRoom, values{"name": text(120)}, values{"name": text(121)}},
		{"room name not empty", insertRoom, nil, values{"name": ""}},
		{"room of a customer", insertRoom, nil, values{"customer": -1}},

		{"sensor id of 50", insertSensor, values{"node": ascii(50)}, values{"node": ascii(51)}},
		{"sensor id not empty", insertSensor, nil, values{"node": ""}},
		{"sensor id of allowed letters", insertSensor, values{"node": "Aa0._:-"}, values{"node": "a b"}},
		{"sensor id of one line", insertSensor, nil, values{"node": "a\nb"}},
		{"sensor id unique among all", insertSensor, nil, values{"node": "n1", "room": db.brunosRoom, "customer": db.bruno}},
		{"sensor name of 80", insertSensor, values{"name": text(80)}, values{"name": text(81)}},
		{"sensor name not empty", insertSensor, nil, values{"name": ""}},
		{"sensor type of 50", insertSensor, values{"type": text(50)}, values{"type": text(51)}},
		{"sensor type not empty", insertSensor, nil, values{"type": ""}},
		{"position of 80", insertSensor, values{"position": text(80)}, values{"position": text(81)}},
		{"sensor in a room", insertSensor, nil, values{"room": -1}},
		{"sensor in a room of its customer", insertSensor, nil, values{"room": db.brunosRoom}},

		{"alert's sensor of 50", insertAlert, values{"node": ascii(50)}, values{"node": ascii(51)}},
		{"alert type", insertAlert, values{"type": "temperature"}, values{"type": "pressure"}},
		{"alert's message id of 64", insertAlert, values{"message": ascii(64)}, values{"message": ascii(65)}},
		{"alert of a customer", insertAlert, nil, values{"customer": -1}},

		{"least temperature limit", insertThresholds, values{"temperature": -40}, values{"temperature": -40.1}},
		{"greatest temperature limit", insertThresholds, values{"temperature": 125}, values{"temperature": 125.1}},
		{"least humidity limit", insertThresholds, values{"humidity": 0}, values{"humidity": -0.1}},
		{"greatest humidity limit", insertThresholds, values{"humidity": 100}, values{"humidity": 100.1}},
		{"a limit is a number", insertThresholds, nil, values{"temperature": "NaN"}},
		{"one record of a customer", insertThresholds, nil, values{"customer": db.anna}},
		{"thresholds of a customer", insertThresholds, nil, values{"customer": -1}},

		{"prediction's sensor of 255", insertPrediction, values{"node": ascii(255)}, values{"node": ascii(256)}},
		{"feedback ok", insertPrediction, values{"feedback": "ok"}, values{"feedback": "fine"}},
		{"feedback not_ok", insertPrediction, values{"feedback": "not_ok"}, values{"feedback": ""}},
		{"only validated ones are used", insertPrediction, values{"feedback": "ok", "used": true}, values{"used": true}},
		{"probability above 0", insertPrediction, values{"probability": 0.001}, values{"probability": 0}},
		{"probability to 1", insertPrediction, values{"probability": 1}, values{"probability": 1.01}},
		{"prediction's message id of 64", insertPrediction, values{"message": ascii(64)}, values{"message": ascii(65)}},
		{"prediction's score is a number", insertPrediction, values{"score": 0.5}, values{"score": math.NaN()}},
		{"prediction's model of 255", insertPrediction, values{"version": text(255)}, values{"version": text(256)}},
		{"one prediction of a reading", insertPrediction, values{"node": "n1"}, values{"message": "judged"}},

		{"run completed", insertRun, values{"completed": completed}, values{"completed": nil}},
		{"run under way is not completed", insertRun, values{"status": "running"}, values{"status": "running", "completed": completed}},
		{"one run under way", insertRun, values{"status": "running", "customer": db.bruno}, values{"status": "running", "customer": db.anna}},
		{"run failed", insertRun, values{"status": "failed", "completed": completed}, values{"status": "lost", "completed": completed}},
		{"model type", insertRun, values{"type": "anomaly", "completed": completed}, values{"type": "none", "completed": completed}},
		{"model type forecasting", insertRun, values{"type": "forecasting", "completed": completed}, values{"type": "", "completed": completed}},
		{"rows counted", insertRun, values{"rows": 0, "completed": completed}, values{"rows": -1, "completed": completed}},
		{"verdicts counted", insertRun, values{"validated": 0, "completed": completed}, values{"validated": -1, "completed": completed}},
		{"model version of 255", insertRun, values{"version": text(255), "completed": completed}, values{"version": text(256), "completed": completed}},
		{"triggered by", insertRun, values{"by": "auto_100_validated", "completed": completed}, values{"by": "nobody", "completed": completed}},

		{"reading's node of 50", insertReading, values{"node": ascii(50)}, values{"node": ascii(51)}},
		{"reading's message id of 64", insertReading, values{"message": ascii(64)}, values{"message": ascii(65)}},
		{"coldest reading", insertReading, values{"temperature": -50}, values{"temperature": -50.1}},
		{"hottest reading", insertReading, values{"temperature": 135}, values{"temperature": 135.1}},
		{"driest reading", insertReading, values{"humidity": 0}, values{"humidity": -0.1}},
		{"coldest measured", insertReading, values{"measured": -40}, values{"measured": -40.1}},
		{"hottest measured", insertReading, values{"measured": 125}, values{"measured": 125.1}},
		{"most humid reading", insertReading, values{"humidity": 100}, values{"humidity": 100.1}},
	}
	db.sql(t, `DELETE FROM alert_thresholds WHERE customer_id = @bruno`, pgx.NamedArgs{"bruno": db.bruno})
	for _, test := range tests {
		t.Run(test.rule, func(t *testing.T) {
			t.Parallel()
			if err := db.mustViolate(t, test.statement, test.within); err != nil {
				t.Errorf("refused %v: %v", test.within, err)
			}
			err := db.mustViolate(t, test.statement, test.beyond)
			pgErr, ok := errors.AsType[*pgconn.PgError](err)
			// 22001 is a text too long, class 23 an integrity constraint.
			must.Hold(t, ok && (pgErr.Code == "22001" || strings.HasPrefix(pgErr.Code, "23")),
				"took %v, or refused it for another reason: %v", test.beyond, err)
		})
	}
}

// mustViolate returns the error of a statement that it rolls back.
func (db fixture) mustViolate(t *testing.T, statement string, values pgx.NamedArgs) error {
	t.Helper()
	args := pgx.NamedArgs{"anna": db.anna, "bruno": db.bruno, "annas": db.annasRoom}
	maps.Copy(args, values)
	tx := must.Get(db.pool.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err := tx.Exec(t.Context(), statement, args)
	return err
}

// blank returns the address of a database without a schema.
func blank(t *testing.T) string {
	t.Helper()
	address := pgtest.URL(t)
	must.Get(connect(t, address).Exec(t.Context(), `
		DROP SCHEMA public, sensor_data CASCADE;
		CREATE SCHEMA public`))(t)
	return address
}

func connect(t *testing.T, address string) *pgxpool.Pool {
	t.Helper()
	pool := must.Get(pgxpool.New(t.Context(), address))(t)
	t.Cleanup(pool.Close)
	return pool
}

func TestMigrateTwiceKeepsData(t *testing.T) {
	t.Parallel()
	db := open(t)
	must.Do(t, store.Migrate(t.Context(), db.pool))
	must.Equal(t, "customer after a second migration", db.anna, must.Get(db.PersonByEmail(t.Context(), "anna12@example.com"))(t).CustomerID)
}

// TestMigrationGivesWay migrates while somebody reads a table that it changes: it fails soon, because
// others would wait behind it, and succeeds afterwards.
func TestMigrationGivesWay(t *testing.T) {
	t.Parallel()
	pool := connect(t, pgtest.URL(t))
	must.Get(pool.Exec(t.Context(), `ALTER TABLE server_rooms DROP COLUMN instructions; DELETE FROM goose_db_version WHERE version_id >= 18`))(t)
	reading := must.Get(pool.Begin(t.Context()))(t)
	must.Get(reading.Exec(t.Context(), `SELECT FROM server_rooms`))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // for ever, were there no bound
	defer cancel()
	err := store.Migrate(ctx, pool)
	must.Hold(t, err != nil && strings.Contains(err.Error(), "lock timeout"), "migrated behind a reader: %v", err)
	must.Do(t, reading.Rollback(t.Context()))
	must.Do(t, store.Migrate(t.Context(), pool))
}

func TestFourMigrationsAtOnceAllSucceed(t *testing.T) {
	t.Parallel()
	address := blank(t)
	var group sync.WaitGroup
	for range 4 {
		pool := connect(t, address)
		group.Go(func() {
			if err := store.Migrate(t.Context(), pool); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	pool := connect(t, address)
	var versions, distinct int
	must.Do(t, pool.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT version_id) FROM goose_db_version`).Scan(&versions, &distinct))
	must.Equal(t, "different migrations recorded", versions, distinct)
	if _, err := pgtest.NewStores(pool).CreateCustomer(t.Context(), accounts.NewCustomer{
		Email: "a@example.com", Username: "anna12", PasswordHash: "x",
	}); err != nil {
		t.Error(err)
	}
}

// role makes a user of the server without rights, named as Cloud SQL names a
// service account's.
func role(t *testing.T, pool *pgxpool.Pool, part string) string {
	t.Helper()
	name := "coldaisle-" + part + "-" + strings.ToLower(rand.Text()) + "@project.iam"
	quoted := pgx.Identifier{name}.Sanitize()
	must.Get(pool.Exec(t.Context(), "CREATE ROLE "+quoted))(t)
	t.Cleanup(func() {
		// Rights on the database's tables go before the role can.
		must.Get(pool.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+quoted+" CASCADE; DROP ROLE "+quoted))(t)
	})
	return name
}

// as returns a pool whose connections act as the user.
func as(t *testing.T, pool *pgxpool.Pool, user string) *pgxpool.Pool {
	t.Helper()
	settings := pool.Config()
	settings.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "SET ROLE "+pgx.Identifier{user}.Sanitize())
		return err
	}
	acting := must.Get(pgxpool.NewWithConfig(t.Context(), settings))(t)
	t.Cleanup(acting.Close)
	return acting
}

// granted gives every part a user and returns the store as each sees it.
func granted(t *testing.T, db fixture) (map[string]*pgxpool.Pool, map[string]pgtest.Stores) {
	t.Helper()
	users := map[string]string{}
	for _, part := range []string{"ingest", "detect", "storealert", "train", "api"} {
		users[part] = role(t, db.pool, part)
	}
	for range 2 { // again changes nothing
		must.Do(t, store.Grant(t.Context(), db.pool, users))
	}
	pools, stores := map[string]*pgxpool.Pool{}, map[string]pgtest.Stores{}
	for part, user := range users {
		pools[part] = as(t, db.pool, user)
		stores[part] = pgtest.NewStores(pools[part])
	}
	return pools, stores
}

func TestEveryComponentMayDoWhatItDoes(t *testing.T) {
	t.Parallel()
	db := open(t)
	_, part := granted(t, db)

	api := fixture{pool: db.pool, Stores: part["api"], anna: db.anna, annasRoom: db.annasRoom}
	api.sensor(t, db.anna, db.annasRoom, "n1")
	api.sensor(t, db.anna, db.annasRoom, "n2")
	must.Do(t, api.DeleteSensor(t.Context(), db.anna, "n2")) // leaves a tombstone
	limit := 30.0
	must.Get(api.SetThresholds(t.Context(), db.anna, &limit, nil))(t)

	for _, reader := range []string{"ingest", "detect"} {
		nodes := must.Get(part[reader].SensorStatuses(t.Context(), openNodes("n1", "n2")))(t)
		must.Hold(t, nodes[reading.Node{ID: "n1"}].Owned && nodes[reading.Node{ID: "n1"}].Thresholds != nil && nodes[reading.Node{ID: "n2"}].Deleted,
			"%s sees %+v", reader, nodes)
	}
	for _, want := range []incidents.AlertOutcome{incidents.AlertStored, incidents.AlertDuplicate} {
		must.Equal(t, "alert", want, must.Get(part["storealert"].InsertAlert(t.Context(), hot("m1")))(t))
	}

	old := found("n1", -1200, anomaly(1), forecast())
	old.Arrived, old.Temperature = instant().Add(time.Hour), 51
	for _, j := range []incidents.Judged{judged("n1", 0, 51), old, judged("n1", -1170, 20), judged("n1", 60, 20), found("n1", 90, forecast())} {
		must.Do(t, part["detect"].Judge(t.Context(), j))
	}
	all := api.excursions(t, db.anna, incidents.ExcursionQuery{})
	if len(all) != 4 {
		t.Fatalf("incidents: %+v", all)
	}
	rule, err := api.CreateRule(t.Context(), db.anna, incident.Rule{
		Quantity: incident.DewPoint, Direction: incident.Above, Limit: 15, Severity: incident.Warning,
	})
	must.Do(t, err)
	must.Do(t, api.DeleteRule(t.Context(), db.anna, rule.ID))
	must.Get(api.CreateCustomer(t.Context(), accounts.NewCustomer{Email: "c@example.com", Username: "carol1", PasswordHash: "x"}))(t)

	for _, message := range []string{"m1", "m2", "m3", "m4", "m5"} { // some take the place of others
		if _, _, err := part["detect"].RecordDetection(t.Context(), db.anna, learning.NewPrediction{
			SensorID: "n1", Time: instant(), MessageID: message, AnomalyPredicted: true,
		}, 1); err != nil {
			t.Fatalf("detection: %v", err)
		}
	}
	shown, err := api.Predictions(t.Context(), db.anna, learning.PredictionFilter{PageRequest: store.PageRequest{Limit: 10}})
	if err != nil || len(shown.Items) != 2 { // the newer one, and that of the anomaly above
		t.Fatalf("predictions %+v, %v", shown, err)
	}
	must.Get(api.ValidatePrediction(t.Context(), db.anna, shown.Items[0].ID, learning.FeedbackOK))(t)
	run := must.Get(api.BeginManual(t.Context(), db.anna))(t)
	claim := must.Get(part["train"].ClaimRun(t.Context(), run.ID))(t)
	verdicts := must.Get(part["train"].UnusedVerdicts(t.Context(), db.anna, 10))(t)
	must.Get(part["train"].CompleteRun(t.Context(), claim, learning.TrainingResult{Used: verdicts}))(t)
	must.Get(part["train"].UsedVerdicts(t.Context(), db.anna, 10))(t)
	must.Get(part["train"].RightEpisodes(t.Context(), db.anna, instant()))(t)
	must.Equal(t, "used", []int64{shown.Items[0].ID}, db.used(t))
}

// TestIncidentsByTheirComponents has each do its part: detection tells and settles, ingest ends
// silences, and the API settles and lets people act.
func TestIncidentsByTheirComponents(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	_, part := granted(t, db)
	db.window(t, -60, 60, incidents.Maintenance{SensorID: "n1"})
	heard := func(node string, second int) {
		t.Helper()
		must.Do(t, part["ingest"].UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: judged(node, second, 22).Reading}}))
	}
	heard("n2", 0)
	must.Do(t, part["detect"].Judge(t.Context(), judged("n1", 0, 60)))
	id := db.only(t, 1).ID
	for _, a := range []incidents.Action{
		{Event: incident.EventTaken, By: "anna12"}, {Event: incident.EventSnoozed, By: "anna12", Until: clock(20)}, {Event: incident.EventGivenBack, By: "anna12"},
	} {
		must.Get(part["api"].Act(t.Context(), db.anna, id, a, clock(10)))(t)
	}
	must.Do(t, part["detect"].Judge(t.Context(), judged("n1", 30, 20)))
	must.Do(t, part["api"].Settle(t.Context(), db.anna, clock(310))) // n2 is silent
	heard("n2", 400)
	must.Do(t, part["detect"].SettleAll(t.Context(), clock(640))) // the first is over
	must.Do(t, part["api"].Settle(t.Context(), db.anna, clock(1001)))
	must.Equal(t, "seen", 1, must.Get(part["api"].See(t.Context(), db.anna, nil, "anna12", clock(1002)))(t)) // the first was planned
	must.Equal(t, "told", []string{
		"started", "taken", "snoozed", "given_back", "cleared", "started!", "ended", "cleared", "ended", "seen",
	}, db.changes(t, db.anna))
}

// TestHistoryByItsComponents has ingest write and maintain the time-series table, its
// partitions included, and the API read it.
func TestHistoryByItsComponents(t *testing.T) {
	t.Parallel()
	db := open(t)
	pools, stores := granted(t, db)
	now := instant()
	clock := func() time.Time { return now }
	table := pgreadings.New(pools["ingest"], nil, clock)
	node := readings.NodeRef{ID: "n1", Visible: []reading.Span{{}}}
	r := reading.Reading{NodeID: "n1", MessageID: "m", Time: now, Temperature: 20, Humidity: 40}
	for _, maintain := range []time.Duration{0, 10 * 24 * time.Hour, time.Hour} { // a new table, aggregated, with a late one
		now = now.Add(maintain)
		must.Do(t, errors.Join(table.Append(t.Context(), []reading.Reading{r}), table.Maintain(t.Context())))
	}
	must.Do(t, stores["ingest"].RecordProbe(t.Context(), now, now))
	must.Get(pools["ingest"].Exec(t.Context(), `SELECT sensor_data.drop_days(@before)`, pgx.NamedArgs{"before": now}))(t)
	stats := must.Get(pgreadings.New(pools["api"], nil, clock).Stats(t.Context(), node, now, []time.Time{now.AddDate(0, 0, -30)}))(t)
	must.Equal(t, "readings", int64(1), stats[0].Count)
	must.Hold(t, must.Err(pools["api"].Exec(t.Context(), `SELECT sensor_data.drop_days(@before)`, pgx.NamedArgs{"before": now})) != nil,
		"the API may drop readings")
}

func TestNoComponentMayDoMore(t *testing.T) {
	t.Parallel()
	db := open(t)
	pools, _ := granted(t, db)
	for _, c := range []struct{ part, statement string }{
		{"ingest", `SELECT FROM customers`},
		{"ingest", `DELETE FROM sensors`},
		{"ingest", `UPDATE gateways SET public_key = NULL`},
		{"detect", `UPDATE gateways SET revoked_at = NULL`},
		{"api", `UPDATE audit_log SET actor = NULL`},
		{"api", `DELETE FROM audit_log`},
		{"api", `TRUNCATE audit_log`},
		{"detect", `SELECT FROM customers`},
		{"detect", `UPDATE prediction_feedback SET feedback = 'ok'`},
		{"detect", `INSERT INTO alerts DEFAULT VALUES`},
		{"storealert", `SELECT FROM customers`},
		{"storealert", `UPDATE alerts SET acknowledged = true`},
		{"storealert", `SELECT FROM incidents`},
		{"api", `DELETE FROM maintenance_windows`},
		{"train", `SELECT FROM customers`},
		{"train", `INSERT INTO model_training_runs DEFAULT VALUES`},
		{"api", `DELETE FROM customers`},
		{"api", `DELETE FROM alerts`},
		{"api", `INSERT INTO alerts DEFAULT VALUES`},
		{"api", `DELETE FROM alert_thresholds`},
		{"api", `DELETE FROM prediction_feedback`},
		{"api", `DELETE FROM model_training_runs`},
		{"api", `INSERT INTO node_state DEFAULT VALUES`},
		{"api", `UPDATE node_slots SET last_at = NULL`},
		{"api", `DROP TABLE alerts`},
		{"api", `DELETE FROM sensor_tombstones`},
		{"api", `SELECT FROM goose_db_version`},
		{"api", `CREATE TABLE public.mine ()`},
	} {
		_, err := pools[c.part].Exec(t.Context(), c.statement)
		refused, ok := errors.AsType[*pgconn.PgError](err)
		must.Hold(t, ok && refused.Code == "42501", "%s may %s: %v", c.part, c.statement, err)
	}
}

// TestEveryTableHasGrants fails when a migration adds a table that Grant does
// not know: in production, nobody could use it.
func TestEveryTableHasGrants(t *testing.T) {
	t.Parallel()
	db := open(t)
	pools, _ := granted(t, db)
	rows := must.Get(pools["api"].Query(t.Context(), `
		SELECT relname::text
		FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition AND relname <> 'goose_db_version'
		  AND NOT has_table_privilege(oid, 'SELECT')`))(t)
	unknown := must.Get(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	must.Hold(t, len(unknown) == 0, "the API may not read %s: add them to parts in grants.go", unknown)
}

func TestGrantRevokesWhatTheComponentDoesNotNeed(t *testing.T) {
	t.Parallel()
	db := open(t)
	user := role(t, db.pool, "ingest")
	db.sql(t, "GRANT ALL ON ALL TABLES IN SCHEMA public TO "+pgx.Identifier{user}.Sanitize(), nil)
	must.Do(t, store.Grant(t.Context(), db.pool, map[string]string{"ingest": user}))
	_, err := as(t, db.pool, user).Exec(t.Context(), `SELECT FROM customers`)
	refused, ok := errors.AsType[*pgconn.PgError](err)
	must.Hold(t, ok && refused.Code == "42501", "still reads customers: %v", err)
}

func TestGrantRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	db := open(t)
	for _, users := range []map[string]string{
		{"gateway": role(t, db.pool, "gateway")},
		{"ingest": "nobody"},
	} {
		if err := store.Grant(t.Context(), db.pool, users); err == nil {
			t.Errorf("granted to %v", users)
		}
	}
}

// TestExtend is the middle of a release that adds tables and takes a part away:
// the users are those of the version before, which still serves and loses nothing.
func TestExtend(t *testing.T) {
	t.Parallel()
	db := open(t)
	users := map[string]string{"ingest": role(t, db.pool, "ingest"), "part-of-before": role(t, db.pool, "before")}
	for _, user := range users {
		db.sql(t, "GRANT SELECT ON customers TO "+pgx.Identifier{user}.Sanitize(), nil)
	}
	must.Do(t, store.Extend(t.Context(), db.pool, users))
	for _, user := range users {
		must.Get(as(t, db.pool, user).Exec(t.Context(), `SELECT FROM customers`))(t)
	}
	must.Get(as(t, db.pool, users["ingest"]).Exec(t.Context(), `SELECT FROM sensors`))(t) // a right of this version
	must.Hold(t, store.Extend(t.Context(), db.pool, map[string]string{"ingest": "nobody"}) != nil,
		"granted to a user who does not exist")
}

// TestAnOrdinaryOwnerMigratesAndGrants does as a user who owns the database and
// is nothing more, as on Cloud SQL, where nobody is a superuser.
func TestAnOrdinaryOwnerMigratesAndGrants(t *testing.T) {
	t.Parallel()
	admin := connect(t, blank(t))
	owner, reader := role(t, admin, "migrate"), role(t, admin, "ingest")
	database := pgx.Identifier{admin.Config().ConnConfig.Database}.Sanitize()
	for _, statement := range []string{
		"ALTER DATABASE " + database + " OWNER TO " + pgx.Identifier{owner}.Sanitize(),
		"ALTER SCHEMA public OWNER TO pg_database_owner", // as PostgreSQL itself makes it
		"GRANT USAGE ON SCHEMA public TO PUBLIC",
	} {
		must.Get(admin.Exec(t.Context(), statement))(t)
	}
	t.Cleanup(func() { // before the role is dropped
		must.Get(admin.Exec(context.WithoutCancel(t.Context()), "ALTER DATABASE "+database+" OWNER TO CURRENT_USER"))(t)
	})
	acting := as(t, admin, owner)
	must.Do(t, store.Migrate(t.Context(), acting))
	must.Do(t, store.Grant(t.Context(), acting, map[string]string{"ingest": reader}))
	must.Get(pgtest.NewStores(as(t, admin, reader)).SensorStatuses(t.Context(), openNodes("n1")))(t)
}
