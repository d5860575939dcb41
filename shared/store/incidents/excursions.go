package incidents

import (
	"context"
	"fmt"
	"slices"
	"time"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/learning"
)

// Excursion is a stretch of time in which a node broke a rule, was unusual, or was silent.
// Names, rule and limit date from its start.
type Excursion struct {
	ID         int64
	IncidentID int64 // of the incident that it is part of; zero until that exists
	Kind       incident.Kind
	Channel    int64
	NodeID     string
	SensorName string // empty: discovered, no sensor yet
	RoomID     int64  // zero: none
	RoomName   string
	GatewayID  string
	RuleID     int64
	Quantity   incident.Quantity
	Direction  incident.Direction
	LimitValue float64
	Severity   incident.Severity
	StartTime  time.Time
	EndTime    time.Time // of its newest reading while it lasts
	Lasting    bool
	Peak       float64
	PeakTime   time.Time // of a silence: the newest reading before it
	RisenAt    time.Time // when the peak last rose by a unit
	Reopened   int
	Late       bool
	Resolution string   // cleared, or why it ended without that; empty while it lasts
	Verdict    Verdict  // on an anomaly; empty while there is none
	Finding    *Finding // of learning; nil for one of a rule

	Reason string                `db:"-"` // in words
	Where  incident.SilenceCause `db:"-"` // of a lasting silence: where the readings stop
}

// Verdict is a person's answer to an anomaly; empty while there is none.
type Verdict string

// The verdicts. Hours of a right anomaly are excluded from the past that detection learns
// from.
const (
	VerdictRight    Verdict = "right"
	VerdictWrong    Verdict = "wrong"
	VerdictExpected Verdict = "expected" // unusual, but known to be harmless
)

// Finding is the finding that an excursion shows: its worst anomaly or its newest forecast.
// See [incident.Finding].
type Finding struct {
	Cause       string   `json:"cause"`
	Reason      string   `json:"reason"`
	Value       float64  `json:"value"`
	Low         *float64 `json:"low,omitempty"` // nil with High: there is no band
	High        *float64 `json:"high,omitempty"`
	Probability float64  `json:"probability,omitempty"`
	// The limit will be passed between these times; nil for an anomaly.
	Earliest *time.Time `json:"earliest,omitempty"`
	Latest   *time.Time `json:"latest,omitempty"`
}

func newFinding(f incident.Finding, at time.Time) Finding {
	shown := Finding{Cause: f.Cause, Reason: f.Reason, Value: reading.Round(f.Value), Probability: f.Probability}
	if f.Low != 0 || f.High != 0 {
		shown.Low, shown.High = new(reading.Round(f.Low)), new(reading.Round(f.High))
	}
	if f.Kind == incident.KindForecast {
		shown.Earliest, shown.Latest = new(at.Add(f.Earliest).UTC()), new(at.Add(f.Latest).UTC())
	}
	return shown
}

const excursionColumns = `e.id, COALESCE(e.incident_id, 0) AS incident_id, e.kind, e.channel, e.node_id, e.sensor_name, COALESCE(e.room_id, 0) AS room_id, e.room_name,
	e.gateway_id, e.rule_id, e.quantity, e.direction, e.limit_value, e.severity, e.start_time, e.end_time, e.lasting, e.peak, e.peak_time, e.risen_at,
	e.reopened, e.late, e.resolution, COALESCE(e.verdict, '') AS verdict, e.finding`

// excursionText is the text of an excursion e that people see and search.
const excursionText = `lower(concat_ws(' ', e.node_id COLLATE "default", e.sensor_name, e.room_name, e.gateway_id, e.kind, translate(e.quantity, '_', ' '),
	e.direction, round(e.limit_value::numeric, 1), round(e.peak::numeric, 1), e.finding->>'reason'))`

// describe sets the reasons of excursions and, of lasting silences, where the readings stop.
func (s Store) describe(ctx context.Context, customerID int64, excursions []Excursion, now time.Time) error {
	var silent []*Excursion
	for k := range excursions {
		e := &excursions[k]
		switch {
		case e.Finding != nil:
			e.Reason = e.Finding.Reason
		case e.Kind == incident.KindMissing:
			e.Reason = incident.DescribeMissing(e.Quantity, e.PeakTime, e.EndTime, e.Lasting, now)
		case e.Kind != incident.KindSilence:
			rule := incident.Rule{Quantity: e.Quantity, Direction: e.Direction, Limit: e.LimitValue}
			e.Reason = rule.Describe(incident.Excursion{Stretch: incident.Stretch{Start: e.StartTime, End: e.EndTime, Peak: e.Peak}, Reopened: e.Reopened})
		case e.Lasting:
			silent = append(silent, e)
		default:
			e.Reason = "No reading for " + incident.InWords(e.EndTime.Sub(e.PeakTime))
		}
	}
	if len(silent) == 0 {
		return nil
	}
	channels, nodes := make([]int64, len(silent)), make([]string, len(silent))
	for k, e := range silent {
		channels[k], nodes[k] = e.Channel, e.NodeID
	}
	type row struct {
		Interval                                time.Duration
		GatewaySeen, LastHeartbeat, LastReading *time.Time
	}
	rows, err := store.All[row](ctx, s.db, `
		SELECT COALESCE(n.usual_interval_s, 0) * interval '1 second' AS interval, g.last_seen AS gateway_seen, h.last_heartbeat, h.last_reading
		FROM unnest(@channels::bigint[], @nodes::text[]) WITH ORDINALITY AS silent (channel, node_id, place)
		LEFT JOIN node_state n ON n.channel = silent.channel AND n.node_id = silent.node_id
		LEFT JOIN gateways g ON g.id = n.gateway_id AND g.customer_id = @customer
		LEFT JOIN gateway_nodes h ON h.gateway_id = g.id AND h.node_id = n.node_id
		ORDER BY silent.place`,
		store.Args{"customer": customerID, "channels": channels, "nodes": nodes},
		"where readings of customer %d stop", customerID)
	for k, r := range rows { // one of each
		e := silent[k]
		report := incident.GatewayReport{Seen: store.UTC(r.GatewaySeen), LastHeartbeat: store.UTC(r.LastHeartbeat), LastReading: store.UTC(r.LastReading)}
		e.Where = report.Cause(e.PeakTime, now)
		e.Reason = incident.DescribeSilence(e.PeakTime, r.Interval, e.Where, now)
	}
	return err
}

// direction is the rule's, or the one in which an anomaly's value left its usual band.
func (e Excursion) direction() incident.Direction {
	f := e.Finding
	switch {
	case e.Kind != incident.KindAnomaly || f == nil:
		return e.Direction
	case f.High != nil && f.Value > *f.High:
		return incident.Above
	case f.Low != nil && f.Value < *f.Low:
		return incident.Below
	default:
		return ""
	}
}

// silenced reports whether maintenance windows cover both its start and its end.
func (e Excursion) silenced(windows []Maintenance) bool {
	return covered(windows, e, e.StartTime) && covered(windows, e, e.EndTime)
}

func covered(windows []Maintenance, e Excursion, at time.Time) bool {
	return slices.ContainsFunc(windows, func(m Maintenance) bool { return m.Covers(e.RoomID, e.NodeID, at) })
}

func (e Excursion) part() incident.Part {
	p := incident.Part{
		ID: e.ID, IncidentID: e.IncidentID, Node: fmt.Sprint(e.Channel, e.NodeID), Kind: e.Kind, Quantity: e.Quantity, Severity: e.Severity,
		Start: e.StartTime.UTC(), End: e.EndTime.UTC(), Lasting: e.Lasting, Late: e.Late && e.Kind != incident.KindSilence, RisenAt: e.RisenAt.UTC(),
	}
	finding := ""
	if e.Kind == incident.KindAnomaly && e.Finding != nil {
		finding = e.Finding.Cause
	}
	if e.Kind == incident.KindThreshold {
		p.Excess = incident.Excess(e.Quantity, e.Direction, e.LimitValue, e.Peak)
	}
	p.Cause = incident.CauseOf(e.Kind, e.Quantity, e.direction(), finding)
	return p
}

// ExcursionQuery selects excursions of [Store.Excursions]. Zero fields select all.
type ExcursionQuery struct {
	IncidentID int64 // of it, or of the incident that it was merged into
	RoomID     int64
	SensorID   string
	Kind       incident.Kind
	Start, End time.Time // those that overlap this range, End excluded
	store.PageRequest
}

// Excursions lists a customer's excursions, newest first.
func (s Store) Excursions(ctx context.Context, customerID int64, q ExcursionQuery, now time.Time) (store.Page[Excursion], error) {
	list := store.List[Excursion]{
		DB: s.db, Subject: fmt.Sprintf("excursions of customer %d", customerID), Columns: excursionColumns, Time: "e.start_time", ID: "e.id",
		From: `
		FROM excursions e
		WHERE e.customer_id = @customer AND e.merged_into IS NULL AND ` + store.RoomIn("e.room_id") + `
		  AND (@id::bigint = 0 OR e.incident_id = (` + chainOf("room_incidents") + ` SELECT id FROM chain WHERE merged_into IS NULL)) AND (@room::bigint = 0 OR e.room_id = @room)
		  AND (@node = '' OR e.node_id = @node) AND (@kind = '' OR e.kind = @kind)
		  AND e.start_time < COALESCE(@end::timestamptz, 'infinity')
		  AND (e.lasting OR e.end_time >= COALESCE(@start::timestamptz, '-infinity'))`,
		Args: store.Args{
			"customer": customerID, "id": q.IncidentID, "room": q.RoomID, "node": q.SensorID, "kind": string(q.Kind),
			"start": store.OrNull(q.Start), "end": store.OrNull(q.End), "rooms": store.RoomsOf(ctx),
		},
		At: func(e Excursion) store.Position { return store.Position{Time: e.StartTime, ID: e.ID} },
	}
	page, err := list.Page(ctx, q.PageRequest)
	if err != nil {
		return store.Page[Excursion]{}, err
	}
	return page, s.describe(ctx, customerID, page.Items, now)
}

// Excursion returns a customer's excursion, or [store.ErrNoExcursion]. The id of one that was
// merged into another returns that other.
func (s Store) Excursion(ctx context.Context, customerID, id int64, now time.Time) (Excursion, error) {
	found, err := store.One[Excursion](ctx, s.db, store.ErrNoExcursion, chainOf("excursions")+`
		SELECT `+excursionColumns+`
		FROM excursions e
		JOIN chain c ON c.id = e.id AND c.merged_into IS NULL
		WHERE e.customer_id = @customer AND `+store.RoomIn("e.room_id"),
		store.Args{"id": id, "customer": customerID, "rooms": store.RoomsOf(ctx)}, "excursion %d", id)
	one := []Excursion{found}
	if err == nil {
		err = s.describe(ctx, customerID, one, now)
	}
	return one[0], err
}

// JudgeExcursion sets the verdict on a customer's anomaly and the feedback on its prediction:
// ok for right, not_ok for wrong and expected. It may change until a training run has used it.
// Errors: [store.ErrNoExcursion], [store.ErrNoAnomaly], [store.ErrPredictionUsed].
func (s Store) JudgeExcursion(ctx context.Context, customerID, id int64, verdict Verdict, now time.Time) (Excursion, error) {
	found, err := s.Excursion(ctx, customerID, id, now)
	if err != nil {
		return Excursion{}, err
	}
	if found.Kind != incident.KindAnomaly {
		return Excursion{}, store.ErrNoAnomaly
	}
	feedback := learning.FeedbackNotOK
	if verdict == VerdictRight {
		feedback = learning.FeedbackOK
	}
	err = s.db.Change(ctx, store.ErrPredictionUsed, `
		WITH RECURSIVE parts AS (
		    SELECT id FROM excursions WHERE id = @id AND customer_id = @customer
		    UNION ALL
		    SELECT n.id FROM excursions n JOIN parts p ON n.merged_into = p.id
		), theirs AS (
		    SELECT p.id, p.used_in_training FROM prediction_feedback p WHERE p.incident_id IN (SELECT id FROM parts) ORDER BY p.id FOR UPDATE
		), answered AS (
		    UPDATE prediction_feedback p SET feedback = @feedback FROM theirs t WHERE p.id = t.id AND NOT t.used_in_training
		)
		UPDATE excursions SET verdict = @verdict
		WHERE id = @id AND customer_id = @customer AND NOT EXISTS (SELECT FROM theirs WHERE used_in_training)`,
		store.Args{"id": found.ID, "customer": customerID, "verdict": string(verdict), "feedback": string(feedback)},
		"judge excursion %d", id)
	found.Verdict = verdict
	return found, err
}
