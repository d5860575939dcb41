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

// grantLock makes two [Grant]s wait for each other: PostgreSQL fails the second
// of two that change the rights on one table.
const grantLock = 0x636f6c64 // "cold"

// componentGrants returns what each component does with the tables. A column
// that a migration adds is covered; a table has to be added here.
func componentGrants() map[string]map[string]string {
	const (
		read   = "SELECT"
		append = "SELECT, INSERT"
		edit   = "SELECT, UPDATE"
		keep   = "SELECT, INSERT, UPDATE"
		all    = "SELECT, INSERT, UPDATE, DELETE"
		empty  = "TRUNCATE"
	)
	return map[string]map[string]string{
		"ingest": {
			"sensors": read, "sensor_tombstones": read, "alert_thresholds": read, "gateways": read,
			"node_state": keep, "node_slots": keep, "probe": keep, "customer_rules": read, "rule_memory": read, "learning_settings": read,
			"recent_readings": append, "recent_days": keep, "recent_kept": keep,
			"recent_readings_0": empty, "recent_readings_1": empty, "recent_readings_2": empty, "recent_readings_3": empty,
		},
		"detect": {
			"sensors": read, "sensor_tombstones": read, "alert_thresholds": read, "gateways": read, "visible_spans": read,
			"prediction_feedback": append, "customer_rules": read, "rule_memory": read,
			"node_state": read, "node_slots": read, "node_learning": keep, "learning_settings": read,
		},
		"storealert": {
			"sensors": read, "visible_spans": read, "alerts": append,
			"server_rooms": read, "sensor_tombstones": read, "customer_rules": read,
			"node_state": keep, "rule_memory": all, "incidents": keep, "incident_events": all, "incident_groups": all, "prediction_feedback": keep,
		},
		"train": {
			"prediction_feedback": edit, "model_training_runs": edit, "sensors": read, "visible_spans": read, "gateways": read, "incidents": read,
			"recent_readings": read, "recent_days": read, "recent_kept": read,
		},
		"api": {
			"customers": all, "server_rooms": all, "sensors": all, "sensor_tombstones": append,
			"alerts": all, "alert_thresholds": all, "prediction_feedback": all, "model_training_runs": all,
			"gateways": all, "gateway_boots": all, "gateway_nodes": all, "visible_spans": read, "node_state": keep, "node_slots": all, "probe": read,
			"audit_log": append, "api_keys": all,
			"rules": all, "customer_rules": read, "rule_memory": read, "incidents": keep, "incident_events": append, "incident_groups": read,
			"silence_acknowledgements": append, "maintenance_windows": keep, "learning_settings": keep, "node_learning": read,
			"recent_readings": read, "recent_days": read, "recent_kept": read, "recent_hours": all, "recent_hours_run": edit,
		},
	}
}

// Grant gives the database user of each component the rights that it needs in the
// schema, and revokes all others that the user has on it. users maps components
// (ingest, detect, storealert, train, api) to users that exist. The pool's own
// user must own the tables. Doing it again changes nothing.
//
// A right is taken out of [componentGrants] one release after its last use, as a column is:
// a release that goes back runs the version before with the rights of this one.
func Grant(ctx context.Context, pool *pgxpool.Pool, users map[string]string) error {
	return grantAll(ctx, pool, users, true)
}

// Extend gives what Grant gives and takes nothing away. It suits the time in a
// release when the version before still serves: users are still those of that
// version, and a component among them that this version no longer has keeps its rights.
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
		return nil
	})
	return wrap(err, "grant rights")
}

// grantStatements writes the statements for one user. Names of users and tables cannot
// be arguments of a statement.
func grantStatements(rights map[string]string, user string, exact bool) string {
	user = pgx.Identifier{user}.Sanitize()
	var statements strings.Builder
	if exact {
		fmt.Fprintf(&statements, "REVOKE ALL ON ALL TABLES IN SCHEMA public FROM %s;\n", user)
	}
	for _, table := range slices.Sorted(maps.Keys(rights)) {
		fmt.Fprintf(&statements, "GRANT %s ON %s TO %s;\n", rights[table], pgx.Identifier{"public", table}.Sanitize(), user)
	}
	return statements.String()
}
