package incidents

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

// MaxDrills is the most drills that an account may start in 24 hours.
const MaxDrills = 10

// ErrTooManyDrills says that the account has started [MaxDrills].
var ErrTooManyDrills = errors.New("too many drills")

// Drill is an alarm drill: a message that takes the path of a reading which breaks a rule. Rule
// and sensor are as they were when it began.
type Drill struct {
	ID         int64
	CustomerID int64
	OnSite     bool // a gateway of the customer sends it, else the API
	RuleID     int64
	Quantity   incident.Quantity
	Direction  incident.Direction
	LimitValue float64
	Severity   incident.Severity
	NodeID     string
	SensorName string
	RoomID     int64
	RoomName   string
	StartedBy  string
	CreatedAt  time.Time
	IncidentID int64        // zero until it is judged
	Stages     []*time.Time // when it reached each of [incident.DrillStages]; null: not yet
}

const drillColumns = `d.id, d.customer_id, d.on_site, d.rule_id, d.quantity, d.direction, d.limit_value, d.severity, d.node_id, d.sensor_name, d.room_id, d.room_name,
	d.started_by, d.created_at, COALESCE((SELECT i.id FROM room_incidents i WHERE i.drill_id = d.id), 0) AS incident_id,
	ARRAY[d.sent_at, d.published_at, d.ingested_at, d.judged_at, d.alert_at, d.shown_at, d.told_at, d.taken_at] AS stages`

// Reached returns the times at which the drill reached its stages.
func (d Drill) Reached() map[incident.DrillStage]time.Time {
	reached := map[incident.DrillStage]time.Time{}
	for i, at := range d.Stages {
		if at != nil {
			reached[incident.DrillStages()[i]] = at.UTC()
		}
	}
	return reached
}

// excursion stands in for the excursion that the drill's incident does not have.
func (d Drill) excursion(i Incident) Excursion {
	return Excursion{
		IncidentID: i.ID, Kind: incident.KindThreshold, NodeID: d.NodeID, SensorName: d.SensorName, RoomID: d.RoomID, RoomName: d.RoomName, RuleID: d.RuleID,
		Quantity: d.Quantity, Direction: d.Direction, LimitValue: d.LimitValue, Severity: d.Severity,
		StartTime: i.StartTime, EndTime: i.EndTime, Lasting: i.Lasting, Peak: d.LimitValue, PeakTime: i.StartTime, RisenAt: i.StartTime,
	}
}

// StartDrill begins a drill of a customer's rule at a sensor, and returns the code for its
// message. The caller holds the lock of the account's changes. Error: [ErrTooManyDrills].
func (s Store) StartDrill(ctx context.Context, customerID int64, d Drill) (started Drill, code string, err error) {
	code = rand.Text()
	id, err := store.Value[int64](ctx, s.db, ErrTooManyDrills, `
		INSERT INTO drills (customer_id, code_hash, on_site, rule_id, quantity, direction, limit_value, severity, node_id, sensor_name, room_id, room_name, started_by, sent_at)
		SELECT @customer::bigint, @hash, @on_site::boolean, @rule, @quantity, @direction, @limit, @severity, @node, @sensor, @room, @room_name, @by,
		       CASE WHEN NOT @on_site THEN now() END
		WHERE (SELECT count(*) FROM drills WHERE customer_id = @customer AND created_at > now() - interval '1 day') < @most
		RETURNING id`, store.Args{
		"customer": customerID, "hash": store.CodeHash(code), "on_site": d.OnSite, "rule": d.RuleID, "quantity": string(d.Quantity), "direction": string(d.Direction),
		"limit": d.LimitValue, "severity": string(d.Severity), "node": d.NodeID, "sensor": d.SensorName, "room": d.RoomID, "room_name": d.RoomName, "by": d.StartedBy,
		"most": MaxDrills,
	}, "start drill")
	if err != nil {
		return Drill{}, "", err
	}
	started, err = s.Drill(ctx, customerID, id)
	return started, code, err
}

// Drill returns a customer's drill, or [store.ErrNoDrill].
func (s Store) Drill(ctx context.Context, customerID, id int64) (Drill, error) {
	return store.One[Drill](ctx, s.db, store.ErrNoDrill, `
		SELECT `+drillColumns+` FROM drills d WHERE d.customer_id = @customer AND d.id = @id AND `+store.RoomIn("d.room_id"),
		store.Args{"customer": customerID, "id": id, "rooms": store.RoomsOf(ctx)}, "drill %d", id)
}

// Drills lists a customer's drills, newest first.
func (s Store) Drills(ctx context.Context, customerID int64, part store.PageRequest) (store.Page[Drill], error) {
	return store.List[Drill]{
		DB: s.db, Subject: fmt.Sprintf("drills of customer %d", customerID), Columns: drillColumns, Time: "d.created_at", ID: "d.id",
		From: ` FROM drills d WHERE d.customer_id = @customer AND ` + store.RoomIn("d.room_id"),
		Args: store.Args{"customer": customerID, "rooms": store.RoomsOf(ctx)},
		At:   func(d Drill) store.Position { return store.Position{Time: d.CreatedAt, ID: d.ID} },
	}.Page(ctx, part)
}

// DrillMessage is a message of topic data that carries the code of a drill.
type DrillMessage struct {
	Code            string
	Channel         reading.Channel // in which it came
	Sent, Published time.Time
}

// ReachDrill records that the message of a drill has reached a stage. It reports false for an
// unknown or expired drill, and for a message that came through another channel.
func (s Store) ReachDrill(ctx context.Context, stage incident.DrillStage, m DrillMessage) (known bool, err error) {
	return reached(ctx, s.db, stage, `, published_at = COALESCE(published_at, LEAST(@published::timestamptz, clock_timestamp())),
		    sent_at = COALESCE(sent_at, LEAST(@sent::timestamptz, @published::timestamptz, clock_timestamp()))
		WHERE code_hash = @hash AND created_at > now() - @valid::interval AND CASE WHEN on_site THEN customer_id = @channel ELSE @channel = 0 END`,
		store.Args{"hash": store.CodeHash(m.Code), "valid": incident.DrillTime, "channel": int64(m.Channel), "sent": m.Sent, "published": m.Published})
}

// JudgeDrill makes the incident of a drill, once, and logs its start. For known see [Store.ReachDrill].
func (s Store) JudgeDrill(ctx context.Context, m DrillMessage) (known bool, err error) {
	err = s.db.InTx(ctx, func(tx *store.DB) error {
		if known, err = New(tx).ReachDrill(ctx, incident.DrillJudged, m); err != nil || !known {
			return err
		}
		d, err := store.One[Drill](ctx, tx, store.ErrNoDrill, `SELECT `+drillColumns+` FROM drills d WHERE d.code_hash = @hash`,
			store.Args{"hash": store.CodeHash(m.Code)}, "drill")
		if err != nil || d.IncidentID != 0 {
			return err
		}
		at := d.Reached()[incident.DrillJudged]
		id, err := store.Value[int64](ctx, tx, store.ErrNoDrill, `
			INSERT INTO room_incidents (customer_id, room_id, room_name, cause, severity, actual, start_time, end_time, lasting, breaking, late, parts,
			                            known_severity, known_actual, told_at, drill_id)
			VALUES (@customer, @room, @room_name, @cause, @severity, true, @at, @at, true, true, false, 1, @severity, true, @at, @drill)
			RETURNING id`, store.Args{
			"customer": d.CustomerID, "room": d.RoomID, "room_name": d.RoomName, "severity": string(d.Severity), "at": at, "drill": d.ID,
			"cause": string(incident.CauseOf(incident.KindThreshold, d.Quantity, d.Direction, "")),
		}, "incident")
		if err != nil {
			return err
		}
		return logChanges(ctx, tx, d.CustomerID, []change{
			{Incident: id, Room: d.RoomID, Transition: incident.Transition{Event: incident.EventStarted, At: at, Calls: true}},
		})
	})
	return known, store.Wrap(err, "judge drill")
}

// reached records that drills have reached a stage, and reports whether there are any. The rest of
// the statement is what else it sets, and the condition.
func reached(ctx context.Context, db *store.DB, stage incident.DrillStage, rest string, args store.Args) (bool, error) {
	column := string(stage) + "_at"
	drills, err := db.Affected(ctx, `UPDATE drills SET `+column+` = COALESCE(`+column+`, clock_timestamp())`+rest, args,
		"drill %s", stage)
	return drills > 0, err
}

// AlertDrill records that storealert has received the event of a drill, which only detect sends.
func (s Store) AlertDrill(ctx context.Context, code string) (known bool, err error) {
	return reached(ctx, s.db, incident.DrillAlert, ` WHERE code_hash = @hash AND created_at > now() - @valid::interval`,
		store.Args{"hash": store.CodeHash(code), "valid": incident.DrillTime})
}

// PublishedDrill records that Pub/Sub has the message of a drill.
func (s Store) PublishedDrill(ctx context.Context, id int64) error {
	_, err := reached(ctx, s.db, incident.DrillPublished, ` WHERE id = @id`, store.Args{"id": id})
	return err
}

// ToldDrill records that people were notified of an incident, if it is a drill's. Error:
// [store.ErrNoIncident].
func (s Store) ToldDrill(ctx context.Context, customerID, incidentID int64) error {
	found, err := store.One[statusRow](ctx, s.db, store.ErrNoIncident, `SELECT `+statusColumns+fromIncidents()+` AND i.id = @id`,
		store.Args{"customer": customerID, "id": incidentID, "rooms": store.RoomsOf(ctx)}, "told of incident %d", incidentID)
	if err == nil {
		_, err = reached(ctx, s.db, incident.DrillTold, ` WHERE id = (SELECT i.drill_id FROM room_incidents i WHERE i.id = @id)`,
			store.Args{"id": found.ID})
	}
	return err
}

// showDrills records that the incidents of drills are shown, and returns the stand-ins for their
// excursions, by incident.
func (s Store) showDrills(ctx context.Context, shown []Incident) (map[int64][]Excursion, error) {
	of, byDrill := map[int64][]Excursion{}, map[int64]Incident{}
	for _, i := range shown {
		if i.DrillID != 0 {
			byDrill[i.DrillID] = i
		}
	}
	if len(byDrill) == 0 {
		return of, nil
	}
	drills, err := store.All[Drill](ctx, s.db, `
		WITH shown AS (UPDATE drills SET shown_at = clock_timestamp() WHERE id = ANY (@ids) AND shown_at IS NULL)
		SELECT `+drillColumns+` FROM drills d WHERE d.id = ANY (@ids)`,
		store.Args{"ids": slices.Collect(maps.Keys(byDrill))}, "drills of incidents")
	for _, d := range drills {
		of[d.IncidentID] = []Excursion{d.excursion(byDrill[d.ID])}
	}
	return of, err
}

// endDrills ends the incidents of a customer's drills that have passed or expired.
func (s Store) endDrills(ctx context.Context, customerID int64, now time.Time) error {
	const due = `i.customer_id = @customer AND i.lasting AND i.merged_into IS NULL AND d.id = i.drill_id
		AND ((d.taken_at IS NOT NULL AND d.told_at IS NOT NULL) OR d.created_at <= @now::timestamptz - @valid::interval)`
	args := store.Args{"customer": customerID, "now": now, "valid": incident.DrillTakenTime}
	some, err := store.Value[bool](ctx, s.db, nil, `SELECT EXISTS (SELECT FROM room_incidents i, drills d WHERE `+due+`)`, args,
		"due drills of customer %d", customerID)
	if err != nil || !some {
		return err
	}
	return s.db.InTx(ctx, func(tx *store.DB) error {
		changes, err := store.All[change](ctx, tx, `
			UPDATE room_incidents i
			SET lasting = false, breaking = false, seen = true, end_time = GREATEST(i.start_time, @now)
			FROM drills d
			WHERE `+due+`
			RETURNING i.id AS incident, i.room_id AS room`, args, "end drills of customer %d", customerID)
		if err != nil {
			return err
		}
		for k := range changes {
			changes[k].Transition = incident.Transition{Event: incident.EventEnded, At: now}
		}
		return logChanges(ctx, tx, customerID, changes)
	})
}
