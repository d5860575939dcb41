package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// LiveSensor is a sensor and what is known of it now.
type LiveSensor struct {
	NodeID, Name          string
	RoomID                int64
	Position              *string
	Timestamp             *time.Time // of its newest reading; null with the next two: none yet
	Temperature, Humidity *float64
	GatewayID             string        // that sent it; empty in the open channel
	Interval              time.Duration // between its readings, usually; zero while unknown
	Severity              string        // of the worst incident that lasts; empty without one
	JudgedBy              JudgedBy      // its newest reading; empty if none was judged yet
}

// LiveSensors lists all of a customer's sensors, by id, each with its newest reading as
// far as ingest has kept it.
func (s *Store) LiveSensors(ctx context.Context, customerID int64) ([]LiveSensor, error) {
	found, err := queryAll[LiveSensor](ctx, s, `
		SELECT v.node_id, v.name, v.room_id, v.position, n.timestamp, n.temperature, n.humidity, COALESCE(n.gateway_id, '') AS gateway_id,
		       COALESCE(n.usual_interval_s, 0) * interval '1 second' AS interval, COALESCE(i.severity, '') AS severity,
		       COALESCE(l.judged_by, '') AS judged_by
		FROM sensors v
		LEFT JOIN LATERAL (
		    SELECT *
		    FROM node_state n
		    WHERE n.node_id = v.node_id AND n.timestamp IS NOT NULL
		      AND (n.channel = v.customer_id
		           OR (n.channel = 0 AND v.holds_open AND (v.readable_from IS NULL OR n.timestamp >= v.readable_from)))
		    ORDER BY n.timestamp DESC
		    LIMIT 1
		) n ON true
		LEFT JOIN node_learning l ON l.channel = n.channel AND l.node_id = n.node_id
		LEFT JOIN (
		    SELECT node_id, min(severity) AS severity -- critical before warning
		    FROM incidents
		    WHERE customer_id = @customer AND lasting AND merged_into IS NULL
		    GROUP BY node_id
		) i ON i.node_id = v.node_id
		WHERE v.customer_id = @customer AND `+inRooms("v.room_id")+`
		ORDER BY v.node_id`,
		pgx.StrictNamedArgs{"customer": customerID, "rooms": RoomsOf(ctx)})
	return found, wrap(err, "live sensors of customer %d", customerID)
}

// LiveVersion changes with what a customer's overview shows.
type LiveVersion struct {
	Readings string // with the newest readings
	Rest     string // with all else, but for readings that come late
}

// LiveVersion returns the version of what a customer's overview shows now: a sum of the
// transactions that wrote its rows. It costs a tenth of reading them.
func (s *Store) LiveVersion(ctx context.Context, customerID int64) (LiveVersion, error) {
	version, err := queryOne[LiveVersion](ctx, s, ErrNoCustomer, `
		WITH live AS (
		    SELECT count(*) AS sensors, sum(hashint8(v.xmin::text::bigint)) AS written, sum(hashint8(n.xmin::text::bigint)) AS states
		    FROM sensors v
		    LEFT JOIN node_state n ON n.node_id = v.node_id AND n.channel IN (0, v.customer_id)
		    WHERE v.customer_id = @customer
		)
		SELECT concat_ws(' ', live.states) AS readings, concat_ws(' ', live.sensors, live.written,
		    (SELECT sum(hashint8(xmin::text::bigint)) FROM server_rooms WHERE customer_id = @customer),
		    (SELECT sum(hashint8(xmin::text::bigint)) FROM rules WHERE customer_id = @customer),
		    (SELECT xmin FROM alert_thresholds WHERE customer_id = @customer),
		    (SELECT sum(hashint8(xmin::text::bigint)) FROM maintenance_windows WHERE customer_id = @customer),
		    (SELECT sum(hashint8(xmin::text::bigint)) FROM incidents WHERE customer_id = @customer AND merged_into IS NULL AND lasting),
		    (SELECT sum(hashint8(open.xmin::text::bigint)) FROM (
		        SELECT xmin FROM incidents
		        WHERE customer_id = @customer AND merged_into IS NULL AND (lasting OR acknowledged_at IS NULL)
		        ORDER BY start_time DESC, id DESC
		        LIMIT @limit) AS open),
		    (SELECT count(*) FROM silence_acknowledgements WHERE customer_id = @customer)) AS rest
		FROM live`,
		pgx.StrictNamedArgs{"customer": customerID, "limit": MaxOpenIncidents})
	return version, wrap(err, "live version of customer %d", customerID)
}

// MaxOpenIncidents is how many of the open incidents an overview shows.
const MaxOpenIncidents = 200

// slotsPerPart is how many slots a part of [HotSpots] has: it is half an hour.
const slotsPerPart = 3

// HotSpots are the highest temperatures of a node in half hours of the last day, where
// it has any.
type HotSpots struct {
	NodeID       string
	Parts        []int32 // of the day, from midnight UTC
	Temperatures []float64
}

// HotSpots returns the highest temperatures of a customer's sensors since a time, at
// most a day ago. Nodes select some of them; nil is all.
func (s *Store) HotSpots(ctx context.Context, customerID int64, since time.Time, nodes []string) ([]HotSpots, error) {
	only, args := "", pgx.StrictNamedArgs{"customer": customerID, "since": since, "width": slotsPerPart}
	if nodes != nil {
		only = ` AND n.channel IN (0, @customer) AND n.node_id = ANY(@nodes)` // by the primary key
		args["nodes"] = nodes
	}
	found, err := queryAll[HotSpots](ctx, s, `
		SELECT node_id, array_agg(part) AS parts, array_agg(temperature) AS temperatures
		FROM (
		    SELECT v.node_id, n.slot::int / @width AS part, max(n.max_temperature) AS temperature
		    FROM sensors v
		    JOIN node_slots n ON n.node_id = v.node_id AND n.channel IN (v.customer_id, CASE WHEN v.holds_open THEN 0 ELSE v.customer_id END)
		    WHERE v.customer_id = @customer AND n.starts >= @since`+only+`
		    GROUP BY v.node_id, part
		) AS hot
		GROUP BY node_id`,
		args)
	return found, wrap(err, "hot spots of customer %d", customerID)
}
