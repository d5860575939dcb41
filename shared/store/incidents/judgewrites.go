package incidents

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

// writes collects the changes that a reading causes.
type writes struct {
	nodeRules

	judged  Judged
	batch   pgx.Batch
	touched map[int64]span // by room: the time of the excursions that may change its incidents
}

// touch records that excursions may change the incidents of a room: a stored one those of its
// own room, a new one those of the node's.
func (w *writes) touch(excursions ...incident.Excursion) {
	for _, e := range excursions {
		if e.Start.IsZero() { // there was none before
			continue
		}
		room := w.owner.RoomID
		if stored := w.stored[e.ID]; stored.RoomID != 0 {
			room = stored.RoomID
		}
		s, known := w.touched[room]
		if !known || e.Start.Before(s.from) {
			s.from = e.Start
		}
		if e.End.After(s.until) {
			s.until = e.End
		}
		w.touched[room] = s
	}
}

// changesIncident reports whether a change of an excursion may change its incident: by its
// extent, by a peak at which the incident calls again, or by a finding of another severity that
// it now shows.
func (w *writes) changesIncident(rule incident.Rule, before, e incident.Excursion, f *incident.Finding) bool {
	stored := w.stored[e.ID]
	return e.Lasting != before.Lasting || !e.Start.Equal(before.Start) || (!e.Lasting && !e.End.Equal(before.End)) || e.Late != before.Late ||
		(stored.RoomID == 0 && w.owner.RoomID != 0) || // its node has been put into a room
		(rule.ID > 0 && e.Peak != before.Peak && incident.Excess(rule.Quantity, rule.Direction, rule.Limit, e.Peak) >= stored.KnownExcess+1) ||
		(f != nil && f.Severity != stored.Severity)
}

// A reading from up to inTransit before its rule changed is not judged. Nor is an older one that
// [Store.Unjudged] returned. The old rule is gone, and the new one would reopen an excursion that the
// change has resolved. The sensor's next reading is judged by its window from the change on.
const inTransit = time.Minute

// past reports whether newer readings have been judged, or the customer no longer holds the
// id: then the reading cannot change lasting excursions.
func (n nodeRules) past(before incident.Memory, at time.Time) bool {
	return n.owner.HeldUntil != nil || !at.After(before.Last) || (before.Settled() && at.Before(n.newest.Time))
}

// judge applies a rule to the reading: from the rule's memory if that includes the reading
// just before it, otherwise by replaying the readings around it.
func (w *writes) judge(ctx context.Context, tx *store.DB, rule incident.Rule) error {
	before := w.memory[rule.ID]
	if before.Version != rule.Version {
		before = incident.Memory{}
	}
	points := w.judged.points(before.Last, before.BreakingSince, before.ClearingSince, before.PeakTime)
	if from := w.owner.VisibleFrom; from != nil { // before it, another customer held the node
		points = slices.DeleteFunc(points, func(p incident.Point) bool { return p.Time.Before(*from) })
	}
	at, changed := points[len(points)-1].Time, w.changed[rule.ID]
	if at.Before(changed) && (changed.Sub(at) <= inTransit || w.judged.Again) {
		return nil
	}
	past := w.past(before, at)
	next := len(points) > 1 && !points[len(points)-2].Time.After(before.Last)
	if past || before.Settled() || !next {
		if done, err := w.judgeAround(ctx, tx, rule, before, points); err != nil || done {
			return err
		}
	}
	if past {
		w.saveExcursions(rule, rule.Past(points), nil)
		return nil
	}
	// Readings before the change were judged by the rule of that time. A reading that is
	// itself older is late, and judged by the rules in force on arrival.
	if before.Last.Before(changed) && !at.Before(changed) {
		before.Last = changed.Add(-time.Microsecond)
	}
	after, stretches := rule.Advance(before, points)
	if !after.Settled() || !before.Settled() {
		w.saveMemory(rule.ID, after)
	}
	w.saveExcursions(rule, stretches, nil)
	return nil
}

func (w *writes) causeOf(f incident.Finding) incident.Cause {
	return Excursion{Kind: f.Kind, Quantity: f.Quantity, Direction: incident.Above, Finding: new(newFinding(f, w.judged.Time))}.part().Cause
}

// judgeFinding applies a finding of learning as judge applies a rule. An excursion has one cause. An
// anomaly of another cause ends it if that is worse or the opposite, or if the excursion's own cause
// was last found [incident.JoinGap] ago; else the anomaly changes nothing.
func (w *writes) judgeFinding(f incident.Finding) {
	rule, at := f.Rule(), reading.TruncateTime(w.judged.Time)
	before := w.memory[rule.ID]
	if w.past(before, at) {
		w.saveExcursions(rule, f.Past(at), &f)
		return
	}
	for _, e := range w.excursions[rule.ID] {
		stored := w.stored[e.ID]
		if !f.Holds && e.Lasting && !reading.Has(stored.Quantity.Of(w.judged.Temperature, w.judged.Humidity)) {
			return // the quantities come apart: this reading says nothing of it
		}
		cause := stored.part().Cause
		if !f.Holds || !e.Lasting || cause == w.causeOf(f) {
			continue
		}
		if f.Score <= e.Peak && w.causeOf(f) != cause.Opposite() && at.Sub(e.End) < incident.JoinGap {
			return
		}
		w.saveExcursions(rule, []incident.Stretch{{Start: e.Start, End: at, Peak: e.Peak, PeakTime: e.PeakTime}}, &incident.Finding{Kind: f.Kind})
		before = incident.Memory{Last: before.Last}
	}
	after, stretches := f.Advance(before, at)
	if !after.Settled() || !before.Settled() {
		w.saveMemory(rule.ID, after)
	}
	for i := range stretches { // the last node that holds ends the room's forecast, even if another's reading is newer
		s := &stretches[i]
		s.Lasting = s.Lasting || (f.Kind == incident.KindForecast && w.roomHolds)
		for _, e := range w.excursions[rule.ID] {
			if !s.Lasting && e.Lasting && !s.End.After(e.End) {
				s.End = e.End.Add(time.Microsecond)
			}
		}
	}
	w.saveExcursions(rule, stretches, &f)
}

// saveMemory stores a rule's memory, or deletes it once it is settled, because detection judges
// every reading of a node that has memory.
func (w *writes) saveMemory(rule int64, m incident.Memory) {
	key := pgx.StrictNamedArgs{"channel": int64(w.judged.Channel), "node": w.judged.NodeID, "rule": rule}
	if m.Settled() {
		w.batch.Queue(`DELETE FROM rule_memory WHERE channel = @channel AND node_id = @node AND rule_id = @rule`, key)
		return
	}
	maps.Copy(key, pgx.StrictNamedArgs{
		"version": m.Version, "last": m.Last, "breaking": store.OrNull(m.BreakingSince), "firing": m.Firing,
		"start": store.OrNull(m.Start), "clearing": store.OrNull(m.ClearingSince), "peak": m.Peak, "peak_at": store.OrNull(m.PeakTime),
	})
	w.batch.Queue(`
		INSERT INTO rule_memory (channel, node_id, rule_id, version, last_at, breaking_since, firing, starts, clearing_since, peak, peak_at)
		VALUES (@channel, @node, @rule, @version, @last, @breaking, @firing, @start, @clearing, @peak, @peak_at)
		ON CONFLICT (channel, node_id, rule_id) DO UPDATE
		SET version = EXCLUDED.version, last_at = EXCLUDED.last_at, breaking_since = EXCLUDED.breaking_since, firing = EXCLUDED.firing,
		    starts = EXCLUDED.starts, clearing_since = EXCLUDED.clearing_since, peak = EXCLUDED.peak, peak_at = EXCLUDED.peak_at`, key)
}

// newExcursion is the first temporary id of excursions not yet stored, above every stored id.
const newExcursion = math.MaxInt64 / 2

// saveExcursions joins the stretches of a rule to its excursions and stores the changed ones,
// with the finding if there is one. A finding that holds joins excursions of its cause; one that
// does not ends those that last.
func (w *writes) saveExcursions(rule incident.Rule, stretches []incident.Stretch, f *incident.Finding) {
	stored := map[int64]incident.Excursion{}
	current := slices.Clone(w.excursions[rule.ID])
	if f != nil {
		current = slices.DeleteFunc(current, func(e incident.Excursion) bool {
			return !f.Holds && !e.Lasting || f.Holds && w.stored[e.ID].part().Cause != w.causeOf(*f)
		})
	}
	for _, e := range current {
		stored[e.ID] = e
	}
	for k, stretch := range stretches {
		late := w.judged.Arrived.Sub(stretch.End) >= incident.JoinGap
		joined, parts := rule.Join(current, stretch, late)
		if joined.ID == 0 {
			joined.ID = newExcursion + int64(k) // above stored ids: those that it joins are older
		}
		current = append(slices.DeleteFunc(current, func(e incident.Excursion) bool { return slices.Contains(parts, e) }), joined)
		for _, e := range parts {
			if e.ID != joined.ID && e.ID < newExcursion {
				w.touch(e)
				w.batch.Queue(`
					WITH predictions AS (UPDATE prediction_feedback SET incident_id = @into WHERE incident_id = @id),
					part AS (UPDATE excursions SET lasting = false, merged_into = @into WHERE id = @id RETURNING verdict)
					UPDATE excursions e SET verdict = COALESCE(e.verdict, part.verdict) FROM part WHERE e.id = @into`,
					pgx.StrictNamedArgs{"id": e.ID, "into": joined.ID})
			}
		}
	}
	for _, e := range current {
		before, isStored := stored[e.ID]
		if isStored && before == e || !isStored && f != nil && !f.Holds { // the excursion that the finding would end has ended
			continue
		}
		shown := f
		if f != nil && isStored && !shows(*f, before, e, reading.TruncateTime(w.judged.Time)) {
			shown = nil
		}
		if !isStored || w.changesIncident(rule, before, e, shown) {
			w.touch(before, e)
		}
		if isStored {
			w.updateExcursion(rule, e, shown)
		} else {
			w.insertExcursion(rule, e, shown)
		}
	}
}

// shows reports whether an excursion now shows the finding: the worst anomaly, or the newest
// forecast.
func shows(f incident.Finding, before, e incident.Excursion, at time.Time) bool {
	if f.Kind == incident.KindForecast {
		return f.Holds && !at.Before(before.End)
	}
	return f.Holds && e.PeakTime.Equal(at)
}

func (w *writes) excursionArgs(e incident.Excursion, f *incident.Finding) pgx.StrictNamedArgs {
	resolution := "cleared"
	if e.Lasting {
		resolution = ""
	}
	args := pgx.StrictNamedArgs{
		"start": e.Start, "end": e.End, "lasting": e.Lasting, "resolution": resolution, "peak": e.Peak, "peak_time": e.PeakTime,
		"reopened": e.Reopened, "late": e.Late, "finding": nil, "severity": nil, "quantity": nil, "limit": nil,
	}
	if f != nil {
		args["finding"], args["severity"], args["quantity"], args["limit"] = newFinding(*f, w.judged.Time), string(f.Severity), string(f.Quantity), f.Limit
	}
	return args
}

func (w *writes) insertExcursion(rule incident.Rule, e incident.Excursion, f *incident.Finding) {
	args := w.excursionArgs(e, f)
	if f == nil {
		args["severity"], args["quantity"], args["limit"] = string(rule.Severity), string(rule.Quantity), rule.Limit
	}
	maps.Copy(args, pgx.StrictNamedArgs{
		"customer": w.owner.CustomerID, "kind": string(cmp.Or(rule.Kind, incident.KindThreshold)), "channel": int64(w.judged.Channel),
		"node": w.judged.NodeID, "sensor": w.owner.SensorName, "room": w.owner.RoomID, "room_name": w.owner.RoomName,
		"gateway": w.judged.GatewayID, "rule": rule.ID, "specified": rule.Threshold, "direction": string(rule.Direction),
		"message": w.judged.MessageID, "at": reading.TruncateTime(w.judged.Time),
		"temperature": reading.Pointer(w.judged.Temperature), "humidity": reading.Pointer(w.judged.Humidity),
	})
	w.batch.Queue(`
		WITH i AS (
		    INSERT INTO excursions
		        (customer_id, kind, channel, node_id, sensor_name, room_id, room_name, gateway_id, rule_id, specified, quantity, direction,
		         limit_value, severity, start_time, end_time, lasting, resolution, peak, peak_time, reopened, late, finding, risen_at)
		    VALUES
		        (@customer, @kind, @channel, @node, @sensor, NULLIF(@room::bigint, 0), @room_name, @gateway, @rule, @specified, @quantity,
		         @direction, @limit, @severity, @start, @end, @lasting, @resolution, @peak, @peak_time, @reopened, @late, @finding, @peak_time)
		    RETURNING id
		)
		-- Each anomaly is one prediction, for people to judge.
		INSERT INTO prediction_feedback AS p (channel, sensor_id, timestamp, message_id, actual_temp, actual_humidity, anomaly_predicted, incident_id)
		SELECT @channel, @node, @at::timestamptz, @message, @temperature::float8, @humidity::float8, true, id
		FROM i
		WHERE @kind = 'anomaly'
		ON CONFLICT ON CONSTRAINT prediction_feedback_reading_key
		DO UPDATE SET incident_id = EXCLUDED.incident_id, anomaly_predicted = true, sampling_probability = 1
		WHERE p.feedback IS NULL -- a verdict is on what was predicted when it was given`, args)
}

func (w *writes) updateExcursion(rule incident.Rule, e incident.Excursion, f *incident.Finding) {
	args := w.excursionArgs(e, f)
	args["id"], args["room"], args["room_name"] = e.ID, w.owner.RoomID, w.owner.RoomName
	args["unit"] = rule.Quantity.Unit()
	w.batch.Queue(`
		UPDATE excursions
		SET start_time = @start, end_time = @end, lasting = @lasting, resolution = @resolution, peak = @peak, peak_time = @peak_time,
		    reopened = @reopened, late = @late,
		    risen_at = CASE WHEN kind = 'threshold' AND abs(@peak - COALESCE(risen_peak, peak)) >= @unit THEN @peak_time ELSE risen_at END,
		    risen_peak = CASE WHEN kind = 'threshold' AND abs(@peak - COALESCE(risen_peak, peak)) >= @unit THEN @peak ELSE COALESCE(risen_peak, peak) END,
		    -- A node put into a room brings its lasting excursions along.
		    room_id = COALESCE(room_id, NULLIF(@room::bigint, 0)), room_name = CASE WHEN room_id IS NULL THEN @room_name ELSE room_name END,
		    finding = COALESCE(@finding, finding), severity = COALESCE(@severity, severity), quantity = COALESCE(@quantity, quantity),
		    limit_value = COALESCE(@limit, limit_value)
		WHERE id = @id`, args)
}
