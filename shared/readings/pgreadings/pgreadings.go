// Package pgreadings stores readings in PostgreSQL: raw, in the table
// sensor_data.readings with a partition per day, and hourly aggregates, in
// sensor_data.hours.
//
// Charts and statistics read nothing else: the raw readings of the last eight days and
// the hourly aggregates of everything older. With an [readings.Archive], in production
// the table in BigQuery, older raw readings are dropped here and read there: for an
// export, for training, and for a chart in parts shorter than an hour. Without one, on a
// single machine, they stay.
//
// functions/ingest writes and calls [Store.Maintain] each minute; run/api and
// functions/train read. The identity of a reading is the primary key, so that a reading
// that arrives twice is stored once.
package pgreadings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
)

// Store is the table.
type Store struct {
	clock   func() time.Time
	archive readings.Archive // nil: raw readings stay here for ever
	db      *store.DB
}

// New returns the table in a database. The archive, which may be nil, stays the caller's to close.
func New(db *store.DB, archive readings.Archive, clock func() time.Time) *Store {
	return &Store{clock: clock, archive: archive, db: db}
}

// rawFrom is the time from which all readings are here, raw.
func (s *Store) rawFrom() time.Time { return s.clock().Add(-rawDays * day) }

// raw returns the rows that are young enough to be stored here.
func (s *Store) raw(rows []reading.Reading) []reading.Reading {
	if s.archive == nil {
		return rows
	}
	from := s.rawFrom()
	return slices.DeleteFunc(slices.Clone(rows), func(r reading.Reading) bool { return r.Time.Before(from) })
}

// Insert inserts, in a transaction of [store.DB.InTxOn], the rows that are young enough to be stored here.
func (s *Store) Insert(ctx context.Context, tx *store.DB, rows []reading.Reading) error {
	if rows = s.raw(rows); len(rows) == 0 {
		return nil
	}
	// Sorted, so that writers of the same rows cannot deadlock.
	rows = slices.SortedFunc(slices.Values(rows), func(a, b reading.Reading) int {
		return cmp.Or(cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.Channel, b.Channel), a.Time.Compare(b.Time), cmp.Compare(a.MessageID, b.MessageID))
	})
	nodes, messages, channels := make([]string, len(rows)), make([]string, len(rows)), make([]int64, len(rows))
	times := make([]time.Time, len(rows))
	temperatures, humidities := make([]*float64, len(rows)), make([]*float64, len(rows))
	measuredTemperatures, measuredHumidities := make([]*float64, len(rows)), make([]*float64, len(rows))
	for i, r := range rows {
		nodes[i], messages[i], channels[i], times[i] = r.NodeID, r.MessageID, int64(r.Channel), reading.TruncateTime(r.Time)
		temperatures[i], humidities[i] = reading.Pointer(r.Temperature), reading.Pointer(r.Humidity)
		measuredTemperatures[i], measuredHumidities[i] = r.Uncorrected()
	}
	return store.OnDays(times, tx.Exec(ctx, `
		INSERT INTO sensor_data.readings (
		    node_id, message_id, customer_id, timestamp, temperature, humidity, uncorrected_temperature, uncorrected_humidity)
		SELECT * FROM unnest(
		    @nodes::text[], @messages::text[], @channels::bigint[], @times::timestamptz[], @temperatures::float8[], @humidities::float8[],
		    @measured_temperatures::float8[], @measured_humidities::float8[])
		ON CONFLICT DO NOTHING`,
		store.Args{
			"nodes": nodes, "messages": messages, "channels": channels, "times": times,
			"temperatures": temperatures, "humidities": humidities,
			"measured_temperatures": measuredTemperatures, "measured_humidities": measuredHumidities,
		}, "insert %d readings", len(rows)))
}

// Archive completes a committed [Store.Insert] and returns once the rows are durable, see
// [readings.Archive]. The archive comes second: while PostgreSQL is away nothing is stored,
// and no redelivery leaves copies in the archive. An hour is marked last, so that its reading
// is there when the mark is found.
func (s *Store) Archive(ctx context.Context, rows []reading.Reading) error {
	if s.archive != nil {
		if err := s.archive.Append(ctx, rows); err != nil {
			return fmt.Errorf("archive: %w", err)
		}
	}
	now := s.clock()
	return s.markHours(ctx, slices.DeleteFunc(slices.Clone(rows), func(r reading.Reading) bool { return now.Sub(r.Time) <= markAfter }))
}

// Append is [Store.Insert] in a transaction of its own, and [Store.Archive].
func (s *Store) Append(ctx context.Context, rows []reading.Reading) error {
	if err := s.db.InTxOn(ctx, func(tx *store.DB) error { return s.Insert(ctx, tx, rows) }); err != nil {
		return err
	}
	return s.Archive(ctx, rows)
}

const readingColumns = `r.customer_id AS channel, r.node_id, r.message_id, r.timestamp AS time,
	COALESCE(r.temperature, 'NaN') AS temperature, COALESCE(r.humidity, 'NaN') AS humidity,
	r.uncorrected_temperature, r.uncorrected_humidity`

// row is a row of [readingColumns].
type row struct{ reading.Reading }

// ScanRow implements [pgx.RowScanner].
func (r *row) ScanRow(rows pgx.Rows) error {
	var temperature, humidity *float64
	err := rows.Scan(&r.Channel, &r.NodeID, &r.MessageID, &r.Time, &r.Temperature, &r.Humidity, &temperature, &humidity)
	r.Time = r.Time.UTC()
	r.Reading = r.WithUncorrected(temperature, humidity)
	return err //nolint:wrapcheck // the query's caller does
}

// measured are the values by which copies are recognised: copies of a reading may lie on both
// sides of the time from which a correction applies.
const measured = `COALESCE(uncorrected_temperature, temperature), COALESCE(uncorrected_humidity, humidity)`

// spans are the visible spans of nodes, a row for each.
type spans struct {
	ids           []string
	channels      []int64
	froms, untils []time.Time
}

func spansOf(nodes ...readings.NodeRef) (s spans) {
	for _, n := range nodes {
		for _, span := range n.Visible {
			until := span.Until
			if until.IsZero() {
				until = time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC) // no reading is that late
			}
			s.ids, s.channels = append(s.ids, n.ID), append(s.channels, int64(span.Channel))
			s.froms, s.untils = append(s.froms, span.From), append(s.untils, until)
		}
	}
	return s
}

// args returns the arguments of [visibleSpans], and others.
func (s spans) args(others store.Args) store.Args {
	others["ids"], others["channels"], others["froms"], others["untils"] = s.ids, s.channels, s.froms, s.untils
	return others
}

const visibleSpans = `unnest(@ids::text[], @channels::bigint[], @froms::timestamptz[], @untils::timestamptz[])
	AS v (node_id, channel, from_time, until_time)`

// summaries selects the visible hours and readings of one node from @start to @end, each as
// a summary that starts at a time: hours until @first and raw readings from then on. It leaves
// out copies like [readings.Fold], among the readings of each span. Its arguments are those of
// [Store.summaryArgs].
const summaries = `
	WITH summaries AS (
	    SELECT h.hour AS at, h.count, COALESCE(h.temperature_count, h.count) AS temperature_count, COALESCE(h.humidity_count, h.count) AS humidity_count,
	           h.sum_temperature, h.min_temperature, h.max_temperature, h.sum_humidity, h.min_humidity, h.max_humidity
	    FROM ` + visibleSpans + `
	    JOIN sensor_data.hours AS h ON h.node_id = v.node_id AND h.customer_id = v.channel
	        AND h.hour >= v.from_time AND h.hour <= v.until_time - interval '1 hour'
	    WHERE h.hour >= date_trunc('hour', @start::timestamptz, 'UTC') AND h.hour < LEAST(@end::timestamptz, @first::timestamptz)
	    UNION ALL
	    SELECT r.timestamp, 1, num_nonnulls(r.temperature), num_nonnulls(r.humidity), r.temperature, r.temperature, r.temperature, r.humidity, r.humidity, r.humidity
	    FROM ` + visibleSpans + `
	    CROSS JOIN LATERAL (
	        SELECT timestamp, temperature, humidity,
	               timestamp - lag(timestamp) OVER (PARTITION BY message_id, ` + measured + ` ORDER BY timestamp) < @fold::interval AS is_copy
	        FROM sensor_data.readings
	        WHERE node_id = v.node_id AND customer_id = v.channel
	          AND timestamp >= @before AND timestamp >= v.from_time AND timestamp < @end AND timestamp < v.until_time
	    ) AS r
	    WHERE r.is_copy IS NOT TRUE AND r.timestamp >= GREATEST(@start::timestamptz, @first::timestamptz)
	)`

// summaryArgs returns the arguments of [summaries], and others. Without hours all is raw.
func (s *Store) summaryArgs(ctx context.Context, node readings.NodeRef, start, end time.Time, hourly bool, others store.Args) (store.Args, error) {
	var first time.Time
	if hourly {
		until, err := store.Value[*time.Time](ctx, s.db, nil, `SELECT until FROM sensor_data.hours_until`, nil, "first raw readings")
		if err != nil {
			return nil, err
		}
		first = store.UTC(until)
	}
	others["start"], others["end"], others["first"], others["fold"] = start, end, first, readings.FoldWithin
	others["before"] = slices.MaxFunc([]time.Time{start, first}, time.Time.Compare).Add(-readings.FoldWithin)
	return spansOf(node).args(others), nil
}

// ofSummaries are the members of [readings.Stats] over a group of summaries.
const ofSummaries = `
	COALESCE(sum(sum_temperature) / NULLIF(sum(temperature_count), 0), 'NaN') AS avg_temperature,
	COALESCE(min(min_temperature), 'NaN') AS min_temperature, COALESCE(max(max_temperature), 'NaN') AS max_temperature,
	COALESCE(sum(sum_humidity) / NULLIF(sum(humidity_count), 0), 'NaN') AS avg_humidity,
	COALESCE(min(min_humidity), 'NaN') AS min_humidity, COALESCE(max(max_humidity), 'NaN') AS max_humidity,
	COALESCE(sum(count), 0)::bigint AS count, COALESCE(sum(temperature_count), 0)::bigint AS temperature_count,
	COALESCE(sum(humidity_count), 0)::bigint AS humidity_count`

// rangePage is how many rows of a range one query returns, and pageTime how much of it one locks.
const (
	rangePage = 5000
	pageTime  = 100 * day
)

// Range implements [readings.Reader] page by page, so that memory does not grow with the
// range, and a slow reader of a page holds no connection.
func (s *Store) Range(ctx context.Context, node readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	if s.archive != nil && start.Before(s.rawFrom()) {
		return s.archive.Range(ctx, readings.Export, node, start, end)
	}
	return readings.Fold(s.pages(ctx, node, start.Add(-readings.FoldWithin), end), start)
}

// errDisorder says that the server joined in another order than [Store.Ranges] expects.
var errDisorder = errors.New("readings come in disorder")

// Ranges implements [readings.Reader], page by page like [Store.Range]. Each span is read in the
// order of the index, because sorting all takes ten times as long. A nested loop, the only way to
// join LATERAL, keeps the order of the spans; SQL does not promise that, so it is checked.
func (s *Store) Ranges(ctx context.Context, nodes []readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	if s.archive != nil && start.Before(s.rawFrom()) {
		return s.archive.Ranges(ctx, nodes, start, end)
	}
	left := slices.SortedFunc(slices.Values(nodes), func(a, b readings.NodeRef) int { return cmp.Compare(a.ID, b.ID) })
	for i := range left {
		left[i].Visible = slices.SortedFunc(slices.Values(left[i].Visible), func(a, b reading.Span) int {
			return cmp.Or(cmp.Compare(a.Channel, b.Channel), a.From.Compare(b.From))
		})
	}
	return readings.Fold(func(yield func(reading.Reading, error) bool) {
		left := left
		var last reading.Reading
		for {
			page, err := s.pageOf(ctx, left, last, start.Add(-readings.FoldWithin), end)
			for _, r := range page {
				if cmp.Or(cmp.Compare(r.NodeID, last.NodeID), cmp.Compare(r.Channel, last.Channel), r.Time.Compare(last.Time)) < 0 {
					err = errDisorder
					break
				}
				if !yield(r.Reading, nil) {
					return
				}
				last = r.Reading
			}
			if err != nil {
				yield(reading.Reading{}, fmt.Errorf("readings of %d nodes: %w", len(nodes), err))
				return
			}
			if len(page) < rangePage {
				return
			}
			// Continue after the readings that were read, without changing the caller's lists.
			left = slices.Clone(left[slices.IndexFunc(left, func(n readings.NodeRef) bool { return n.ID == last.NodeID }):])
			left[0].Visible = slices.DeleteFunc(slices.Clone(left[0].Visible), func(v reading.Span) bool { return v.Channel < last.Channel })
		}
	}, start)
}

// pageOf returns the next rows of nodes, span after span, after one of the first of them.
func (s *Store) pageOf(ctx context.Context, nodes []readings.NodeRef, after reading.Reading, start, end time.Time) ([]row, error) {
	return store.Long(ctx, s.db, pgx.RowTo[row], `
		SELECT `+readingColumns+`
		FROM `+visibleSpans+`
		CROSS JOIN LATERAL (
		    SELECT *
		    FROM sensor_data.readings
		    WHERE node_id = v.node_id AND customer_id = v.channel
		      AND timestamp >= @start AND timestamp >= v.from_time AND timestamp < @end AND timestamp < v.until_time
		      AND (timestamp, message_id) > (CASE WHEN v.node_id = @node AND v.channel = @channel THEN @after::timestamptz ELSE '-infinity' END, @message::text)
		    ORDER BY timestamp, message_id
		) AS r
		LIMIT @limit`,
		spansOf(nodes...).args(store.Args{
			"start": start, "end": end, "node": after.NodeID, "channel": int64(after.Channel), "after": after.Time, "message": after.MessageID, "limit": rangePage,
		}), "readings of %d nodes", len(nodes))
}

func (s *Store) pages(ctx context.Context, node readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	return func(yield func(reading.Reading, error) bool) {
		after := reading.Reading{Time: start} // every message id is longer
		for {
			until := reading.Earlier(end, after.Time.Add(pageTime))
			page, err := s.page(ctx, node, after, until)
			if err != nil {
				yield(reading.Reading{}, fmt.Errorf("readings of %s: %w", node.ID, err))
				return
			}
			for _, r := range page {
				if !yield(r.Reading, nil) {
					return
				}
			}
			switch {
			case len(page) == rangePage:
				after = page[len(page)-1].Reading
			case until.Before(end):
				after = reading.Reading{Time: until}
			default:
				return
			}
		}
	}
}

// page returns the next rows of a range, after another one.
func (s *Store) page(ctx context.Context, node readings.NodeRef, after reading.Reading, end time.Time) ([]row, error) {
	return store.Long(ctx, s.db, pgx.RowTo[row], `
		SELECT `+readingColumns+`
		FROM `+visibleSpans+`
		CROSS JOIN LATERAL (
		    SELECT *
		    FROM sensor_data.readings
		    WHERE node_id = v.node_id AND customer_id = v.channel
		      AND timestamp >= @after AND timestamp >= v.from_time AND timestamp < @end AND timestamp < v.until_time
		      AND (timestamp, message_id, customer_id) > (@after::timestamptz, @message::text, @channel::bigint)
		    ORDER BY timestamp, message_id
		    LIMIT @limit
		) AS r
		ORDER BY r.timestamp, r.message_id, r.customer_id
		LIMIT @limit`,
		spansOf(node).args(store.Args{
			"after": after.Time, "message": after.MessageID, "channel": int64(after.Channel), "end": end, "limit": rangePage,
		}), "readings of %s", node.ID)
}

// Buckets implements [readings.Reader].
func (s *Store) Buckets(ctx context.Context, node readings.NodeRef, start, end time.Time, n int) ([]readings.Bucket, error) {
	start, end = reading.TruncateTime(start), reading.TruncateTime(end)
	if n < 1 || !start.Before(end) {
		return nil, nil
	}
	first, width := readings.Parts(start, end, n)
	hourly := end.Sub(start) >= readings.HourlyFrom
	if s.archive != nil && !hourly && start.Before(s.rawFrom()) {
		return partsOf(s.archive.Range(ctx, readings.Chart, node, start, end), first, width)
	}
	args, err := s.summaryArgs(ctx, node, start, end, hourly, store.Args{"width": width, "first_part": first})
	if err != nil {
		return nil, err
	}
	buckets, err := store.Long(ctx, s.db, pgx.RowToStructByName[readings.Bucket], summaries+`
		SELECT date_bin(@width::interval, at, @first_part) AS start, `+ofSummaries+`
		FROM summaries
		GROUP BY 1
		ORDER BY 1`, args, "buckets of %s", node.ID)
	for i := range buckets {
		buckets[i].Start = buckets[i].Start.UTC()
	}
	return buckets, err
}

// partsOf summarises readings, oldest first, in parts of a width, one of which begins at
// first.
func partsOf(all iter.Seq2[reading.Reading, error], first time.Time, width time.Duration) ([]readings.Bucket, error) {
	var parts []readings.Bucket
	for r, err := range all {
		if err != nil {
			return nil, err
		}
		start := first.Add(r.Time.Sub(first) / width * width)
		if n := len(parts); n == 0 || !parts[n-1].Start.Equal(start) {
			parts = append(parts, readings.Bucket{Start: start})
		}
		parts[len(parts)-1].Add(r)
	}
	return parts, nil
}

// Stats implements [readings.Reader].
func (s *Store) Stats(ctx context.Context, node readings.NodeRef, end time.Time, starts []time.Time) ([]readings.Stats, error) {
	if len(starts) == 0 {
		return nil, nil
	}
	args, err := s.summaryArgs(ctx, node, slices.MinFunc(starts, time.Time.Compare), end, true, store.Args{"starts": starts})
	if err != nil {
		return nil, err
	}
	stats, err := store.Long(ctx, s.db, pgx.RowToStructByName[readings.Stats], summaries+`
		SELECT r.*
		FROM unnest(@starts::timestamptz[]) WITH ORDINALITY AS w (start, place)
		CROSS JOIN LATERAL (
		    SELECT `+ofSummaries+`
		    FROM summaries
		    WHERE at >= CASE WHEN at < @first THEN date_trunc('hour', w.start, 'UTC') ELSE w.start END
		) AS r
		ORDER BY w.place`, args, "statistics of %s", node.ID)
	for i := range stats {
		if stats[i].Count == 0 {
			stats[i] = readings.Stats{}
		}
	}
	return stats, err
}

// Sample yields a sample for training, see [readings.Archive].
func (s *Store) Sample(ctx context.Context, nodes []readings.NodeRef, start, end time.Time, rows int) iter.Seq2[reading.Reading, error] {
	if s.archive != nil {
		return s.archive.Sample(ctx, nodes, start, end, rows)
	}
	return readings.AtMost(s.Ranges(ctx, readings.Stretches(nodes, start, end, rows), start, end), rows/max(1, len(nodes)))
}
