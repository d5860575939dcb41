package incidents

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

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
		if !after.Settled() || !before.Settled() {
			w.saveMemory(rule.ID, after)
		}
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
		pgx.StrictNamedArgs{
			"node": w.judged.NodeID, "channel": int64(w.judged.Channel), "from": s.from.Add(-incident.RateReach), "until": s.until,
			"moved": w.movedSince(rule, before, s),
		})
	if err != nil {
		return incident.Memory{}, nil, fmt.Errorf("raw readings: %w", err)
	}
	at := points[len(points)-1].Time
	near := func(p incident.Point) bool {
		return !p.Time.Before(points[0].Time.Add(-time.Second)) && !p.Time.After(at)
	}
	var known []time.Time
	for i := range raw {
		raw[i].Time = raw[i].Time.UTC()
		if near(raw[i]) {
			known = append(known, raw[i].Time)
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
	stored := map[int64]incident.Excursion{}
	for _, e := range affected {
		stored[e.ID] = e
	}
	absorbed := rule.Reconcile(affected, excursions, w.judged.Arrived)
	for _, e := range excursions {
		before, isStored := stored[e.ID]
		switch {
		case !isStored:
			w.touch(e)
			w.insertExcursion(rule, e, nil)
		case before != e:
			if w.changesIncident(rule, before, e, nil) {
				w.touch(before, e)
			}
			w.updateExcursion(rule, e, nil)
		}
	}
	for id, into := range absorbed {
		w.touch(stored[id])
		if into < 0 {
			w.batch.Queue(`DELETE FROM excursions WHERE id = @id`, pgx.StrictNamedArgs{"id": id})
			continue
		}
		w.batch.Queue(`UPDATE excursions SET lasting = false, merged_into = @into WHERE id = @id`, pgx.StrictNamedArgs{"id": id, "into": excursions[into].ID})
	}
}
