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
	w.saveMemory(rule.ID, before, after)
	w.saveExcursions(rule, stretches, nil)
	return nil
}

// endDisplaced ends what rules of the customer's have left at the node that a narrower one has displaced since.
func (w *writes) endDisplaced() {
	for id := range w.memory {
		if _, own := w.changed[id]; !own || slices.ContainsFunc(w.rules, func(r incident.Rule) bool { return r.ID == id }) {
			continue
		}
		w.touch(w.excursions[id]...)
		w.batch.Queue(`
			WITH memory AS (DELETE FROM rule_memory WHERE channel = @channel AND node_id = @node AND rule_id = @rule)
			UPDATE excursions SET lasting = false, resolution = 'rule_changed'
			WHERE channel = @channel AND node_id = @node AND rule_id = @rule AND lasting AND merged_into IS NULL`,
			store.Args{"channel": int64(w.judged.Channel), "node": w.judged.NodeID, "rule": id})
	}
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
	w.saveMemory(rule.ID, before, after)
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
func (w *writes) saveMemory(rule int64, before, m incident.Memory) {
	if before.Settled() && m.Settled() {
		return
	}
	key := store.Args{"channel": int64(w.judged.Channel), "node": w.judged.NodeID, "rule": rule}
	if m.Settled() {
		w.batch.Queue(`DELETE FROM rule_memory WHERE channel = @channel AND node_id = @node AND rule_id = @rule`, key)
		return
	}
	maps.Copy(key, store.Args{
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
	current := slices.Clone(w.excursions[rule.ID])
	if f != nil {
		current = slices.DeleteFunc(current, func(e incident.Excursion) bool {
			return !f.Holds && !e.Lasting || f.Holds && w.stored[e.ID].part().Cause != w.causeOf(*f)
		})
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
					store.Args{"id": e.ID, "into": joined.ID})
			}
		}
	}
	for _, e := range current {
		before := w.stored[e.ID].was
		if before.ID == 0 && f != nil && !f.Holds { // the excursion that the finding would end has ended
			continue
		}
		shown := f
		if f != nil && before.ID != 0 && !shows(*f, before, e, reading.TruncateTime(w.judged.Time)) {
			shown = nil
		}
		w.saveExcursion(rule, before, e, shown)
	}
}

// saveExcursion stores an excursion that was another before, which is zero for a new one, with a
// finding that it shows now.
func (w *writes) saveExcursion(rule incident.Rule, before, e incident.Excursion, shown *incident.Finding) {
	if before == e {
		return
	}
	if before.ID == 0 || w.changesIncident(rule, before, e, shown) {
		w.touch(before, e)
	}
	args := store.Args{
		"start": e.Start, "end": e.End, "lasting": e.Lasting, "resolution": "cleared", "peak": e.Peak, "peak_time": e.PeakTime,
		"reopened": e.Reopened, "late": e.Late, "finding": nil, "severity": nil, "quantity": nil, "limit": nil,
	}
	if e.Lasting {
		args["resolution"] = ""
	}
	switch {
	case shown != nil:
		args["finding"], args["severity"], args["quantity"], args["limit"] = newFinding(*shown, w.judged.Time), string(shown.Severity), string(shown.Quantity), shown.Limit
	case before.ID == 0:
		args["severity"], args["quantity"], args["limit"] = string(rule.Severity), string(rule.Quantity), rule.Limit
	}
	if before.ID == 0 {
		w.insertExcursion(rule, args)
	} else {
		w.updateExcursion(rule, e.ID, args)
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

func (w *writes) insertExcursion(rule incident.Rule, args store.Args) {
	maps.Copy(args, store.Args{
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

func (w *writes) updateExcursion(rule incident.Rule, id int64, args store.Args) {
	args["id"], args["room"], args["room_name"], args["unit"] = id, w.owner.RoomID, w.owner.RoomName, rule.Quantity.Unit()
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

// endless is later than every reading.
func endless() time.Time { return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) }

// span is the range of time whose readings are judged again.
type span struct {
	from, until time.Time
	// cut says that the rule, room or holder changed at the end, so nothing lasts beyond it.
	cut bool
}

func (s span) contains(t time.Time) bool { return !t.Before(s.from) && !t.After(s.until) }

// judgeAround replays the stored raw readings around a reading, so that the result does not
// depend on the order of arrival. It reports false if they are no longer stored.
func (w *writes) judgeAround(ctx context.Context, tx *store.DB, rule incident.Rule, before incident.Memory, points []incident.Point) (done bool, err error) {
	at := points[len(points)-1].Time
	s := w.spanAround(rule, before, at)
	if s.from.Add(-incident.RateReach).Before(w.rawFrom) {
		return false, nil
	}
	open := !before.Settled() && s.contains(before.BreakingSince)
	if !open && len(w.within(rule, s)) == 0 && rule.Quantity != incident.TemperatureRate && !rule.Breaks(points) {
		return true, nil // it breaks no limit, and there is no excursion that it could split
	}
	// An end ahead of the database's clock was written while a clock was wrong. Comparing with
	// the time of arrival would not do: the messages of a backlog arrive in any order.
	dated := slices.DeleteFunc(slices.Clone(w.excursions[rule.ID]), func(e incident.Excursion) bool {
		return e.End.After(w.notAhead)
	})
	if !s.cut && rule.Inside(dated, points) {
		return true, nil
	}
	after, excursions, err := w.replay(ctx, tx, rule, before, s, points)
	if err == nil && !s.cut && !after.Settled() && s.until.Before(endless()) { // it goes on after the span
		s.until = endless()
		after, excursions, err = w.replay(ctx, tx, rule, before, s, points)
	}
	if err != nil {
		return false, err
	}
	if !s.cut && s.until.Equal(endless()) {
		if after.Last.Before(before.Last) {
			return false, nil // the memory includes readings that are not stored yet
		}
		w.saveMemory(rule.ID, before, after)
	}
	if s.cut {
		for k := range excursions {
			excursions[k].Lasting = false
		}
	}
	w.replaceExcursions(rule, w.within(rule, s), excursions)
	return true, nil
}

func (w *writes) within(rule incident.Rule, s span) []incident.Excursion {
	return slices.DeleteFunc(slices.Clone(w.excursions[rule.ID]), func(e incident.Excursion) bool {
		return e.Start.After(s.until) || (!e.Lasting && e.End.Before(s.from))
	})
}

// spanAround is the span that a reading can affect, widened to whole excursions and limited
// to the time in which the rule was unchanged, in this room and for this customer; an excursion
// that it has judged on both sides of its change stays whole.
func (w *writes) spanAround(rule incident.Rule, before incident.Memory, at time.Time) span {
	s := span{from: at.Add(-incident.Reach), until: at.Add(incident.Reach)}
	if s.until.After(w.judged.Arrived) {
		s.until = endless()
	}
	if !before.Settled() && !before.BreakingSince.After(s.until) {
		s.until = endless()
		s.from = reading.Earlier(s.from, before.BreakingSince)
	}
	for widened := true; widened; {
		widened = false
		for _, e := range w.excursions[rule.ID] {
			switch {
			case e.Start.After(s.until), !e.Lasting && e.End.Before(s.from):
			case e.Start.Before(s.from):
				s.from, widened = e.Start, true
			case e.Lasting && s.until.Before(endless()):
				s.until, widened = endless(), true
			case e.End.After(s.until):
				s.until, widened = e.End, true
			}
		}
	}
	changed := w.changed[rule.ID]
	from := changed
	if !before.Settled() && s.contains(before.BreakingSince) {
		from = reading.Earlier(from, before.BreakingSince)
	}
	for _, e := range w.within(rule, s) { // late readings may have begun one before the change
		if e.Lasting || !e.End.Before(changed) {
			from = reading.Earlier(from, e.Start)
		}
	}
	if at.Before(changed) { // late, and judged by the rules in force on arrival
		if from.Equal(changed) && (!w.newest.Time.Before(from) || !before.Last.Before(from)) {
			s.until, s.cut = reading.Earlier(s.until, from.Add(-time.Microsecond)), true
		}
		from = time.Time{}
	}
	if visible := w.owner.VisibleFrom; visible != nil && visible.After(from) {
		from = *visible
	}
	s.from = reading.Later(s.from, from)
	if held := w.owner.HeldUntil; held != nil {
		s.until, s.cut = reading.Earlier(s.until, held.Add(-time.Microsecond)), true
	}
	return s
}

// movedSince returns the start of the oldest excursion that moved to this channel when its
// sensor was signed; readings of the open channel count from then on. Usually there is none,
// and it returns endless.
func (w *writes) movedSince(rule incident.Rule, before incident.Memory, s span) time.Time {
	moved := endless()
	signed := w.owner.SignedFrom
	if signed == nil || w.judged.Channel == reading.Open {
		return moved
	}
	if !before.Settled() && before.BreakingSince.Before(*signed) {
		moved = before.BreakingSince
	}
	for _, e := range w.within(rule, s) {
		if e.Start.Before(*signed) {
			moved = reading.Earlier(moved, e.Start)
		}
	}
	return moved
}

// replay judges the raw readings of a span, together with the window's readings and the
// node's newest one, which ingest may not have stored yet.
func (w *writes) replay(ctx context.Context, tx *store.DB, rule incident.Rule, before incident.Memory, s span, points []incident.Point) (incident.Memory, []incident.Excursion, error) {
	raw, err := store.AllPlanned(ctx, tx, pgx.RowToStructByName[incident.Point], `
		SELECT timestamp AS time, COALESCE(temperature, 'NaN') AS temperature, COALESCE(humidity, 'NaN') AS humidity
		FROM sensor_data.readings r
		WHERE node_id = @node AND timestamp BETWEEN @from AND @until AND timestamp <= `+store.NotAhead+`
		  AND (customer_id = @channel OR (customer_id = 0 AND timestamp >= @moved AND EXISTS (
		      SELECT FROM visible_spans v
		      WHERE v.customer_id = @channel AND v.node_id = @node AND v.channel = 0 AND r.timestamp >= v.visible_from AND r.timestamp < v.visible_until)))
		ORDER BY timestamp, message_id`,
		store.Args{
			"node": w.judged.NodeID, "channel": int64(w.judged.Channel), "from": s.from.Add(-incident.RateReach), "until": s.until,
			"moved": w.movedSince(rule, before, s),
		}, "raw readings")
	if err != nil {
		return incident.Memory{}, nil, err
	}
	at := points[len(points)-1].Time
	var known []time.Time
	for i := range raw {
		raw[i].Time = raw[i].Time.UTC()
		if t := raw[i].Time; !t.Before(points[0].Time.Add(-time.Second)) && !t.After(at) { // near the window
			known = append(known, t)
		}
	}
	others := w.judged.points(known...)
	if own := others[len(others)-1]; s.contains(own.Time) && !slices.Contains(raw, own) { // not stored, or with other values
		raw = append(raw, own)
	}
	if !slices.ContainsFunc(raw, func(p incident.Point) bool { return p.Time.Equal(w.newest.Time) }) {
		others = append(others, w.newest)
	}
	for _, p := range others {
		if s.contains(p.Time) && !slices.Contains(known, p.Time) {
			raw = append(raw, p)
		}
	}
	after, excursions := rule.Replay(s.from.Add(-time.Microsecond), raw)
	return after, excursions, nil
}

// replaceExcursions stores excursions in place of the affected stored ones.
func (w *writes) replaceExcursions(rule incident.Rule, affected, excursions []incident.Excursion) {
	absorbed := rule.Reconcile(affected, excursions, w.judged.Arrived)
	for _, e := range excursions {
		w.saveExcursion(rule, w.stored[e.ID].was, e, nil)
	}
	for id, into := range absorbed {
		w.touch(w.stored[id].was)
		if into < 0 {
			w.batch.Queue(`DELETE FROM excursions WHERE id = @id`, store.Args{"id": id})
			continue
		}
		w.batch.Queue(`UPDATE excursions SET lasting = false, merged_into = @into WHERE id = @id`, store.Args{"id": id, "into": excursions[into].ID})
	}
}
