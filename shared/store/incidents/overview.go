package incidents

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/learning"
)

// LiveSensor is a sensor with its live state.
type LiveSensor struct {
	NodeID, Name          string
	RoomID                int64
	Position              *string
	Timestamp             *time.Time // of its newest reading; null: none yet
	Temperature, Humidity *float64   // the newest of each; null: none yet
	TemperatureAt         *time.Time
	HumidityAt            *time.Time
	GatewayID             string            // of that reading; empty in the open channel
	Interval              time.Duration     // between its readings, usually; zero while unknown
	TemperatureInterval   time.Duration     // between those with a temperature; if unknown, a third of the hour after which it is missing
	HumidityInterval      time.Duration     // likewise
	JudgedBy              learning.JudgedBy // of its newest reading; empty if none was judged yet
}

// Reports reports whether readings of the sensor come.
func (l *LiveSensor) Reports(now time.Time) bool {
	return l.Timestamp != nil && now.Before(incident.SilentFrom(*l.Timestamp, l.Interval))
}

// Silent reports whether readings have come and then stopped, and the service is not to blame.
func (l *LiveSensor) Silent(probe incident.Probe, now time.Time) bool {
	return l.Timestamp != nil && probe.Silent(*l.Timestamp, l.Interval, now)
}

// Values returns the newest values; one that comes no more is missing, though the other may come.
func (l *LiveSensor) Values(probe incident.Probe, now time.Time) (temperature, humidity float64) {
	of := func(value *float64, at *time.Time, interval time.Duration) float64 {
		if at == nil || probe.Silent(*at, interval, now) {
			return reading.Missing()
		}
		return *value
	}
	return of(l.Temperature, l.TemperatureAt, l.TemperatureInterval), of(l.Humidity, l.HumidityAt, l.HumidityInterval)
}

// measuredAt is when the newest value of a quantity was measured; nil: never.
func (l *LiveSensor) measuredAt(q incident.Quantity) *time.Time {
	switch {
	case q == incident.Humidity:
		return l.HumidityAt
	case q == incident.DewPoint && l.HumidityAt != nil && l.TemperatureAt != nil && l.HumidityAt.Before(*l.TemperatureAt):
		return l.HumidityAt
	case q == "":
		return nil
	default:
		return l.TemperatureAt
	}
}

// ScanRow implements [pgx.RowScanner]: finding each column by name takes half of the time that it
// takes to read thousands of rows.
func (l *LiveSensor) ScanRow(rows pgx.Rows) error {
	return store.Wrap(rows.Scan(&l.NodeID, &l.Name, &l.RoomID, &l.Position, &l.Timestamp, &l.Temperature, &l.TemperatureAt, &l.Humidity, &l.HumidityAt,
		&l.GatewayID, &l.Interval, &l.TemperatureInterval, &l.HumidityInterval, &l.JudgedBy), "scan")
}

// LiveSensors lists a customer's sensors by id, each with the newest reading that ingest has
// stored.
func (s Store) LiveSensors(ctx context.Context, customerID int64) ([]LiveSensor, error) {
	return s.liveSensors(ctx, customerID, nil, nil)
}

// liveAround lists the sensors in the rooms of lasting incidents, or all sensors if one of these
// is a gateway's.
func (s Store) liveAround(ctx context.Context, customerID int64, all []Incident) ([]LiveSensor, error) {
	var rooms []int64
	for _, i := range all {
		switch {
		case !i.Lasting:
		case i.GatewayID != "":
			return s.LiveSensors(ctx, customerID)
		default:
			rooms = append(rooms, i.RoomID)
		}
	}
	if len(rooms) == 0 {
		return nil, nil
	}
	return s.liveSensors(ctx, customerID, nil, rooms)
}

// liveSensors lists the sensors of some nodes, or in some rooms; nil is all. It reads the same as the view
// live_states at a third of the cost, because the database neither sorts nor gathers first.
func (s Store) liveSensors(ctx context.Context, customerID int64, nodes []string, in []int64) ([]LiveSensor, error) {
	found, err := store.AllPlanned(ctx, s.db, pgx.RowTo[LiveSensor], `
		SELECT s.node_id, s.name, s.room_id, s.position, n.timestamp, n.temperature, n.temperature_at, n.humidity, n.humidity_at,
		       COALESCE(n.gateway_id, '') AS gateway_id, COALESCE(n.usual_interval_s, 0) * interval '1 second' AS interval,
		       COALESCE(n.temperature_interval_s, 1200) * interval '1 second' AS temperature_interval,
		       COALESCE(n.humidity_interval_s, 1200) * interval '1 second' AS humidity_interval,
		       COALESCE(l.judged_by, '') AS judged_by
		FROM sensors s
		LEFT JOIN (node_state n
		           LEFT JOIN open_holds h ON n.channel = 0 AND h.node_id = n.node_id AND h.customer_id = @customer
		                                 AND n.timestamp >= h.held_from AND n.timestamp < h.held_until)
		       ON n.node_id = s.node_id AND n.channel IN (0, @customer) AND n.timestamp <= `+store.NotAhead+`
		       AND (n.channel = @customer OR (h.node_id IS NOT NULL AND (s.signed_from IS NULL OR n.timestamp < s.signed_from)))
		LEFT JOIN node_learning l ON l.channel = n.channel AND l.node_id = s.node_id -- not that of n: two rows are expected of it
		WHERE s.customer_id = @customer AND (@nodes::text[] IS NULL OR s.node_id = ANY (@nodes)) AND (@in::bigint[] IS NULL OR s.room_id = ANY (@in))
		  AND `+store.RoomIn("s.room_id"),
		store.Args{"customer": customerID, "nodes": nodes, "in": in, "rooms": store.RoomsOf(ctx)},
		"live sensors of customer %d", customerID)
	slices.SortFunc(found, func(a, b LiveSensor) int {
		if a.NodeID != b.NodeID {
			return cmp.Compare(a.NodeID, b.NodeID)
		}
		return b.Timestamp.Compare(*a.Timestamp) // one that was signed has two: the newer comes first
	})
	found = slices.CompactFunc(found, func(a, b LiveSensor) bool { return a.NodeID == b.NodeID })
	return found, err
}

// Troubled is a sensor with a lasting excursion other than a silence.
type Troubled struct {
	NodeID    string
	Severity  incident.Severity // the worst
	Anomalous bool              // whether one is an anomaly
}

// TroubledSensors returns a customer's troubled sensors by id.
func (s Store) TroubledSensors(ctx context.Context, customerID int64) (map[string]Troubled, error) {
	found, err := store.All[Troubled](ctx, s.db, `
		SELECT node_id, min(severity) AS severity, bool_or(kind = 'anomaly') AS anomalous -- critical before warning
		FROM excursions
		WHERE customer_id = @customer AND lasting AND merged_into IS NULL AND kind <> 'silence'
		GROUP BY node_id`, store.Args{"customer": customerID}, "troubled sensors of customer %d", customerID)
	troubled := make(map[string]Troubled, len(found))
	for _, t := range found {
		troubled[t.NodeID] = t
	}
	return troubled, err
}

// Measured is a temperature of a node at a time.
type Measured struct {
	NodeID      string
	Timestamp   time.Time
	Temperature float64 // °C
}

// FirstReadings returns the first temperature of each node after a time and up to another, of those
// that the customer may see. Nodes without one are absent.
func (s Store) FirstReadings(ctx context.Context, customerID int64, nodes []string, from, until time.Time) ([]Measured, error) {
	return s.measured(ctx, "", customerID, nodes, from, until)
}

// LastReadings is FirstReadings for the last one.
func (s Store) LastReadings(ctx context.Context, customerID int64, nodes []string, from, until time.Time) ([]Measured, error) {
	return s.measured(ctx, " DESC", customerID, nodes, from, until)
}

func (s Store) measured(ctx context.Context, order string, customerID int64, nodes []string, from, until time.Time) ([]Measured, error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	return store.AllPlanned(ctx, s.db, pgx.RowToStructByName[Measured], `
		SELECT w.node_id, f.timestamp, f.temperature
		FROM unnest(@nodes::text[]) AS w (node_id), LATERAL (
		    SELECT r.timestamp, r.temperature
		    FROM visible_spans v
		    JOIN sensor_data.readings r ON r.customer_id = v.channel AND r.node_id = v.node_id
		    WHERE v.customer_id = @customer AND v.node_id = w.node_id AND r.timestamp >= v.visible_from AND r.timestamp < v.visible_until
		      AND r.timestamp > @from AND r.timestamp <= @until AND r.temperature IS NOT NULL
		    ORDER BY r.timestamp`+order+`
		    LIMIT 1) AS f`,
		store.Args{"customer": customerID, "nodes": nodes, "from": from, "until": until},
		"readings of customer %d from %s to %s", customerID, from, until)
}

// LiveVersion returns the version of a customer's overview apart from its readings: a checksum
// of the transaction ids (xmin) of its rows.
func (s Store) LiveVersion(ctx context.Context, customerID int64) (string, error) {
	return store.Value[string](ctx, s.db, store.ErrNoCustomer, `
		SELECT concat_ws(' ',
		    (SELECT concat_ws(' ', count(*), sum(hashint8(xmin::text::bigint))) FROM sensors WHERE customer_id = @customer),
		    (SELECT sum(hashint8(xmin::text::bigint)) FROM server_rooms WHERE customer_id = @customer),
		    (SELECT sum(hashint8(xmin::text::bigint)) FROM rules WHERE customer_id = @customer),
		    (SELECT xmin FROM alert_thresholds WHERE customer_id = @customer),
		    (SELECT sum(hashint8(xmin::text::bigint)) FROM maintenance_windows WHERE customer_id = @customer),
		    (SELECT sum(hashint8(xmin::text::bigint)) FROM excursions WHERE customer_id = @customer AND merged_into IS NULL AND lasting),
		    (SELECT sum(hashint8(xmin::text::bigint)) FROM room_incidents WHERE customer_id = @customer AND merged_into IS NULL AND lasting),
		    (SELECT count(*) FROM room_incidents WHERE customer_id = @customer AND merged_into IS NULL AND NOT lasting AND NOT seen))`,
		store.Args{"customer": customerID}, "live version of customer %d", customerID)
}

// HotSpots are the highest temperatures of a node in those half hours of the last day that
// have a reading.
type HotSpots struct {
	NodeID       string
	HalfHours    []int32 // of the day, from midnight UTC
	Temperatures []float64
}

// HotSpots returns the highest temperatures of a customer's sensors since a time, at
// most a day ago. Nodes select some of them; nil is all.
func (s Store) HotSpots(ctx context.Context, customerID int64, since time.Time, nodes []string) ([]HotSpots, error) {
	return store.All[HotSpots](ctx, s.db, `
		SELECT v.node_id, hot.half_hours, hot.temperatures
		FROM sensors v
		CROSS JOIN LATERAL ( -- by the primary key: sorting all at once takes twice as long
		    SELECT array_agg(half_hour) AS half_hours, array_agg(temperature) AS temperatures
		    FROM ( -- slots are of 10 minutes
		        SELECT n.slot::int / 3 AS half_hour, max(n.max_temperature) AS temperature
		        FROM node_slots n
		        WHERE n.node_id = v.node_id AND n.channel IN (v.customer_id, CASE WHEN v.signed_from IS NULL THEN 0 ELSE v.customer_id END)
		          AND n.max_temperature IS NOT NULL AND n.starts >= @since AND n.last_at <= `+store.NotAhead+`
		        GROUP BY half_hour
		    ) AS of_half_hour
		) AS hot
		WHERE v.customer_id = @customer AND (@nodes::text[] IS NULL OR v.node_id = ANY (@nodes)) AND hot.half_hours IS NOT NULL`,
		store.Args{"customer": customerID, "since": since, "nodes": nodes}, "hot spots of customer %d", customerID)
}

// SilentSensor reports whether one of a customer's sensors is silent, or has never sent a reading.
func (s Store) SilentSensor(ctx context.Context, customerID int64, node string, now time.Time) (bool, error) {
	probe, err := s.Probe(ctx)
	if err != nil {
		return false, err
	}
	live, err := s.liveSensors(ctx, customerID, []string{node}, nil)
	if err != nil || len(live) == 0 || live[0].Timestamp == nil {
		return true, err
	}
	return live[0].Silent(probe, now), nil
}
