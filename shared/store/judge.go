package store

import (
	"context"
	"fmt"
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

	Findings []incident.Finding // of learning, one of a kind
	// Versions are those of the rules that detection knew, by id; nil for all. A rule
	// that has been made or changed since is not judged: the next reading has this one
	// in its window.
	Versions map[int64]int64
}

func (j Judged) forecast() bool {
	return slices.ContainsFunc(j.Findings, func(f incident.Finding) bool { return f.Kind == incident.KindForecast })
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
	return wrap(err, "judge reading of %s", j.NodeID)
}

// nodeRules is what is stored of a node and its rules.
type nodeRules struct {
	owner     nodeOwner
	newest    time.Time // of the node's readings that were stored
	rules     []incident.Rule
	changed   map[int64]time.Time           // by rule, since when it judges this node as it is
	memory    map[int64]incident.Memory     // by rule
	incidents map[int64][]incident.Incident // by rule, what a stretch of the reading could join
	roomHolds bool                          // a forecast of another node of the room holds
}

// nodeOwner is who may see a reading, and what they call its node.
type nodeOwner struct {
	CustomerID  int64
	SensorName  string // empty: discovered, no sensor yet
	RoomID      int64
	RoomName    string
	VisibleFrom *time.Time // null: from the beginning
	Former      bool       // they held the id, and hold it no longer
	PlacedAt    *time.Time // when the sensor came into its room
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
	gap := incident.JoinGap
	if len(j.Findings) > 0 {
		gap = incident.FindingGap
	}
	args := pgx.StrictNamedArgs{
		"channel": int64(j.Channel), "node": j.NodeID, "at": reading.TruncateTime(j.Time),
		"since": points[0].Time.Add(-gap),
	}
	// A discovered node has an owner in a signed channel only.
	const owner = `
		(SELECT s.customer_id, s.name AS sensor_name, s.room_id, r.name AS room_name,
		        CASE WHEN isfinite(v.visible_from) THEN v.visible_from END AS visible_from, v.visible_until < 'infinity' AS former, s.placed_at
		FROM visible_spans v
		JOIN sensors s ON s.customer_id = v.customer_id AND s.node_id = v.node_id
		JOIN server_rooms r ON r.id = s.room_id
		WHERE v.node_id = @node AND v.channel = @channel AND v.visible_from <= @at::timestamptz AND v.visible_until > @at
		ORDER BY v.visible_until DESC
		LIMIT 1)
		UNION ALL
		SELECT DISTINCT c.customer_id, '', 0::bigint, '', NULL::timestamptz, false, NULL::timestamptz
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
	const incidentsOf = `
		SELECT id, rule_id, start_time, end_time, lasting, peak, peak_time, reopened, late,
		       acknowledged_at IS NOT NULL AS acknowledged, COALESCE(acknowledged_peak, 0) AS acknowledged_peak
		FROM incidents i
		WHERE merged_into IS NULL AND (lasting OR (resolution = 'cleared' AND end_time >= @since))`
	queue(`SELECT share_rules(customer_id) FROM (`+owner+`) o`, "channel", "node", "at")
	if j.forecast() { // forecasts of a room are one incident
		queue(`SELECT pg_advisory_xact_lock(hashtextextended('forecasts of room ' || room_id, 0)) FROM (`+owner+`) o`, "channel", "node", "at")
	} else {
		queue(`SELECT`)
	}
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
	if j.forecast() {
		queue(incidentsOf+` AND (
		      (channel = @channel AND node_id = @node AND kind IN ('threshold', 'anomaly'))
		      OR (kind = 'forecast' AND (customer_id, room_id) IN (SELECT customer_id, room_id FROM (`+owner+`) o)))`, "channel", "node", "at", "since")
		queue(`
		SELECT EXISTS (
		    SELECT FROM (`+owner+`) o
		    JOIN sensors s ON s.customer_id = o.customer_id AND s.room_id = o.room_id AND s.node_id <> @node
		    JOIN rule_memory m ON m.node_id = s.node_id AND m.channel IN (0, s.customer_id) AND m.rule_id = -2 AND m.firing)`, "channel", "node", "at")
	} else {
		queue(incidentsOf+` AND channel = @channel AND node_id = @node AND kind IN ('threshold', 'anomaly')`, "channel", "node", "since")
		queue(`SELECT false`)
	}
	results := tx.SendBatch(ctx, batch)
	defer func() {
		if closeErr := results.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("lock node: %w", closeErr)
		}
	}()
	for range 3 {
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
	if err := results.QueryRow().Scan(&n.roomHolds); err != nil {
		return n, false, fmt.Errorf("forecasts of the room: %w", err)
	}
	if len(owners) == 0 {
		return n, false, nil
	}
	n.owner, n.memory, n.incidents = owners[0], map[int64]incident.Memory{}, map[int64][]incident.Incident{}
	n.changed = map[int64]time.Time{}
	for _, r := range rules {
		if n.changed[r.ID] = utc(n.owner.PlacedAt); r.ChangedAt != nil && r.ChangedAt.After(n.changed[r.ID]) {
			n.changed[r.ID] = r.ChangedAt.UTC()
		}
	}
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
	return found, wrap(err, "query")
}

func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// advance judges the reading by each rule and writes what changed.
func (n nodeRules) advance(ctx context.Context, tx pgx.Tx, j Judged) error {
	w := writes{nodeRules: n, judged: j}
	for _, rule := range n.rules {
		if j.Versions == nil || j.Versions[rule.ID] == rule.Version {
			w.judge(rule)
		}
	}
	for _, f := range j.Findings {
		w.find(f)
	}
	if w.batch.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, &w.batch).Close(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
