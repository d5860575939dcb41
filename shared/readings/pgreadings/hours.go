package pgreadings

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// copiedDays are the days before today whose hourly aggregates are copied: those of the
// longest statistics, and what these begin in.
const copiedDays = 31

// Hours is a copy of the hourly aggregates of the last month, which BigQuery bills by the
// block.
type Hours struct {
	pool  *pgxpool.Pool
	clock func() time.Time
}

// NewHours returns the copy.
func NewHours(pool *pgxpool.Pool, clock func() time.Time) *Hours {
	return &Hours{pool: pool, clock: clock}
}

// Range returns what is copied; the zero times when nothing is.
func (h *Hours) Range(ctx context.Context) (from, until time.Time, err error) {
	var first, last *time.Time
	if err := h.pool.QueryRow(ctx, `SELECT first, until FROM recent_hours_run`).Scan(&first, &last); err != nil {
		return time.Time{}, time.Time{}, fmt.Errorf("copied hours: %w", err)
	}
	if first == nil || last == nil {
		return time.Time{}, time.Time{}, nil
	}
	return first.UTC(), last.UTC(), nil
}

// Hours returns a node's hours in spans, which are whole hours.
func (h *Hours) Hours(ctx context.Context, node string, in []reading.Span) ([]readings.Bucket, error) {
	rows, err := h.pool.Query(ctx, `
		SELECT h.hour AS start, h.avg_temperature, h.min_temperature, h.max_temperature, h.avg_humidity, h.min_humidity, h.max_humidity, h.count
		FROM `+visibleSpans+`
		JOIN recent_hours h ON h.node_id = v.node_id AND h.customer_id = v.channel AND h.hour >= v.from_time AND h.hour < v.until_time`,
		spansOf(readings.NodeRef{ID: node, Visible: in}).args(pgx.StrictNamedArgs{}))
	if err != nil {
		return nil, fmt.Errorf("hours of %s: %w", node, err)
	}
	hours, err := pgx.CollectRows(rows, pgx.RowToStructByName[readings.Bucket])
	if err != nil {
		return nil, fmt.Errorf("hours of %s: %w", node, err)
	}
	return hours, nil
}

// HourSource has the hourly aggregates.
type HourSource interface {
	Aggregated(ctx context.Context, since time.Time) (readings.Aggregated, error)
	HoursOf(ctx context.Context, days []time.Time) iter.Seq2[readings.Hour, error]
}

// Refresh copies the days that were aggregated since it was called before, in one
// transaction. Of several processes one does so; the others return at once.
func (h *Hours) Refresh(ctx context.Context, from HourSource) error {
	err := pgx.BeginFunc(ctx, h.pool, func(tx pgx.Tx) error {
		var started, first *time.Time
		err := tx.QueryRow(ctx, `SELECT started, first FROM recent_hours_run FOR UPDATE SKIP LOCKED`).Scan(&started, &first)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("last copy: %w", err)
		}
		since := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		if started != nil {
			since = *started
		}
		run, err := from.Aggregated(ctx, since)
		if err != nil || run.Started.IsZero() {
			return err
		}
		// What is not in the copy yet, or may have changed.
		oldest := h.clock().UTC().Truncate(day).Add(-copiedDays * day)
		changed := map[time.Time]bool{}
		for _, at := range run.Days {
			changed[at] = true
		}
		var days []time.Time
		for at := oldest; at.Before(run.Until); at = at.Add(day) {
			if run.All || first == nil || changed[at] {
				days = append(days, at)
			}
		}
		if _, err := tx.Exec(ctx, `DELETE FROM recent_hours WHERE hour < @oldest OR date_trunc('day', hour, 'UTC') = ANY(@days)`,
			pgx.StrictNamedArgs{"oldest": oldest, "days": days}); err != nil {
			return fmt.Errorf("delete what is old: %w", err)
		}
		if err := copyHours(ctx, tx, from.HoursOf(ctx, days)); err != nil {
			return err
		}
		// Days before the first copy are not there.
		if first == nil || first.Before(oldest) {
			first = &oldest
		}
		if _, err := tx.Exec(ctx, `UPDATE recent_hours_run SET started = @started, first = @first, until = @until`,
			pgx.StrictNamedArgs{"started": run.Started, "first": first, "until": run.Until}); err != nil {
			return fmt.Errorf("note the run: %w", err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("copy hours: %w", err)
	}
	return nil
}

func copyHours(ctx context.Context, tx pgx.Tx, all iter.Seq2[readings.Hour, error]) error {
	next, stop := iter.Pull2(all)
	defer stop()
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"recent_hours"}, []string{
		"node_id", "customer_id", "hour", "count", "avg_temperature", "min_temperature", "max_temperature", "avg_humidity", "min_humidity", "max_humidity",
	}, pgx.CopyFromFunc(func() ([]any, error) {
		h, err, ok := next()
		if !ok || err != nil {
			return nil, err
		}
		return []any{
			h.NodeID, int64(h.Channel), h.Start, h.Count, h.AvgTemperature, h.MinTemperature, h.MaxTemperature, h.AvgHumidity, h.MinHumidity, h.MaxHumidity,
		}, nil
	}))
	if err != nil {
		return fmt.Errorf("add: %w", err)
	}
	return nil
}
