// Package pgreadings stores readings in PostgreSQL, in the table
// sensor_data.readings with a partition per day: the local system's time-series
// table, and that of an installation on one machine.
//
// functions/ingest writes with it, run/api and functions/train read. The
// identity of a reading is the primary key, so that what arrives twice is
// stored once. There are no hourly aggregates: a node's readings of a day lie
// together in the index, those of a month are some 90,000 rows that are summarised in
// a tenth of a second, and nobody is billed for them.
package pgreadings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/coalesce"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// Store is the table.
type Store struct {
	pool       *pgxpool.Pool
	clock      func() time.Time
	table      string
	partitions partitions
	appends    *coalesce.Group[reading.Reading, error]
}

// New returns the table over a pool whose schema store.Migrate has brought up
// to date. The pool stays the caller's to close.
func New(pool *pgxpool.Pool, clock func() time.Time) *Store {
	s := &Store{pool: pool, clock: clock, table: "sensor_data.readings"}
	s.appends = coalesceAppends(s.append)
	return s
}

// Bounds of one append.
const (
	maxAppendRows = 500
	appendTimeout = 8 * time.Second
)

// coalesceAppends lets concurrent callers share a statement and a commit. Where the rows
// of a batch are refused, each is appended alone: no row fails because of another.
func coalesceAppends(run func(context.Context, []reading.Reading) error) *coalesce.Group[reading.Reading, error] {
	return coalesce.New(func(ctx context.Context, rows []reading.Reading) ([]error, error) {
		ctx, cancel := context.WithTimeout(ctx, appendTimeout)
		defer cancel()
		errs := make([]error, len(rows))
		err := run(ctx, rows)
		if refused := refusal(err); !refused || len(rows) == 1 {
			return errs, err
		}
		for i, row := range rows {
			errs[i] = run(ctx, []reading.Reading{row})
		}
		return errs, nil
	}, coalesce.Options[reading.Reading]{MaxItems: maxAppendRows})
}

// refusal reports whether the database takes some row never: SQLSTATE class 22 or 23.
func refusal(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(refused.Code, "22") || strings.HasPrefix(refused.Code, "23"))
}

// recent is how far back the newest readings are looked for before the whole
// table is: nearly every sensor has reported within it, and few partitions need
// to be opened.
const recent = 48 * time.Hour

// Append implements [readings.Appender].
func (s *Store) Append(ctx context.Context, rows []reading.Reading) error {
	if len(rows) == 0 {
		return nil
	}
	errs, err := s.appends.DoAll(ctx, rows)
	if err != nil {
		return err
	}
	return errors.Join(errs...)
}

func (s *Store) append(ctx context.Context, rows []reading.Reading) error {
	if err := s.partitions.ensure(ctx, s.pool, rows); err != nil {
		return err
	}
	err := s.insert(ctx, rows)
	if noPartition(err) {
		// A partition that we have seen was dropped since.
		s.partitions.forget()
		if err := s.partitions.ensure(ctx, s.pool, rows); err != nil {
			return err
		}
		err = s.insert(ctx, rows)
	}
	if err != nil {
		return fmt.Errorf("append %d readings: %w", len(rows), err)
	}
	return nil
}

func (s *Store) insert(ctx context.Context, rows []reading.Reading) error {
	// In one order, so that writers of the same rows wait for each other in turn
	// and never in a circle.
	rows = slices.SortedFunc(slices.Values(rows), func(a, b reading.Reading) int {
		return cmp.Or(cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.Channel, b.Channel), a.Time.Compare(b.Time), cmp.Compare(a.MessageID, b.MessageID))
	})
	nodes, messages, channels := make([]string, len(rows)), make([]string, len(rows)), make([]int64, len(rows))
	times := make([]time.Time, len(rows))
	temperatures, humidities := make([]float64, len(rows)), make([]float64, len(rows))
	for i, r := range rows {
		nodes[i], messages[i], channels[i], times[i] = r.NodeID, r.MessageID, int64(r.Channel), reading.TruncateTime(r.Time)
		temperatures[i], humidities[i] = r.Temperature, r.Humidity
	}
	var ring struct{ column, value string }
	if s.table == recentTable {
		ring.column, ring.value = ", ring", ", "+ringOf
	}
	_, err := s.pool.Exec(ctx, `
		INSERT INTO `+s.table+` (node_id, message_id, customer_id, timestamp, temperature, humidity`+ring.column+`)
		SELECT *`+ring.value+` FROM unnest(
		    @nodes::text[], @messages::text[], @channels::bigint[], @times::timestamptz[], @temperatures::float8[], @humidities::float8[])
		    AS r (node_id, message_id, customer_id, timestamp, temperature, humidity)
		ON CONFLICT DO NOTHING`,
		pgx.StrictNamedArgs{
			"nodes": nodes, "messages": messages, "channels": channels, "times": times,
			"temperatures": temperatures, "humidities": humidities,
		})
	return err //nolint:wrapcheck // Append wraps it, after looking at it
}

// row is a reading as queries return it.
type row struct {
	NodeID, MessageID     string
	CustomerID            reading.Channel
	Timestamp             time.Time
	Temperature, Humidity float64
}

const rowColumns = `r.node_id, r.message_id, r.customer_id, r.timestamp, r.temperature, r.humidity`

func (r row) reading() reading.Reading {
	return reading.Reading{
		Channel: r.CustomerID, NodeID: r.NodeID, MessageID: r.MessageID, Time: r.Timestamp.UTC(),
		Temperature: r.Temperature, Humidity: r.Humidity,
	}
}

// spans are what is visible of nodes, a row for each span.
type spans struct {
	ids           []string
	channels      []int64
	froms, untils []time.Time
}

// endless stands for a span without an end: no reading is that late.
func endless() time.Time { return time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC) }

func spansOf(nodes ...readings.NodeRef) (s spans) {
	for _, n := range nodes {
		for _, span := range n.Visible {
			until := span.Until
			if until.IsZero() {
				until = endless()
			}
			s.ids, s.channels = append(s.ids, n.ID), append(s.channels, int64(span.Channel))
			s.froms, s.untils = append(s.froms, span.From), append(s.untils, until)
		}
	}
	return s
}

// args are the arguments of [visibleSpans], with others.
func (s spans) args(others pgx.StrictNamedArgs) pgx.StrictNamedArgs {
	others["ids"], others["channels"], others["froms"], others["untils"] = s.ids, s.channels, s.froms, s.untils
	return others
}

const visibleSpans = `unnest(@ids::text[], @channels::bigint[], @froms::timestamptz[], @untils::timestamptz[])
	AS v (node_id, channel, from_time, until_time)`

// folded are the visible readings of one node from @start to @end without copies,
// as [readings.Fold] leaves them. Copies are found among those of a span.
func (s *Store) folded() string {
	return `
	SELECT r.timestamp, r.temperature, r.humidity
	FROM ` + visibleSpans + `
	CROSS JOIN LATERAL (
	    SELECT timestamp, temperature, humidity,
	           timestamp - lag(timestamp) OVER (PARTITION BY message_id, temperature, humidity ORDER BY timestamp) < @fold::interval AS is_copy
	    FROM ` + s.table + `
	    WHERE node_id = v.node_id AND customer_id = v.channel
	      AND timestamp >= GREATEST(@start::timestamptz - @fold::interval, v.from_time) AND timestamp < LEAST(@end::timestamptz, v.until_time)
	) AS r
	WHERE r.is_copy IS NOT TRUE AND r.timestamp >= @start::timestamptz`
}

// Latest implements [readings.Reader].
func (s *Store) Latest(ctx context.Context, nodes []readings.NodeRef) (map[string]reading.Reading, error) {
	found := make(map[string]reading.Reading, len(nodes))
	now := s.clock()
	until := readings.LatestEnd(now)
	if err := s.latestWithin(ctx, nodes, now.Add(-recent), until, found); err != nil {
		return nil, err
	}
	var silent []readings.NodeRef
	for _, n := range nodes {
		if _, ok := found[n.ID]; !ok {
			silent = append(silent, n)
		}
	}
	if len(silent) > 0 {
		if err := s.latestWithin(ctx, silent, time.Time{}, until, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (s *Store) latestWithin(ctx context.Context, nodes []readings.NodeRef, since, until time.Time, into map[string]reading.Reading) error {
	rows, err := s.pool.Query(ctx, `
		SELECT `+rowColumns+`
		FROM `+visibleSpans+`
		CROSS JOIN LATERAL (
		    SELECT *
		    FROM `+s.table+`
		    WHERE node_id = v.node_id AND customer_id = v.channel
		      AND timestamp >= GREATEST(@since::timestamptz, v.from_time) AND timestamp < LEAST(@until::timestamptz, v.until_time)
		    ORDER BY timestamp DESC, message_id DESC
		    LIMIT 1
		) AS r
		ORDER BY r.timestamp, r.message_id, r.customer_id`,
		spansOf(nodes...).args(pgx.StrictNamedArgs{"since": since, "until": until}))
	if err != nil {
		return fmt.Errorf("latest of %d nodes: %w", len(nodes), err)
	}
	newest, err := pgx.CollectRows(rows, pgx.RowToStructByName[row])
	if err != nil {
		return fmt.Errorf("latest of %d nodes: %w", len(nodes), err)
	}
	for _, r := range newest { // of several spans of a node the newest comes last
		into[r.NodeID] = r.reading()
	}
	return nil
}

// rangePage is how many rows of a range one query takes.
const rangePage = 5000

// Range implements [readings.Reader]: page by page, so that memory stays flat
// however long the range is, and a reader that takes its time over a page holds
// no connection meanwhile.
func (s *Store) Range(ctx context.Context, node readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	return readings.Fold(s.pages(ctx, node, start.Add(-readings.FoldWithin), end), start)
}

// errDisorder says that the server has joined in another order than [Store.Ranges] expects.
var errDisorder = errors.New("readings come in disorder")

// Ranges implements [readings.Reader]. It holds a connection until it is done. Each span
// is read in the order of the index: to sort all of them takes ten times as long. A nested
// loop, the only way to join LATERAL, keeps the order of the spans; SQL does not promise
// it, so it is checked.
func (s *Store) Ranges(ctx context.Context, nodes []readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	nodes = slices.SortedFunc(slices.Values(nodes), func(a, b readings.NodeRef) int { return cmp.Compare(a.ID, b.ID) })
	for i := range nodes {
		nodes[i].Visible = slices.SortedFunc(slices.Values(nodes[i].Visible), func(a, b reading.Span) int {
			return cmp.Or(cmp.Compare(a.Channel, b.Channel), a.From.Compare(b.From))
		})
	}
	return readings.Fold(func(yield func(reading.Reading, error) bool) {
		rows, err := s.pool.Query(ctx, `
			SELECT `+rowColumns+`
			FROM `+visibleSpans+`
			CROSS JOIN LATERAL (
			    SELECT *
			    FROM `+s.table+`
			    WHERE node_id = v.node_id AND customer_id = v.channel
			      AND timestamp >= GREATEST(@start::timestamptz, v.from_time) AND timestamp < LEAST(@end::timestamptz, v.until_time)
			    ORDER BY timestamp, message_id
			) AS r`,
			spansOf(nodes...).args(pgx.StrictNamedArgs{"start": start.Add(-readings.FoldWithin), "end": end}))
		if err != nil {
			yield(reading.Reading{}, fmt.Errorf("readings of %d nodes: %w", len(nodes), err))
			return
		}
		defer rows.Close()
		var r, before row
		for rows.Next() {
			err := rows.Scan(&r.NodeID, &r.MessageID, &r.CustomerID, &r.Timestamp, &r.Temperature, &r.Humidity)
			if err == nil && cmp.Or(cmp.Compare(r.NodeID, before.NodeID), cmp.Compare(r.CustomerID, before.CustomerID), r.Timestamp.Compare(before.Timestamp)) < 0 {
				err = errDisorder
			}
			if err != nil {
				yield(reading.Reading{}, fmt.Errorf("readings of %d nodes: %w", len(nodes), err))
				return
			}
			if !yield(r.reading(), nil) {
				return
			}
			before = r
		}
		if err := rows.Err(); err != nil {
			yield(reading.Reading{}, fmt.Errorf("readings of %d nodes: %w", len(nodes), err))
		}
	}, start)
}

// pages yields all rows of a range.
func (s *Store) pages(ctx context.Context, node readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	return func(yield func(reading.Reading, error) bool) {
		after := row{Timestamp: start} // every message id is longer
		for {
			page, err := s.page(ctx, node, after, end)
			if err != nil {
				yield(reading.Reading{}, fmt.Errorf("readings of %s: %w", node.ID, err))
				return
			}
			for _, r := range page {
				if !yield(r.reading(), nil) {
					return
				}
			}
			if len(page) < rangePage {
				return
			}
			after = page[len(page)-1]
		}
	}
}

// page returns the next rows of a range, after another one.
func (s *Store) page(ctx context.Context, node readings.NodeRef, after row, end time.Time) ([]row, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT `+rowColumns+`
		FROM `+visibleSpans+`
		CROSS JOIN LATERAL (
		    SELECT *
		    FROM `+s.table+`
		    WHERE node_id = v.node_id AND customer_id = v.channel
		      AND timestamp >= GREATEST(@after::timestamptz, v.from_time) AND timestamp < LEAST(@end::timestamptz, v.until_time)
		      AND (timestamp, message_id, customer_id) > (@after::timestamptz, @message::text, @channel::bigint)
		    ORDER BY timestamp, message_id
		    LIMIT @limit
		) AS r
		ORDER BY r.timestamp, r.message_id, r.customer_id
		LIMIT @limit`,
		spansOf(node).args(pgx.StrictNamedArgs{
			"after": after.Timestamp, "message": after.MessageID, "channel": int64(after.CustomerID), "end": end, "limit": rangePage,
		}))
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	page, err := pgx.CollectRows(rows, pgx.RowToStructByName[row])
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	return page, nil
}

// Buckets implements [readings.Reader].
func (s *Store) Buckets(ctx context.Context, node readings.NodeRef, start, end time.Time, n int) ([]readings.Bucket, error) {
	start, end = reading.TruncateTime(start), reading.TruncateTime(end)
	if n < 1 || !start.Before(end) {
		return nil, nil
	}
	first, width := readings.Parts(start, end, n)
	return s.Parts(ctx, node, start, end, first, width)
}

// Parts summarises a range in parts of a width, one of which begins at first; parts
// without readings are absent.
func (s *Store) Parts(ctx context.Context, node readings.NodeRef, start, end, first time.Time, width time.Duration) ([]readings.Bucket, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT date_bin(@width::interval, r.timestamp, @first) AS start,
		       avg(r.temperature) AS avg_temperature, min(r.temperature) AS min_temperature, max(r.temperature) AS max_temperature,
		       avg(r.humidity) AS avg_humidity, min(r.humidity) AS min_humidity, max(r.humidity) AS max_humidity,
		       count(*) AS count
		FROM (`+s.folded()+`) AS r
		GROUP BY 1
		ORDER BY 1`,
		spansOf(node).args(pgx.StrictNamedArgs{"width": width, "first": first, "start": start, "end": end, "fold": readings.FoldWithin}))
	if err != nil {
		return nil, fmt.Errorf("buckets of %s: %w", node.ID, err)
	}
	buckets, err := pgx.CollectRows(rows, pgx.RowToStructByName[readings.Bucket])
	if err != nil {
		return nil, fmt.Errorf("buckets of %s: %w", node.ID, err)
	}
	for i := range buckets {
		buckets[i].Start = buckets[i].Start.UTC()
	}
	return buckets, nil
}

// Stats implements [readings.Reader].
func (s *Store) Stats(ctx context.Context, node readings.NodeRef, end time.Time, starts []time.Time) ([]readings.Stats, error) {
	if len(starts) == 0 {
		return nil, nil
	}
	rows, err := s.pool.Query(ctx, `
		WITH seen AS MATERIALIZED (`+s.folded()+`)
		SELECT COALESCE(r.avg_temperature, 0) AS avg_temperature, COALESCE(r.min_temperature, 0) AS min_temperature,
		       COALESCE(r.max_temperature, 0) AS max_temperature, COALESCE(r.avg_humidity, 0) AS avg_humidity,
		       COALESCE(r.min_humidity, 0) AS min_humidity, COALESCE(r.max_humidity, 0) AS max_humidity, r.count
		FROM unnest(@starts::timestamptz[]) WITH ORDINALITY AS w (start, place)
		CROSS JOIN LATERAL (
		    SELECT avg(temperature) AS avg_temperature, min(temperature) AS min_temperature, max(temperature) AS max_temperature,
		           avg(humidity) AS avg_humidity, min(humidity) AS min_humidity, max(humidity) AS max_humidity, count(*) AS count
		    FROM seen
		    WHERE timestamp >= w.start
		) AS r
		ORDER BY w.place`,
		spansOf(node).args(pgx.StrictNamedArgs{
			"starts": starts, "start": slices.MinFunc(starts, time.Time.Compare), "end": end, "fold": readings.FoldWithin,
		}))
	if err != nil {
		return nil, fmt.Errorf("statistics of %s: %w", node.ID, err)
	}
	stats, err := pgx.CollectRows(rows, pgx.RowToStructByName[readings.Stats])
	if err != nil {
		return nil, fmt.Errorf("statistics of %s: %w", node.ID, err)
	}
	return stats, nil
}
