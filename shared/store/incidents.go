package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

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
	AlertCount       int64    // alert records of its limit in its time
	ValueNow         *float64 // of a quantity that is measured, while it lasts
}

// Describe says in words what the incident is.
func (i Incident) Describe() string {
	rule := incident.Rule{Quantity: incident.Quantity(i.Quantity), Direction: incident.Direction(i.Direction), Limit: i.LimitValue}
	return rule.Describe(incident.Incident{Start: i.StartTime, End: i.EndTime, Peak: i.Peak, Reopened: i.Reopened})
}

// incidentColumns are of incidents i.
const incidentColumns = `i.id, i.kind, i.channel, i.node_id, i.sensor_name, COALESCE(i.room_id, 0) AS room_id, i.room_name, i.gateway_id,
	i.rule_id, i.quantity, i.direction, i.limit_value, i.severity, i.start_time, i.end_time, i.lasting, i.peak, i.peak_time, i.reopened,
	i.late, i.resolution, i.acknowledged_at, i.acknowledged_by, i.acknowledged_peak, i.comment,
	CASE WHEN i.specified THEN (
	    SELECT count(*)
	    FROM alerts a
	    WHERE a.customer_id = i.customer_id AND a.sensor_id = i.node_id AND a.channel = i.channel AND a.alert_type = i.quantity
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
	Start, End time.Time // those that overlap this time, End excluded
	Limit      int       // incidents at most
}

// Incidents lists a customer's incidents, newest first.
func (s *Store) Incidents(ctx context.Context, customerID int64, q IncidentQuery) ([]Incident, error) {
	condition := map[IncidentState]string{
		IncidentsAll: "true", IncidentsOpen: "(i.lasting OR i.acknowledged_at IS NULL)", IncidentsLasting: "i.lasting", IncidentsResolved: "NOT i.lasting",
	}[q.State]
	found, err := queryAll[Incident](ctx, s, `
		SELECT `+incidentColumns+`
		FROM incidents i
		WHERE i.customer_id = @customer AND i.merged_into IS NULL AND `+condition+`
		  AND (@room::bigint = 0 OR i.room_id = @room) AND (@node = '' OR i.node_id = @node) AND (@kind = '' OR i.kind = @kind)
		  AND i.start_time < COALESCE(@end::timestamptz, 'infinity')
		  AND (i.lasting OR i.end_time >= COALESCE(@start::timestamptz, '-infinity'))
		ORDER BY i.start_time DESC, i.id DESC
		LIMIT @limit`,
		pgx.StrictNamedArgs{
			"customer": customerID, "room": q.RoomID, "node": q.SensorID, "kind": q.Kind,
			"start": instantOrNull(q.Start), "end": instantOrNull(q.End), "limit": q.Limit,
		})
	if err != nil {
		return nil, fmt.Errorf("incidents of customer %d: %w", customerID, err)
	}
	return found, nil
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
		WHERE i.customer_id = @customer`,
		pgx.StrictNamedArgs{"id": id, "customer": customerID})
	if err != nil {
		return Incident{}, fmt.Errorf("incident %d: %w", id, err)
	}
	return found, nil
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
	if err != nil {
		return nil, fmt.Errorf("timeline of incident %d: %w", id, err)
	}
	return found, nil
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
			    WHERE customer_id = @customer
			      AND (id = ANY(@ids) OR (room_id = @room AND kind = @kind AND acknowledged_at IS NULL AND merged_into IS NULL))
			    UNION
			    SELECT n.id, n.merged_into FROM incidents n JOIN chain c ON n.id = c.merged_into
			), wanted AS (
			    SELECT i.id FROM incidents i JOIN chain c ON c.id = i.id WHERE i.merged_into IS NULL ORDER BY i.id FOR UPDATE OF i
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
			SELECT id FROM wanted`,
			pgx.StrictNamedArgs{
				"customer": customerID, "ids": a.IDs, "room": a.RoomID, "kind": a.Kind, "by": a.By, "comment": a.Comment,
			})
		if err != nil {
			return fmt.Errorf("mark: %w", err)
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return fmt.Errorf("mark: %w", err)
		}
		known, err := tx.Query(ctx, `SELECT id FROM incidents WHERE customer_id = @customer AND id = ANY(@ids)`,
			pgx.StrictNamedArgs{"customer": customerID, "ids": a.IDs})
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
			pgx.StrictNamedArgs{"ids": ids})
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if seen, err = pgx.CollectRows(rows, pgx.RowToStructByName[Incident]); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("acknowledge incidents of customer %d: %w", customerID, err)
	}
	return seen, nil
}

func distinct(ids []int64) int {
	seen := map[int64]bool{}
	for _, id := range ids {
		seen[id] = true
	}
	return len(seen)
}

// Silence is a sensor of which no reading came for longer than it usually takes.
type Silence struct {
	Channel        int64
	NodeID         string
	SensorName     string
	RoomID         int64
	RoomName       string
	GatewayID      string // that sent its newest reading; empty in the open channel
	Newest         time.Time
	Interval       time.Duration // between its readings, usually; zero while unknown
	AcknowledgedAt *time.Time
	AcknowledgedBy string
	Comment        string
}

// Since is when the sensor began to count as silent.
func (s Silence) Since() time.Time { return incident.SilentFrom(s.Newest, s.Interval) }

// Silences lists the sensors of a customer that are silent at a time, by id. A
// sensor that never sent a reading is not silent, it has not begun.
func (s *Store) Silences(ctx context.Context, customerID int64, now time.Time) ([]Silence, error) {
	found, err := queryAll[Silence](ctx, s, `
		SELECT n.channel, n.node_id, v.name AS sensor_name, v.room_id, r.name AS room_name, COALESCE(n.gateway_id, '') AS gateway_id,
		       n.timestamp AS newest, COALESCE(n.usual_interval_s, 0) * interval '1 second' AS interval,
		       a.acknowledged_at, COALESCE(a.acknowledged_by, '') AS acknowledged_by, COALESCE(a.comment, '') AS comment
		FROM sensors v
		JOIN server_rooms r ON r.id = v.room_id
		JOIN LATERAL (
		    SELECT *
		    FROM node_state n
		    WHERE n.node_id = v.node_id AND n.timestamp IS NOT NULL
		      AND (n.channel = v.customer_id
		           OR (n.channel = 0 AND v.holds_open AND (v.readable_from IS NULL OR n.timestamp >= v.readable_from)))
		    ORDER BY n.timestamp DESC
		    LIMIT 1
		) n ON true
		LEFT JOIN silence_acknowledgements a
		    ON a.customer_id = v.customer_id AND a.channel = n.channel AND a.node_id = n.node_id AND a.newest_at = n.timestamp
		WHERE v.customer_id = @customer
		ORDER BY n.node_id`,
		pgx.StrictNamedArgs{"customer": customerID})
	if err != nil {
		return nil, fmt.Errorf("silences of customer %d: %w", customerID, err)
	}
	var silent []Silence
	for _, silence := range found {
		if !now.Before(silence.Since()) {
			silent = append(silent, silence)
		}
	}
	return silent, nil
}

// AcknowledgeSilences marks silences as seen, again without effect. Each is the
// sensor and its newest reading: when another comes, that silence is over.
func (s *Store) AcknowledgeSilences(ctx context.Context, customerID int64, silences []Silence, by, comment string) error {
	channels, nodes, newest := make([]int64, len(silences)), make([]string, len(silences)), make([]time.Time, len(silences))
	for i, silence := range silences {
		channels[i], nodes[i], newest[i] = silence.Channel, silence.NodeID, silence.Newest
	}
	_, err := s.pool.Exec(ctx, `
		INSERT INTO silence_acknowledgements (customer_id, channel, node_id, newest_at, acknowledged_by, comment)
		SELECT @customer, channel, node_id, newest_at, @by, @comment
		FROM unnest(@channels::bigint[], @nodes::text[], @newest::timestamptz[]) AS n (channel, node_id, newest_at)
		ON CONFLICT DO NOTHING`,
		pgx.StrictNamedArgs{
			"customer": customerID, "by": by, "comment": comment, "channels": channels, "nodes": nodes, "newest": newest,
		})
	if err != nil {
		return fmt.Errorf("acknowledge silences of customer %d: %w", customerID, err)
	}
	return nil
}
