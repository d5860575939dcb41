package incidents

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

// silenceRule is the id of the built-in rule that a node must send, beside learning's.
const silenceRule = -3

// SettleAll calls [Store.Settle] for every customer with something due: an excursion is in no incident yet, an incident,
// a silence or a missing quantity lasts, or a node or a quantity has been quiet long enough to count as
// silent and is not recorded as such. It also ends what lasts of discovered nodes that are no longer missed.
func (s Store) SettleAll(ctx context.Context, now time.Time) error {
	forgotten := s.db.Exec(ctx, `
		WITH gone AS (
		    UPDATE excursions e
		    SET lasting = false, resolution = 'not_measured'
		    FROM node_state n
		    WHERE e.lasting AND e.merged_into IS NULL AND e.kind <> 'silence' AND e.sensor_name = ''
		      AND n.channel = e.channel AND n.node_id = e.node_id AND n.timestamp <= @now::timestamptz - @discovered::interval
		      AND NOT EXISTS (SELECT FROM sensors s WHERE s.customer_id = e.customer_id AND s.node_id = e.node_id)
		    RETURNING e.channel, e.node_id
		)
		DELETE FROM rule_memory m USING gone g WHERE m.channel = g.channel AND m.node_id = g.node_id`,
		store.Args{"now": now, "discovered": discoveredSilence}, "end what lasts of nodes that are gone")
	customers, err := store.Values[int64](ctx, s.db, `
		SELECT customer_id FROM room_incidents WHERE lasting AND merged_into IS NULL
		UNION
		SELECT customer_id FROM excursions WHERE merged_into IS NULL AND (incident_id IS NULL OR lasting AND kind IN ('silence', 'missing'))
		UNION
		SELECT COALESCE(NULLIF(n.channel, 0), h.customer_id)
		FROM node_state n
		LEFT JOIN open_holds h ON n.channel = 0 AND h.node_id = n.node_id AND h.held_until = 'infinity'
		WHERE LEAST(n.temperature_at, n.humidity_at) BETWEEN @now::timestamptz - interval '7 days' AND n.timestamp - @quiet::interval
		  AND COALESCE(NULLIF(n.channel, 0), h.customer_id) IS NOT NULL
		UNION
		SELECT COALESCE(NULLIF(n.channel, 0), h.customer_id)
		FROM node_state n
		LEFT JOIN open_holds h ON n.channel = 0 AND h.node_id = n.node_id AND h.held_until = 'infinity'
		WHERE n.timestamp <= @now::timestamptz - GREATEST(@quiet::interval, @missed * COALESCE(n.usual_interval_s, 0) * interval '1 second')
		  AND COALESCE(NULLIF(n.channel, 0), h.customer_id) IS NOT NULL
		  AND NOT EXISTS (SELECT FROM excursions e WHERE e.kind = 'silence' AND e.lasting AND e.channel = n.channel AND e.node_id = n.node_id)
		  AND (n.timestamp > @now::timestamptz - @discovered::interval
		       OR EXISTS (SELECT FROM sensors s WHERE s.customer_id = COALESCE(NULLIF(n.channel, 0), h.customer_id) AND s.node_id = n.node_id))`,
		store.Args{"now": now, "quiet": incident.MinSilence, "missed": incident.MissedReadings, "discovered": discoveredSilence},
		"customers with something due")
	errs := []error{forgotten, err}
	for _, customer := range customers { // the error of one must not stop the others
		errs = append(errs, s.Settle(ctx, customer, now))
	}
	return errors.Join(errs...)
}

// dues are the places whose incidents are due, each with the earliest start among these.
type dues map[place]time.Time

func (d dues) add(at place, from time.Time) {
	if before, known := d[at]; !known || from.Before(before) {
		d[at] = from
	}
}

// excursionPlace is where an excursion e counts, as the columns of a [place].
const excursionPlace = `CASE WHEN e.of_gateway THEN 0 ELSE COALESCE(e.room_id, 0) END, CASE WHEN e.of_gateway OR e.room_id IS NOT NULL THEN '' ELSE e.node_id END,
	CASE WHEN e.of_gateway THEN e.gateway_id ELSE '' END`

// Settle writes the transitions of a customer's incidents that are due by the clock: nodes and
// quantities that fall silent or are heard again, incidents that have been clear for ten minutes,
// snoozes that end, and excursions that come to stand. The first caller writes each; mostly there is none.
func (s Store) Settle(ctx context.Context, customerID int64, now time.Time) error {
	ctx = store.InRooms(ctx, nil) // all rooms of the account, whatever the caller is limited to
	due, err := s.settleSilences(ctx, customerID, now)
	if err != nil {
		return fmt.Errorf("silences of customer %d: %w", customerID, err)
	}
	err = s.db.ExecBatch(ctx, func(batch *pgx.Batch) {
		// Mostly none is missing: check that first, without the costly visibility of each node.
		batch.Queue(`
			SELECT settle_missing(@customer, @now, @quiet, @missed)
			WHERE EXISTS (SELECT FROM excursions e WHERE e.customer_id = @customer AND e.kind = 'missing' AND e.lasting)
			   OR EXISTS (
			       SELECT FROM sensors s
			       JOIN node_state n ON n.channel IN (0, s.customer_id) AND n.node_id = s.node_id
			       WHERE s.customer_id = @customer AND LEAST(n.temperature_at, n.humidity_at) + @quiet::interval <= n.timestamp)`,
			store.Args{"customer": customerID, "now": now, "quiet": incident.MinSilence, "missed": incident.MissedReadings})
		// It ends the other excursions of a quantity that has stopped.
		batch.Queue(`
			UPDATE excursions f
			SET lasting = false, resolution = 'not_measured'
			FROM excursions m
			WHERE m.customer_id = @customer AND m.kind = 'missing' AND m.lasting AND f.customer_id = m.customer_id AND f.channel = m.channel
			  AND f.node_id = m.node_id AND f.quantity = m.quantity AND f.kind = 'forecast' AND f.lasting AND f.merged_into IS NULL`,
			store.Args{"customer": customerID})
	}, "missing quantities of customer %d", customerID)
	if err != nil {
		return err
	}
	if err := s.endDrills(ctx, customerID, now); err != nil {
		return err
	}
	type row struct {
		place

		StartTime time.Time
	}
	found, err := store.All[row](ctx, s.db, `
		SELECT COALESCE(i.room_id, 0) AS room_id, i.node_id, i.gateway_id, i.start_time
		FROM room_incidents i
		LEFT JOIN LATERAL (
		    SELECT count(*) > 0 AS lasting, -- and whether all stand, or one does since the last update: a window may cover the others
		           COALESCE(bool_and(e.risen_at <= @now::timestamptz - @standing::interval)
		               OR bool_or(e.risen_at <= @now::timestamptz - @standing::interval AND e.risen_at > i.told_at - @standing::interval), false) AS stands
		    FROM excursions e
		    WHERE e.incident_id = i.id AND e.lasting AND e.merged_into IS NULL
		) AS e ON true
		WHERE i.customer_id = @customer AND i.lasting AND i.merged_into IS NULL AND i.drill_id IS NULL AND (
		    i.breaking <> e.lasting OR (NOT i.breaking AND i.end_time <= @now::timestamptz - @gap::interval) OR i.snoozed_until <= @now
		    OR (i.taken_at IS NOT NULL AND i.known_severity <> '' AND e.stands))
		UNION ALL
		SELECT `+excursionPlace+`, e.start_time
		FROM excursions e
		LEFT JOIN LATERAL (SELECT * FROM room_incidents WHERE id = e.incident_id OFFSET 0) AS i ON true -- one by one, not all that are over
		WHERE e.customer_id = @customer AND e.lasting AND e.merged_into IS NULL
		  AND (i.id IS NULL OR NOT i.lasting OR i.merged_into IS NOT NULL OR (COALESCE(i.room_id, 0), i.node_id, i.gateway_id) <> (`+excursionPlace+`))
		UNION ALL
		-- What began and ended between two looks.
		SELECT `+excursionPlace+`, e.start_time
		FROM excursions e
		WHERE e.customer_id = @customer AND NOT e.lasting AND e.merged_into IS NULL AND e.incident_id IS NULL`,
		store.Args{"customer": customerID, "now": now, "gap": incident.JoinGap, "standing": incident.StandingAfter},
		"due incidents of customer %d", customerID)
	if err != nil {
		return err
	}
	for _, r := range found {
		due.add(r.place, r.StartTime)
	}
	if err := s.uncovered(ctx, customerID, now, due); err != nil {
		return fmt.Errorf("maintenance of customer %d: %w", customerID, err)
	}
	var errs []error
	for at, from := range due {
		err := s.db.InTx(ctx, func(tx *store.DB) error {
			if err := tx.ExecBatch(ctx, func(batch *pgx.Batch) { at.lock(batch, customerID) }, "lock place"); err != nil {
				return err
			}
			return updateIncidents(ctx, tx, customerID, at, from, now, now)
		})
		errs = append(errs, store.Wrap(err, "settle incidents of customer %d", customerID))
	}
	return errors.Join(errs...)
}

// uncovered adds the incidents for which a maintenance window has begun or ended since they
// were last updated.
func (s Store) uncovered(ctx context.Context, customerID int64, now time.Time, due dues) error {
	type row struct {
		place

		StartTime, UpdatedAt time.Time
		BrokenIn             int64
		BrokenAt             string
	}
	found, err := store.All[row](ctx, s.db, `
		SELECT COALESCE(i.room_id, 0) AS room_id, i.node_id, i.gateway_id, i.start_time, i.told_at AS updated_at, COALESCE(e.room_id, 0) AS broken_in, e.node_id AS broken_at
		FROM room_incidents i
		JOIN excursions e ON e.incident_id = i.id AND e.lasting AND e.merged_into IS NULL
		WHERE i.customer_id = @customer AND i.lasting AND i.merged_into IS NULL AND i.drill_id IS NULL AND isfinite(i.told_at)
		  AND EXISTS (SELECT FROM maintenance_windows w WHERE w.customer_id = @customer AND w.stands_to > i.told_at)
		ORDER BY i.told_at`, store.Args{"customer": customerID}, "incidents")
	if err != nil || len(found) == 0 {
		return err
	}
	windows, err := s.MaintenanceWindows(ctx, customerID, found[0].UpdatedAt)
	for _, r := range found {
		if e := (Excursion{RoomID: r.BrokenIn, NodeID: r.BrokenAt}); covered(windows, e, r.UpdatedAt) != covered(windows, e, now) {
			due.add(r.place, r.StartTime)
		}
	}
	return err
}

// settleSilences stores the silences that have begun, and ends those that are over. It returns
// the places where one has begun.
func (s Store) settleSilences(ctx context.Context, customerID int64, now time.Time) (dues, error) {
	silent, gateways, err := s.Silences(ctx, customerID, now)
	if err != nil || gateways == nil { // while the service is late nobody counts as silent, or as heard
		return dues{}, err
	}
	type row struct {
		NodeID    string
		RoomID    int64
		GatewayID string
		OfGateway bool
	}
	recorded, err := store.All[row](ctx, s.db, `
		SELECT node_id, COALESCE(room_id, 0) AS room_id, gateway_id, of_gateway
		FROM excursions
		WHERE customer_id = @customer AND kind = 'silence' AND lasting
		ORDER BY node_id`, store.Args{"customer": customerID}, "recorded")
	if err != nil {
		return nil, err
	}
	known, due := map[string]row{}, dues{}
	for _, r := range recorded {
		known[r.NodeID] = r
	}
	last, begins := map[string]time.Time{}, map[string]bool{} // the newest that a gateway brought; whether one of its nodes falls silent
	for _, n := range silent {
		_, ok := known[n.NodeID]
		last[n.GatewayID], begins[n.GatewayID] = reading.Later(last[n.GatewayID], n.Newest), begins[n.GatewayID] || !ok
	}
	batch := &pgx.Batch{}
	for _, n := range silent {
		before, ok := known[n.NodeID]
		delete(known, n.NodeID)
		own := n.Since().Before(last[n.GatewayID]) // others of the gateway reported
		whole := gateways[n.GatewayID] && begins[n.GatewayID] && !own || (ok && before.OfGateway && before.GatewayID == n.GatewayID)
		if ok && before.OfGateway == whole && before.RoomID == n.RoomID {
			continue
		}
		due.add(placeOf(whole, n.RoomID, n.NodeID, n.GatewayID), n.Since())
		severity := incident.Warning
		if whole {
			severity = incident.Critical
		}
		batch.Queue(`
			INSERT INTO excursions (customer_id, kind, channel, node_id, sensor_name, room_id, room_name, gateway_id, of_gateway, rule_id, quantity, direction,
			                        limit_value, severity, start_time, end_time, lasting, peak, peak_time, risen_at)
			SELECT @customer, 'silence', channel, node_id, @sensor, NULLIF(@room::bigint, 0), @room_name, @gateway, @whole, @rule, '', '',
			       0, @severity, @start, @start::timestamptz, true, 0, timestamp, @start
			FROM node_state
			WHERE channel = @channel AND node_id = @node AND timestamp = @newest -- it has not been heard since
			FOR NO KEY UPDATE
			ON CONFLICT (channel, node_id, customer_id) WHERE kind = 'silence' AND lasting DO UPDATE
			SET room_id = EXCLUDED.room_id, room_name = EXCLUDED.room_name, sensor_name = EXCLUDED.sensor_name, gateway_id = EXCLUDED.gateway_id,
			    of_gateway = EXCLUDED.of_gateway, severity = EXCLUDED.severity`,
			store.Args{
				"customer": customerID, "channel": n.Channel, "node": n.NodeID, "sensor": n.SensorName, "room": n.RoomID, "room_name": n.RoomName,
				"gateway": n.GatewayID, "whole": whole, "rule": silenceRule, "severity": string(severity), "start": n.Since(), "newest": n.Newest,
			})
	}
	for _, r := range recorded {
		if _, left := known[r.NodeID]; !left {
			continue
		}
		// It was heard again without ingest noticing, or it was deleted. One that counts as silent
		// no more only because the service was late stays: it may be silent again.
		batch.Queue(`
			WITH newest AS (
			    SELECT GREATEST(
			        (SELECT timestamp FROM live_states WHERE customer_id = @customer AND node_id = @node),
			        (SELECT timestamp FROM node_state WHERE channel = @customer AND node_id = @node AND timestamp <= `+store.NotAhead+`)) AS at
			)
			UPDATE excursions e
			SET lasting = false, resolution = CASE
			        WHEN n.at > e.peak_time THEN 'cleared' WHEN e.sensor_name = '' THEN 'not_measured' ELSE 'sensor_deleted' END,
			    end_time = GREATEST(e.start_time, CASE WHEN n.at > e.peak_time THEN n.at ELSE @now END)
			FROM newest n
			WHERE e.kind = 'silence' AND e.lasting AND e.customer_id = @customer AND e.node_id = @node AND (n.at > e.peak_time OR (
			    NOT EXISTS (SELECT FROM sensors s WHERE s.customer_id = @customer AND s.node_id = @node)
			    AND (e.sensor_name <> '' OR e.peak_time <= @now::timestamptz - @discovered::interval)))`,
			store.Args{"customer": customerID, "node": r.NodeID, "now": now, "discovered": discoveredSilence})
	}
	if batch.Len() == 0 {
		return due, nil
	}
	return due, s.db.ExecBatch(ctx, func(b *pgx.Batch) { *b = *batch }, "write")
}

// placeOf is the place whose incidents an excursion is part of.
func placeOf(ofGateway bool, room int64, node, gateway string) place {
	switch {
	case ofGateway:
		return place{GatewayID: gateway}
	case room != 0:
		return place{RoomID: room}
	default:
		return place{NodeID: node}
	}
}

// Silence is a node whose next reading is overdue by its usual interval.
type Silence struct {
	Channel    int64
	NodeID     string
	SensorName string // empty: discovered, no sensor yet
	RoomID     int64
	RoomName   string
	GatewayID  string // that sent its newest reading; empty in the open channel
	Newest     time.Time
	Interval   time.Duration // between its readings, usually; zero while unknown
}

// Since is when the node began to count as silent.
func (s Silence) Since() time.Time { return incident.SilentFrom(s.Newest, s.Interval) }

// discoveredSilence is how long a silent node that is not yet a sensor is reported.
const discoveredSilence = 24 * time.Hour

// Silences lists a customer's nodes that are silent at a time, by id, and the enrolled
// gateways whose nodes, two or more, are all silent. A sensor that never reported is not silent; a
// discovered node is reported for a day. While the service itself is late no
// node counts as silent, see [incident.Probe], and gateways is nil.
func (s Store) Silences(ctx context.Context, customerID int64, now time.Time) (silent []Silence, gateways map[string]bool, err error) {
	probe, err := s.Probe(ctx)
	if err != nil || probe.Late(now) {
		return nil, nil, err
	}
	found, err := store.All[Silence](ctx, s.db, `
		WITH discovered AS (
		    SELECT n.*
		    FROM node_state n
		    WHERE n.channel = @customer AND n.timestamp > @now::timestamptz - @missed::interval
		      AND NOT EXISTS (SELECT FROM sensors s WHERE s.customer_id = @customer AND s.node_id = n.node_id)
		      AND NOT EXISTS (SELECT FROM sensor_tombstones t WHERE t.customer_id = @customer AND t.node_id = n.node_id)
		), quiet AS ( -- visible or not: whose newest reading may be old
		    SELECT n.node_id, n.gateway_id
		    FROM sensors s
		    JOIN node_state n ON n.channel IN (0, s.customer_id) AND n.node_id = s.node_id
		    WHERE s.customer_id = @customer AND n.timestamp <= @quiet
		    UNION ALL
		    SELECT node_id, gateway_id FROM discovered WHERE timestamp <= @quiet
		), newest AS (
		    SELECT n.*, s.name, s.room_id
		    FROM sensors s
		    CROSS JOIN `+store.NewestOf+` AS n
		    WHERE s.customer_id = @customer
		      AND s.node_id IN ( -- and all of their gateways
		          SELECT node_id FROM quiet
		          UNION ALL
		          SELECT o.node_id
		          FROM quiet q
		          JOIN sensors o ON o.customer_id = @customer
		          JOIN node_state g ON g.channel IN (0, o.customer_id) AND g.node_id = o.node_id AND g.gateway_id = q.gateway_id)
		), known AS (
		    SELECT * FROM newest
		    UNION ALL
		    SELECT *, '', NULL::bigint FROM discovered
		)
		SELECT n.channel, n.node_id, n.name AS sensor_name, COALESCE(n.room_id, 0) AS room_id, COALESCE(r.name, '') AS room_name,
		       COALESCE(n.gateway_id, '') AS gateway_id, n.timestamp AS newest,
		       COALESCE(n.usual_interval_s, 0) * interval '1 second' AS interval
		FROM known n
		LEFT JOIN server_rooms r ON r.id = n.room_id
		WHERE n.timestamp <= @quiet OR n.gateway_id IN (SELECT gateway_id FROM known WHERE timestamp <= @quiet)
		ORDER BY n.node_id`,
		store.Args{"customer": customerID, "now": now, "missed": discoveredSilence, "quiet": now.Add(-incident.MinSilence)},
		"silences of customer %d", customerID)
	if err != nil {
		return nil, nil, err
	}
	gateways = map[string]bool{}
	nodes, heard := map[string]int{}, map[string]bool{}
	for _, node := range found {
		if !probe.Silent(node.Newest, node.Interval, now) {
			heard[node.GatewayID] = true
			continue
		}
		silent = append(silent, node)
		nodes[node.GatewayID]++
	}
	for gateway, count := range nodes {
		gateways[gateway] = gateway != "" && count > 1 && !heard[gateway] // of one node it is the node's silence
	}
	return silent, gateways, nil
}

// Probe returns the service's timeliness as its probe measures it.
func (s Store) Probe(ctx context.Context) (incident.Probe, error) {
	const never = `TIMESTAMPTZ '0001-01-01 00:00:00+00'`
	return store.One[incident.Probe](ctx, s.db, nil, `
		SELECT COALESCE(max(published_at), `+never+`) AS published, COALESCE(max(late_at), `+never+`) AS late_at FROM probe`, nil, "probe")
}

// A site is dark after darkAfter without a message, and counts as abandoned after darkFor.
const (
	darkAfter = 15 * time.Minute
	darkFor   = 30 * 24 * time.Hour
)

// DarkSite is an enrolled gateway that has stopped reporting its status or, without a
// gateway's id, a customer whose unenrolled gateways have stopped sending readings.
type DarkSite struct {
	CustomerID int64
	GatewayID  string
	Since      time.Time // of the last status or reading
}

// DarkSites lists the dark sites of all customers for the operator of the service; customers
// see incidents. While the service itself is late it cannot know whether readings arrive,
// so only enrolled gateways are listed.
func (s Store) DarkSites(ctx context.Context, now time.Time) ([]DarkSite, error) {
	probe, err := s.Probe(ctx)
	if err != nil {
		return nil, err
	}
	return store.All[DarkSite](ctx, s.db, `
		WITH sites AS (
		    SELECT customer_id, id AS gateway_id, last_seen AS since
		    FROM gateways
		    WHERE revoked_at IS NULL
		    UNION ALL
		    SELECT customer_id, '', max(timestamp)
		    FROM live_states
		    WHERE channel = 0 AND NOT @late::boolean
		    GROUP BY customer_id
		)
		SELECT *
		FROM sites
		WHERE since <= @now::timestamptz - @after::interval AND since > @now::timestamptz - @for::interval
		ORDER BY customer_id, gateway_id`,
		store.Args{"now": now, "late": probe.Late(now), "after": darkAfter, "for": darkFor}, "dark sites")
}
