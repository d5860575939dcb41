package store_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

// role makes a user of the server without rights, named as Cloud SQL names a
// service account's.
func role(t *testing.T, pool *pgxpool.Pool, part string) string {
	t.Helper()
	name := "coldaisle-" + part + "-" + strings.ToLower(rand.Text()) + "@project.iam"
	quoted := pgx.Identifier{name}.Sanitize()
	if _, err := pool.Exec(t.Context(), "CREATE ROLE "+quoted); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Rights on the database's tables go before the role can.
		if _, err := pool.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+quoted+" CASCADE; DROP ROLE "+quoted); err != nil {
			t.Error(err)
		}
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
	acting, err := pgxpool.NewWithConfig(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(acting.Close)
	return acting
}

// granted gives every part a user and returns the store as each sees it.
func granted(t *testing.T, db fixture) (map[string]*pgxpool.Pool, map[string]*store.Store) {
	t.Helper()
	users := map[string]string{}
	for _, part := range []string{"ingest", "detect", "storealert", "train", "api"} {
		users[part] = role(t, db.pool, part)
	}
	for range 2 { // again changes nothing
		if err := store.Grant(t.Context(), db.pool, users); err != nil {
			t.Fatal(err)
		}
	}
	pools, stores := map[string]*pgxpool.Pool{}, map[string]*store.Store{}
	for part, user := range users {
		pools[part] = as(t, db.pool, user)
		stores[part] = store.New(pools[part])
	}
	return pools, stores
}

func TestEveryComponentMayDoWhatItDoes(t *testing.T) {
	t.Parallel()
	db := open(t)
	_, part := granted(t, db)

	api := fixture{pool: db.pool, Store: part["api"], anna: db.anna, annasRoom: db.annasRoom}
	api.sensor(t, db.anna, db.annasRoom, "n1")
	api.sensor(t, db.anna, db.annasRoom, "n2")
	if err := api.DeleteSensor(t.Context(), db.anna, "n2"); err != nil { // leaves a tombstone
		t.Fatal(err)
	}
	limit := 30.0
	if _, err := api.SetThresholds(t.Context(), db.anna, &limit, nil); err != nil {
		t.Fatal(err)
	}

	for _, reader := range []string{"ingest", "detect"} {
		nodes, err := part[reader].SensorStatuses(t.Context(), openNodes("n1", "n2"))
		if err != nil {
			t.Fatalf("%s: %v", reader, err)
		}
		if !nodes[reading.Node{ID: "n1"}].Owned || nodes[reading.Node{ID: "n1"}].Thresholds == nil || !nodes[reading.Node{ID: "n2"}].Deleted {
			t.Errorf("%s sees %+v", reader, nodes)
		}
	}
	for _, want := range []store.AlertOutcome{store.AlertStored, store.AlertDuplicate} {
		got, err := part["storealert"].InsertAlert(t.Context(), hot("n1", "m1"))
		if err != nil || got != want {
			t.Errorf("alert: %v, %v, want %v", got, err, want)
		}
	}

	old := found("n1", -600, anomaly(1), forecast())
	old.Arrived, old.Temperature = instant().Add(time.Hour), 51
	for _, j := range []store.Judged{judged("n1", 0, 51), old, judged("n1", 60, 20), found("n1", 90, forecast())} {
		if err := part["storealert"].Judge(t.Context(), j); err != nil {
			t.Errorf("judge: %v", err)
		}
	}
	incidents := api.incidents(t, db.anna, store.IncidentQuery{})
	if len(incidents) != 4 {
		t.Fatalf("incidents: %+v", incidents)
	}
	if _, err := api.AcknowledgeIncidents(t.Context(), db.anna, store.Acknowledgement{IDs: []int64{incidents[0].ID}, By: "anna12"}); err != nil {
		t.Error(err)
	}
	rule, err := api.CreateRule(t.Context(), db.anna, incident.Rule{
		Quantity: incident.DewPoint, Direction: incident.Above, Limit: 15, Severity: incident.Warning,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := api.DeleteRule(t.Context(), db.anna, rule.ID); err != nil {
		t.Error(err)
	}
	if _, err := api.CreateCustomer(t.Context(), store.NewCustomer{Email: "c@example.com", Username: "carol1", PasswordHash: "x"}); err != nil {
		t.Error(err)
	}

	if recorded, err := part["detect"].RecordDetection(t.Context(), store.NewPrediction{
		SensorID: "n1", Time: instant(), MessageID: "m1", AnomalyPredicted: true, SamplingProbability: 1,
	}); err != nil || !recorded {
		t.Fatalf("detection: %t, %v", recorded, err)
	}
	shown, err := api.Predictions(t.Context(), db.anna, store.PredictionFilter{Limit: 10})
	if err != nil || len(shown) != 2 { // the newer one, and that of the anomaly above
		t.Fatalf("predictions %+v, %v", shown, err)
	}
	if _, err := api.ValidatePrediction(t.Context(), db.anna, shown[0].ID, store.FeedbackOK); err != nil {
		t.Fatal(err)
	}
	run, err := api.BeginManual(t.Context(), db.anna)
	if err != nil {
		t.Fatal(err)
	}
	claim, err := part["train"].ClaimRun(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	verdicts, err := part["train"].UnusedVerdicts(t.Context(), db.anna, 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := part["train"].CompleteRun(t.Context(), claim, store.TrainingResult{Used: verdicts}); err != nil {
		t.Fatal(err)
	}
	if _, err := part["train"].UsedVerdicts(t.Context(), db.anna, 10); err != nil {
		t.Error(err)
	}
	if _, err := part["train"].RightEpisodes(t.Context(), db.anna, instant()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]int64{shown[0].ID}, db.used(t)); diff != "" {
		t.Errorf("used (-want +got):\n%s", diff)
	}
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
		{"storealert", `DELETE FROM incidents`},
		{"api", `DELETE FROM maintenance_windows`},
		{"train", `SELECT FROM customers`},
		{"train", `INSERT INTO model_training_runs DEFAULT VALUES`},
		{"api", `DROP TABLE alerts`},
		{"api", `DELETE FROM sensor_tombstones`},
		{"api", `SELECT FROM goose_db_version`},
		{"api", `CREATE TABLE public.mine ()`},
	} {
		_, err := pools[c.part].Exec(t.Context(), c.statement)
		if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != "42501" {
			t.Errorf("%s may %s: %v", c.part, c.statement, err)
		}
	}
}

// TestEveryTableHasGrants fails when a migration adds a table that Grant does
// not know: in production, nobody could use it.
func TestEveryTableHasGrants(t *testing.T) {
	t.Parallel()
	db := open(t)
	pools, _ := granted(t, db)
	rows, err := pools["api"].Query(t.Context(), `
		SELECT relname::text
		FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition AND relname <> 'goose_db_version'
		  AND NOT has_table_privilege(oid, 'SELECT')`)
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(unknown) > 0 {
		t.Errorf("the API may not read %s: add them to parts in grants.go", unknown)
	}
}

func TestGrantRevokesWhatTheComponentDoesNotNeed(t *testing.T) {
	t.Parallel()
	db := open(t)
	user := role(t, db.pool, "ingest")
	db.sql(t, "GRANT ALL ON ALL TABLES IN SCHEMA public TO "+pgx.Identifier{user}.Sanitize(), nil)
	if err := store.Grant(t.Context(), db.pool, map[string]string{"ingest": user}); err != nil {
		t.Fatal(err)
	}
	_, err := as(t, db.pool, user).Exec(t.Context(), `SELECT FROM customers`)
	if refused, ok := errors.AsType[*pgconn.PgError](err); !ok || refused.Code != "42501" {
		t.Errorf("still reads customers: %v", err)
	}
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
	if err := store.Extend(t.Context(), db.pool, users); err != nil {
		t.Fatal(err)
	}
	for part, user := range users {
		if _, err := as(t, db.pool, user).Exec(t.Context(), `SELECT FROM customers`); err != nil {
			t.Errorf("%s lost a right: %v", part, err)
		}
	}
	if _, err := as(t, db.pool, users["ingest"]).Exec(t.Context(), `SELECT FROM sensors`); err != nil {
		t.Errorf("ingest did not get a right of this version: %v", err)
	}
	if err := store.Extend(t.Context(), db.pool, map[string]string{"ingest": "nobody"}); err == nil {
		t.Error("granted to a user who does not exist")
	}
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
		if _, err := admin.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // before the role is dropped
		if _, err := admin.Exec(context.WithoutCancel(t.Context()), "ALTER DATABASE "+database+" OWNER TO CURRENT_USER"); err != nil {
			t.Error(err)
		}
	})
	acting := as(t, admin, owner)
	if err := store.Migrate(t.Context(), acting); err != nil {
		t.Fatal(err)
	}
	if err := store.Grant(t.Context(), acting, map[string]string{"ingest": reader}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.New(as(t, admin, reader)).SensorStatuses(t.Context(), openNodes("n1")); err != nil {
		t.Error(err)
	}
}
