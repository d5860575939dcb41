package incidents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

// Judged is a reading to judge: it breaks a limit, has findings, or comes from a node
// whose rules have memory.
type Judged struct {
	reading.Reading

	Window    reading.Window   // the node's readings before it
	GatewayID string           // empty in the open channel
	Arrived   time.Time        // when it was published
	Defaults  alert.Thresholds // limits of customers who never set any
	Again     bool             // it comes from [Store.Unjudged]: ingest has already stored it

	Findings []incident.Finding // of learning, at most one of each kind
	HeldFrom time.Time          // of the open channel: since when whose thresholds and findings these are holds the id
}

func (j Judged) forecast() bool {
	return slices.ContainsFunc(j.Findings, func(f incident.Finding) bool { return f.Kind == incident.KindForecast })
}

// points returns the window's readings and the reading itself. Ages in a window are rounded:
// a point within the rounding of a known reading's time is that reading and gets its time, so
// that none is judged twice.
func (j Judged) points(known ...time.Time) []incident.Point {
	points := incident.Points(j.Reading, j.Window)
	last := len(points) - 1
	for i, p := range points[:last] {
		for _, t := range known {
			if p.Time.Sub(t).Abs() <= reading.AgeError(points[last].Time.Sub(p.Time)) {
				points[i].Time = t
			}
		}
	}
	return slices.DeleteFunc(points, func(p incident.Point) bool { return p.Time.After(points[last].Time) })
}

// errAnotherHold is for a sensor status that an instance has kept while the id changed hands.
var errAnotherHold = errors.New("the id was taken anew: judge by its sensor's present status")

// Judge advances the rules' memory of a node by a reading and stores the resulting
// excursions and incidents. It locks the node's row, so that instances take turns, and shares
// the lock on the customer's rules, so that no rule changes meanwhile. A redelivery changes
// nothing. A reading that no customer may see is ignored. It fails if the id has been taken anew since
// HeldFrom: then the reading is delivered again.
//
// It takes two round trips besides begin and commit: one locks and reads, one writes. Judging
// a rule by the raw readings around the reading, because its memory is settled or has seen a
// newer one, takes another; so does updating incidents.
func (s Store) Judge(ctx context.Context, j Judged) error {
	err := s.db.InTxOn(ctx, func(tx *store.DB) error {
		n, visible, err := lockAndLoad(ctx, tx, j)
		if err != nil || !visible {
			return err
		}
		if !j.HeldFrom.IsZero() && !j.Time.Before(j.HeldFrom) && !store.UTC(n.owner.VisibleFrom).Equal(j.HeldFrom) {
			return errAnotherHold
		}
		return n.advance(ctx, tx, j)
	})
	return store.Wrap(err, "judge reading of %s", j.NodeID)
}

const (
	// settledWithin is how long after an excursion's end its node is judged again. By then
	// ingest has stored the readings around the end.
	settledWithin = 3 * time.Minute
	// maxUnjudged bounds what one call of [Store.Unjudged] returns.
	maxUnjudged = 200
)

// Unjudged returns the newest reading of each node whose rules' memory is older, or whose
// excursion ended within settledWithin. Judging it also covers the readings that an instance
// skipped before it knew of the memory.
func (s Store) Unjudged(ctx context.Context) ([]Judged, error) {
	type row struct {
		reading.Reading

		GatewayID string
	}
	rows, err := store.All[row](ctx, s.db, `
		SELECT n.channel, n.node_id, n.message_id, n.timestamp AS time,
		       CASE WHEN n.temperature_at = n.timestamp THEN n.temperature ELSE 'NaN' END AS temperature,
		       CASE WHEN n.humidity_at = n.timestamp THEN n.humidity ELSE 'NaN' END AS humidity,
		       COALESCE(n.gateway_id, '') AS gateway_id
		FROM (
		    SELECT m.channel, m.node_id FROM rule_memory m WHERE m.rule_id > 0
		    UNION
		    SELECT i.channel, i.node_id FROM excursions i
		    WHERE i.kind = 'threshold' AND i.merged_into IS NULL AND i.resolution = 'cleared' AND i.end_time > now() - @settled::interval
		) AS it
		JOIN node_state n USING (channel, node_id)
		WHERE n.timestamp <= `+store.NotAhead+` AND NOT EXISTS (
		    SELECT FROM rule_memory m WHERE m.channel = n.channel AND m.node_id = n.node_id AND m.rule_id > 0 AND m.last_at >= n.timestamp)
		ORDER BY n.timestamp
		LIMIT @limit`, store.Args{"settled": settledWithin, "limit": maxUnjudged}, "readings that were not judged")
	judged := make([]Judged, len(rows))
	for i, r := range rows {
		r.Time = r.Time.UTC()
		judged[i] = Judged{GatewayID: r.GatewayID, Reading: r.Reading, Again: true}
	}
	return judged, err
}

// nodeRules is the stored state of a node and its rules.
type nodeRules struct {
	owner      nodeOwner
	newest     incident.Point // newest reading that ingest has stored; its time is zero if there is none
	rules      []incident.Rule
	changed    map[int64]time.Time            // by rule: since when it applies to this node unchanged
	memory     map[int64]incident.Memory      // by rule
	excursions map[int64][]incident.Excursion // by rule: those that the reading could change
	rawFrom    time.Time                      // from this time on sensor_data.readings is complete
	notAhead   time.Time                      // see [store.NotAhead]
	roomHolds  bool                           // another node of the room has a forecast that holds
	stored     map[int64]storedRow            // of the excursions, by id
}

// nodeOwner is the customer who may see a reading, with the customer's names for its node.
type nodeOwner struct {
	CustomerID  int64
	SensorName  string // empty: discovered, no sensor yet
	RoomID      int64
	RoomName    string
	VisibleFrom *time.Time // null: from the beginning
	HeldUntil   *time.Time // when the customer's hold of the id ended; null if it has not
	SignedFrom  *time.Time // since when the sensor is signed; null if it is open or always was signed
	PlacedAt    *time.Time // since when the sensor is in its room
}

type memoryRow struct {
	RuleID, Version int64
	LastAt          time.Time
	BreakingSince   *time.Time
	Firing          bool
	Starts          *time.Time
	ClearingSince   *time.Time
	Peak            float64
	PeakAt          *time.Time
}

type storedRow struct {
	Excursion

	KnownExcess float64 // of its incident

	was incident.Excursion
}

// lockAndLoad locks a node and reads the state of its rules. It reports false if no customer
// may see the reading.
func lockAndLoad(ctx context.Context, tx *store.DB, j Judged) (n nodeRules, visible bool, err error) {
	at := reading.TruncateTime(j.Time)
	args := store.Args{
		"channel": int64(j.Channel), "node": j.NodeID, "at": at, "since": at.Add(-incident.Reach), "gateway": j.GatewayID,
		"message": j.MessageID, "temperature": reading.Pointer(j.Temperature), "humidity": reading.Pointer(j.Humidity),
	}
	args["measured_temperature"], args["measured_humidity"] = j.Uncorrected()
	// A node that is not yet a sensor has an owner in a signed channel only.
	const owner = `
		(SELECT s.customer_id, s.name AS sensor_name, s.room_id, r.name AS room_name,
		        CASE WHEN isfinite(v.visible_from) THEN v.visible_from END AS visible_from, CASE WHEN isfinite(v.visible_until) THEN v.visible_until END AS held_until,
		        CASE WHEN isfinite(s.signed_from) THEN s.signed_from END AS signed_from, s.placed_at
		FROM visible_spans v
		JOIN sensors s ON s.customer_id = v.customer_id AND s.node_id = v.node_id
		JOIN server_rooms r ON r.id = s.room_id
		WHERE v.node_id = @node AND v.channel = @channel AND v.visible_from <= @at::timestamptz AND v.visible_until > @at
		ORDER BY v.visible_until DESC
		LIMIT 1)
		UNION ALL
		SELECT DISTINCT c.customer_id, '', 0::bigint, '', NULL::timestamptz, NULL::timestamptz, NULL::timestamptz, NULL::timestamptz
		FROM customer_rules c
		WHERE c.customer_id = @channel AND c.threshold AND NOT EXISTS (SELECT FROM sensors s WHERE s.node_id = @node AND s.customer_id = @channel)
		  AND NOT EXISTS (SELECT FROM sensor_tombstones t WHERE t.node_id = @node AND t.customer_id = @channel)`
	const excursionsOf = `
		SELECT ` + excursionColumns + `, COALESCE((SELECT i.known_excess FROM room_incidents i WHERE i.id = e.incident_id), 0) AS known_excess
		FROM excursions e
		WHERE e.merged_into IS NULL AND (e.lasting OR (e.resolution = 'cleared' AND e.end_time >= @since))`
	var owners []nodeOwner
	var rules []RuleRow
	var memory []memoryRow
	var joined []storedRow
	err = tx.ExecBatch(ctx, func(batch *pgx.Batch) {
		queue := func(sql string, needed ...string) *pgx.QueuedQuery {
			named := store.Args{}
			for _, name := range needed {
				named[name] = args[name]
			}
			return batch.Queue(sql, named)
		}
		if j.Channel != reading.Open { // the first signed reading signs its sensor
			queue(store.SignSensor, "channel", "node", "at", "gateway")
		}
		queue(`SELECT share_rules(customer_id) FROM (`+owner+`) o`, "channel", "node", "at")
		if j.forecast() { // forecasts of a room are one excursion
			queue(`SELECT pg_advisory_xact_lock(hashtextextended('forecasts of room ' || room_id, 0)) FROM (`+owner+`) o`, "channel", "node", "at")
		}
		queue(`INSERT INTO node_state (channel, node_id) VALUES (@channel, @node) ON CONFLICT DO NOTHING`, "channel", "node")
		queue(`
			SELECT COALESCE(CASE WHEN timestamp <= `+store.NotAhead+` THEN timestamp END, TIMESTAMPTZ '0001-01-01 00:00:00+00'),
			       CASE WHEN temperature_at = timestamp THEN temperature ELSE 'NaN' END, CASE WHEN humidity_at = timestamp THEN humidity ELSE 'NaN' END
			FROM node_state
			WHERE channel = @channel AND node_id = @node
			FOR NO KEY UPDATE`, "channel", "node").
			QueryRow(func(row pgx.Row) error {
				return store.Wrap(row.Scan(&n.newest.Time, &n.newest.Temperature, &n.newest.Humidity), "scan")
			})
		// The second writer of raw readings besides ingest: a later judgement may replay this one.
		if !j.Again {
			queue(`
				INSERT INTO sensor_data.readings (
				    node_id, customer_id, timestamp, message_id, temperature, humidity, uncorrected_temperature, uncorrected_humidity)
				SELECT @node::varchar, @channel::bigint, @at::timestamptz, @message, @temperature, @humidity, @measured_temperature, @measured_humidity
				FROM sensor_data.hours_until
				WHERE @at >= COALESCE(until, '-infinity') AND EXISTS (`+owner+`)
				ON CONFLICT DO NOTHING`, "channel", "node", "at", "message", "temperature", "humidity", "measured_temperature", "measured_humidity")
		}
		queue(`SELECT COALESCE(until, TIMESTAMPTZ '0001-01-01 00:00:00+00'), ` + store.NotAhead + ` FROM sensor_data.hours_until`).
			QueryRow(func(row pgx.Row) error { return store.Wrap(row.Scan(&n.rawFrom, &n.notAhead), "scan") })
		queue(owner, "channel", "node", "at").Query(store.Into(&owners))
		queue(selectRules+` JOIN (`+owner+`) o ON o.customer_id = r.customer_id ORDER BY r.id`, "channel", "node", "at").
			Query(store.Into(&rules))
		queue(`
			SELECT rule_id, version, last_at, breaking_since, firing, starts, clearing_since, peak, peak_at
			FROM rule_memory
			WHERE channel = @channel AND node_id = @node AND last_at <= `+store.NotAhead, "channel", "node").Query(store.Into(&memory))
		if !j.forecast() {
			queue(excursionsOf+` AND e.channel = @channel AND e.node_id = @node AND e.kind IN ('threshold', 'anomaly')`, "channel", "node", "since").
				Query(store.Into(&joined))
			return
		}
		queue(excursionsOf+` AND (
		      (e.channel = @channel AND e.node_id = @node AND e.kind IN ('threshold', 'anomaly'))
		      OR (e.kind = 'forecast' AND (e.customer_id, e.room_id) IN (SELECT customer_id, room_id FROM (`+owner+`) o)))`, "channel", "node", "at", "since").
			Query(store.Into(&joined))
		queue(`
			SELECT EXISTS (
			    SELECT FROM (`+owner+`) o
			    JOIN sensors s ON s.customer_id = o.customer_id AND s.room_id = o.room_id AND s.node_id <> @node
			    JOIN rule_memory m ON m.node_id = s.node_id AND m.channel = CASE WHEN s.signed_from IS NULL THEN 0 ELSE s.customer_id END
			        AND m.rule_id = -2 AND m.firing)`, "channel", "node", "at").
			QueryRow(func(row pgx.Row) error { return store.Wrap(row.Scan(&n.roomHolds), "scan") })
	}, "lock node")
	if err != nil {
		return n, false, store.OnDays([]time.Time{at}, err)
	}
	n.newest.Time = n.newest.Time.UTC()
	if len(owners) == 0 {
		return n, false, nil
	}
	n.owner = owners[0]
	n.setRules(rules, j)
	n.setMemory(memory, joined, at)
	return n, true, nil
}

// setRules sets the rules that apply to the node, and since when they have been unchanged.
func (n *nodeRules) setRules(rules []RuleRow, j Judged) {
	n.changed = map[int64]time.Time{}
	for _, r := range rules {
		n.changed[r.ID] = reading.Later(store.UTC(n.owner.PlacedAt), store.UTC(r.ChangedAt))
	}
	sensor := j.NodeID
	if n.owner.SensorName == "" {
		sensor = "" // only an existing sensor has rules of its own
	}
	n.rules = incident.Effective(ConvertRules(rules, j.Defaults), n.owner.RoomID, sensor)
}

// setMemory sets the memory of rules, and the stored excursions that a reading at a time could change.
func (n *nodeRules) setMemory(memory []memoryRow, stored []storedRow, at time.Time) {
	n.memory, n.excursions, n.stored = map[int64]incident.Memory{}, map[int64][]incident.Excursion{}, map[int64]storedRow{}
	for _, m := range memory {
		n.memory[m.RuleID] = incident.Memory{
			Version: m.Version, Last: m.LastAt.UTC(), BreakingSince: store.UTC(m.BreakingSince), Firing: m.Firing,
			Start: store.UTC(m.Starts), ClearingSince: store.UTC(m.ClearingSince), Peak: m.Peak, PeakTime: store.UTC(m.PeakAt),
		}
	}
	for _, e := range stored {
		if !e.Lasting && e.RoomID != 0 && e.RoomID != n.owner.RoomID && !at.Before(store.UTC(n.owner.PlacedAt)) {
			continue // it ended before the sensor was moved here
		}
		e.was = incident.Excursion{
			Stretch: incident.Stretch{Start: e.StartTime.UTC(), End: e.EndTime.UTC(), Lasting: e.Lasting, Peak: e.Peak, PeakTime: e.PeakTime.UTC()},
			ID:      e.ID, Reopened: e.Reopened, Late: e.Late,
		}
		n.stored[e.ID], n.excursions[e.RuleID] = e, append(n.excursions[e.RuleID], e.was)
	}
}

// advance judges the reading by each rule and writes the changes.
func (n nodeRules) advance(ctx context.Context, tx *store.DB, j Judged) error {
	w := writes{nodeRules: n, judged: j, touched: map[int64]span{}}
	for _, rule := range n.rules {
		if err := w.judge(ctx, tx, rule); err != nil {
			return fmt.Errorf("rule %d: %w", rule.ID, err)
		}
	}
	w.endDisplaced()
	for _, f := range j.Findings {
		w.judgeFinding(f)
	}
	if w.batch.Len() == 0 {
		return nil
	}
	rooms := slices.Sorted(maps.Keys(w.touched)) // everybody locks in this order
	err := tx.ExecBatch(ctx, func(batch *pgx.Batch) {
		for _, room := range rooms {
			placeOf(false, room, j.NodeID, "").lock(batch, n.owner.CustomerID)
		}
		batch.QueuedQueries = append(batch.QueuedQueries, w.batch.QueuedQueries...)
	}, "write")
	if err != nil {
		return err
	}
	now := cmp.Or(j.Arrived, j.Time)
	for _, room := range rooms {
		s := w.touched[room]
		if err := updateIncidents(ctx, tx, n.owner.CustomerID, placeOf(false, room, j.NodeID, ""), s.from, s.until, now); err != nil {
			return err
		}
	}
	return nil
}
