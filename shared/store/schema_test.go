package store_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

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

// The statements of a writer that has never seen the store. Each has defaults that the schema takes, so that a case
// changes one value and no other rule can refuse it.
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
	db.sql(t, `DELETE FROM alert_thresholds WHERE customer_id = @bruno`, pgx.NamedArgs{"bruno": db.bruno})
	type values = pgx.NamedArgs
	takes := func(statement string, v values) {
		must.Fail(t, fmt.Sprint(statement, v), db.tried(t, statement, v), nil)
	}
	refuses := func(statement string, v values) {
		pgErr, ok := errors.AsType[*pgconn.PgError](db.tried(t, statement, v))
		// 22001 is a text too long, class 23 an integrity constraint.
		must.Hold(t, ok && (pgErr.Code == "22001" || strings.HasPrefix(pgErr.Code, "23")),
			"took %v, or refused it for another reason: %v\n%s", v, pgErr, statement)
	}
	type all = []any
	for _, c := range []struct {
		statement, value string
		within, beyond   all
	}{
		{insertCustomer, "email", all{text(120)}, all{text(121), "", "ANNA12@Example.com"}},
		{insertCustomer, "username", all{text(6), text(12)}, all{text(5), text(13), "Anna12"}},
		{insertCustomer, "hash", all{text(120)}, all{text(121), ""}},

		{insertCorrection, "temperature", all{10.0, -10.0, 0.07}, all{10.01, -10.01, 0.075}},
		{insertCorrection, "humidity", all{30.0, -30.0}, all{30.01, -30.01}},
		{insertCorrection, "certificate", all{text(200)}, all{text(201)}},
		{insertCorrection, "ahead", all{"5 minutes 10 seconds"}, all{"4 minutes 59 seconds"}},
		{insertCorrection, "withdrawn", all{"56 minutes"}, all{"56 minutes 1 second"}},

		{insertRoom, "name", all{text(120)}, all{text(121), ""}},
		{insertRoom, "customer", nil, all{-1}},

		{insertSensor, "node", all{ascii(50), "Aa0._:-"}, all{ascii(51), "", "a b", "a\nb"}},
		{insertSensor, "name", all{text(80)}, all{text(81), ""}},
		{insertSensor, "type", all{text(50)}, all{text(51), ""}},
		{insertSensor, "position", all{text(80)}, all{text(81)}},
		{insertSensor, "room", nil, all{-1, db.brunosRoom}},

		{insertAlert, "node", all{ascii(50)}, all{ascii(51)}},
		{insertAlert, "type", all{"temperature"}, all{"pressure"}},
		{insertAlert, "message", all{ascii(64)}, all{ascii(65)}},
		{insertAlert, "customer", nil, all{-1}},

		{insertThresholds, "temperature", all{-40, 125}, all{-40.1, 125.1, "NaN"}},
		{insertThresholds, "humidity", all{0, 100}, all{-0.1, 100.1}},
		{insertThresholds, "customer", nil, all{db.anna, -1}},

		{insertPrediction, "node", all{ascii(255)}, all{ascii(256)}},
		{insertPrediction, "feedback", all{"ok", "not_ok"}, all{"fine", ""}},
		{insertPrediction, "used", nil, all{true}}, // without a verdict
		{insertPrediction, "probability", all{0.001, 1}, all{0, 1.01}},
		{insertPrediction, "message", all{ascii(64)}, all{ascii(65), "judged"}},
		{insertPrediction, "score", all{0.5}, all{math.NaN()}},
		{insertPrediction, "version", all{text(255)}, all{text(256)}},

		{insertRun, "status", all{"failed"}, all{"lost", "running"}}, // with an end
		{insertRun, "completed", nil, all{nil}},
		{insertRun, "type", all{"anomaly", "forecasting"}, all{"none", ""}},
		{insertRun, "rows", all{0}, all{-1}},
		{insertRun, "validated", all{0}, all{-1}},
		{insertRun, "version", all{text(255)}, all{text(256)}},
		{insertRun, "by", all{"auto_100_validated"}, all{"nobody"}},

		{insertReading, "node", all{ascii(50)}, all{ascii(51)}},
		{insertReading, "message", all{ascii(64)}, all{ascii(65)}},
		{insertReading, "temperature", all{-50, 135}, all{-50.1, 135.1}},
		{insertReading, "humidity", all{0, 100}, all{-0.1, 100.1}},
		{insertReading, "measured", all{-40, 125}, all{-40.1, 125.1}},
	} {
		takes(c.statement, nil)
		for _, v := range c.within {
			takes(c.statement, values{c.value: v})
		}
		for _, v := range c.beyond {
			refuses(c.statement, values{c.value: v})
		}
	}
	takes(insertPrediction, values{"feedback": "ok", "used": true})
	refuses(insertSensor, values{"node": "n1", "room": db.brunosRoom, "customer": db.bruno}) // an id is one among all
	takes(insertRun, values{"status": "running", "completed": nil, "customer": db.bruno})
	refuses(insertRun, values{"status": "running", "completed": nil, "customer": db.anna}) // a second one under way
}

// tried returns the error of a statement that it rolls back.
func (db fixture) tried(t *testing.T, statement string, values pgx.NamedArgs) error {
	t.Helper()
	args := pgx.NamedArgs{"anna": db.anna, "bruno": db.bruno, "annas": db.annasRoom, "completed": "2026-03-01 12:00Z"}
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

// older is a database of a schema before.
func older(t *testing.T, version int64) *pgxpool.Pool {
	t.Helper()
	pool := connect(t, blank(t))
	database := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = database.Close() })
	provider := must.Get(goose.NewProvider(goose.DialectPostgres, database, os.DirFS("migrations")))(t)
	must.Get(provider.UpTo(t.Context(), version))(t)
	return pool
}

func connect(t *testing.T, address string) *pgxpool.Pool {
	t.Helper()
	pool := must.Get(pgxpool.New(t.Context(), address))(t)
	t.Cleanup(pool.Close)
	return pool
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
		group.Go(func() { must.Fail(t, "migrate", store.Migrate(t.Context(), pool), nil) })
	}
	group.Wait()
	pool := connect(t, address)
	var versions, distinct int
	must.Do(t, pool.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT version_id) FROM goose_db_version`).Scan(&versions, &distinct))
	must.Equal(t, "different migrations recorded", versions, distinct)
	carol := accounts.NewCustomer{Email: "a@example.com", Username: "anna12", PasswordHash: "x"}
	stores := pgtest.NewStores(pool)
	created := must.Get(stores.CreateCustomer(t.Context(), carol))(t)
	must.Do(t, store.Migrate(t.Context(), pool))
	must.Equal(t, "customer after one more", created.ID, must.Get(stores.PersonByEmail(t.Context(), carol.Email))(t).CustomerID)
}

// role makes a user of the server without rights, named as Cloud SQL names a service account's.
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
	for range 2 {
		must.Equal(t, "its reading has an owner", true, must.Get(part["storealert"].InsertAlert(t.Context(), hot("m1")))(t))
	}
	must.Equal(t, "alerts", 1, db.count(t, `SELECT count(*) FROM alerts`, nil))

	old := found("n1", -1200, anomaly(1), forecast())
	old.Arrived, old.Temperature = instant().Add(time.Hour), 51
	for _, j := range []incidents.Judged{judged("n1", 0, 51), old, judged("n1", -1170, 20), judged("n1", 60, 20), found("n1", 90, forecast())} {
		must.Do(t, part["detect"].Judge(t.Context(), j))
	}
	must.Equal(t, "excursions", 4, len(api.excursions(t, db.anna, incidents.ExcursionQuery{})))
	must.Do(t, api.DeleteRule(t.Context(), db.anna, api.rule(t, incident.Rule{Quantity: incident.DewPoint, Limit: 15}).ID))
	must.Get(api.CreateCustomer(t.Context(), accounts.NewCustomer{Email: "c@example.com", Username: "carol1", PasswordHash: "x"}))(t)

	for _, message := range []string{"m1", "m2", "m3", "m4", "m5"} { // some take the place of others
		anomalous := learning.NewPrediction{SensorID: "n1", Time: instant(), MessageID: message, AnomalyPredicted: true}
		_, err := part["detect"].RecordDetection(t.Context(), db.anna, anomalous, 1)
		must.Do(t, err)
	}
	shown := must.Get(api.Predictions(t.Context(), db.anna, learning.PredictionFilter{PageRequest: store.PageRequest{Limit: 10}}))(t)
	must.Equal(t, "predictions: the newer one, and that of the anomaly above", 2, len(shown.Items))
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
	table := pgreadings.New(store.New(pools["ingest"]), nil, clock)
	node := readings.NodeRef{ID: "n1", Visible: []reading.Span{{}}}
	r := reading.Reading{NodeID: "n1", MessageID: "m", Time: now, Temperature: 20, Humidity: 40}
	for _, maintain := range []time.Duration{0, 10 * 24 * time.Hour, time.Hour} { // a new table, aggregated, with a late one
		now = now.Add(maintain)
		must.Do(t, errors.Join(table.Append(t.Context(), []reading.Reading{r}), table.Maintain(t.Context())))
	}
	must.Do(t, stores["ingest"].RecordProbe(t.Context(), now, now))
	must.Get(pools["ingest"].Exec(t.Context(), `SELECT sensor_data.drop_days(@before)`, pgx.NamedArgs{"before": now}))(t)
	stats := must.Get(pgreadings.New(store.New(pools["api"]), nil, clock).Stats(t.Context(), node, now, []time.Time{now.AddDate(0, 0, -30)}))(t)
	must.Equal(t, "readings", int64(1), stats[0].Count)
	refused(t, pools["api"], `SELECT sensor_data.drop_days(now())`)
}

// refused reports a statement that a user may run.
func refused(t *testing.T, user *pgxpool.Pool, statement string) {
	t.Helper()
	_, err := user.Exec(t.Context(), statement)
	denied, ok := errors.AsType[*pgconn.PgError](err)
	must.Hold(t, ok && denied.Code == "42501", "%s: %v, want it refused", statement, err)
}

func TestNoComponentMayDoMore(t *testing.T) {
	t.Parallel()
	db := open(t)
	pools, _ := granted(t, db)
	for part, statements := range map[string][]string{
		"ingest": {
			`SELECT FROM customers`, `DELETE FROM sensors`, `UPDATE gateways SET public_key = NULL`,
		},
		"detect": {
			`UPDATE gateways SET revoked_at = NULL`, `SELECT FROM customers`,
			`UPDATE prediction_feedback SET feedback = 'ok'`, `INSERT INTO alerts DEFAULT VALUES`,
		},
		"api": {
			`UPDATE audit_log SET actor = NULL`, `DELETE FROM audit_log`, `TRUNCATE audit_log`,
			`DELETE FROM maintenance_windows`, `DELETE FROM customers`, `DELETE FROM alerts`,
			`INSERT INTO alerts DEFAULT VALUES`, `DELETE FROM alert_thresholds`, `DELETE FROM prediction_feedback`,
			`DELETE FROM model_training_runs`, `INSERT INTO node_state DEFAULT VALUES`,
			`UPDATE node_slots SET last_at = NULL`, `DROP TABLE alerts`, `DELETE FROM sensor_tombstones`,
			`SELECT FROM goose_db_version`, `CREATE TABLE public.mine ()`,
		},
		"storealert": {
			`SELECT FROM customers`, `UPDATE alerts SET acknowledged = true`, `SELECT FROM incidents`,
		},
		"train": {
			`SELECT FROM customers`, `INSERT INTO model_training_runs DEFAULT VALUES`,
		},
	} {
		for _, statement := range statements {
			refused(t, pools[part], statement)
		}
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
	refused(t, as(t, db.pool, user), `SELECT FROM customers`)
}

// TestAlertsAreArchived deletes as a person in Cloud SQL Studio, whose user owns no table.
func TestAlertsAreArchived(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sql(t, `DO $$ BEGIN CREATE ROLE cloudsqlsuperuser; EXCEPTION WHEN duplicate_object THEN NULL; END $$`, nil)
	person := as(t, db.pool, "cloudsqlsuperuser")
	must.Do(t, store.Grant(t.Context(), db.pool, nil))
	must.Get(person.Exec(t.Context(), `DELETE FROM alerts WHERE timestamp < '2026-01-01'`))(t)
	refused(t, person, `DELETE FROM customers`)
}

func TestGrantRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	db := open(t)
	for _, users := range []map[string]string{
		{"gateway": role(t, db.pool, "gateway")},
		{"ingest": "nobody"},
	} {
		must.Hold(t, store.Grant(t.Context(), db.pool, users) != nil, "granted to %v", users)
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
