package pgreadings

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/reading"
)

const (
	recentTable = "recent_readings"
	// ringOf is the partition of a row: days take turns with so many.
	ringOf = "floor(extract(epoch FROM timestamp) / 86400)::bigint % 4"
	rings  = 4
	// keptDays are the days before today whose readings are kept.
	keptDays = 2

	// noteInterval is how often a process notes that it keeps readings.
	noteInterval = time.Minute
	// silence is how long nobody may have noted anything: a version that kept no recent
	// readings may have run meanwhile, and what is kept begins anew.
	silence = 10 * time.Minute
	// overlap is how long processes of such a version may go on beside new ones.
	overlap = 15 * time.Minute
)

// Recent is the readings of the last days, in the metadata database, where the table of
// all is BigQuery's: what people look at most, and what is too new to be aggregated. Days
// take turns with four partitions, which are emptied before they are used again.
type Recent struct {
	*Store

	mu       sync.Mutex
	prepared map[time.Time]bool
	noted    time.Time

	fromMu sync.Mutex
	from   time.Time
	asked  time.Time
}

// NewRecent returns the recent readings.
func NewRecent(pool *pgxpool.Pool, clock func() time.Time) *Recent {
	r := &Recent{Store: &Store{pool: pool, clock: clock, table: recentTable}, prepared: map[time.Time]bool{}}
	r.appends = coalesceAppends(r.append)
	return r
}

// append keeps those of the rows that are recent.
func (r *Recent) append(ctx context.Context, rows []reading.Reading) error {
	today := r.clock().UTC().Truncate(day)
	var recent []reading.Reading
	for _, row := range rows {
		if !row.Time.Before(today.Add(-keptDays * day)) {
			recent = append(recent, row)
		}
	}
	if err := r.prepare(ctx, today); err != nil {
		return err
	}
	if len(recent) == 0 {
		return nil
	}
	if err := r.insert(ctx, recent); err != nil {
		return fmt.Errorf("keep %d recent readings: %w", len(recent), err)
	}
	return nil
}

// prepare empties the partitions of the days that readings may have now and of which
// none has come before, and notes that readings are kept.
func (r *Recent) prepare(ctx context.Context, today time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at := today.Add(-keptDays * day); !at.After(today.Add(day)); at = at.Add(day) {
		if r.prepared[at] {
			continue
		}
		if err := r.empty(ctx, at); err != nil {
			return fmt.Errorf("recent readings of %s: %w", at.Format(time.DateOnly), err)
		}
		r.prepared[at] = true
	}
	now := r.clock()
	if since := now.Sub(r.noted); since >= 0 && since < noteInterval {
		return nil
	}
	_, err := r.pool.Exec(ctx, `
		INSERT INTO recent_kept AS k (since, until)
		VALUES (@now, @now)
		ON CONFLICT (one) DO UPDATE
		SET since = CASE WHEN k.until < EXCLUDED.until - @silence::interval THEN EXCLUDED.since ELSE k.since END,
		    until = GREATEST(k.until, EXCLUDED.until)`,
		pgx.StrictNamedArgs{"now": now, "silence": silence})
	if err != nil {
		return fmt.Errorf("note recent readings: %w", err)
	}
	r.noted = now
	return nil
}

// empty gives a partition to a day, once. It is empty then: nobody adds readings of the
// day that had it before.
func (r *Recent) empty(ctx context.Context, at time.Time) error {
	ring := at.Unix() / int64(day/time.Second) % rings
	err := pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		found, err := tx.Exec(ctx, `
			INSERT INTO recent_days AS d (ring, day)
			VALUES (@ring, @day)
			ON CONFLICT (ring) DO UPDATE
			SET day = EXCLUDED.day
			WHERE d.day < EXCLUDED.day`,
			pgx.StrictNamedArgs{"ring": ring, "day": at})
		if err != nil || found.RowsAffected() == 0 {
			return err //nolint:wrapcheck // wrapped by prepare
		}
		_, err = tx.Exec(ctx, fmt.Sprintf(`TRUNCATE %s_%d`, recentTable, ring))
		return err //nolint:wrapcheck // wrapped by prepare
	})
	if err != nil {
		return fmt.Errorf("empty: %w", err)
	}
	return nil
}

// From returns from when on all readings are kept here, on a whole hour: from yesterday
// on, or from when the first were kept. It is after all times when none are kept now.
func (r *Recent) From(ctx context.Context) (time.Time, error) {
	r.fromMu.Lock()
	defer r.fromMu.Unlock()
	now := r.clock()
	if since := now.Sub(r.asked); since >= 0 && since < noteInterval {
		return r.from, nil
	}
	var begun *time.Time
	err := r.pool.QueryRow(ctx, `SELECT max(since) FROM recent_kept WHERE until >= @now::timestamptz - @silence::interval`,
		pgx.StrictNamedArgs{"now": now, "silence": silence}).Scan(&begun)
	if err != nil {
		return time.Time{}, fmt.Errorf("recent readings: %w", err)
	}
	r.asked, r.from = now, now.UTC().Truncate(day).Add(-day)
	if begun == nil {
		r.from = endless()
	} else if first := begun.UTC().Add(overlap + time.Hour).Truncate(time.Hour); first.After(r.from) {
		r.from = first
	}
	return r.from, nil
}
