package backend

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"time"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/pgreadings"
)

// Table is the table of all readings.
type Table interface {
	readings.Store
	Parts(ctx context.Context, node readings.NodeRef, start, end, first time.Time, width time.Duration) ([]readings.Bucket, error)
}

// Tiered is the table of all readings, of which the recent ones are read from the
// metadata database: nobody is billed for them by the byte. They are all there from some
// time on, [pgreadings.Recent.From]. What begins before it is asked of both; every other
// question goes to the table of all.
type Tiered struct {
	Table

	recent  *pgreadings.Recent
	refresh func(context.Context) error // of the copied hours
}

// refreshInterval is how often [Tiered.Run] looks whether there is something to copy.
const refreshInterval = 15 * time.Minute

// Run keeps the copy of the hourly aggregates until ctx ends; it then returns nil. One
// process of the API does the work, the others look on.
func (t *Tiered) Run(ctx context.Context, log *slog.Logger) error {
	ticker := time.NewTicker(refreshInterval)
	defer ticker.Stop()
	for {
		if err := t.refresh(ctx); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "hourly aggregates cannot be copied, which is tried again", "error", err.Error())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// NewTiered returns the two tables as one.
func NewTiered(all Table, recent *pgreadings.Recent) *Tiered {
	return &Tiered{Table: all, recent: recent}
}

// Append implements [readings.Appender]. The recent ones come first: while the metadata
// database is away nothing is stored, and no redelivery leaves copies in the other.
func (t *Tiered) Append(ctx context.Context, rows []reading.Reading) error {
	if err := t.recent.Append(ctx, rows); err != nil {
		return err
	}
	return t.Table.Append(ctx, rows)
}

// Range implements [readings.Reader].
func (t *Tiered) Range(ctx context.Context, node readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	return t.either(ctx, start, func(from readings.Reader) iter.Seq2[reading.Reading, error] { return from.Range(ctx, node, start, end) })
}

// Ranges implements [readings.Reader].
func (t *Tiered) Ranges(ctx context.Context, nodes []readings.NodeRef, start, end time.Time) iter.Seq2[reading.Reading, error] {
	return t.either(ctx, start, func(from readings.Reader) iter.Seq2[reading.Reading, error] {
		return from.Ranges(ctx, nodes, start, end)
	})
}

// either reads from the table that has all from start on.
func (t *Tiered) either(ctx context.Context, start time.Time, read func(readings.Reader) iter.Seq2[reading.Reading, error]) iter.Seq2[reading.Reading, error] {
	return func(yield func(reading.Reading, error) bool) {
		from, err := t.recent.From(ctx)
		if err != nil {
			yield(reading.Reading{}, err)
			return
		}
		var table readings.Reader = t.Table
		if !start.Before(from) {
			table = t.recent
		}
		read(table)(yield)
	}
}

// Buckets implements [readings.Reader].
func (t *Tiered) Buckets(ctx context.Context, node readings.NodeRef, start, end time.Time, n int) ([]readings.Bucket, error) {
	start, end = reading.TruncateTime(start), reading.TruncateTime(end)
	if n < 1 || !start.Before(end) {
		return nil, nil
	}
	from, err := t.recent.From(ctx)
	if err != nil {
		return nil, err
	}
	first, width := readings.Parts(start, end, n)
	var parts []readings.Bucket
	if start.Before(from) {
		if parts, err = t.Parts(ctx, node, start, earlier(from, end), first, width); err != nil {
			return nil, err
		}
	}
	if !from.Before(end) {
		return parts, nil
	}
	recent, err := t.recent.Parts(ctx, node, later(from, start), end, first, width)
	if err != nil {
		return nil, err
	}
	if n := len(parts); n > 0 && len(recent) > 0 && recent[0].Start.Equal(parts[n-1].Start) {
		parts[n-1].Stats = readings.Combine(parts[n-1].Stats, recent[0].Stats)
		recent = recent[1:]
	}
	return append(parts, recent...), nil
}

// Stats implements [readings.Reader].
func (t *Tiered) Stats(ctx context.Context, node readings.NodeRef, end time.Time, starts []time.Time) ([]readings.Stats, error) {
	from, err := t.recent.From(ctx)
	if err != nil {
		return nil, err
	}
	stats := make([]readings.Stats, len(starts))
	add := func(table readings.Reader, end time.Time, wanted func(time.Time) (time.Time, bool)) error {
		var places []int
		var begins []time.Time
		for i, start := range starts {
			if begin, ok := wanted(start); ok {
				places, begins = append(places, i), append(begins, begin)
			}
		}
		found, err := table.Stats(ctx, node, end, begins)
		if err != nil {
			return err
		}
		for i, place := range places {
			stats[place] = readings.Combine(stats[place], found[i])
		}
		return nil
	}
	if err := add(t.Table, earlier(from, end), func(start time.Time) (time.Time, bool) { return start, start.Before(from) }); err != nil {
		return nil, err
	}
	if !from.Before(end) {
		return stats, nil
	}
	return stats, add(t.recent, end, func(start time.Time) (time.Time, bool) { return later(from, start), true })
}

func earlier(a, b time.Time) time.Time { return slices.MinFunc([]time.Time{a, b}, time.Time.Compare) }

func later(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }
