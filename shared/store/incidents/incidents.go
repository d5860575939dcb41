package incidents

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/learning"
)

// Excursion is an incident as its customer sees it. Names, rule and limit date from its
// start.
type Excursion struct {
	ID               int64
	Kind             string
	Channel          int64
	NodeID           string
	SensorName       string // empty: discovered, no sensor yet
	RoomID           int64  // zero: none
	RoomName         string
	GatewayID        string
	RuleID           int64
	Quantity         string
	Direction        string
	LimitValue       float64
	Severity         string
	StartTime        time.Time
	EndTime          time.Time // of its newest reading while it lasts
	Lasting          bool
	Peak             float64
	PeakTime         time.Time
	Reopened         int
	Late             bool
	Resolution       string // cleared, or why it ended without that; empty while it lasts
	AcknowledgedAt   *time.Time
	AcknowledgedBy   string
	AcknowledgedPeak *float64
	Comment          string
	Verdict          Verdict  // on an anomaly; empty while there is none
	Finding          *Finding // of learning; nil for an incident of a rule
	GroupID          int64    // id of the first of the overlapping incidents of its room and kind
	AlertCount       int64    // alert records of its limit between its start and end
	ValueNow         *float64 // of a measured quantity, while it lasts

	// NewlyAcknowledged is set by [Store.AcknowledgeIncidents] if it was not acknowledged before.
	NewlyAcknowledged bool `db:"-"`
}

// Verdict is a person's verdict on an anomaly; empty while there is none.
type Verdict string

// The verdicts. Hours of a right anomaly are excluded from the past that detection learns
// from.
const (
	VerdictRight    Verdict = "right"
	VerdictWrong    Verdict = "wrong"
	VerdictExpected Verdict = "expected" // unusual, but known to be harmless
)

// Finding is the finding that an incident shows: its worst anomaly or its newest forecast.
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
	shown := Finding{Cause: f.Cause, Reason: f.Reason, Value: f.Value, Probability: f.Probability}
	if f.Low != 0 || f.High != 0 {
		shown.Low, shown.High = &f.Low, &f.High
	}
	if f.Kind == incident.KindForecast {
		shown.Earliest, shown.Latest = new(at.Add(f.Earliest).UTC()), new(at.Add(f.Latest).UTC())
	}
	return shown
}

// Describe describes the incident in words.
func (i Excursion) Describe() string {
	if i.Finding != nil {
		return i.Finding.Reason
	}
	rule := incident.Rule{Quantity: incident.Quantity(i.Quantity), Direction: incident.Direction(i.Direction), Limit: i.LimitValue}
	return rule.Describe(incident.Excursion{Start: i.StartTime, End: i.EndTime, Peak: i.Peak, Reopened: i.Reopened})
}

// openIncidentColumns are the columns of incidents i that are cheap to read. For a key limited
// to rooms, the group's id is that of its first incident in these rooms.
const openIncidentColumns = `i.id, i.kind, i.channel, i.node_id, i.sensor_name, COALESCE(i.room_id, 0) AS room_id, i.room_name, i.gateway_id,
	i.rule_id, i.quantity, i.direction, i.limit_value, i.severity, i.start_time, i.end_time, i.lasting, i.peak, i.peak_time, i.reopened,
	i.late, i.resolution, i.acknowledged_at, i.acknowledged_by, i.acknowledged_peak, i.comment, i.finding,
	COALESCE(i.verdict, '') AS verdict,
	COALESCE((
	    SELECT CASE WHEN @rooms::bigint[] IS NULL THEN g.group_id ELSE (
	        SELECT min(o.incident_id)
	        FROM incident_groups o
	        JOIN incidents theirs ON theirs.id = o.incident_id AND theirs.room_id = ANY (@rooms::bigint[])
	        WHERE o.group_id = g.group_id) END
	    FROM incident_groups g
	    WHERE g.incident_id = i.id), i.id) AS group_id`

// incidentColumns are all columns of incidents i.
const incidentColumns = openIncidentColumns + `,
	CASE WHEN i.specified THEN (
	    SELECT count(*)
	    FROM alerts a
	    WHERE a.customer_id = i.customer_id AND a.sensor_id = i.node_id COLLATE "default" AND a.channel = i.channel AND a.alert_type = i.quantity
	      AND a.timestamp BETWEEN i.start_time AND i.end_time) ELSE 0 END AS alert_count,
	CASE WHEN i.lasting AND i.quantity IN ('temperature', 'humidity') THEN (
	    SELECT CASE i.quantity WHEN 'temperature' THEN n.temperature ELSE n.humidity END
	    FROM node_state n
	    WHERE n.channel = i.channel AND n.node_id = i.node_id) END AS value_now`

// IncidentState selects incidents by whether they still need an operator.
type IncidentState string

// The states of [ExcursionQuery].
const (
	IncidentsAll      IncidentState = ""
	IncidentsOpen     IncidentState = "open"     // lasting, or not acknowledged: to be seen
	IncidentsLasting  IncidentState = "lasting"  // nothing has ended it
	IncidentsResolved IncidentState = "resolved" // ended
)

// ExcursionQuery selects incidents of [Store.Excursions]. Zero fields select all.
type ExcursionQuery struct {
	State      IncidentState
	RoomID     int64
	SensorID   string
	Kind       string
	Words      []string  // all of them occur in its texts, without regard to case
	Start, End time.Time // those that overlap this range, End excluded
	Limit      int       // incidents at most
}

// incidentText is the text of incidents i that people see and search.
const incidentText = `lower(concat_ws(' ', i.node_id COLLATE "default", i.sensor_name, i.room_name, i.gateway_id, i.kind, i.severity,
	translate(i.quantity, '_', ' '), i.direction, round(i.limit_value::numeric, 1), round(i.peak::numeric, 1), i.finding->>'reason',
	i.acknowledged_by, i.comment))`

// isOpen is the condition that incident i still needs somebody.
const isOpen = `(i.lasting OR i.acknowledged_at IS NULL)`

// Excursions lists a customer's incidents, newest first. Words have no index: a search for
// them reads all the customer's incidents in the range, until the limit is reached.
func (s Store) Excursions(ctx context.Context, customerID int64, q ExcursionQuery) ([]Excursion, error) {
	condition := map[IncidentState]string{
		IncidentsAll: "true", IncidentsOpen: isOpen, IncidentsLasting: "i.lasting", IncidentsResolved: "NOT i.lasting",
	}[q.State]
	found, err := store.All[Excursion](ctx, s.db, `
		SELECT `+incidentColumns+`
		FROM incidents i
		WHERE i.customer_id = @customer AND i.merged_into IS NULL AND `+condition+` AND `+store.RoomIn("i.room_id")+`
		  AND (@room::bigint = 0 OR i.room_id = @room) AND (@node = '' OR i.node_id = @node) AND (@kind = '' OR i.kind = @kind)
		  AND i.start_time < COALESCE(@end::timestamptz, 'infinity')
		  AND (i.lasting OR i.end_time >= COALESCE(@start::timestamptz, '-infinity'))
		  AND NOT EXISTS (SELECT FROM unnest(@words::text[]) AS w (word) WHERE position(lower(w.word) IN `+incidentText+`) = 0)
		ORDER BY i.start_time DESC, i.id DESC
		LIMIT @limit`,
		pgx.StrictNamedArgs{
			"customer": customerID, "room": q.RoomID, "node": q.SensorID, "kind": q.Kind, "words": q.Words,
			"start": store.OrNull(q.Start), "end": store.OrNull(q.End), "limit": q.Limit, "rooms": store.RoomsOf(ctx),
		})
	return found, store.Wrap(err, "incidents of customer %d", customerID)
}

// Excursion returns a customer's incident, or [store.ErrNoIncident]. The id of an incident
// that was merged into another returns that other.
func (s Store) Excursion(ctx context.Context, customerID, id int64) (Excursion, error) {
	found, err := store.One[Excursion](ctx, s.db, store.ErrNoIncident, `
		WITH RECURSIVE chain AS (
		    SELECT id, merged_into FROM incidents WHERE id = @id AND customer_id = @customer
		    UNION ALL
		    SELECT n.id, n.merged_into FROM incidents n JOIN chain c ON n.id = c.merged_into
		)
		SELECT `+incidentColumns+`
		FROM incidents i
		JOIN chain c ON c.id = i.id AND c.merged_into IS NULL
		WHERE i.customer_id = @customer AND `+store.RoomIn("i.room_id"),
		pgx.StrictNamedArgs{"id": id, "customer": customerID, "rooms": store.RoomsOf(ctx)})
	return found, store.Wrap(err, "incident %d", id)
}

// IncidentEvent is an event of an incident's timeline.
type IncidentEvent struct {
	At      time.Time
	Event   string // opened, reopened, cleared, acknowledged, unacknowledged, merged or resolved
	Actor   string // empty: a reading caused it
	Comment string
}

// IncidentTimeline lists the events of a customer's incident and of those merged into it,
// oldest first.
func (s Store) IncidentTimeline(ctx context.Context, customerID, id int64) ([]IncidentEvent, error) {
	found, err := store.All[IncidentEvent](ctx, s.db, `
		WITH RECURSIVE parts AS (
		    SELECT id FROM incidents WHERE id = @id AND customer_id = @customer
		    UNION ALL
		    SELECT n.id FROM incidents n JOIN parts p ON n.merged_into = p.id
		)
		SELECT e.at, e.event, e.actor, e.comment
		FROM incident_events e
		JOIN parts p ON p.id = e.incident_id
		-- An incident of one reading opened before it cleared.
		ORDER BY e.at, array_position(
		    ARRAY['opened', 'reopened', 'merged', 'acknowledged', 'unacknowledged', 'cleared', 'resolved'], e.event::text)`,
		pgx.StrictNamedArgs{"id": id, "customer": customerID})
	return found, store.Wrap(err, "timeline of incident %d", id)
}

// Acknowledgement selects the incidents to acknowledge: by their ids, or all
// unacknowledged ones of a kind in a room.
type Acknowledgement struct {
	IDs     []int64
	RoomID  int64
	Kind    string
	By      string
	Comment string
}

// AcknowledgeIncidents acknowledges a customer's incidents, for as long as they last, and
// returns them. A repeat changes nothing. If one of the ids is not the customer's it returns
// [store.ErrNoIncident] and changes nothing.
func (s Store) AcknowledgeIncidents(ctx context.Context, customerID int64, a Acknowledgement) (seen []Excursion, err error) {
	err = s.db.InTx(ctx, func(tx *store.DB) error {
		type row struct {
			ID    int64
			Newly bool
		}
		marked, err := store.All[row](ctx, tx, `
			WITH RECURSIVE chain AS (
			    SELECT id, merged_into
			    FROM incidents
			    WHERE customer_id = @customer AND `+store.RoomIn("room_id")+`
			      AND (id = ANY(@ids) OR (room_id = @room AND kind = @kind AND acknowledged_at IS NULL AND merged_into IS NULL))
			    UNION
			    SELECT n.id, n.merged_into FROM incidents n JOIN chain c ON n.id = c.merged_into
			), wanted AS (
			    SELECT i.id FROM incidents i JOIN chain c ON c.id = i.id WHERE i.merged_into IS NULL ORDER BY i.id FOR NO KEY UPDATE OF i
			), marked AS (
			    UPDATE incidents i
			    SET acknowledged_at = clock_timestamp(), acknowledged_by = @by, acknowledged_peak = i.peak, comment = @comment
			    FROM wanted w
			    WHERE w.id = i.id AND i.acknowledged_at IS NULL
			    RETURNING i.id
			), noted AS (
			    INSERT INTO incident_events (incident_id, at, event, actor, comment)
			    SELECT id, clock_timestamp(), 'acknowledged', @by, @comment FROM marked
			)
			SELECT w.id, m.id IS NOT NULL AS newly FROM wanted w LEFT JOIN marked m ON m.id = w.id`,
			pgx.StrictNamedArgs{
				"customer": customerID, "ids": a.IDs, "room": a.RoomID, "kind": a.Kind, "by": a.By, "comment": a.Comment, "rooms": store.RoomsOf(ctx),
			})
		if err != nil {
			return fmt.Errorf("mark: %w", err)
		}
		known, err := store.Values[int64](ctx, tx, `SELECT id FROM incidents WHERE customer_id = @customer AND id = ANY(@ids) AND `+store.RoomIn("room_id"),
			pgx.StrictNamedArgs{"customer": customerID, "ids": a.IDs, "rooms": store.RoomsOf(ctx)})
		if err != nil {
			return fmt.Errorf("look up: %w", err)
		}
		if slices.ContainsFunc(a.IDs, func(id int64) bool { return !slices.Contains(known, id) }) {
			return store.ErrNoIncident
		}
		ids, newly := make([]int64, len(marked)), map[int64]bool{}
		for k, m := range marked {
			ids[k], newly[m.ID] = m.ID, m.Newly
		}
		seen, err = store.All[Excursion](ctx, tx, `
			SELECT `+incidentColumns+`
			FROM incidents i
			WHERE i.id = ANY(@ids)
			ORDER BY i.start_time DESC, i.id DESC`,
			pgx.StrictNamedArgs{"ids": ids, "rooms": store.RoomsOf(ctx)})
		for k := range seen {
			seen[k].NewlyAcknowledged = newly[seen[k].ID]
		}
		return store.Wrap(err, "read")
	})
	return seen, store.Wrap(err, "acknowledge incidents of customer %d", customerID)
}

// JudgeExcursion sets the verdict on a customer's anomaly and on its prediction, where right
// is ok and wrong and expected are not_ok. It may change until a training run has used it.
// Errors: [store.ErrNoIncident], [store.ErrNoAnomaly],
// [store.ErrPredictionUsed].
func (s Store) JudgeExcursion(ctx context.Context, customerID, id int64, verdict Verdict) (Excursion, error) {
	found, err := s.Excursion(ctx, customerID, id)
	if err != nil {
		return Excursion{}, err
	}
	if found.Kind != string(incident.KindAnomaly) {
		return Excursion{}, store.ErrNoAnomaly
	}
	feedback := learning.FeedbackNotOK
	if verdict == VerdictRight {
		feedback = learning.FeedbackOK
	}
	err = s.db.Change(ctx, store.ErrPredictionUsed, `
		WITH RECURSIVE parts AS (
		    SELECT id FROM incidents WHERE id = @id AND customer_id = @customer
		    UNION ALL
		    SELECT n.id FROM incidents n JOIN parts p ON n.merged_into = p.id
		), theirs AS (
		    SELECT p.id, p.used_in_training FROM prediction_feedback p WHERE p.incident_id IN (SELECT id FROM parts) ORDER BY p.id FOR UPDATE
		), answered AS (
		    UPDATE prediction_feedback p SET feedback = @feedback FROM theirs t WHERE p.id = t.id AND NOT t.used_in_training
		)
		UPDATE incidents SET verdict = @verdict
		WHERE id = @id AND customer_id = @customer AND NOT EXISTS (SELECT FROM theirs WHERE used_in_training)`,
		pgx.StrictNamedArgs{"id": found.ID, "customer": customerID, "verdict": string(verdict), "feedback": string(feedback)})
	if err != nil {
		return Excursion{}, fmt.Errorf("judge incident %d: %w", id, err)
	}
	found.Verdict = verdict
	return found, nil
}

// LastingIncident is an incident that lasts, with the present name of the room in which it
// began.
type LastingIncident struct {
	Kind, Severity, RoomName, NodeID string
	RoomID                           int64 // zero: none
	Acknowledged, Late               bool
}

// LastingIncidents lists a customer's incidents that last, in no order.
func (s Store) LastingIncidents(ctx context.Context, customerID int64) ([]LastingIncident, error) {
	found, err := store.All[LastingIncident](ctx, s.db, `
		SELECT i.kind, i.severity, COALESCE(r.name, '') AS room_name, i.node_id, COALESCE(i.room_id, 0) AS room_id,
		       i.acknowledged_at IS NOT NULL AS acknowledged, i.late
		FROM incidents i
		LEFT JOIN server_rooms r ON r.id = i.room_id
		WHERE i.customer_id = @customer AND i.lasting AND i.merged_into IS NULL AND `+store.RoomIn("i.room_id"),
		pgx.StrictNamedArgs{"customer": customerID, "rooms": store.RoomsOf(ctx)})
	return found, store.Wrap(err, "lasting incidents of customer %d", customerID)
}
