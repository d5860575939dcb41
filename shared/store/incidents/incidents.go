// Package incidents stores rules, excursions and incidents, alerts, silences and maintenance
// windows. detect judges readings here, storealert adds alerts, the API shows and changes all of it.
package incidents

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

// Store runs its statements on a database, or in a transaction of one.
type Store struct{ db *store.DB }

// New returns the store over a database or transaction.
func New(db *store.DB) Store { return Store{db} }

// Incident is what is wrong in one place for one cause: it is what people are called for.
type Incident struct {
	ID           int64
	RoomID       int64  // zero: of a gateway, or of a node in no room
	RoomName     string // as it is now
	NodeID       string // of a node in no room
	GatewayID    string // of a gateway whose nodes are all silent
	GatewayName  string
	Cause        incident.Cause
	Severity     incident.Severity // of the excursions that last and do not stand; of all once it is over
	Actual       bool              // else it was only expected
	StartTime    time.Time
	EndTime      time.Time // of the last clearing; while an excursion lasts, of its newest reading
	Lasting      bool      // until no excursion has lasted for [incident.JoinGap]
	Breaking     bool      // an excursion lasts
	Late         bool      // every excursion is late: nobody is called
	Parts        int       // how many excursions it has
	TakenAt      *time.Time
	TakenBy      string // who has it, or had it at its end
	HadBy        string // the same, or who last had it before it was open again
	Comment      string
	SnoozedUntil *time.Time
	Seen         bool  // somebody took it, or has marked it since its end
	DrillID      int64 // of an alarm drill; zero: it is real

	Worst Excursion `db:"-"` // the one that describes it
	// Resolution is why its last excursions ended: "cleared" if all of them did. Empty while one
	// lasts.
	Resolution string `db:"-"`
	Silenced   bool   `db:"-"` // maintenance windows cover all of it: now while it lasts, else the start and end of each excursion
	Now        *Now   `db:"-"` // nil once it is over

	audible []Excursion // those that last and that maintenance does not cover
}

// SilencedBy reports whether a maintenance window would cover excursions of a lasting incident
// that none covers now, and the worst severity of these.
func (i Incident) SilencedBy(m Maintenance) (worst incident.Severity, some bool) {
	for _, e := range i.audible {
		if m.AppliesTo(e.RoomID, e.NodeID) {
			some = true
			if e.Severity.Rank() > worst.Rank() {
				worst = e.Severity
			}
		}
	}
	return worst, some
}

// Now is the present state of a lasting incident.
type Now struct {
	Value     *float64   // of the worst excursion's quantity; nil: it has none
	ValueAt   *time.Time // when it was measured
	Silent    bool       // nothing has come since: the sensor is silent, or measures it no more
	Within    bool       // the value is back within the limit of its rule and has yet to clear
	Rate      *float64   // change of the value per minute, see rateOver; nil: unknown
	NextLimit *float64   // the limit that a forecast expects to be passed
	Earliest  *time.Time // between this time
	Latest    *time.Time // and this one
	Sensors   int        // with an excursion that lasts; silent ones only if it is their silence
	Heard     int        // sensors of the place that are not silent
	Standing  int        // excursions that no longer count, see [incident.Status.Standing]
	Worst     Priority   // the worst that counts; zero if all excursions stand or are silenced
}

// Priority orders excursions: by severity, silent ones last, then by excess.
type Priority struct {
	Severity incident.Severity
	Silent   bool    // the excess is of a silent sensor's last value
	Excess   float64 // in units, see [incident.Excess]
}

const incidentColumns = `i.id, COALESCE(i.room_id, 0) AS room_id, COALESCE(r.name, i.room_name) AS room_name, i.node_id, i.gateway_id, COALESCE(g.name, '') AS gateway_name,
	i.cause, i.severity, i.actual, i.start_time, i.end_time, i.lasting, i.breaking, i.late, i.taken_at, i.taken_by, i.comment, CASE WHEN i.lasting THEN i.snoozed_until END AS snoozed_until, i.seen,
	COALESCE(i.drill_id, 0) AS drill_id,
	CASE WHEN i.taken_at IS NOT NULL THEN i.taken_by ELSE COALESCE((
	    SELECT CASE c.event WHEN 'handed_over' THEN substr(c.comment, length('to ') + 1) ELSE c.person END
	    FROM incident_changes c
	    WHERE c.incident_id = i.id AND c.event IN ('taken', 'snoozed', 'handed_over')
	    ORDER BY c.number DESC LIMIT 1), '') END AS had_by,
	CASE WHEN i.gateway_id = '' OR @rooms::bigint[] IS NULL THEN i.parts
	ELSE (SELECT count(*) FROM excursions o WHERE o.incident_id = i.id AND o.merged_into IS NULL AND o.room_id = ANY (@rooms::bigint[])) END AS parts`

func fromIncidents() string {
	return `
	FROM room_incidents i
	LEFT JOIN server_rooms r ON r.id = i.room_id
	LEFT JOIN gateways g ON g.id = i.gateway_id
	WHERE i.customer_id = @customer AND i.merged_into IS NULL AND ` + inRooms()
}

func inRooms() string { return store.IncidentIn("@rooms::bigint[]") }

// IncidentState is the state of an incident.
type IncidentState string

// The states.
const (
	StateAll     IncidentState = ""
	StateLasting IncidentState = "lasting" // open or taken
	StateOpen    IncidentState = "open"    // it lasts, and nobody has it
	StateTaken   IncidentState = "taken"   // it lasts, and somebody has it
	StateOver    IncidentState = "over"
	StateUnseen  IncidentState = "unseen" // over, and not [Incident.Seen]

	StateSilenced IncidentState = "silenced" // it lasts, and maintenance covers all of it; selects nothing
	StateLate     IncidentState = "late"     // it lasts, and every excursion is late: nobody is called; selects nothing
)

// State returns whether a lasting incident is open, taken, silenced or late.
func (i Incident) State() IncidentState {
	switch {
	case i.Silenced:
		return StateSilenced
	case i.Late:
		return StateLate
	case i.TakenAt != nil:
		return StateTaken
	default:
		return StateOpen
	}
}

// condition is the SQL condition that an incident i is in the state.
func (s IncidentState) condition() string {
	return map[IncidentState]string{
		StateAll: `true`, StateLasting: `i.lasting`, StateOpen: `i.lasting AND i.taken_at IS NULL`, StateTaken: `i.lasting AND i.taken_at IS NOT NULL`,
		StateOver: `NOT i.lasting`, StateUnseen: `NOT i.lasting AND NOT i.seen`,
	}[s]
}

// IncidentQuery selects incidents of [Store.Incidents]. Zero fields select all.
type IncidentQuery struct {
	State      IncidentState
	RoomID     int64
	SensorID   string // with an excursion of this node
	Cause      incident.Cause
	Words      []string  // each occurs in its text or in that of an excursion, without regard to case
	Start, End time.Time // those that overlap this range, End excluded
	store.PageRequest
}

// Incidents lists a customer's incidents, newest first. A search for words has no index: it
// reads the customer's incidents in the range until the limit is reached.
func (s Store) Incidents(ctx context.Context, customerID int64, q IncidentQuery, now time.Time) (store.Page[Incident], error) {
	list := store.List[Incident]{
		DB: s.db, Subject: fmt.Sprintf("incidents of customer %d", customerID), Columns: incidentColumns, Time: "i.start_time", ID: "i.id",
		From: fromIncidents() + ` AND ` + q.State.condition() + `
	  AND (@room::bigint = 0 OR (` + store.RoomIn("@room") + ` AND ` + store.IncidentIn("ARRAY[@room::bigint]") + `))
	  AND (@node = '' OR EXISTS (SELECT FROM excursions o WHERE o.incident_id = i.id AND o.node_id = @node AND o.merged_into IS NULL AND ` + store.RoomIn("o.room_id") + `))
	  AND (@cause = '' OR i.cause = @cause)
	  AND i.start_time < COALESCE(@end::timestamptz, 'infinity')
	  AND (i.lasting OR i.end_time >= COALESCE(@start::timestamptz, '-infinity'))
	  AND NOT EXISTS (
	      SELECT FROM unnest(@words::text[]) AS w (word)
	      WHERE position(lower(w.word) IN lower(concat_ws(' ', r.name, i.room_name, i.node_id COLLATE "default", g.name, i.gateway_id, translate(i.cause, '_', ' '),
	                i.severity, i.taken_by, i.comment))) = 0
	        AND NOT EXISTS (SELECT FROM excursions e WHERE e.incident_id = i.id AND e.merged_into IS NULL AND ` + store.RoomIn("e.room_id") + ` AND position(lower(w.word) IN ` + excursionText + `) > 0))`,
		Args: store.Args{
			"customer": customerID, "room": q.RoomID, "node": q.SensorID, "cause": string(q.Cause), "words": q.Words,
			"start": store.OrNull(q.Start), "end": store.OrNull(q.End), "rooms": store.RoomsOf(ctx),
		},
		At: func(i Incident) store.Position { return store.Position{Time: i.StartTime, ID: i.ID} },
	}
	page, err := list.Page(ctx, q.PageRequest)
	if err != nil {
		return store.Page[Incident]{}, err
	}
	return page, s.complete(ctx, customerID, page.Items, nil, now)
}

// Lasting returns all of a customer's incidents that last, the most important first: drills come
// after real ones, those that are silenced, late, standing or cleared after the others, taken after
// open ones; then the worst comes first. live returns the customer's sensors and may wait for them;
// if it is nil, the sensors that are needed are read.
func (s Store) Lasting(ctx context.Context, customerID int64, live func() ([]LiveSensor, error), now time.Time) ([]Incident, error) {
	found, err := store.All[Incident](ctx, s.db, `SELECT `+incidentColumns+fromIncidents()+` AND i.lasting`,
		store.Args{"customer": customerID, "rooms": store.RoomsOf(ctx)}, "lasting incidents of customer %d", customerID)
	if err != nil {
		return nil, err
	}
	if err := s.complete(ctx, customerID, found, live, now); err != nil {
		return nil, err
	}
	slices.SortFunc(found, compareLasting)
	return found, nil
}

func compareLasting(a, b Incident) int {
	return cmp.Or(
		incident.CompareBools(a.DrillID != 0, b.DrillID != 0), incident.CompareBools(a.Silenced, b.Silenced), incident.CompareBools(a.Late, b.Late), incident.CompareBools(a.standing(), b.standing()), incident.CompareBools(!a.Breaking, !b.Breaking),
		incident.CompareBools(a.TakenAt != nil, b.TakenAt != nil),
		b.Now.Worst.Compare(a.Now.Worst), incident.CompareBools(!a.Actual, !b.Actual), a.StartTime.Compare(b.StartTime), cmp.Compare(a.ID, b.ID))
}

// standing reports whether excursions stand and no other counts.
func (i Incident) standing() bool { return i.Now.Standing > 0 && i.Now.Worst == Priority{} }

// Compare returns a number above zero if the priority is higher than another.
func (p Priority) Compare(other Priority) int {
	return cmp.Or(cmp.Compare(p.Severity.Rank(), other.Severity.Rank()), incident.CompareBools(other.Silent, p.Silent), cmp.Compare(p.Excess, other.Excess))
}

// Unseen counts a customer's incidents that are over and that nobody has seen.
func (s Store) Unseen(ctx context.Context, customerID int64) (int, error) {
	return store.Value[int](ctx, s.db, store.ErrNotFound, `
		SELECT count(*)
		FROM room_incidents i
		WHERE i.customer_id = @customer AND NOT i.seen AND NOT i.lasting AND i.merged_into IS NULL AND i.drill_id IS NULL AND `+inRooms(),
		store.Args{"customer": customerID, "rooms": store.RoomsOf(ctx)}, "unseen incidents of customer %d", customerID)
}

// chainOf follows a customer's row of a table, an incident or an excursion, to the one that it was merged into.
func chainOf(table string) string {
	return `
	WITH RECURSIVE chain AS (
	    SELECT id, merged_into FROM ` + table + ` WHERE id = @id AND customer_id = @customer
	    UNION
	    SELECT n.id, n.merged_into FROM ` + table + ` n JOIN chain c ON n.id = c.merged_into
	)`
}

// Incident returns a customer's incident, or [store.ErrNoIncident]. The id of an incident
// that became part of another returns that other.
func (s Store) Incident(ctx context.Context, customerID, id int64, now time.Time) (Incident, error) {
	found, err := store.One[Incident](ctx, s.db, store.ErrNoIncident, chainOf("room_incidents")+`
	SELECT `+incidentColumns+fromIncidents()+` AND i.id IN (SELECT id FROM chain)`,
		store.Args{"id": id, "customer": customerID, "rooms": store.RoomsOf(ctx)}, "incident %d", id)
	one := []Incident{found}
	if err == nil {
		err = s.complete(ctx, customerID, one, nil, now)
	}
	return one[0], err
}

// Timeline lists the changes of a customer's incident and of those that were merged into it. The
// first change stays first; the others are ordered by when they happened, not by when they were
// logged, because an excursion that joins began earlier.
func (s Store) Timeline(ctx context.Context, customerID, id int64) ([]Change, error) {
	return store.All[Change](ctx, s.db, `
		WITH RECURSIVE parts AS (
		    SELECT id FROM room_incidents WHERE id = @id AND customer_id = @customer
		    UNION
		    SELECT n.id FROM room_incidents n JOIN parts p ON n.merged_into = p.id
		)
		SELECT c.number, c.at, c.event, c.calls, c.person, c.comment, @id::bigint AS incident_id
		FROM incident_changes c
		JOIN parts p ON p.id = c.incident_id
		WHERE c.customer_id = @customer
		ORDER BY c.number <> min(c.number) OVER (), c.at, c.number`,
		store.Args{"id": id, "customer": customerID}, "timeline of incident %d", id)
}

// complete sets the excursion that describes each incident, whether maintenance covers it and,
// while it lasts, its present state. For live see [Store.Lasting].
func (s Store) complete(ctx context.Context, customerID int64, all []Incident, live func() ([]LiveSensor, error), now time.Time) error {
	if len(all) == 0 {
		return nil
	}
	ids, oldest := make([]int64, len(all)), now
	for k, i := range all {
		ids[k], oldest = i.ID, reading.Earlier(oldest, i.StartTime)
	}
	parts, err := store.All[Excursion](ctx, s.db, `
		SELECT `+excursionColumns+`
		FROM excursions e
		WHERE e.incident_id = ANY (@ids) AND e.merged_into IS NULL AND `+store.RoomIn("e.room_id")+`
		  AND (e.lasting OR NOT EXISTS (SELECT FROM excursions l WHERE l.incident_id = e.incident_id AND l.merged_into IS NULL AND l.lasting AND `+store.RoomIn("l.room_id")+`))
		ORDER BY e.start_time, e.id`, store.Args{"ids": ids, "rooms": store.RoomsOf(ctx)}, "excursions of incidents")
	if err != nil {
		return err
	}
	windows, err := s.MaintenanceWindows(ctx, customerID, oldest)
	if err != nil {
		return err
	}
	probe, err := s.Probe(ctx)
	if err != nil {
		return err
	}
	of, err := s.showDrills(ctx, all)
	if err != nil {
		return err
	}
	if live == nil {
		live = func() ([]LiveSensor, error) { return s.liveAround(ctx, customerID, all) }
	}
	sensors, err := live()
	if err != nil {
		return err
	}
	for _, e := range parts {
		of[e.IncidentID] = append(of[e.IncidentID], e)
	}
	c := conditions{windows: windows, sensors: sensors, live: make(map[string]*LiveSensor, len(sensors)), probe: probe, now: now}
	for k := range sensors {
		c.live[sensors[k].NodeID] = &sensors[k]
	}
	worst := make([]Excursion, len(all))
	for k := range all {
		c.assess(&all[k], of[all[k].ID])
		worst[k] = all[k].Worst
	}
	for _, i := range all {
		if i.GatewayID != "" && i.Lasting { // any of its nodes shows where the readings stop
			worst = append(worst, of[i.ID]...)
		}
	}
	if err := s.describe(ctx, customerID, worst, now); err != nil {
		return err
	}
	setWorst(all, worst, now)
	return s.rates(ctx, all, now)
}

// setWorst sets the described excursions of incidents: worst has one for each, and behind these all
// of silent gateways.
func setWorst(all []Incident, worst []Excursion, now time.Time) {
	for k := range all {
		i := &all[k]
		i.Worst = worst[k]
		if i.DrillID != 0 {
			i.Worst.Reason = incident.Rule{Quantity: worst[k].Quantity, Direction: worst[k].Direction, Limit: worst[k].LimitValue}.DescribeDrill()
		}
		if i.GatewayID != "" && i.Lasting && i.Now.Sensors > 0 { // else all have been heard
			newest := i.Worst.PeakTime // of all its nodes: one may have been silent before
			for _, e := range worst {
				if e.IncidentID != i.ID {
					continue
				}
				if newest = reading.Later(newest, e.PeakTime); e.Where == incident.UplinkDown {
					i.Worst.Where = e.Where
				}
			}
			i.Worst.Reason = incident.DescribeGatewaySilence(i.GatewayName, i.Now.Sensors, newest, i.Worst.Where, now)
		}
	}
}

// conditions are those of the moment, from which an incident's present state follows.
type conditions struct {
	windows []Maintenance
	sensors []LiveSensor
	live    map[string]*LiveSensor // of sensors, by id
	probe   incident.Probe
	now     time.Time
}

// value returns the newest value of an excursion's quantity and when it was measured, while it
// lasts or if it ended only because its rule changed or was deleted. Judged before it is stored, the
// newest may be the peak; a drill's was never measured.
func (c conditions) value(e Excursion) (value float64, at *time.Time, known bool) {
	l := c.live[e.NodeID]
	if l == nil || l.Timestamp == nil || !e.Lasting && e.Resolution != "rule_changed" && e.Resolution != "rule_deleted" {
		return 0, nil, false
	}
	value, at = e.Quantity.Of(reading.Value(l.Temperature), reading.Value(l.Humidity)), l.measuredAt(e.Quantity)
	if reading.Has(value) && e.Kind == incident.KindThreshold && e.ID != 0 && e.PeakTime.After(*at) {
		return e.Peak, &e.PeakTime, true
	}
	return value, at, reading.Has(value)
}

func (c conditions) silent(e Excursion) bool {
	l := c.live[e.NodeID]
	peaked := e.Kind == incident.KindThreshold && e.ID != 0 // the newest reading may be the peak here, too
	return l != nil && l.Silent(c.probe, c.now) && (!peaked || c.probe.Silent(e.PeakTime, l.Interval, c.now))
}

// resolution returns why an incident's excursions ended. Of the last one of each node and
// quantity, one that did not clear counts before those that did.
func resolution(parts []Excursion) string {
	const cleared = "cleared"
	newest := slices.SortedFunc(slices.Values(parts), func(a, b Excursion) int {
		return cmp.Or(b.EndTime.Compare(a.EndTime), incident.CompareBools(a.Resolution == cleared, b.Resolution == cleared))
	})
	seen := map[[3]string]bool{} // node, quantity and direction
	for _, e := range newest {
		of := [3]string{e.NodeID, string(e.Quantity), string(e.Direction)}
		if e.Resolution != cleared && !seen[of] && newest[0].EndTime.Sub(e.EndTime) < incident.JoinGap {
			return e.Resolution
		}
		seen[of] = true
	}
	return cleared
}

// assess sets all fields that need no other query, from the excursions of an incident: those
// that last or, if none does, all.
func (c conditions) assess(i *Incident, parts []Excursion) {
	if len(parts) == 0 { // another request moves them at this moment
		parts = []Excursion{{
			Kind: incident.KindAnomaly, Finding: &Finding{Reason: "its sensors are being moved"}, Severity: i.Severity, StartTime: i.StartTime, EndTime: i.EndTime,
			PeakTime: i.StartTime, RoomID: i.RoomID, NodeID: i.NodeID,
		}}
	}
	status := incident.Status{TakenAt: store.UTC(i.TakenAt)}
	if !i.Breaking {
		i.Resolution = resolution(parts)
	}
	if i.Lasting {
		i.Now = &Now{}
	}
	i.Silenced = true
	nodes, heard := map[string]bool{}, map[string]bool{}
	counted := -1
	var worst, best incident.Part // of all, and of those that count
	var beyond float64            // orders those that are within their limit and have yet to clear
	var priority Priority
	for k, e := range parts {
		silenced := covered(c.windows, e, c.now)
		if !i.Lasting {
			silenced = e.silenced(c.windows)
		}
		i.Silenced = i.Silenced && silenced
		if !silenced && e.Lasting {
			i.audible = append(i.audible, e)
		}
		part, own := e.part(), math.Inf(-1)
		part.NodeSilent = c.silent(e)
		heard[e.NodeID] = heard[e.NodeID] || !part.NodeSilent
		if value, _, known := c.value(e); known && e.Kind == incident.KindThreshold {
			own = incident.Beyond(e.Quantity, e.Direction, e.LimitValue, value)
			part.Excess = max(0, own)
		}
		standing := e.Lasting && status.Standing(part, c.now)
		if i.Now != nil && e.Lasting {
			if !part.NodeSilent || e.Kind == incident.KindSilence {
				nodes[e.NodeID] = true
			}
			if standing {
				i.Now.Standing++
			}
		}
		if !standing && !silenced {
			if counted < 0 || cmp.Or(i.Cause.CompareParts(part, best), cmp.Compare(own, beyond)) > 0 {
				counted, best, beyond = k, part, own
			}
			if p := (Priority{e.Severity, part.NodeSilent, part.Excess}); p.Compare(priority) > 0 {
				priority = p
			}
		}
		if k == 0 || i.Cause.CompareParts(part, worst) > 0 {
			worst, i.Worst = part, e
		}
	}
	if counted >= 0 {
		i.Worst = parts[counted]
	}
	if i.Now != nil {
		i.Now.Worst, i.Now.Sensors = priority, len(nodes)
		c.setPresent(i, parts, nodes, heard)
	}
}

// setPresent sets the present value, forecast and room of a lasting incident, from its excursions
// that last, of nodes; heard are those that at least one of its excursions shows not to be silent.
func (c conditions) setPresent(i *Incident, parts []Excursion, nodes, heard map[string]bool) {
	value, at, known := c.value(i.Worst)
	i.Now.ValueAt, i.Now.Silent = at, c.silent(i.Worst) || i.Worst.Lasting && i.Worst.Kind == incident.KindMissing
	if known {
		i.Now.Value = &value
		i.Now.Within = i.Worst.Lasting && !i.Now.Silent && i.Worst.Kind == incident.KindThreshold &&
			incident.Beyond(i.Worst.Quantity, i.Worst.Direction, i.Worst.LimitValue, value) <= 0
	}
	for _, e := range parts { // forecasts of the sensor whose value is shown: another's would read as its own
		if i.Now.Silent || known && value > e.LimitValue {
			continue // it is old, or the limit is passed already
		}
		if f := e.Finding; e.Lasting && e.Kind == incident.KindForecast && f != nil && f.Earliest != nil && e.NodeID == i.Worst.NodeID && e.Quantity == i.Worst.Quantity && (i.Now.Earliest == nil || f.Earliest.Before(*i.Now.Earliest)) {
			i.Now.NextLimit, i.Now.Earliest, i.Now.Latest = &e.LimitValue, f.Earliest, f.Latest
		}
	}
	for k := range c.sensors { // not of the map: each lasting incident asks for all of them
		l := &c.sensors[k]
		here := (i.RoomID != 0 && l.RoomID == i.RoomID) || (i.GatewayID != "" && l.GatewayID == i.GatewayID) || (i.NodeID != "" && l.NodeID == i.NodeID)
		// A silence lasts until its node is heard, however late the service has been since.
		silent := i.Cause == incident.Silent && nodes[l.NodeID] || l.Silent(c.probe, c.now) && !heard[l.NodeID]
		if here && l.Timestamp != nil && !silent {
			i.Now.Heard++
		}
	}
}

// The rate of change is the smaller of those over rateOver and over rateNewest, so that it ends
// soon after the change does; it is 0 if they have different signs. Each needs readings of a minute.
const (
	rateOver   = 10 * time.Minute
	rateNewest = 3 * time.Minute
)

// rates sets how fast the values of lasting incidents change: the slopes of straight lines through
// the worst sensor's readings.
func (s Store) rates(ctx context.Context, all []Incident, now time.Time) error {
	var ids, channels []int64
	var nodes, quantities []string
	for _, i := range all {
		if i.Now == nil || i.Now.Silent || !i.Worst.Lasting || (i.Worst.Quantity != incident.Temperature && i.Worst.Quantity != incident.TemperatureRate && i.Worst.Quantity != incident.Humidity) {
			continue
		}
		ids, channels, nodes, quantities = append(ids, i.ID), append(channels, i.Worst.Channel), append(nodes, i.Worst.NodeID), append(quantities, string(i.Worst.Quantity))
	}
	if len(ids) == 0 {
		return nil
	}
	type row struct {
		ID   int64
		Rate *float64
	}
	found, err := store.AllPlanned(ctx, s.db, pgx.RowToStructByName[row], `
		SELECT w.id, (
		    SELECT CASE WHEN m.rate * m.last < 0 THEN 0 WHEN abs(m.last) < abs(m.rate) AND m.span >= 60 THEN m.last ELSE m.rate END
		    FROM (
		        SELECT regr_slope(v.value, v.at) * 60 AS rate, regr_slope(v.value, v.at) FILTER (WHERE r.timestamp > @newest) * 60 AS last,
		            max(v.at) - min(v.at) FILTER (WHERE r.timestamp > @newest) AS span
		        FROM sensor_data.readings r, LATERAL (
		            SELECT CASE w.quantity WHEN 'humidity' THEN r.humidity ELSE r.temperature END AS value, extract(epoch FROM r.timestamp)::float8 AS at) v
		        WHERE r.node_id = w.node_id AND r.customer_id = w.channel AND r.timestamp > @from AND r.timestamp <= @now
		        HAVING max(r.timestamp) - min(r.timestamp) >= interval '1 minute') m) AS rate
		FROM unnest(@ids::bigint[], @channels::bigint[], @nodes::text[], @quantities::text[]) AS w (id, channel, node_id, quantity)`,
		store.Args{"ids": ids, "channels": channels, "nodes": nodes, "quantities": quantities, "from": now.Add(-rateOver), "newest": now.Add(-rateNewest), "now": now},
		"rates of change")
	for _, r := range found {
		k := slices.IndexFunc(all, func(i Incident) bool { return i.ID == r.ID })
		all[k].Now.Rate = r.Rate
	}
	return err
}
