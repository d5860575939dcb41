package store

import (
	"cmp"
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

// writes gathers what a reading changes.
type writes struct {
	nodeRules

	judged Judged
	batch  pgx.Batch
}

// past reports whether newer readings than one have been judged. Memory that has
// settled is not kept, but then newer readings are known; who has lost the id is
// told of the past only.
func (n nodeRules) past(before incident.Memory, at time.Time) bool {
	return n.owner.Former || !at.After(before.Last) || (before.Settled() && at.Before(n.newest))
}

// judge judges the reading by a rule.
func (w *writes) judge(rule incident.Rule) {
	before := w.memory[rule.ID]
	if before.Version != rule.Version {
		before = incident.Memory{}
	}
	known := []time.Time{before.Last, before.BreakingSince, before.ClearingSince, before.PeakTime}
	for _, i := range w.incidents[rule.ID] {
		known = append(known, i.Start, i.End, i.PeakTime)
	}
	points := w.judged.points(known...)
	if from := w.owner.VisibleFrom; from != nil { // before it, the node was another customer's
		points = slices.DeleteFunc(points, func(p incident.Point) bool { return p.Time.Before(*from) })
	}
	at := points[len(points)-1].Time
	if w.past(before, at) {
		w.keepIncidents(rule, rule.Past(points), nil)
		return
	}
	// What came before the rule was changed has been judged as it was then. A reading
	// that is older itself is late, and judged by the rules of today.
	if changed := w.changed[rule.ID]; before.Last.Before(changed) && !at.Before(changed) {
		before.Last = changed.Add(-time.Microsecond)
	}
	after, stretches := rule.Advance(before, points)
	if !after.Settled() || !before.Settled() {
		w.keepMemory(rule.ID, after)
	}
	w.keepIncidents(rule, stretches, nil)
}

// find does the same with what learning has found.
func (w *writes) find(f incident.Finding) {
	rule, at := f.Rule(), reading.TruncateTime(w.judged.Time)
	before := w.memory[rule.ID]
	if w.past(before, at) {
		w.keepIncidents(rule, f.Past(at), &f)
		return
	}
	after, stretches := f.Advance(before, at)
	if !after.Settled() || !before.Settled() {
		w.keepMemory(rule.ID, after)
	}
	for i := range stretches { // the last node of the room ends its forecast
		stretches[i].Lasting = stretches[i].Lasting || (f.Kind == incident.KindForecast && w.roomHolds)
	}
	w.keepIncidents(rule, stretches, &f)
}

// keepMemory writes what a rule remembers, and removes it once the next reading can
// be judged without it: detection asks whether there is any.
func (w *writes) keepMemory(rule int64, m incident.Memory) {
	key := pgx.StrictNamedArgs{"channel": int64(w.judged.Channel), "node": w.judged.NodeID, "rule": rule}
	if m.Settled() {
		w.batch.Queue(`DELETE FROM rule_memory WHERE channel = @channel AND node_id = @node AND rule_id = @rule`, key)
		return
	}
	maps.Copy(key, pgx.StrictNamedArgs{
		"version": m.Version, "last": m.Last, "breaking": instantOrNull(m.BreakingSince), "firing": m.Firing,
		"start": instantOrNull(m.Start), "clearing": instantOrNull(m.ClearingSince), "peak": m.Peak, "peak_at": instantOrNull(m.PeakTime),
	})
	w.batch.Queue(`
		INSERT INTO rule_memory (channel, node_id, rule_id, version, last_at, breaking_since, firing, starts, clearing_since, peak, peak_at)
		VALUES (@channel, @node, @rule, @version, @last, @breaking, @firing, @start, @clearing, @peak, @peak_at)
		ON CONFLICT (channel, node_id, rule_id) DO UPDATE
		SET version = EXCLUDED.version, last_at = EXCLUDED.last_at, breaking_since = EXCLUDED.breaking_since, firing = EXCLUDED.firing,
		    starts = EXCLUDED.starts, clearing_since = EXCLUDED.clearing_since, peak = EXCLUDED.peak, peak_at = EXCLUDED.peak_at`, key)
}

// newIncident is above every id of the database: that of an incident to be stored.
const newIncident = math.MaxInt64 / 2

// keepIncidents joins the stretches of a rule to its incidents and writes those
// that changed. Those of findings have the finding.
func (w *writes) keepIncidents(rule incident.Rule, stretches []incident.Stretch, f *incident.Finding) {
	stored := map[int64]incident.Incident{}
	for _, i := range w.incidents[rule.ID] {
		stored[i.ID] = i
	}
	current := slices.Clone(w.incidents[rule.ID])
	timelines := map[int64]*timeline{}
	for k, stretch := range stretches {
		late := w.judged.Arrived.Sub(stretch.End) >= incident.JoinGap
		joined, parts := rule.Join(current, stretch, late)
		if joined.ID == 0 {
			joined.ID = newIncident + int64(k) // greater than stored ids: whatever it joins, it is the younger
		}
		if timelines[joined.ID] == nil {
			timelines[joined.ID] = &timeline{}
		}
		timelines[joined.ID].join(parts, joined, stretch, w.judged.Arrived)
		current = append(slices.DeleteFunc(current, func(i incident.Incident) bool { return slices.Contains(parts, i) }), joined)
		for _, i := range parts {
			if i.ID != joined.ID && i.ID < newIncident {
				w.batch.Queue(`UPDATE incidents SET lasting = false, merged_into = @into WHERE id = @id`,
					pgx.StrictNamedArgs{"id": i.ID, "into": joined.ID})
			}
		}
	}
	for _, i := range current {
		before, isStored := stored[i.ID]
		if isStored && before == i {
			continue
		}
		kept := f
		if f != nil && isStored && !shows(*f, before, i, reading.TruncateTime(w.judged.Time)) {
			kept = nil
		}
		if isStored {
			w.updateIncident(i, kept)
			w.tell(i.ID, *timelines[i.ID])
		} else {
			w.insertIncident(rule, i, kept, timelines[i.ID].told)
		}
		switch {
		case !isStored:
			w.regroup(rule, i, nil)
		case before.Late && !i.Late: // it lasts, and is of its room from now on
			w.batch.Queue(`DELETE FROM incident_groups WHERE incident_id = @id`, pgx.StrictNamedArgs{"id": i.ID})
			w.regroup(rule, i, nil)
		case i.Start.Before(before.Start), !before.Lasting && (i.Lasting || i.End.After(before.End)):
			w.regroup(rule, i, &before)
		}
	}
}

// shows reports whether an incident shows a finding from now on: the worst of an
// anomaly, the newest of a forecast.
func shows(f incident.Finding, before, i incident.Incident, at time.Time) bool {
	if f.Kind == incident.KindForecast {
		return f.Holds && !at.Before(before.End)
	}
	return f.Holds && i.PeakTime.Equal(at)
}

// event is what readings have done to an incident.
type event struct {
	name string
	at   time.Time
}

// timeline is what a reading changes in the timeline of an incident.
type timeline struct {
	told  []event
	taken []event // told before, and not so
}

func (t *timeline) tell(name string, at time.Time) { t.told = append(t.told, event{name, at}) }

func (t *timeline) take(name string, at time.Time) {
	gone := event{name, at}
	t.told = slices.DeleteFunc(t.told, func(e event) bool { return e == gone })
	t.taken = append(t.taken, gone)
}

// join tells what a stretch has done to the incident that its parts became.
func (t *timeline) join(parts []incident.Incident, joined incident.Incident, s incident.Stretch, arrived time.Time) {
	if len(parts) == 0 {
		t.tell("opened", joined.Start)
		if !joined.Lasting {
			t.tell("cleared", joined.End)
		}
		return
	}
	before := parts[slices.IndexFunc(parts, func(i incident.Incident) bool { return i.ID == joined.ID })]
	if joined.Start.Before(before.Start) {
		t.take("opened", before.Start)
		t.tell("opened", joined.Start)
	}
	switch {
	case len(parts) > 1:
		t.tell("merged", arrived)
	case joined.Reopened > before.Reopened:
		t.tell("reopened", s.Start)
	case !before.Lasting && joined.End.After(before.End):
		t.take("cleared", before.End)
	}
	if len(parts) == 1 && !joined.Lasting && (before.Lasting || joined.End.After(before.End)) {
		t.tell("cleared", joined.End)
	}
	if before.Acknowledged && !joined.Acknowledged {
		t.tell("unacknowledged", arrived)
	}
}

func events(all []event) (names []string, times []time.Time) {
	for _, e := range all {
		names, times = append(names, e.name), append(times, e.at)
	}
	return names, times
}

// tell writes what has changed in the timeline of a stored incident.
func (w *writes) tell(id int64, t timeline) {
	if len(t.taken) > 0 {
		names, times := events(t.taken)
		w.batch.Queue(`
			DELETE FROM incident_events
			WHERE incident_id = @id AND (event, at) IN (SELECT * FROM unnest(@names::text[], @times::timestamptz[]))`,
			pgx.StrictNamedArgs{"id": id, "names": names, "times": times})
	}
	if len(t.told) > 0 {
		names, times := events(t.told)
		w.batch.Queue(`
			INSERT INTO incident_events (incident_id, at, event)
			SELECT @id, at, event
			FROM unnest(@names::text[], @times::timestamptz[]) AS e (event, at)
			ON CONFLICT DO NOTHING`,
			pgx.StrictNamedArgs{"id": id, "names": names, "times": times})
	}
}

func (w *writes) incidentArgs(i incident.Incident, f *incident.Finding) pgx.StrictNamedArgs {
	resolution := "cleared"
	if i.Lasting {
		resolution = ""
	}
	args := pgx.StrictNamedArgs{
		"start": i.Start, "end": i.End, "lasting": i.Lasting, "resolution": resolution, "peak": i.Peak, "peak_time": i.PeakTime,
		"reopened": i.Reopened, "late": i.Late, "finding": nil, "severity": nil, "quantity": nil, "limit": nil,
	}
	if f != nil {
		args["finding"], args["severity"], args["quantity"], args["limit"] = newFinding(*f, w.judged.Time), string(f.Severity), string(f.Quantity), f.Limit
	}
	return args
}

func (w *writes) insertIncident(rule incident.Rule, i incident.Incident, f *incident.Finding, told []event) {
	args := w.incidentArgs(i, f)
	if f == nil {
		args["severity"], args["quantity"], args["limit"] = string(rule.Severity), string(rule.Quantity), rule.Limit
	}
	names, times := events(told)
	maps.Copy(args, pgx.StrictNamedArgs{
		"customer": w.owner.CustomerID, "kind": string(cmp.Or(rule.Kind, incident.KindThreshold)), "channel": int64(w.judged.Channel),
		"node": w.judged.NodeID, "sensor": w.owner.SensorName, "room": w.owner.RoomID, "room_name": w.owner.RoomName,
		"gateway": w.judged.GatewayID, "rule": rule.ID, "specified": rule.Threshold, "direction": string(rule.Direction),
		"names": names, "times": times,
		"message": w.judged.MessageID, "at": reading.TruncateTime(w.judged.Time), "temperature": w.judged.Temperature, "humidity": w.judged.Humidity,
		"visible_from": w.owner.VisibleFrom, "every": OpenAnomalyEvery,
	})
	w.batch.Queue(`
		WITH i AS (
		    INSERT INTO incidents
		        (customer_id, kind, channel, node_id, sensor_name, room_id, room_name, gateway_id, rule_id, specified, quantity, direction,
		         limit_value, severity, start_time, end_time, lasting, resolution, peak, peak_time, reopened, late, finding)
		    VALUES
		        (@customer, @kind, @channel, @node, @sensor, NULLIF(@room::bigint, 0), @room_name, @gateway, @rule, @specified, @quantity,
		         @direction, @limit, @severity, @start, @end, @lasting, @resolution, @peak, @peak_time, @reopened, @late, @finding)
		    RETURNING id
		), asked AS ( -- what the forest found of it shortly before or after is the same question
		    SELECT p.id
		    FROM prediction_feedback p
		    WHERE @kind = 'anomaly' AND p.channel = @channel AND p.sensor_id = @node AND p.anomaly_predicted AND p.feedback IS NULL
		      AND p.incident_id IS NULL AND p.message_id <> '' AND p.timestamp >= COALESCE(@visible_from::timestamptz, '-infinity')
		      AND p.timestamp > @at::timestamptz - @every::interval AND p.timestamp < @at::timestamptz + @every::interval
		    ORDER BY abs(extract(epoch FROM p.timestamp - @at::timestamptz)), p.id
		    LIMIT 1
		), joined AS (
		    UPDATE prediction_feedback p SET incident_id = i.id FROM i, asked WHERE p.id = asked.id
		), predicted AS ( -- each anomaly is one prediction, for people to judge
		    INSERT INTO prediction_feedback (channel, sensor_id, timestamp, message_id, actual_temp, actual_humidity, anomaly_predicted, incident_id)
		    SELECT @channel, @node, @at::timestamptz, @message, @temperature::float8, @humidity::float8, true, id
		    FROM i
		    WHERE @kind = 'anomaly' AND NOT EXISTS (SELECT FROM asked)
		    ON CONFLICT ON CONSTRAINT prediction_feedback_reading_key DO UPDATE SET incident_id = EXCLUDED.incident_id, anomaly_predicted = true
		)
		INSERT INTO incident_events (incident_id, at, event)
		SELECT i.id, e.at, e.event FROM i, unnest(@names::text[], @times::timestamptz[]) AS e (event, at)`, args)
}

func (w *writes) updateIncident(i incident.Incident, f *incident.Finding) {
	args := w.incidentArgs(i, f)
	args["id"], args["acknowledged"] = i.ID, i.Acknowledged
	w.batch.Queue(`
		UPDATE incidents
		SET start_time = @start, end_time = @end, lasting = @lasting, resolution = @resolution, peak = @peak, peak_time = @peak_time,
		    reopened = @reopened, late = @late,
		    finding = COALESCE(@finding, finding), severity = COALESCE(@severity, severity), quantity = COALESCE(@quantity, quantity),
		    limit_value = COALESCE(@limit, limit_value),
		    acknowledged_at = CASE WHEN @acknowledged THEN acknowledged_at END,
		    acknowledged_peak = CASE WHEN @acknowledged THEN acknowledged_peak END
		WHERE id = @id`, args)
}

// regroup puts an incident, and those of its room and kind that overlap with what it
// covers more than before, into one group. Those that were late are of their gateway's
// outage, whatever their rooms. Two nodes take turns, but for the many readings of a
// backlog that make a late incident longer: of these only who finds another group.
func (w *writes) regroup(rule incident.Rule, i incident.Incident, before *incident.Incident) {
	args := pgx.StrictNamedArgs{
		"id": i.ID, "customer": w.owner.CustomerID,
		"channel": int64(w.judged.Channel), "node": w.judged.NodeID, "rule": rule.ID, "start": i.Start, // of a new one
	}
	overlap := `(it.lasting OR i.start_time <= it.end_time) AND (i.lasting OR i.end_time >= it.start_time)`
	if i.ID >= newIncident {
		args["id"] = 0
	}
	if before != nil {
		overlap = `((i.start_time > @old_end AND (it.lasting OR i.start_time <= it.end_time)) OR (i.end_time < @old_start AND i.end_time >= it.start_time))`
		args["old_start"], args["old_end"] = before.Start, before.End
	}
	args["backlog"] = before != nil && i.Late
	near := `
		WITH it AS (
		    SELECT i.*, COALESCE(g.group_id, i.id) AS group_id
		    FROM incidents i
		    LEFT JOIN incident_groups g ON g.incident_id = i.id
		    WHERE i.id = COALESCE(NULLIF(@id::bigint, 0), (
		        SELECT max(n.id) FROM incidents n
		        WHERE n.channel = @channel AND n.node_id = @node AND n.rule_id = @rule AND n.start_time = @start AND n.merged_into IS NULL))
		), near AS (
		    SELECT COALESCE(g.group_id, i.id) AS id
		    FROM it
		    JOIN incidents i ON i.customer_id = it.customer_id AND i.kind = it.kind AND i.merged_into IS NULL AND i.late = it.late
		        AND CASE WHEN it.gateway_id <> '' AND (it.late OR it.room_id IS NULL) THEN i.gateway_id = it.gateway_id
		            ELSE i.room_id IS NOT DISTINCT FROM it.room_id END
		        AND ` + overlap + `
		    LEFT JOIN incident_groups g ON g.incident_id = i.id
		    WHERE i.id <> it.id AND COALESCE(g.group_id, i.id) <> it.group_id
		)`
	w.batch.Queue(near+`
		SELECT pg_advisory_xact_lock(hashtextextended('groups of customer ' || @customer::bigint, 0))
		WHERE NOT @backlog::boolean OR EXISTS (SELECT FROM near)`, args)
	args = maps.Clone(args)
	delete(args, "customer")
	delete(args, "backlog")
	w.batch.Queue(near+`, whole AS (
		    SELECT id FROM near
		    UNION
		    SELECT group_id FROM it
		)
		INSERT INTO incident_groups (incident_id, group_id)
		SELECT i.id, (SELECT min(id) FROM whole)
		FROM (SELECT incident_id AS id FROM incident_groups WHERE group_id IN (SELECT id FROM whole)
		      UNION SELECT id FROM whole UNION SELECT id FROM it) i
		WHERE EXISTS (SELECT FROM near)
		ON CONFLICT (incident_id) DO UPDATE SET group_id = EXCLUDED.group_id
		WHERE incident_groups.group_id <> EXCLUDED.group_id`, args)
}
