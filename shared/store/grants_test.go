package store_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
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
