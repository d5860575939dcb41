package pipeline

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
)

// NodeReading is a reading and the enrolled gateway that sent it; empty in the open
// channel.
type NodeReading struct {
	reading.Reading

	GatewayID string
}

// slotWidth is the width of a row of node_slots.
const slotWidth = 10 * time.Minute

// beforeHold excludes readings r that are older than the current hold of their id: its holder
// does not see them, so they must not become state. It is a scalar subquery because PostgreSQL
// makes an anti join of NOT EXISTS, and compares each reading with each hold until it has
// counted the holds.
const beforeHold = ` AND COALESCE(timestamp >= (
			    SELECT h.held_from FROM open_holds AS h
			    WHERE r.channel = 0 AND h.node_id = r.node_id AND h.held_until = 'infinity'), true)`

// newer is the condition that a batch's newest reading is newer than the stored row s, or that
// the row lies ahead: then it was written while the clock was wrong.
const newer = `(s.timestamp IS NULL OR s.timestamp > ` + store.NotAhead + `
	OR (EXCLUDED.timestamp, EXCLUDED.message_id COLLATE "C") > (s.timestamp, s.message_id COLLATE "C"))`

// newerValue selects the newest value of a quantity and its time from the batch's and s.
func newerValue(quantity string) string {
	return strings.ReplaceAll(`
		SELECT EXCLUDED.quantity, EXCLUDED.quantity_at
		WHERE EXCLUDED.quantity_at IS NOT NULL AND (s.timestamp > `+store.NotAhead+`
		    OR EXCLUDED.quantity_at > COALESCE(s.quantity_at, '-infinity') OR (EXCLUDED.quantity_at = s.quantity_at AND `+newer+`))
		UNION ALL SELECT s.quantity, s.quantity_at WHERE s.timestamp <= `+store.NotAhead+`
		LIMIT 1`, "quantity", quantity)
}

// usual is the usual interval of readings, or of those with one quantity: a moving average, in which a
// longer gap has weight 1/8 and counts as at most two, or two minutes. A shorter one has weight 1/32: a Zigbee
// sensor sends two or three readings each quarter of an hour, a second apart. The first is an hour at most: a node
// that was tried once and mounted weeks later would not count as silent for as long. A first of seconds may be
// such a sensor's and counts as 20 minutes, from which the average leaves sooner than it would reach them.
func usual(interval, at string) string {
	return strings.NewReplacer("usual", interval, "gap", "extract(epoch FROM EXCLUDED."+at+" - s."+at+")", "newest", at).Replace(`
		CASE WHEN EXCLUDED.newest > s.newest AND s.newest <= ` + store.NotAhead + `
		    AND NOT (EXCLUDED.message_id = s.message_id AND EXCLUDED.timestamp < s.timestamp + @fold::interval)
		THEN COALESCE(s.usual + (LEAST(gap, GREATEST(2 * s.usual, 120)) - s.usual) / CASE WHEN gap > s.usual THEN 8 ELSE 32 END,
		    CASE WHEN gap < 10 THEN 1200 ELSE LEAST(gap, 3600) END)
		ELSE s.usual END`)
}

// UpdateNodeStates upserts the newest reading of each node of a batch, and the slots of its
// last day, in one round trip and one transaction with a statement per table. The result does
// not depend on the order or repetition of readings. Rows are locked in key order, node_state
// before node_slots: begin_hold locks the same row of node_state before it clears the slots.
func (s Store) UpdateNodeStates(ctx context.Context, batch []NodeReading) error {
	n := len(batch)
	channels, nodes, messages, gateways := make([]int64, n), make([]string, n), make([]string, n), make([]string, n)
	times, temperatures, humidities := make([]time.Time, n), make([]*float64, n), make([]*float64, n)
	starts, slots := make([]time.Time, n), make([]int16, n)
	for i, r := range batch {
		channels[i], nodes[i], messages[i], gateways[i] = int64(r.Channel), r.NodeID, r.MessageID, r.GatewayID
		times[i], temperatures[i], humidities[i] = reading.TruncateTime(r.Time), reading.Pointer(r.Temperature), reading.Pointer(r.Humidity)
		starts[i] = times[i].UTC().Truncate(slotWidth)
		slots[i] = int16((starts[i].Hour()*60 + starts[i].Minute()) / int(slotWidth.Minutes())) //nolint:gosec // below 144
	}
	return s.db.ExecBatch(ctx, func(statements *pgx.Batch) {
		statements.Queue(`
			INSERT INTO node_state AS s (
			    channel, node_id, message_id, timestamp, temperature, temperature_at, humidity, humidity_at, gateway_id)
			SELECT channel, node_id, (array_agg(message_id ORDER BY timestamp DESC, message_id COLLATE "C" DESC))[1], max(timestamp),
			       (array_agg(temperature ORDER BY timestamp DESC, message_id COLLATE "C" DESC) FILTER (WHERE temperature IS NOT NULL))[1],
			       max(timestamp) FILTER (WHERE temperature IS NOT NULL),
			       (array_agg(humidity ORDER BY timestamp DESC, message_id COLLATE "C" DESC) FILTER (WHERE humidity IS NOT NULL))[1],
			       max(timestamp) FILTER (WHERE humidity IS NOT NULL),
			       NULLIF((array_agg(gateway_id ORDER BY timestamp DESC, message_id COLLATE "C" DESC))[1], '')
			FROM unnest(
			    @channels::bigint[], @nodes::text[], @messages::text[], @times::timestamptz[],
			    @temperatures::float8[], @humidities::float8[], @gateways::text[])
			    AS r (channel, node_id, message_id, timestamp, temperature, humidity, gateway_id)
			WHERE timestamp <= `+store.NotAhead+beforeHold+`
			GROUP BY channel, node_id
			ORDER BY channel, node_id COLLATE "C"
			ON CONFLICT (channel, node_id) DO UPDATE
			SET (message_id, timestamp, gateway_id) = (
			        SELECT EXCLUDED.message_id, EXCLUDED.timestamp, EXCLUDED.gateway_id WHERE `+newer+`
			        UNION ALL SELECT s.message_id, s.timestamp, s.gateway_id LIMIT 1),
			    (temperature, temperature_at) = (`+newerValue("temperature")+`),
			    (humidity, humidity_at) = (`+newerValue("humidity")+`),
			    usual_interval_s = `+usual("usual_interval_s", "timestamp")+`,
			    temperature_interval_s = `+usual("temperature_interval_s", "temperature_at")+`,
			    humidity_interval_s = `+usual("humidity_interval_s", "humidity_at")+`
			-- A node may send its quantities apart: one may be newer than the stored value even if the reading is not.
			WHERE `+newer+` OR EXCLUDED.temperature_at > COALESCE(s.temperature_at, '-infinity') OR EXCLUDED.humidity_at > COALESCE(s.humidity_at, '-infinity')`,
			store.Args{
				"channels": channels, "nodes": nodes, "messages": messages, "times": times,
				"temperatures": temperatures, "humidities": humidities, "gateways": gateways, "fold": readings.FoldWithin,
			})
		// Of two readings with the same time the greater values win, because slots have no message id.
		statements.Queue(`
			INSERT INTO node_slots AS s (
			    channel, node_id, slot, starts, min_temperature, max_temperature, min_humidity, max_humidity,
			    last_at, last_temperature, last_humidity)
			SELECT DISTINCT ON (channel, node_id COLLATE "C", slot)
			    channel, node_id, slot, starts, min(temperature), max(temperature), min(humidity), max(humidity), max(timestamp),
			    (array_agg(temperature ORDER BY timestamp DESC, temperature DESC, humidity DESC) FILTER (WHERE temperature IS NOT NULL))[1],
			    (array_agg(humidity ORDER BY timestamp DESC, temperature DESC NULLS LAST, humidity DESC) FILTER (WHERE humidity IS NOT NULL))[1]
			FROM unnest(
			    @channels::bigint[], @nodes::text[], @slots::smallint[], @starts::timestamptz[], @times::timestamptz[],
			    @temperatures::float8[], @humidities::float8[])
			    AS r (channel, node_id, slot, starts, timestamp, temperature, humidity)
			WHERE timestamp <= `+store.NotAhead+beforeHold+`
			GROUP BY channel, node_id, slot, starts
			ORDER BY channel, node_id COLLATE "C", slot, starts DESC
			ON CONFLICT (channel, node_id, slot) DO UPDATE
			SET starts = EXCLUDED.starts,
			    min_temperature = LEAST(EXCLUDED.min_temperature, CASE WHEN s.starts = EXCLUDED.starts THEN s.min_temperature END),
			    max_temperature = GREATEST(EXCLUDED.max_temperature, CASE WHEN s.starts = EXCLUDED.starts THEN s.max_temperature END),
			    min_humidity = LEAST(EXCLUDED.min_humidity, CASE WHEN s.starts = EXCLUDED.starts THEN s.min_humidity END),
			    max_humidity = GREATEST(EXCLUDED.max_humidity, CASE WHEN s.starts = EXCLUDED.starts THEN s.max_humidity END),
			    (last_at, last_temperature, last_humidity) = (
			        -- A quantity that the newer reading lacks is taken from the other of the same slot.
			        SELECT l.at, COALESCE(l.temperature, CASE WHEN s.starts = EXCLUDED.starts THEN l.other_temperature END),
			               COALESCE(l.humidity, CASE WHEN s.starts = EXCLUDED.starts THEN l.other_humidity END)
			        FROM (VALUES (EXCLUDED.last_at, EXCLUDED.last_temperature, EXCLUDED.last_humidity, s.last_temperature, s.last_humidity),
			                     (s.last_at, s.last_temperature, s.last_humidity, EXCLUDED.last_temperature, EXCLUDED.last_humidity))
			            AS l (at, temperature, humidity, other_temperature, other_humidity)
			        ORDER BY l.at <= `+store.NotAhead+` DESC, l.at DESC, l.temperature DESC NULLS LAST, l.humidity DESC NULLS LAST
			        LIMIT 1)
			-- A reading of an older day does not overwrite a newer one; most duplicates write nothing.
			WHERE EXCLUDED.starts > s.starts OR s.last_at > `+store.NotAhead+` OR (EXCLUDED.starts = s.starts AND (
			    (EXCLUDED.last_at, EXCLUDED.last_temperature, EXCLUDED.last_humidity) > (s.last_at, s.last_temperature, s.last_humidity)
			    OR EXCLUDED.min_temperature < COALESCE(s.min_temperature, 'Infinity') OR EXCLUDED.max_temperature > s.max_temperature
			    OR EXCLUDED.min_humidity < COALESCE(s.min_humidity, 'Infinity') OR EXCLUDED.max_humidity > s.max_humidity))`,
			store.Args{
				"channels": channels, "nodes": nodes, "slots": slots, "starts": starts, "times": times,
				"temperatures": temperatures, "humidities": humidities,
			})
		// A reading recent enough that the node is not silent after it ends the silence; an older
		// one was delivered late. start_time minus the node's newest reading (peak_time) is how
		// long it may be quiet.
		statements.Queue(`
			UPDATE excursions e
			SET lasting = e.lasting AND NOT r.heard, resolution = CASE WHEN e.lasting AND r.heard THEN 'cleared' ELSE e.resolution END,
			    end_time = CASE WHEN e.lasting AND r.heard THEN GREATEST(e.start_time, r.newest) ELSE e.end_time END, late = e.late OR r.within
			FROM (
			    SELECT e.id, bool_or(r.timestamp > now() - (e.start_time - e.peak_time)) AS heard, max(r.timestamp) AS newest,
			           bool_or(r.timestamp > e.peak_time AND (e.lasting OR r.timestamp < e.end_time)
			               AND r.timestamp <= now() - (e.start_time - e.peak_time)) AS within
			    FROM unnest(@channels::bigint[], @nodes::text[], @times::timestamptz[]) AS r (channel, node_id, timestamp)
			    JOIN excursions e ON e.channel = r.channel AND e.node_id = r.node_id COLLATE "C" AND e.kind = 'silence'
			        AND (e.lasting OR e.end_time > r.timestamp) AND r.timestamp > e.peak_time AND r.timestamp <= `+store.NotAhead+`
			    GROUP BY e.id
			) AS r
			WHERE e.id = r.id AND ((e.lasting AND r.heard) OR (r.within AND NOT e.late))`,
			store.Args{"channels": channels, "nodes": nodes, "times": times})
	}, "state of %d nodes", n)
}

// NewestReadings returns, by id, the newest visible values of a customer's sensors, with the
// time of the newer value. Sensors without any are absent.
func (s Store) NewestReadings(ctx context.Context, customerID int64, ids []string) (map[string]reading.Reading, error) {
	found, err := store.All[reading.Reading](ctx, s.db, `
		SELECT n.channel, n.node_id, n.message_id, n.timestamp AS time,
		       COALESCE(n.temperature, 'NaN') AS temperature, COALESCE(n.humidity, 'NaN') AS humidity
		FROM sensors s
		CROSS JOIN `+store.NewestOf+` AS n
		WHERE s.customer_id = @customer AND s.node_id = ANY (@ids) AND `+store.RoomIn("s.room_id"),
		store.Args{"customer": customerID, "ids": ids, "rooms": store.RoomsOf(ctx)},
		"newest readings of %d sensors of customer %d", len(ids), customerID)
	newest := make(map[string]reading.Reading, len(found))
	for _, r := range found {
		r.Time = r.Time.UTC()
		newest[r.NodeID] = r
	}
	return newest, err
}

// RecordProbe stores when a probe reading was published and received; order and repetition do
// not matter. As it runs each minute, it also calls correct_ahead, which repairs rows written
// while the clock was ahead. Stored probe times that lie ahead are replaced and count as
// lateness, so that no node is reported silent because of a wrong clock.
func (s Store) RecordProbe(ctx context.Context, published, received time.Time) error {
	published = reading.Earlier(published, received)
	return s.db.ExecBatch(ctx, func(statements *pgx.Batch) {
		statements.Queue(`
			INSERT INTO probe AS p (published_at, received_at, late_at)
			VALUES (@published, @received, CASE WHEN @received::timestamptz > @published::timestamptz + @late::interval THEN @received::timestamptz END)
			ON CONFLICT (only_row) DO UPDATE
			SET (published_at, received_at, late_at) = (
			    SELECT EXCLUDED.published_at, EXCLUDED.received_at, EXCLUDED.received_at
			    WHERE GREATEST(p.published_at, p.received_at, p.late_at) > `+store.NotAhead+`
			    UNION ALL
			    SELECT GREATEST(p.published_at, EXCLUDED.published_at), GREATEST(p.received_at, EXCLUDED.received_at),
			           GREATEST(p.late_at, EXCLUDED.late_at,
			               CASE WHEN EXCLUDED.received_at > p.received_at + @interval::interval + @late::interval THEN EXCLUDED.received_at END)
			    LIMIT 1)`,
			store.Args{
				"published": published, "received": received, "interval": incident.ProbeInterval, "late": incident.MaxProbeLateness,
			})
		statements.Queue(`
			SELECT correct_ahead()
			WHERE EXISTS (SELECT FROM node_state WHERE timestamp > ` + store.NotAhead + `)
			   OR EXISTS (SELECT FROM open_holds WHERE held_until = 'infinity' AND held_from > ` + store.NotAhead + `)`)
	}, "record the probe")
}
