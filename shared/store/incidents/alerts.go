package incidents

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
)

// Alert records a value over its limit, as a customer sees it.
type Alert struct {
	ID           int64
	SensorID     string
	Type         string // temperature or humidity
	Message      string
	Time         time.Time // of the reading
	Acknowledged bool
}

const alertColumns = `alerts.id, alerts.sensor_id, alerts.alert_type AS type, alerts.message, alerts.timestamp AS time, ` +
	alertAcknowledged + ` AS acknowledged`

// alertAcknowledged is the condition that an alert was acknowledged, itself or by taking the
// incident of its excursion after it was stored: taking an incident thus writes no row per
// alert. The alerts of an excursion that was merged into another stay acknowledged, and so do
// those of one that moved to its sensor's other channel.
const alertAcknowledged = `(alerts.acknowledged OR EXISTS (
	SELECT FROM excursions e
	WHERE e.customer_id = alerts.customer_id AND e.channel IN (0, alerts.customer_id) AND e.node_id = alerts.sensor_id
	  AND e.quantity = alerts.alert_type AND e.specified AND e.acknowledged_to >= alerts.id
	  AND alerts.timestamp >= e.start_time AND (e.lasting OR alerts.timestamp <= e.end_time)))`

// InsertAlert stores an event, unacknowledged, for the owner of its reading, and reports whether
// there is one: there is none once its sensor is deleted. Reading and type identify the event: a
// redelivery changes nothing, and neither does a copy of the reading, see [readings.Fold]. An alert
// stored while a deletion of its sensor is not yet committed precedes the deletion.
func (s Store) InsertAlert(ctx context.Context, e alert.Event) (owned bool, err error) {
	err = s.db.ExecBatch(ctx, func(batch *pgx.Batch) {
		// A reading and its copy may arrive at the same moment.
		batch.Queue(`SELECT pg_advisory_xact_lock(hashtextextended('alerts of ' || @channel::bigint || ' ' || @sensor::text, 0))`,
			store.Args{"channel": int64(e.Channel), "sensor": e.NodeID})
		batch.Queue(`
			WITH owner AS (
			    SELECT customer_id
			    FROM visible_spans
			    WHERE channel = @channel::bigint AND node_id = @sensor::varchar AND visible_from <= @timestamp::timestamptz AND visible_until > @timestamp::timestamptz
			    LIMIT 1
			), stored AS (
			    INSERT INTO alerts (customer_id, channel, sensor_id, alert_type, message, timestamp, message_id, value, threshold)
			    SELECT customer_id, @channel::bigint, @sensor::varchar, @type::varchar, @message, @timestamp::timestamptz, @message_id::varchar, @value::float8, @threshold
			    FROM owner
			    WHERE NOT EXISTS (
			        SELECT FROM alerts
			        WHERE channel = @channel::bigint AND sensor_id = @sensor::varchar AND message_id = @message_id::varchar AND alert_type = @type::varchar AND value = @value::float8
			          AND timestamp > @timestamp::timestamptz - @fold::interval AND timestamp < @timestamp::timestamptz + @fold::interval)
			    ON CONFLICT ON CONSTRAINT alerts_reading_key DO NOTHING
			)
			SELECT EXISTS (SELECT FROM owner)`,
			store.Args{
				"channel": int64(e.Channel), "sensor": e.NodeID, "type": string(e.Type), "message": e.Message(),
				"timestamp": reading.TruncateTime(e.Time), "message_id": e.MessageID, "value": e.Value, "threshold": e.Threshold,
				"fold": readings.FoldWithin,
			}).QueryRow(func(row pgx.Row) error { return store.Wrap(row.Scan(&owned), "scan") })
	}, "store %s alert of %s", e.Type, e.NodeID)
	return owned, err
}

// alertList lists a customer's alerts that satisfy a condition, newest first.
func (s Store) alertList(ctx context.Context, customerID int64, condition string, args store.Args) store.List[Alert] {
	args["customer"], args["rooms"] = customerID, store.RoomsOf(ctx)
	return store.List[Alert]{
		DB: s.db, Subject: fmt.Sprintf("alerts of customer %d", customerID), Columns: alertColumns, Time: "alerts.timestamp", ID: "alerts.id",
		From: `
		FROM alerts
		WHERE customer_id = @customer AND ` + store.SensorIn("alerts.customer_id", "alerts.sensor_id") + ` AND ` + condition,
		Args: args,
		At:   func(a Alert) store.Position { return store.Position{Time: a.Time, ID: a.ID} },
	}
}

// ActiveAlerts yields a customer's unacknowledged alerts, newest first. Hours of backlog
// leave a million of them.
func (s Store) ActiveAlerts(ctx context.Context, customerID int64) iter.Seq2[Alert, error] {
	return s.alertList(ctx, customerID, `NOT acknowledged AND NOT `+alertAcknowledged, store.Args{}).Each(ctx, nil)
}

// AlertQuery says which alerts [Store.AlertHistory] lists.
type AlertQuery struct {
	SensorID string    // of this sensor only; empty for all
	Start    time.Time // from this instant on; zero for all
	End      time.Time // before this instant; zero for all
	store.PageRequest
}

// AlertHistory lists a customer's alerts, acknowledged or not, newest first.
func (s Store) AlertHistory(ctx context.Context, customerID int64, q AlertQuery) (store.Page[Alert], error) {
	return s.alertList(ctx, customerID, `
		      (@sensor = '' OR sensor_id = @sensor)
		  AND timestamp >= COALESCE(@start::timestamptz, '-infinity') AND timestamp < COALESCE(@end::timestamptz, 'infinity')`,
		store.Args{"sensor": q.SensorID, "start": store.OrNull(q.Start), "end": store.OrNull(q.End)}).Page(ctx, q.PageRequest)
}

// Alert returns a customer's alert, or [store.ErrNoAlert].
func (s Store) Alert(ctx context.Context, customerID, id int64) (Alert, error) {
	return store.One[Alert](ctx, s.db, store.ErrNoAlert, `
		SELECT `+alertColumns+`
		FROM alerts
		WHERE id = @id AND customer_id = @customer AND `+store.SensorIn("alerts.customer_id", "alerts.sensor_id"),
		store.Args{"id": id, "customer": customerID, "rooms": store.RoomsOf(ctx)}, "alert %d", id)
}

// AcknowledgeAlert acknowledges a customer's alert, or returns [store.ErrNoAlert]. A
// repeat changes nothing.
func (s Store) AcknowledgeAlert(ctx context.Context, customerID, id int64) (Alert, error) {
	return store.One[Alert](ctx, s.db, store.ErrNoAlert, `
		UPDATE alerts
		SET acknowledged = true
		WHERE id = @id AND customer_id = @customer AND `+store.SensorIn("alerts.customer_id", "alerts.sensor_id")+`
		RETURNING `+alertColumns,
		store.Args{"id": id, "customer": customerID, "rooms": store.RoomsOf(ctx)}, "acknowledge alert %d", id)
}

// Thresholds are a customer's limits.
type Thresholds struct {
	ID             int64
	CustomerID     int64
	MaxTemperature float64 // °C
	MaxHumidity    float64 // % relative humidity
	Assumed        bool    // whether the customer has never set any
}

const thresholdColumns = `id, customer_id, max_temperature, max_humidity, assumed`

// Thresholds returns a customer's thresholds, or [store.ErrNoCustomer]. A trigger stores a record
// of the defaults with each customer (contract 6.3). Until the customer sets thresholds, detection
// ignores that record and uses the defaults of its own environment.
func (s Store) Thresholds(ctx context.Context, customerID int64) (Thresholds, error) {
	return store.One[Thresholds](ctx, s.db, store.ErrNoCustomer, `
		SELECT `+thresholdColumns+`
		FROM alert_thresholds
		WHERE customer_id = @customer`, store.Args{"customer": customerID}, "thresholds of customer %d", customerID)
}

// SetThresholds sets a customer's thresholds; nil leaves one unchanged. Detection uses them
// within 15 seconds.
func (s Store) SetThresholds(ctx context.Context, customerID int64, maxTemperature, maxHumidity *float64) (Thresholds, error) {
	return store.One[Thresholds](ctx, s.db, store.ErrNoCustomer, `
		UPDATE alert_thresholds
		SET max_temperature = COALESCE(@temperature, max_temperature), max_humidity = COALESCE(@humidity, max_humidity), assumed = false
		WHERE customer_id = @customer
		RETURNING `+thresholdColumns,
		store.Args{"customer": customerID, "temperature": maxTemperature, "humidity": maxHumidity},
		"set thresholds of customer %d", customerID)
}
