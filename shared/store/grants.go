package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// grantLock serialises calls of [Grant]: of two that change the rights on one table at
// once, PostgreSQL fails the second.
const grantLock = 0x636f6c64 // "cold"

// componentGrants lists the rights of each component on each table. A new column needs
// nothing here, a new table does.
func componentGrants() map[string]map[string]string {
	const (
		read   = "SELECT"
		append = "SELECT, INSERT"
		edit   = "SELECT, UPDATE"
		upsert = "SELECT, INSERT, UPDATE"
		all    = "SELECT, INSERT, UPDATE, DELETE"
		// detect draws the day's sample of predictions and links anomalies; a verdict is a person's.
		draw = "SELECT, INSERT, DELETE, UPDATE (incident_id, anomaly_predicted, sampling_probability)"
		// A correction is never changed, only withdrawn.
		withdraw = "SELECT, INSERT, UPDATE (withdrawn_at, withdrawn_by)"
	)
	return map[string]map[string]string{
		"ingest": {
			"sensors": read, "sensor_tombstones": read, "open_holds": read, "alert_thresholds": read, "gateways": read,
			"node_state": upsert, "node_slots": upsert, "probe": upsert, "customer_rules": read, "rule_memory": read, "learning_settings": read,
			"corrections": read, "visible_spans": read,
			"sensor_data.readings": append, "sensor_data.hours": all, "sensor_data.hours_until": edit, "sensor_data.marked_hours": all, "excursions": edit, "drills": edit, "late_readings": upsert,
			"sensor_data.create_day()": "EXECUTE", "sensor_data.drop_days()": "EXECUTE",
		},
		"detect": {
			"sensors": read, "server_rooms": read, "sensor_tombstones": read, "open_holds": read, "alert_thresholds": read, "gateways": read,
			"visible_spans": read, "live_states": read, "customer_rules": read, "learning_settings": read, "corrections": read,
			"node_slots": read, "node_learning": upsert, "node_state": upsert,
			"rule_memory": all, "excursions": all, "room_incidents": all, "incident_changes": append, "maintenance_windows": read, "probe": read, "gateway_nodes": read, "drills": edit,
			"incidents": all, "prediction_feedback": draw,
			"sensor_data.readings": append, "sensor_data.hours_until": read, "sensor_data.create_day()": "EXECUTE",
		},
		"storealert": {"visible_spans": read, "alerts": append, "drills": edit},
		"train": {
			"prediction_feedback": edit, "model_training_runs": edit, "sensors": read, "visible_spans": read, "gateways": read, "incidents": read, "excursions": read,
			"sensor_data.readings": read,
		},
		"api": {
			"customers": upsert, "persons": all, "invitations": all, "server_rooms": all, "sensors": all, "sensor_tombstones": read, "open_holds": read, "live_states": read,
			"alerts": edit, "alert_thresholds": upsert, "prediction_feedback": upsert, "model_training_runs": upsert,
			"gateways": all, "gateway_boots": all, "gateway_nodes": all, "visible_spans": read, "node_state": edit, "node_slots": read, "probe": read,
			"audit_log": append, "api_keys": all, "watches": all, "idempotent_answers": all,
			"rules": all, "customer_rules": read, "rule_memory": read, "excursions": upsert, "room_incidents": all, "incident_changes": append, "incidents": upsert,
			"maintenance_windows": upsert, "learning_settings": upsert, "node_learning": read, "corrections": withdraw,
			"drills": upsert, "late_readings": read, "room_history": read, "room_members": read, "rule_history": read,
			"sensor_data.readings": read, "sensor_data.hours": read, "sensor_data.hours_until": read,
		},
	}
}

// Grant gives the database user of each component the rights that it needs in the
// schema, and revokes all others that the user has on it. users maps components
// (ingest, detect, storealert, train, api) to existing users. The pool's own
// user must own the tables. Granting again changes nothing.
//
// A right leaves [componentGrants] one release after its last use, as a column does: a
// rollback runs the previous version with this version's rights.
func Grant(ctx context.Context, pool *pgxpool.Pool, users map[string]string) error {
	return grantAll(ctx, pool, users, true)
}

// Extend grants like Grant and revokes nothing. It is for the part of a release in which
// the previous version still serves: users are that version's, and a component that this
// version no longer has keeps its rights.
func Extend(ctx context.Context, pool *pgxpool.Pool, users map[string]string) error {
	return grantAll(ctx, pool, users, false)
}

func grantAll(ctx context.Context, pool *pgxpool.Pool, users map[string]string, exact bool) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(@lock)`, pgx.StrictNamedArgs{"lock": grantLock}); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		for _, component := range slices.Sorted(maps.Keys(users)) {
			rights, known := componentGrants()[component]
			if !known && exact {
				return fmt.Errorf("no component is called %s", component)
			}
			if _, err := tx.Exec(ctx, grantStatements(rights, users[component], exact)); err != nil {
				return fmt.Errorf("to %s: %w", component, err)
			}
		}
		// Cloud SQL's user postgres, who deletes old alerts by hand, is no superuser and owns no table.
		_, err := tx.Exec(ctx, `
			DO $$ BEGIN GRANT SELECT, DELETE ON alerts TO cloudsqlsuperuser; EXCEPTION WHEN undefined_object THEN NULL; END $$`)
		return Wrap(err, "to cloudsqlsuperuser")
	})
	return Wrap(err, "grant rights")
}

// grantStatements writes the statements for one user. Names of users and tables cannot
// be arguments of a statement.
func grantStatements(rights map[string]string, user string, exact bool) string {
	user = pgx.Identifier{user}.Sanitize()
	var statements strings.Builder
	if exact {
		fmt.Fprintf(&statements, "REVOKE ALL ON ALL TABLES IN SCHEMA public, sensor_data FROM %[1]s;\n"+
			"REVOKE ALL ON ALL FUNCTIONS IN SCHEMA sensor_data FROM %[1]s;\n", user)
	}
	if len(rights) > 0 {
		fmt.Fprintf(&statements, "GRANT USAGE ON SCHEMA sensor_data TO %s;\n", user)
	}
	for _, object := range slices.Sorted(maps.Keys(rights)) {
		schema, name, ok := strings.Cut(object, ".")
		if !ok {
			schema, name = "public", object
		}
		if function, ok := strings.CutSuffix(name, "()"); ok {
			fmt.Fprintf(&statements, "GRANT %s ON FUNCTION %s TO %s;\n", rights[object], pgx.Identifier{schema, function}.Sanitize(), user)
			continue
		}
		fmt.Fprintf(&statements, "GRANT %s ON %s TO %s;\n", rights[object], pgx.Identifier{schema, name}.Sanitize(), user)
	}
	return statements.String()
}
