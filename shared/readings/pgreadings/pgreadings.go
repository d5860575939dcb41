// Package pgreadings stores readings in PostgreSQL, in the table
// sensor_data.readings with a partition per day: the local system's time-series
// table, and that of an installation on one machine.
//
// functions/ingest writes with it, run/api and functions/train read. The
// identity of a reading is the primary key, so that what arrives twice is
// stored once.
package pgreadings

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// Store is the table.
type Store struct {
	pool       *pgxpool.Pool
	clock      func() time.Time
	partitions partitions
}

// New returns the table over a pool whose schema store.Migrate has brought up
// to date. The pool stays the caller's to close.
func New(pool *pgxpool.Pool, clock func() time.Time) *Store {
	return &Store{pool: pool, clock: clock}
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
		return cmp.Or(cmp.Compare(a.NodeID, b.NodeID), a.Time.Compare(b.Time), cmp.Compare(a.MessageID, b.MessageID))
	})
	nodes, messages := make([]string, len(rows)), make([]string, len(rows))
	times := make([]time.Time, len(rows))
	temperatures, humidities := make([]float64, len(rows)), make([]float64, len(rows))
	for i, r := range rows {
		nodes[i], messages[i], times[i] = r.NodeID, r.MessageID, reading.TruncateTime(r.Time)
		temperatures[i], humidities[i] = r.Temperature, r.Humidity
	}
	_, err := s.pool.Exec(ctx, `
		INSERT INTO sensor_data.readings (node_id, message_id, timestamp, temperature, humidity)
		SELECT * FROM unnest(
		    @nodes::text[], @messages::text[], @times::timestamptz[], @temperatures::float8[], @humidities::float8[])
		ON CONFLICT DO NOTHING`,
		pgx.StrictNamedArgs{
			"nodes": nodes, "messages": messages, "times": times,
			"temperatures": temperatures, "humidities": humidities,
		})
	return err //nolint:wrapcheck // Append wraps it, after looking at it
}

type row struct {
	NodeID, MessageID     string
	Timestamp             time.Time
	Temperature, Humidity float64
}

func (r row) reading() reading.Reading {
	return reading.Reading{
		NodeID: r.NodeID, MessageID: r.MessageID, Time: r.Timestamp.UTC(),
		Temperature: r.Temperature, Humidity: r.Humidity,
	}
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
	ids, starts := make([]string, len(nodes)), make([]time.Time, len(nodes))
	for i, n := range nodes {
		ids[i], starts[i] = n.ID, n.VisibleSince
	}
	rows, err := s.pool.Query(ctx, `
		SELECT r.node_id, r.message_id, r.timestamp, r.temperature, r.humidity
		FROM unnest(@ids::text[], @starts::timestamptz[]) AS n (node_id, start)
		CROSS JOIN LATERAL (
		    SELECT node_id, message_id, timestamp, temperature, humidity
		    FROM sensor_data.readings
		    WHERE node_id = n.node_id AND timestamp >= @since AND timestamp >= n.start AND timestamp < @until
		    ORDER BY timestamp DESC, message_id DESC
		    LIMIT 1
		) AS r`,
		pgx.StrictNamedArgs{"ids": ids, "starts": starts, "since": since, "until": until})
	if err != nil {
		return fmt.Errorf("latest of %d nodes: %w", len(nodes), err)
	}
	newest, err := pgx.CollectRows(rows, pgx.RowToStructByName[row])
	if err != nil {
		return fmt.Errorf("latest of %d nodes: %w", len(nodes), err)
	}
	for _, r := range newest {
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
	return func(yield func(reading.Reading, error) bool) {
		after, message := readings.Later(start, node.VisibleSince), "" // every message id is longer
		for {
			page, err := s.page(ctx, node.ID, after, message, end)
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
			last := page[len(page)-1]
			after, message = last.Timestamp, last.MessageID
		}
	}
}

// page returns the next rows of a range, after a time and a message id.
func (s *Store) page(ctx context.Context, node string, after time.Time, message string, end time.Time) ([]row, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT node_id, message_id, timestamp, temperature, humidity
		FROM sensor_data.readings
		WHERE node_id = @node AND timestamp >= @after AND timestamp < @end
		  AND (timestamp, message_id) > (@after, @message)
		ORDER BY timestamp, message_id
		LIMIT @limit`,
		pgx.StrictNamedArgs{"node": node, "after": after, "message": message, "end": end, "limit": rangePage})
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
	width := (end.Sub(start).Microseconds() + int64(n) - 1) / int64(n)
	rows, err := s.pool.Query(ctx, `
		SELECT date_bin(@width * interval '1 microsecond', timestamp, @origin) AS start,
		       avg(temperature) AS avg_temperature, min(temperature) AS min_temperature, max(temperature) AS max_temperature,
		       avg(humidity) AS avg_humidity, min(humidity) AS min_humidity, max(humidity) AS max_humidity,
		       count(*) AS count
		FROM sensor_data.readings
		WHERE node_id = @node AND timestamp >= @start AND timestamp < @end
		GROUP BY 1
		ORDER BY 1`,
		pgx.StrictNamedArgs{
			"node": node.ID, "width": width, "origin": start, "start": readings.Later(start, node.VisibleSince), "end": end,
		})
	if err != nil {
		return nil, fmt.Errorf("%d buckets of %s: %w", n, node.ID, err)
	}
	buckets, err := pgx.CollectRows(rows, pgx.RowToStructByName[readings.Bucket])
	if err != nil {
		return nil, fmt.Errorf("%d buckets of %s: %w", n, node.ID, err)
	}
	for i := range buckets {
		buckets[i].Start = buckets[i].Start.UTC()
	}
	return buckets, nil
}

// Stats implements [readings.Reader].
func (s *Store) Stats(ctx context.Context, node readings.NodeRef, end time.Time, starts []time.Time) ([]readings.Stats, error) {
	bounded := make([]time.Time, len(starts))
	for i, start := range starts {
		bounded[i] = readings.Later(start, node.VisibleSince)
	}
	rows, err := s.pool.Query(ctx, `
		SELECT COALESCE(r.avg_temperature, 0) AS avg_temperature, COALESCE(r.min_temperature, 0) AS min_temperature,
		       COALESCE(r.max_temperature, 0) AS max_temperature, COALESCE(r.avg_humidity, 0) AS avg_humidity,
		       COALESCE(r.min_humidity, 0) AS min_humidity, COALESCE(r.max_humidity, 0) AS max_humidity, r.count
		FROM unnest(@starts::timestamptz[]) WITH ORDINALITY AS w (start, place)
		CROSS JOIN LATERAL (
		    SELECT avg(temperature) AS avg_temperature, min(temperature) AS min_temperature, max(temperature) AS max_temperature,
		           avg(humidity) AS avg_humidity, min(humidity) AS min_humidity, max(humidity) AS max_humidity, count(*) AS count
		    FROM sensor_data.readings
		    WHERE node_id = @node AND timestamp >= w.start AND timestamp < @end
		) AS r
		ORDER BY w.place`,
		pgx.StrictNamedArgs{"node": node.ID, "starts": bounded, "end": end})
	if err != nil {
		return nil, fmt.Errorf("statistics of %s: %w", node.ID, err)
	}
	stats, err := pgx.CollectRows(rows, pgx.RowToStructByName[readings.Stats])
	if err != nil {
		return nil, fmt.Errorf("statistics of %s: %w", node.ID, err)
	}
	return stats, nil
}
