package accounts

import (
	"context"
	"time"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

const (
	// WithdrawAhead is how long before its start a correction can last be withdrawn. A reading may
	// be dated two minutes ahead and a cached status be one minute old: until then none has used it.
	WithdrawAhead = 4 * time.Minute
	// MaxCorrections is how many corrections a sensor may have.
	MaxCorrections = 200
)

// NewCorrection is a correction to be added.
type NewCorrection struct {
	SensorID          string
	From              time.Time // until the next one's
	TemperatureOffset float64   // °C, −10 to 10, added to what is measured
	HumidityOffset    float64   // % relative humidity, −30 to 30
	Certificate       *string
	SerialNumber      *string
	DueDate           *time.Time // of the next calibration
	CalibratedBy      *string
	AddedBy           string // name
}

// Correction is a dated correction of a customer's sensor.
type Correction struct {
	NewCorrection

	ID           int64
	AddedAt      time.Time
	WithdrawnBy  *string
	WithdrawnAt  *time.Time
	State        string // planned, in_force, past or withdrawn
	Withdrawable bool
	Overdue      bool // it is in force, and its due date has passed
}

// listedCorrections selects a customer's corrections of sensors, with their state.
const listedCorrections = `
	SELECT c.id, c.node_id AS sensor_id, c.from_time AS "from", c.temperature_offset, c.humidity_offset, c.certificate, c.serial_number, c.due_date,
	       c.calibrated_by, c.added_by, c.added_at, c.withdrawn_by, c.withdrawn_at, c.state,
	       c.withdrawn_at IS NULL AND c.from_time - @ahead::interval > now() AS withdrawable,
	       c.state = 'in_force' AND COALESCE(c.due_date < (now() AT TIME ZONE 'UTC')::date, false) AS overdue
	FROM (
	    SELECT c.*, n.next, CASE
	        WHEN c.withdrawn_at IS NOT NULL THEN 'withdrawn'
	        WHEN c.from_time > now() THEN 'planned'
	        WHEN n.next <= now() THEN 'past'
	        ELSE 'in_force'
	    END AS state
	    FROM corrections c
	    CROSS JOIN LATERAL (
	        SELECT min(o.from_time) AS next
	        FROM corrections o
	        WHERE o.customer_id = c.customer_id AND o.node_id = c.node_id AND o.from_time > c.from_time AND o.withdrawn_at IS NULL
	    ) AS n
	    WHERE c.customer_id = @customer
	) AS c
	JOIN sensors s ON s.customer_id = c.customer_id AND s.node_id = c.node_id
	WHERE `

func correctionArgs(ctx context.Context, customerID int64) store.Args {
	return store.Args{"customer": customerID, "rooms": store.RoomsOf(ctx), "ahead": WithdrawAhead}
}

// Corrections lists the corrections of a customer's sensors that were in force within the last
// day or are planned, by sensor and time.
func (s Store) Corrections(ctx context.Context, customerID int64) ([]Correction, error) {
	return store.All[Correction](ctx, s.db, listedCorrections+store.RoomIn("s.room_id")+`
		    AND c.withdrawn_at IS NULL AND (c.next IS NULL OR c.next > now() - interval '1 day')
		ORDER BY c.node_id, c.from_time`, correctionArgs(ctx, customerID), "corrections of customer %d", customerID)
}

// CorrectionsOf lists all corrections of a customer's sensor, newest first, or returns
// [store.ErrNoSensor].
func (s Store) CorrectionsOf(ctx context.Context, customerID int64, sensorID string) ([]Correction, error) {
	if _, err := s.Sensor(ctx, customerID, sensorID); err != nil {
		return nil, err
	}
	args := correctionArgs(ctx, customerID)
	args["sensor"] = sensorID
	return store.All[Correction](ctx, s.db, listedCorrections+store.RoomIn("s.room_id")+`
		    AND c.node_id = @sensor
		ORDER BY c.from_time DESC, c.id DESC`, args, "corrections of sensor %s", sensorID)
}

// CorrectionsApplied returns the corrections of a customer's sensor as they apply to its readings.
func (s Store) CorrectionsApplied(ctx context.Context, customerID int64, sensorID string) (reading.Corrections, error) {
	return store.All[reading.Correction](ctx, s.db, `
		SELECT from_time AS "from", '{}'::json AS visible, temperature_offset AS temperature, humidity_offset AS humidity
		FROM corrections
		WHERE customer_id = @customer AND node_id = @sensor AND withdrawn_at IS NULL
		ORDER BY from_time DESC`, store.Args{"customer": customerID, "sensor": sensorID},
		"corrections of sensor %s", sensorID)
}

// Correction returns a correction of one of a customer's sensors, or [store.ErrNoCorrection].
func (s Store) Correction(ctx context.Context, customerID, id int64) (Correction, error) {
	args := correctionArgs(ctx, customerID)
	args["id"] = id
	return store.One[Correction](ctx, s.db, store.ErrNoCorrection, listedCorrections+store.RoomIn("s.room_id")+` AND c.id = @id`, args,
		"correction %d", id)
}

// AddCorrection adds a correction to a customer's sensor. Call it after [Store.LockChanges].
// Errors: [store.ErrNoSensor], [store.ErrCorrectionSoon], [store.ErrCorrectionExists],
// [store.ErrTooManyCorrections].
func (s Store) AddCorrection(ctx context.Context, customerID int64, n NewCorrection) (Correction, error) {
	full, err := store.Value[bool](ctx, s.db, store.ErrNoSensor, `
		SELECT count(c.*) >= @most
		FROM sensors s
		LEFT JOIN corrections c USING (customer_id, node_id)
		WHERE s.node_id = @sensor AND s.customer_id = @customer AND `+store.RoomIn("s.room_id")+`
		GROUP BY s.node_id`,
		store.Args{"sensor": n.SensorID, "customer": customerID, "rooms": store.RoomsOf(ctx), "most": MaxCorrections},
		"corrections of sensor %s", n.SensorID)
	if err == nil && full {
		err = store.ErrTooManyCorrections
	}
	if err != nil {
		return Correction{}, err
	}
	id, err := store.Value[int64](ctx, s.db, store.ErrNoSensor, `
		INSERT INTO corrections (
		    customer_id, node_id, from_time, temperature_offset, humidity_offset, certificate, serial_number, due_date, calibrated_by, added_by)
		VALUES (@customer, @sensor, @from, @temperature, @humidity, @certificate, @serial, @due, @calibrated_by, @added_by)
		RETURNING id`,
		store.Args{
			"customer": customerID, "sensor": n.SensorID, "from": n.From, "temperature": n.TemperatureOffset, "humidity": n.HumidityOffset,
			"certificate": n.Certificate, "serial": n.SerialNumber, "due": n.DueDate, "calibrated_by": n.CalibratedBy, "added_by": n.AddedBy,
		}, "correct sensor %s", n.SensorID)
	if err != nil {
		return Correction{}, err
	}
	return s.Correction(ctx, customerID, id)
}

// WithdrawCorrection withdraws a correction of one of a customer's sensors. Errors:
// [store.ErrNoCorrection], also for one that is withdrawn; [store.ErrCorrectionSoon].
func (s Store) WithdrawCorrection(ctx context.Context, customerID, id int64, by string) error {
	return s.db.Change(ctx, store.ErrNoCorrection, `
		UPDATE corrections c
		SET withdrawn_at = clock_timestamp(), withdrawn_by = @by
		FROM sensors s
		WHERE c.id = @id AND c.customer_id = @customer AND c.withdrawn_at IS NULL
		  AND s.customer_id = c.customer_id AND s.node_id = c.node_id AND `+store.RoomIn("s.room_id"),
		store.Args{"id": id, "customer": customerID, "rooms": store.RoomsOf(ctx), "by": by}, "withdraw correction %d", id)
}
