package store

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
)

// Judged is a reading that breaks a limit, or of a node whose rules remember
// something, as detection hands it on.
type Judged struct {
	reading.Reading

	Window    reading.Window   // readings of the node before it
	GatewayID string           // empty in the open channel
	Arrived   time.Time        // when it was published
	Defaults  alert.Thresholds // limits of customers who never set any
}

// points are the window and the reading. The ages of a window are rounded, so
// those of its points that lie close to a time that is known already have that time:
// a reading that was judged is not another one when it comes again in a window.
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

// Judge moves the rules' memory of a node by a reading and stores the incidents
// that follow. It holds the node's row, so that instances take turns, and shares
// the lock on the customer's rules, so that no rule changes meanwhile. A second
// delivery changes nothing. A reading that no customer may see is ignored.
//
// Besides the transaction's begin and end it takes two round trips: one locks and
// reads, one writes.
func (s *Store) Judge(ctx context.Context, j Judged) error {
	err := s.pool.inTx(ctx, func(tx pgx.Tx) error {
		n, known, err := lockNode(ctx, tx, j)
		if err != nil || !known {
			return err
		}
		return n.advance(ctx, tx, j)
	})
	if err != nil {
		return fmt.Errorf("judge reading of %s: %w", j.NodeID, err)
	}
	return nil
}

// nodeRules is what is stored of a node and its rules.
type nodeRules struct {
	owner     nodeOwner
	newest    time.Time // of the node's readings that were stored
	rules     []incident.Rule
	memory    map[int64]incident.Memory     // by rule
	incidents map[int64][]incident.Incident // by rule, what a stretch of the reading could join
}

// nodeOwner is who may see a reading, and what they call its node.
type nodeOwner struct {
	CustomerID int64
	SensorName string // empty: discovered, no sensor yet
	RoomID     int64
	RoomName   string
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

type joinedRow struct {
	ID, RuleID         int64
	StartTime, EndTime time.Time
	Lasting            bool
	Peak               float64
	PeakTime           time.Time
	Reopened           int
	Late               bool
	Acknowledged       bool
	AcknowledgedPeak   float64
}

// lockNode locks a node and reads what the rules need. It reports false when nobody
// may see the reading.
func lockNode(ctx context.Context, tx pgx.Tx, j Judged) (n nodeRules, known bool, err error) {
	points := j.points()
	args := pgx.StrictNamedArgs{
		"channel": int64(j.Channel), "node": j.NodeID, "at": reading.TruncateTime(j.Time),
		"since": points[0].Time.Add(-incident.JoinGap),
	}
	// A discovered node has an owner in a signed channel only.
	const owner = `
		SELECT s.customer_id, s.name AS sensor_name, s.room_id, r.name AS room_name
		FROM sensors s
		JOIN server_rooms r ON r.id = s.room_id
		WHERE s.node_id = @node AND CASE WHEN @channel::bigint = 0
		    THEN s.holds_open AND (s.readable_from IS NULL OR s.readable_from <= @at::timestamptz)
		    ELSE s.customer_id = @channel END
		UNION ALL
		SELECT DISTINCT c.customer_id, '', 0::bigint, ''
		FROM customer_rules c
		WHERE c.customer_id = @channel AND c.threshold AND NOT EXISTS (SELECT FROM sensors s WHERE s.node_id = @node AND s.customer_id = @channel)
		  AND NOT EXISTS (SELECT FROM sensor_tombstones t WHERE t.node_id = @node AND t.customer_id = @channel AND NOT t.lapsed)`
	batch := &pgx.Batch{}
	queue := func(sql string, needed ...string) {
		named := pgx.StrictNamedArgs{}
		for _, name := range needed {
			named[name] = args[name]
		}
		batch.Queue(sql, named)
	}
	queue(`SELECT share_rules(customer_id) FROM (`+owner+`) o`, "channel", "node", "at")
	queue(`INSERT INTO node_state (channel, node_id) VALUES (@channel, @node) ON CONFLICT DO NOTHING`, "channel", "node")
	queue(`
		SELECT COALESCE(timestamp, `+zeroTime+`) AS newest
		FROM node_state
		WHERE channel = @channel AND node_id = @node
		FOR NO KEY UPDATE`, "channel", "node")
	queue(owner, "channel", "node", "at")
	queue(`SELECT `+ruleColumns+` FROM customer_rules r JOIN (`+owner+`) o ON o.customer_id = r.customer_id ORDER BY r.id`, "channel", "node", "at")
	queue(`
		SELECT rule_id, version, last_at, breaking_since, firing, starts, clearing_since, peak, peak_at
		FROM rule_memory
		WHERE channel = @channel AND node_id = @node`, "channel", "node")
	queue(`
		SELECT id, rule_id, start_time, end_time, lasting, peak, peak_time, reopened, late,
		       acknowledged_at IS NOT NULL AS acknowledged, COALESCE(acknowledged_peak, 0) AS acknowledged_peak
		FROM incidents
		WHERE channel = @channel AND node_id = @node AND kind = 'threshold' AND merged_into IS NULL
		  AND (lasting OR resolution = 'cleared') AND (lasting OR end_time >= @since)`, "channel", "node", "since")
	results := tx.SendBatch(ctx, batch)
	defer func() {
		if closeErr := results.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("lock node: %w", closeErr)
		}
	}()
	for range 2 {
		if _, err := results.Exec(); err != nil {
			return n, false, fmt.Errorf("lock node: %w", err)
		}
	}
	if err := results.QueryRow().Scan(&n.newest); err != nil {
		return n, false, fmt.Errorf("lock node: %w", err)
	}
	owners, err := nextRows[nodeOwner](results)
	if err != nil {
		return n, false, fmt.Errorf("owner: %w", err)
	}
	rules, err := nextRows[ruleRow](results)
	if err != nil {
		return n, false, fmt.Errorf("rules: %w", err)
	}
	memory, err := nextRows[memoryRow](results)
	if err != nil {
		return n, false, fmt.Errorf("memory: %w", err)
	}
	joined, err := nextRows[joinedRow](results)
	if err != nil {
		return n, false, fmt.Errorf("incidents: %w", err)
	}
	if len(owners) == 0 {
		return n, false, nil
	}
	n.owner, n.memory, n.incidents = owners[0], map[int64]incident.Memory{}, map[int64][]incident.Incident{}
	sensor := j.NodeID
	if n.owner.SensorName == "" {
		sensor = "" // rules of a sensor are of one that exists
	}
	n.rules = incident.Effective(convertRules(rules, j.Defaults), n.owner.RoomID, sensor)
	for _, m := range memory {
		n.memory[m.RuleID] = incident.Memory{
			Version: m.Version, Last: m.LastAt.UTC(), BreakingSince: utc(m.BreakingSince), Firing: m.Firing,
			Start: utc(m.Starts), ClearingSince: utc(m.ClearingSince), Peak: m.Peak, PeakTime: utc(m.PeakAt),
		}
	}
	for _, i := range joined {
		n.incidents[i.RuleID] = append(n.incidents[i.RuleID], incident.Incident{
			ID: i.ID, Start: i.StartTime.UTC(), End: i.EndTime.UTC(), Lasting: i.Lasting, Peak: i.Peak, PeakTime: i.PeakTime.UTC(),
			Reopened: i.Reopened, Late: i.Late, Acknowledged: i.Acknowledged, AcknowledgedPeak: i.AcknowledgedPeak,
		})
	}
	return n, true, nil
}

// nextRows gathers the rows of the next query of a batch.
func nextRows[T any](results pgx.BatchResults) ([]T, error) {
	rows, err := results.Query()
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[T])
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	return found, nil
}

func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// advance judges the reading by each rule and writes what changed.
func (n nodeRules) advance(ctx context.Context, tx pgx.Tx, j Judged) error {
	batch := &pgx.Batch{}
	for _, rule := range n.rules {
		before := n.memory[rule.ID]
		if before.Version != rule.Version {
			before = incident.Memory{}
		}
		known := []time.Time{before.Last, before.BreakingSince, before.ClearingSince, before.PeakTime}
		for _, i := range n.incidents[rule.ID] {
			known = append(known, i.Start, i.End, i.PeakTime)
		}
		points := j.points(known...)
		// Memory that has settled is not kept, but then newer readings are known.
		at := points[len(points)-1].Time
		past := !at.After(before.Last) || (before.Settled() && at.Before(n.newest))
		var stretches []incident.Stretch
		if past {
			stretches = rule.Past(points)
		} else {
			var after incident.Memory
			if after, stretches = rule.Advance(before, points); !after.Settled() || !before.Settled() {
				keepMemory(batch, j, rule.ID, after)
			}
		}
		n.keepIncidents(batch, j, rule, stretches, past)
	}
	if batch.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// keepMemory writes what a rule remembers, and removes it once the next reading can
// be judged without it: detection asks whether there is any.
func keepMemory(batch *pgx.Batch, j Judged, rule int64, m incident.Memory) {
	key := pgx.StrictNamedArgs{"channel": int64(j.Channel), "node": j.NodeID, "rule": rule}
	if m.Settled() {
		batch.Queue(`DELETE FROM rule_memory WHERE channel = @channel AND node_id = @node AND rule_id = @rule`, key)
		return
	}
	maps.Copy(key, pgx.StrictNamedArgs{
		"version": m.Version, "last": m.Last, "breaking": instantOrNull(m.BreakingSince), "firing": m.Firing,
		"start": instantOrNull(m.Start), "clearing": instantOrNull(m.ClearingSince), "peak": m.Peak, "peak_at": instantOrNull(m.PeakTime),
	})
	batch.Queue(`
		INSERT INTO rule_memory (channel, node_id, rule_id, version, last_at, breaking_since, firing, starts, clearing_since, peak, peak_at)
		VALUES (@channel, @node, @rule, @version, @last, @breaking, @firing, @start, @clearing, @peak, @peak_at)
		ON CONFLICT (channel, node_id, rule_id) DO UPDATE
		SET version = EXCLUDED.version, last_at = EXCLUDED.last_at, breaking_since = EXCLUDED.breaking_since, firing = EXCLUDED.firing,
		    starts = EXCLUDED.starts, clearing_since = EXCLUDED.clearing_since, peak = EXCLUDED.peak, peak_at = EXCLUDED.peak_at`, key)
}

// keepIncidents joins the stretches of a rule to its incidents and writes those
// that changed. past says that newer readings have been judged.
func (n nodeRules) keepIncidents(batch *pgx.Batch, j Judged, rule incident.Rule, stretches []incident.Stretch, past bool) {
	stored := map[int64]incident.Incident{}
	for _, i := range n.incidents[rule.ID] {
		stored[i.ID] = i
	}
	current := slices.Clone(n.incidents[rule.ID])
	var merged []int64
	for k, stretch := range stretches {
		if past {
			stretch.Lasting = false
		}
		late := !stretch.Lasting && j.Arrived.Sub(stretch.End) >= incident.JoinGap
		joined, absorbed := rule.Join(current, stretch, late)
		if joined.ID == 0 {
			joined.ID = newIncident + int64(k) // greater than stored ids: whatever it joins, it is the younger
		}
		current = append(slices.DeleteFunc(current, func(i incident.Incident) bool { return slices.Contains(absorbed, i) }), joined)
		for _, i := range absorbed {
			if i.ID != joined.ID && i.ID < newIncident {
				batch.Queue(`UPDATE incidents SET lasting = false, merged_into = @into WHERE id = @id`,
					pgx.StrictNamedArgs{"id": i.ID, "into": joined.ID})
				merged = append(merged, joined.ID)
			}
		}
	}
	for _, i := range current {
		before, isStored := stored[i.ID]
		switch {
		case !isStored:
			n.insertIncident(batch, j, rule, i)
		case before != i:
			updateIncident(batch, j, before, i, slices.Contains(merged, i.ID))
		}
	}
}

// newIncident is above every id of the database: that of an incident to be stored.
const newIncident = math.MaxInt64 / 2

func incidentArgs(i incident.Incident) pgx.StrictNamedArgs {
	resolution := "cleared"
	if i.Lasting {
		resolution = ""
	}
	return pgx.StrictNamedArgs{
		"start": i.Start, "end": i.End, "lasting": i.Lasting, "resolution": resolution, "peak": i.Peak, "peak_time": i.PeakTime,
		"reopened": i.Reopened, "late": i.Late,
	}
}

func (n nodeRules) insertIncident(batch *pgx.Batch, j Judged, rule incident.Rule, i incident.Incident) {
	args := incidentArgs(i)
	maps.Copy(args, pgx.StrictNamedArgs{
		"customer": n.owner.CustomerID, "channel": int64(j.Channel), "node": j.NodeID, "sensor": n.owner.SensorName,
		"room": n.owner.RoomID, "room_name": n.owner.RoomName, "gateway": j.GatewayID, "rule": rule.ID, "specified": rule.Threshold,
		"quantity": string(rule.Quantity), "direction": string(rule.Direction), "limit": rule.Limit, "severity": string(rule.Severity),
	})
	batch.Queue(`
		WITH i AS (
		    INSERT INTO incidents
		        (customer_id, kind, channel, node_id, sensor_name, room_id, room_name, gateway_id, rule_id, specified, quantity, direction,
		         limit_value, severity, start_time, end_time, lasting, resolution, peak, peak_time, reopened, late)
		    VALUES
		        (@customer, 'threshold', @channel, @node, @sensor, NULLIF(@room::bigint, 0), @room_name, @gateway, @rule, @specified, @quantity,
		         @direction, @limit, @severity, @start, @end, @lasting, @resolution, @peak, @peak_time, @reopened, @late)
		    RETURNING id, start_time, end_time, lasting
		)
		INSERT INTO incident_events (incident_id, at, event)
		SELECT id, start_time, 'opened' FROM i
		UNION ALL
		SELECT id, end_time, 'cleared' FROM i WHERE NOT lasting`, args)
}

func updateIncident(batch *pgx.Batch, j Judged, before, i incident.Incident, merged bool) {
	args := incidentArgs(i)
	args["id"], args["acknowledged"] = i.ID, i.Acknowledged
	batch.Queue(`
		UPDATE incidents
		SET start_time = @start, end_time = @end, lasting = @lasting, resolution = @resolution, peak = @peak, peak_time = @peak_time,
		    reopened = @reopened, late = @late,
		    acknowledged_at = CASE WHEN @acknowledged THEN acknowledged_at END,
		    acknowledged_peak = CASE WHEN @acknowledged THEN acknowledged_peak END
		WHERE id = @id`, args)
	event := func(name string, at time.Time) {
		batch.Queue(`
			INSERT INTO incident_events (incident_id, at, event)
			VALUES (@id, @at, @event)
			ON CONFLICT DO NOTHING`,
			pgx.StrictNamedArgs{"id": i.ID, "at": at, "event": name})
	}
	if merged {
		event("merged", j.Arrived)
	}
	if i.Reopened > before.Reopened && !merged {
		event("reopened", j.Time)
	}
	if !i.Lasting && !merged && (before.Lasting || i.End.After(before.End)) {
		event("cleared", i.End)
	}
	if before.Acknowledged && !i.Acknowledged {
		event("unacknowledged", j.Arrived)
	}
}
