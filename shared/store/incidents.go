package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/incident"
)

// Incident is an incident as its customer sees it. Names, rule and limit are as they
// were when it began.
type Incident struct {
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
	Verdict          IncidentVerdict // on an anomaly; empty while there is none
	Finding          *Finding        // of learning; nil for an incident of a rule
	GroupID          int64           // the first of those of its room and kind that overlap
	AlertCount       int64           // alert records of its limit in its time
	ValueNow         *float64        // of a quantity that is measured, while it lasts

	// NewlyAcknowledged is set by [Store.AcknowledgeIncidents] where nobody had seen it before.
	NewlyAcknowledged bool `db:"-"`
}

// IncidentVerdict is what a person says of an anomaly; empty while nobody has.
type IncidentVerdict string

// The verdicts. What was right is taken out of the past that detection calls usual.
const (
	VerdictRight    IncidentVerdict = "right"
	VerdictWrong    IncidentVerdict = "wrong"
	VerdictExpected IncidentVerdict = "expected" // unusual, and nothing to be told of
)

// Finding is what learning said in an incident: of its worst anomaly, or of its newest
// forecast. See [incident.Finding].
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

// Describe says in words what the incident is.
func (i Incident) Describe() string {
	if i.Finding != nil {
		return i.Finding.Reason
	}
	rule := incident.Rule{Quantity: incident.Quantity(i.Quantity), Direction: incident.Direction(i.Direction), Limit: i.LimitValue}
	return rule.Describe(incident.Incident{Start: i.StartTime, End: i.EndTime, Peak: i.Peak, Reopened: i.Reopened})
}

// incidentColumns are of incidents i. Who knows some rooms alone is told of a group by
// its first incident there.
const incidentColumns = `i.id, i.kind, i.channel, i.node_id, i.sensor_name, COALESCE(i.room_id, 0) AS room_id, i.room_name, i.gateway_id,
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
	    WHERE g.incident_id = i.id), i.id) AS group_id,
	CASE WHEN i.specified THEN (
	    SELECT count(*)
	    FROM alerts a
	    WHERE a.customer_id = i.customer_id AND a.sensor_id = i.node_id COLLATE "default" AND a.channel = i.channel AND a.alert_type = i.quantity
	      AND a.timestamp BETWEEN i.start_time AND i.end_time) ELSE 0 END AS alert_count,
	CASE WHEN i.lasting AND i.quantity IN ('temperature', 'humidity') THEN (
	    SELECT CASE i.quantity WHEN 'temperature' THEN n.temperature ELSE n.humidity END
	    FROM node_state n
	    WHERE n.channel = i.channel AND n.node_id = i.node_id) END AS value_now`

// IncidentState selects incidents by what an operator still has to do.
type IncidentState string

// The states of [IncidentQuery].
const (
	IncidentsAll      IncidentState = ""
	IncidentsOpen     IncidentState = "open"     // lasting, or not acknowledged: to be seen
	IncidentsLasting  IncidentState = "lasting"  // nothing has ended it
	IncidentsResolved IncidentState = "resolved" // ended
)

// IncidentQuery says which incidents [Store.Incidents] lists. Zero fields select all.
type IncidentQuery struct {
	State      IncidentState
	RoomID     int64
	SensorID   string
	Kind       string
	Words      []string  // each stands in its texts, in upper or lower case
	Start, End time.Time // those that overlap this time, End excluded
	Limit      int       // incidents at most
}

// incidentText is what is searched of incidents i: what people see of it.
const incidentText = `lower(concat_ws(' ', i.node_id COLLATE "default", i.sensor_name, i.room_name, i.gateway_id, i.kind, i.severity,
	translate(i.quantity, '_', ' '), i.direction, round(i.limit_value::numeric, 1), round(i.peak::numeric, 1), i.finding->>'reason',
	i.acknowledged_by, i.comment))`

// Incidents lists a customer's incidents, newest first. Words have no index: their search
// ends with the limit, or with the customer's incidents of the time.
func (s *Store) Incidents(ctx context.Context, customerID int64, q IncidentQuery) ([]Incident, error) {
	condition := map[IncidentState]string{
		IncidentsAll: "true", IncidentsOpen: "(i.lasting OR i.acknowledged_at IS NULL)", IncidentsLasting: "i.lasting", IncidentsResolved: "NOT i.lasting",
	}[q.State]
	found, err := queryAll[Incident](ctx, s, `
		SELECT `+incidentColumns+`
		FROM incidents i
		WHERE i.customer_id = @customer AND i.merged_into IS NULL AND `+condition+` AND `+inRooms("i.room_id")+`
		  AND (@room::bigint = 0 OR i.room_id = @room) AND (@node = '' OR i.node_id = @node) AND (@kind = '' OR i.kind = @kind)
		  AND i.start_time < COALESCE(@end::timestamptz, 'infinity')
		  AND (i.lasting OR i.end_time >= COALESCE(@start::timestamptz, '-infinity'))
		  AND NOT EXISTS (SELECT FROM unnest(@words::text[]) AS w (word) WHERE position(lower(w.word) IN `+incidentText+`) = 0)
		ORDER BY i.start_time DESC, i.id DESC
		LIMIT @limit`,
		pgx.StrictNamedArgs{
			"customer": customerID, "room": q.RoomID, "node": q.SensorID, "kind": q.Kind, "words": q.Words,
			"start": instantOrNull(q.Start), "end": instantOrNull(q.End), "limit": q.Limit, "rooms": RoomsOf(ctx),
		})
	return found, wrap(err, "incidents of customer %d", customerID)
}

// Incident returns a customer's incident, or [ErrNoIncident]. The id of one that
// became part of another gives that other.
func (s *Store) Incident(ctx context.Context, customerID, id int64) (Incident, error) {
	found, err := queryOne[Incident](ctx, s, ErrNoIncident, `
		WITH RECURSIVE chain AS (
		    SELECT id, merged_into FROM incidents WHERE id = @id AND customer_id = @customer
		    UNION ALL
		    SELECT n.id, n.merged_into FROM incidents n JOIN chain c ON n.id = c.merged_into
		)
		SELECT `+incidentColumns+`
		FROM incidents i
		JOIN chain c ON c.id = i.id AND c.merged_into IS NULL
		WHERE i.customer_id = @customer AND `+inRooms("i.room_id"),
		pgx.StrictNamedArgs{"id": id, "customer": customerID, "rooms": RoomsOf(ctx)})
	return found, wrap(err, "incident %d", id)
}

// IncidentEvent is what happened to an incident.
type IncidentEvent struct {
	At      time.Time
	Event   string // opened, reopened, cleared, acknowledged, unacknowledged, merged or resolved
	Actor   string // empty: nobody's doing
	Comment string
}

// IncidentTimeline lists what happened to a customer's incident and to those that
// became part of it, oldest first.
func (s *Store) IncidentTimeline(ctx context.Context, customerID, id int64) ([]IncidentEvent, error) {
	found, err := queryAll[IncidentEvent](ctx, s, `
		WITH RECURSIVE parts AS (
		    SELECT id FROM incidents WHERE id = @id AND customer_id = @customer
		    UNION ALL
		    SELECT n.id FROM incidents n JOIN parts p ON n.merged_into = p.id
		)
		SELECT e.at, e.event, e.actor, e.comment
		FROM incident_events e
		JOIN parts p ON p.id = e.incident_id
		-- What was over with its first reading opened before it cleared.
		ORDER BY e.at, array_position(
		    ARRAY['opened', 'reopened', 'merged', 'acknowledged', 'unacknowledged', 'cleared', 'resolved'], e.event::text)`,
		pgx.StrictNamedArgs{"id": id, "customer": customerID})
	return found, wrap(err, "timeline of incident %d", id)
}

// Acknowledgement says which incidents somebody has seen: those of the ids, or the
// ones to be seen of a kind in a room.
type Acknowledgement struct {
	IDs     []int64
	RoomID  int64
	Kind    string
	By      string
	Comment string
}

// AcknowledgeIncidents marks a customer's incidents as seen by somebody, again
// without effect, and returns them. It stays so while an incident lasts. One of the
// ids that is not the customer's is [ErrNoIncident], and changes nothing.
func (s *Store) AcknowledgeIncidents(ctx context.Context, customerID int64, a Acknowledgement) (seen []Incident, err error) {
	err = s.pool.inTx(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			WITH RECURSIVE chain AS (
			    SELECT id, merged_into
			    FROM incidents
			    WHERE customer_id = @customer AND `+inRooms("room_id")+`
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
			), told AS (
			    INSERT INTO incident_events (incident_id, at, event, actor, comment)
			    SELECT id, clock_timestamp(), 'acknowledged', @by, @comment FROM marked
			)
			SELECT w.id, m.id IS NOT NULL AS newly FROM wanted w LEFT JOIN marked m ON m.id = w.id`,
			pgx.StrictNamedArgs{
				"customer": customerID, "ids": a.IDs, "room": a.RoomID, "kind": a.Kind, "by": a.By, "comment": a.Comment, "rooms": RoomsOf(ctx),
			})
		if err != nil {
			return fmt.Errorf("mark: %w", err)
		}
		var id int64
		var newly bool
		var ids []int64
		marked := map[int64]bool{}
		_, err = pgx.ForEachRow(rows, []any{&id, &newly}, func() error {
			ids, marked[id] = append(ids, id), newly
			return nil
		})
		if err != nil {
			return fmt.Errorf("mark: %w", err)
		}
		known, err := tx.Query(ctx, `SELECT id FROM incidents WHERE customer_id = @customer AND id = ANY(@ids) AND `+inRooms("room_id"),
			pgx.StrictNamedArgs{"customer": customerID, "ids": a.IDs, "rooms": RoomsOf(ctx)})
		if err != nil {
			return fmt.Errorf("look up: %w", err)
		}
		given, err := pgx.CollectRows(known, pgx.RowTo[int64])
		if err != nil {
			return fmt.Errorf("look up: %w", err)
		}
		if len(given) < distinct(a.IDs) {
			return ErrNoIncident
		}
		rows, err = tx.Query(ctx, `
			SELECT `+incidentColumns+`
			FROM incidents i
			WHERE i.id = ANY(@ids)
			ORDER BY i.start_time DESC, i.id DESC`,
			pgx.StrictNamedArgs{"ids": ids, "rooms": RoomsOf(ctx)})
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if seen, err = pgx.CollectRows(rows, pgx.RowToStructByName[Incident]); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		for k := range seen {
			seen[k].NewlyAcknowledged = marked[seen[k].ID]
		}
		return nil
	})
	return seen, wrap(err, "acknowledge incidents of customer %d", customerID)
}

// JudgeIncident gives a customer's anomaly a verdict, which may change until a training
// run has used it. It is the verdict of its prediction, too: right is ok, and what was
// wrong or expected is not_ok. Errors: [ErrNoIncident], [ErrNoAnomaly],
// [ErrPredictionUsed].
func (s *Store) JudgeIncident(ctx context.Context, customerID, id int64, verdict IncidentVerdict) (Incident, error) {
	found, err := s.Incident(ctx, customerID, id)
	if err != nil {
		return Incident{}, err
	}
	if found.Kind != string(incident.KindAnomaly) {
		return Incident{}, ErrNoAnomaly
	}
	feedback := FeedbackNotOK
	if verdict == VerdictRight {
		feedback = FeedbackOK
	}
	err = s.pool.inTx(ctx, func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, `
			WITH RECURSIVE parts AS (
			    SELECT id FROM incidents WHERE id = @id AND customer_id = @customer
			    UNION ALL
			    SELECT n.id FROM incidents n JOIN parts p ON n.merged_into = p.id
			), theirs AS (
			    SELECT p.id, p.used_in_training FROM prediction_feedback p WHERE p.incident_id IN (SELECT id FROM parts) ORDER BY p.id FOR UPDATE
			), told AS (
			    UPDATE prediction_feedback p SET feedback = @feedback FROM theirs t WHERE p.id = t.id AND NOT t.used_in_training
			)
			UPDATE incidents SET verdict = @verdict
			WHERE id = @id AND customer_id = @customer AND NOT EXISTS (SELECT FROM theirs WHERE used_in_training)`,
			pgx.StrictNamedArgs{"id": found.ID, "customer": customerID, "verdict": string(verdict), "feedback": string(feedback)})
		if err != nil {
			return fmt.Errorf("update: %w", err)
		}
		if done.RowsAffected() == 0 {
			return ErrPredictionUsed
		}
		return nil
	})
	if err != nil {
		return Incident{}, fmt.Errorf("judge incident %d: %w", id, err)
	}
	found.Verdict = verdict
	return found, nil
}

func distinct(ids []int64) int {
	seen := map[int64]bool{}
	for _, id := range ids {
		seen[id] = true
	}
	return len(seen)
}

// IncidentCount is how many incidents of a kind and severity last in a room.
type IncidentCount struct {
	Kind, Severity, RoomName string
	Incidents                int
}

// LastingIncidents counts a customer's incidents that last, by kind, severity and room.
func (s *Store) LastingIncidents(ctx context.Context, customerID int64) ([]IncidentCount, error) {
	found, err := queryAll[IncidentCount](ctx, s, `
		SELECT i.kind, i.severity, COALESCE(r.name, '') AS room_name, count(*) AS incidents
		FROM incidents i
		LEFT JOIN server_rooms r ON r.id = i.room_id
		WHERE i.customer_id = @customer AND i.lasting AND i.merged_into IS NULL AND `+inRooms("i.room_id")+`
		GROUP BY i.kind, i.severity, r.name
		ORDER BY i.kind, i.severity, r.name`,
		pgx.StrictNamedArgs{"customer": customerID, "rooms": RoomsOf(ctx)})
	return found, wrap(err, "lasting incidents of customer %d", customerID)
}

// RightEpisodes are the anomalies of a customer's nodes that people judged right and that
// ended after a time, the oldest of a node first.
func (s *Store) RightEpisodes(ctx context.Context, customerID int64, since time.Time) (map[string][]anomaly.Episode, error) {
	type row struct {
		NodeID             string
		StartTime, EndTime time.Time
	}
	found, err := queryAll[row](ctx, s, `
		SELECT node_id, start_time, end_time
		FROM incidents
		WHERE customer_id = @customer AND kind = 'anomaly' AND verdict = 'right' AND merged_into IS NULL AND end_time > @since
		ORDER BY start_time, id`,
		pgx.StrictNamedArgs{"customer": customerID, "since": since})
	if err != nil {
		return nil, fmt.Errorf("episodes of customer %d that were right: %w", customerID, err)
	}
	right := map[string][]anomaly.Episode{}
	for _, r := range found {
		right[r.NodeID] = append(right[r.NodeID], anomaly.Episode{Start: r.StartTime, End: r.EndTime})
	}
	return right, nil
}
