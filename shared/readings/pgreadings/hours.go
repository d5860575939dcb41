package pgreadings

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
)

const (
	day = 24 * time.Hour
	// rawDays is how many days of readings are read raw; older ones are read as hours.
	rawDays = 8
	// markAfter is the age at which an arriving reading marks its hour, because that may be
	// aggregated already or just now. An hour is aggregated at the age of rawDays, so a
	// reading that does not mark it was appended a day before.
	markAfter = (rawDays - 1) * day
	// dropAfter is how long raw readings stay once they are aggregated, for queries
	// that began before.
	dropAfter = day
	// settleTime is how long a mark waits, so that one query of the archive reads all
	// readings that come late together.
	settleTime = time.Hour
	// maxMarks bounds the marked hours of one query, at 120 readings each.
	maxMarks = 1000
)

// markHours marks the hours that late readings may change: their own, and the one after, in
// which they may have copies.
func (s *Store) markHours(ctx context.Context, late []reading.Reading) error {
	if len(late) == 0 {
		return nil
	}
	nodes, channels, times := make([]string, len(late)), make([]int64, len(late)), make([]time.Time, len(late))
	for i, r := range late {
		nodes[i], channels[i], times[i] = r.NodeID, int64(r.Channel), r.Time
	}
	return s.db.Exec(ctx, `
		INSERT INTO sensor_data.marked_hours (node_id, customer_id, hour, marked_at)
		SELECT DISTINCT node_id, customer_id, date_trunc('hour', timestamp + part, 'UTC'), @now::timestamptz
		FROM unnest(@nodes::text[], @channels::bigint[], @times::timestamptz[]) AS r (node_id, customer_id, timestamp)
		CROSS JOIN (VALUES (interval '0'), (@fold::interval)) AS p (part)
		ORDER BY 1, 2, 3
		ON CONFLICT (node_id, customer_id, hour) DO UPDATE SET marked_at = EXCLUDED.marked_at`,
		store.Args{"nodes": nodes, "channels": channels, "times": times, "fold": readings.FoldWithin, "now": s.clock()},
		"mark the hours of %d readings", len(late))
}

// Maintain aggregates the hours that have left the raw days, aggregates marked hours
// again, and drops raw readings that are no longer read. It is called each minute, by any
// number of instances; one of them does the work. A deadline is an error only if no hour
// was aggregated.
func (s *Store) Maintain(ctx context.Context) error {
	done, err := s.maintain(ctx)
	if done > 0 && errors.Is(err, context.DeadlineExceeded) {
		return nil // the next call continues
	}
	return err
}

func (s *Store) maintain(ctx context.Context) (done int, err error) {
	repeat := func(what string, step func(context.Context) (bool, error)) error {
		for ; ; done++ {
			if more, err := step(ctx); err != nil || !more {
				return store.Wrap(err, "aggregate %s", what)
			}
		}
	}
	if err := repeat("an hour", s.aggregateNext); err != nil {
		return done, err
	}
	if s.archive != nil { // before marked hours, whose readings the archive has: reading them may fail, or take all of the time
		err = s.db.Exec(ctx, `SELECT sensor_data.drop_days(until - @after::interval) FROM sensor_data.hours_until WHERE until IS NOT NULL`,
			store.Args{"after": dropAfter}, "drop raw readings")
	}
	err = errors.Join(err, repeat("marked hours", s.aggregateMarked))
	return done, err
}

// aggregateNext aggregates the first hour that has left the raw days and is not aggregated
// yet. It reports false if there is none, or if another instance is doing it.
func (s *Store) aggregateNext(ctx context.Context) (done bool, err error) {
	end := s.rawFrom().UTC().Truncate(time.Hour)
	err = s.locked(ctx, func(tx *store.DB, until time.Time) error {
		done = false
		switch {
		case until.IsZero(): // a new database; readings of earlier hours have marked them
			return setUntil(ctx, tx, end)
		case s.archive == nil && until.After(end): // the clock was ahead, and the raw readings are all here
			err := tx.Exec(ctx, `DELETE FROM sensor_data.hours WHERE hour >= @end`, store.Args{"end": end},
				"set back to %s", end.Format(time.RFC3339))
			if err != nil {
				return err
			}
			return setUntil(ctx, tx, end)
		case !until.Before(end):
			return nil
		}
		done = true
		if _, err := store.AllPlanned(ctx, tx, pgx.RowTo[bool], `
			INSERT INTO sensor_data.hours (
			    node_id, customer_id, hour, count, temperature_count, humidity_count,
			    sum_temperature, min_temperature, max_temperature, sum_humidity, min_humidity, max_humidity)
			SELECT node_id, customer_id, @hour::timestamptz, count(*), count(temperature), count(humidity), sum(temperature), min(temperature), max(temperature),
			       sum(humidity), min(humidity), max(humidity)
			FROM (
			    SELECT node_id, customer_id, timestamp, temperature, humidity, timestamp - lag(timestamp) OVER (
			               PARTITION BY node_id, customer_id, message_id, `+measured+` ORDER BY timestamp) < @fold::interval AS is_copy
			    FROM sensor_data.readings
			    WHERE timestamp >= @before AND timestamp < @after
			) AS r
			WHERE is_copy IS NOT TRUE AND timestamp >= @hour
			GROUP BY node_id, customer_id
			RETURNING true`,
			store.Args{
				"hour": until, "before": until.Add(-readings.FoldWithin), "after": until.Add(time.Hour), "fold": readings.FoldWithin,
			}, "%s", until.Format(time.RFC3339)); err != nil {
			return err
		}
		return setUntil(ctx, tx, until.Add(time.Hour))
	})
	return done, err
}

// locked runs a function that advances the hours. It returns at once if another instance is
// doing so.
func (s *Store) locked(ctx context.Context, run func(tx *store.DB, until time.Time) error) error {
	return s.db.InTx(ctx, func(tx *store.DB) error {
		until, err := store.Value[*time.Time](ctx, tx, store.ErrNotFound, `SELECT until FROM sensor_data.hours_until FOR UPDATE SKIP LOCKED`, nil, "hours")
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil
		case err != nil:
			return fmt.Errorf("lock: %w", err)
		}
		return run(tx, store.UTC(until))
	})
}

func setUntil(ctx context.Context, tx *store.DB, until time.Time) error {
	return tx.Exec(ctx, `UPDATE sensor_data.hours_until SET until = @until`, store.Args{"until": until},
		"advance to %s", until.Format(time.RFC3339))
}

// markedHour is an hour with late readings, and when the newest of these came.
type markedHour struct {
	NodeID     string
	CustomerID reading.Channel
	Hour       time.Time
	MarkedAt   time.Time
}

// aggregateMarked aggregates marked hours again, from all of their readings. Those that
// have not left the raw days keep their marks. It takes those of one week, by lot: a query
// over years would scan more than its limit allows, and a week that cannot be read stops no other for long.
// It reports false if there is none, or if another instance is doing it.
func (s *Store) aggregateMarked(ctx context.Context) (done bool, err error) {
	settled := s.clock()
	if s.archive != nil {
		settled = settled.Add(-settleTime)
	}
	err = s.locked(ctx, func(tx *store.DB, until time.Time) error {
		marked, err := store.All[markedHour](ctx, tx, `
			WITH settled AS (
			    SELECT node_id, customer_id, hour, marked_at, date_trunc('week', hour, 'UTC') AS week
			    FROM sensor_data.marked_hours
			    WHERE marked_at <= @settled AND hour < @until
			)
			SELECT node_id, customer_id, hour, marked_at
			FROM settled
			WHERE week = (SELECT week FROM (SELECT DISTINCT week FROM settled) AS weeks ORDER BY random() LIMIT 1)
			ORDER BY node_id, customer_id, hour
			LIMIT @limit`,
			store.Args{"settled": settled, "until": until, "limit": maxMarks}, "marked hours")
		if done = len(marked) > 0; err != nil || !done {
			return err
		}
		summaries, err := s.summarise(ctx, marked)
		if err != nil {
			return err
		}
		return tx.ExecBatch(ctx, func(batch *pgx.Batch) { queueHours(batch, marked, summaries) }, "write %d", len(marked))
	})
	return done, err
}

// queueHours queues the statements that replace marked hours.
func queueHours(batch *pgx.Batch, marked []markedHour, summaries []readings.Stats) {
	for i, m := range marked {
		sum := summaries[i]
		of := func(args store.Args) store.Args {
			maps.Copy(args, store.Args{"node": m.NodeID, "channel": int64(m.CustomerID), "hour": m.Hour})
			return args
		}
		batch.Queue(`DELETE FROM sensor_data.hours WHERE node_id = @node AND customer_id = @channel AND hour = @hour`, of(store.Args{}))
		if sum.Count > 0 { // else it has only copies
			batch.Queue(`
					INSERT INTO sensor_data.hours (
					    node_id, customer_id, hour, count, temperature_count, humidity_count,
					    sum_temperature, min_temperature, max_temperature, sum_humidity, min_humidity, max_humidity)
					VALUES (@node, @channel, @hour, @count, @count_t, @count_h, @sum_t, @min_t, @max_t, @sum_h, @min_h, @max_h)`, of(store.Args{
				"count": sum.Count, "count_t": sum.TemperatureCount, "count_h": sum.HumidityCount,
				"sum_t": reading.Pointer(sum.AvgTemperature * float64(sum.TemperatureCount)),
				"min_t": reading.Pointer(sum.MinTemperature), "max_t": reading.Pointer(sum.MaxTemperature),
				"sum_h": reading.Pointer(sum.AvgHumidity * float64(sum.HumidityCount)),
				"min_h": reading.Pointer(sum.MinHumidity), "max_h": reading.Pointer(sum.MaxHumidity),
			}))
		}
		batch.Queue(`
				DELETE FROM sensor_data.marked_hours
				WHERE node_id = @node AND customer_id = @channel AND hour = @hour AND marked_at = @marked`, of(store.Args{"marked": m.MarkedAt}))
	}
}

// summarise reads marked hours, ordered by node and channel, and summarises each.
func (s *Store) summarise(ctx context.Context, marked []markedHour) ([]readings.Stats, error) {
	type key struct {
		node    string
		channel reading.Channel
		hour    int64
	}
	found := make([]readings.Stats, len(marked))
	places := make(map[key]int, len(marked))
	var nodes []readings.NodeRef
	for i, m := range marked {
		places[key{m.NodeID, m.CustomerID, m.Hour.Unix()}] = i
		if n := len(nodes); n == 0 || nodes[n-1].ID != m.NodeID {
			nodes = append(nodes, readings.NodeRef{ID: m.NodeID})
		}
		// Copies of readings shortly before the hour are found among these.
		span := reading.Span{Channel: m.CustomerID, From: m.Hour.Add(-readings.FoldWithin), Until: m.Hour.Add(time.Hour)}
		visible := &nodes[len(nodes)-1].Visible
		if n := len(*visible); n > 0 && (*visible)[n-1].Channel == span.Channel && !(*visible)[n-1].Until.Before(span.From) {
			(*visible)[n-1].Until = span.Until
		} else {
			*visible = append(*visible, span)
		}
	}
	byHour := func(a, b markedHour) int { return a.Hour.Compare(b.Hour) }
	start, end := slices.MinFunc(marked, byHour).Hour, slices.MaxFunc(marked, byHour).Hour.Add(time.Hour)
	for r, err := range s.Ranges(ctx, nodes, start.Add(-readings.FoldWithin), end) {
		if err != nil {
			return nil, err
		}
		if i, ok := places[key{r.NodeID, r.Channel, r.Time.Truncate(time.Hour).Unix()}]; ok {
			found[i].Add(r)
		}
	}
	return found, nil
}
