package store_test

import (
	"errors"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"coldaisle.dev/shared/must"
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
