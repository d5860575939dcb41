package bqreadings

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/bigquery"
	"golang.org/x/sync/errgroup"
	"google.golang.org/api/googleapi"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// Which part of a summary a reading belongs to: of a range the part, of windows that
// end together how many it is in.
const (
	partOfRange   = "DIV(UNIX_MICROS(timestamp) - UNIX_MICROS(@first), @width)"
	partOfWindows = "(SELECT COUNT(*) FROM UNNEST(@starts) AS window_start WHERE CAST(window_start AS INT64) <= UNIX_MICROS(timestamp))"
)

// summaryRow is what queries return about many readings: of a part, or of an hour.
type summaryRow struct {
	Part           int64     `bigquery:"part"`
	Hour           time.Time `bigquery:"hour"`
	AvgTemperature float64   `bigquery:"avg_temperature"`
	MinTemperature float64   `bigquery:"min_temperature"`
	MaxTemperature float64   `bigquery:"max_temperature"`
	AvgHumidity    float64   `bigquery:"avg_humidity"`
	MinHumidity    float64   `bigquery:"min_humidity"`
	MaxHumidity    float64   `bigquery:"max_humidity"`
	Readings       int64     `bigquery:"readings"`
}

func (r summaryRow) stats() readings.Stats {
	return readings.Stats{
		AvgTemperature: r.AvgTemperature, MinTemperature: r.MinTemperature, MaxTemperature: r.MaxTemperature,
		AvgHumidity: r.AvgHumidity, MinHumidity: r.MinHumidity, MaxHumidity: r.MaxHumidity, Count: r.Readings,
	}
}

// Buckets summarises a node's readings with start ≤ time < end in at most n
// parts; parts without readings are absent.
func (s *Store) Buckets(ctx context.Context, node readings.NodeRef, start, end time.Time, n int) ([]readings.Bucket, error) {
	start, end = reading.TruncateTime(start), reading.TruncateTime(end)
	if n < 1 || !start.Before(end) {
		return nil, nil
	}
	first, width := readings.Parts(start, end, n)
	return s.Parts(ctx, node, start, end, first, width)
}

// Parts summarises a range in parts of a width, one of which begins at first; parts
// without readings are absent. Whole hours are read from the hourly aggregates.
func (s *Store) Parts(ctx context.Context, node readings.NodeRef, start, end, first time.Time, width time.Duration) ([]readings.Bucket, error) {
	found, err := s.summarise(ctx, node, start, end, summaryOf{
		purpose: readings.Chart, part: partOfRange, hourly: width%time.Hour == 0 && first.Equal(first.Truncate(time.Hour)),
		parameters: []bigquery.QueryParameter{parameter("first", first), parameter("width", width.Microseconds())},
		ofHour:     func(hour time.Time) int64 { return int64(hour.Sub(first) / width) },
	})
	if err != nil {
		return nil, err
	}
	var buckets []readings.Bucket
	for _, part := range slices.Sorted(maps.Keys(found)) {
		buckets = append(buckets, readings.Bucket{Start: first.Add(time.Duration(part) * width), Stats: found[part]})
	}
	return buckets, nil
}

// Stats summarises a node's readings with each start ≤ time < end, in the order
// of starts.
func (s *Store) Stats(ctx context.Context, node readings.NodeRef, end time.Time, starts []time.Time) ([]readings.Stats, error) {
	if len(starts) == 0 {
		return nil, nil
	}
	within := func(t time.Time) (windows int64) { // how many it is in
		for _, start := range starts {
			if !t.Before(start) {
				windows++
			}
		}
		return windows
	}
	bounds := make([]int64, len(starts))
	for i, start := range starts {
		bounds[i] = microsecond(start)
	}
	first := slices.MinFunc(starts, time.Time.Compare)
	found, err := s.summarise(ctx, node, first, end, summaryOf{
		purpose: readings.Page, part: partOfWindows, cuts: starts, hourly: end.Sub(first) > 24*time.Hour,
		parameters: []bigquery.QueryParameter{parameter("starts", bounds)}, ofHour: within,
	})
	if err != nil {
		return nil, err
	}
	stats := make([]readings.Stats, len(starts))
	for i, start := range starts {
		for _, part := range slices.Sorted(maps.Keys(found)) {
			if part >= within(start) {
				stats[i] = readings.Combine(stats[i], found[part])
			}
		}
	}
	return stats, nil
}

// summaryOf is how readings are summarised.
type summaryOf struct {
	purpose    readings.Purpose
	part       string // of a reading, in SQL
	parameters []bigquery.QueryParameter
	ofHour     func(time.Time) int64 // the part of an hour that no part begins in
	cuts       []time.Time           // where parts begin within an hour
	hourly     bool                  // whether aggregates are read
}

// summarise returns the summary of each part of a range that has readings.
func (s *Store) summarise(ctx context.Context, node readings.NodeRef, start, end time.Time, of summaryOf) (map[int64]readings.Stats, error) {
	var complete time.Time
	copied := false // whether the hours are
	if of.hourly && s.copied != nil {
		from, until, err := s.copied.Range(ctx)
		if err != nil {
			return nil, fmt.Errorf("summarise %s: %w", node.ID, err)
		}
		if copied = !until.IsZero() && !start.Before(from); copied {
			complete = until
		}
	}
	if of.hourly && !copied {
		var err error
		if complete, err = s.hourly.until(ctx, s); err != nil {
			return nil, err
		}
	}
	raw, hours := split(node.Visible, start, end, complete, of.cuts)
	found := map[int64]readings.Stats{}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	ask := func(pieces []piece, asked question, part func(summaryRow) int64) {
		if len(pieces) == 0 {
			return
		}
		asked.purpose = of.purpose
		asked.parameters = append(asked.parameters, parameter("node", node.ID))
		asked.parameters = append(asked.parameters, pieceParameters(pieces)...)
		group.Go(func() error {
			for row, err := range rows[summaryRow](ctx, s, asked) {
				if err != nil {
					return err
				}
				mu.Lock()
				found[part(row)] = readings.Combine(found[part(row)], row.stats())
				mu.Unlock()
			}
			return nil
		})
	}
	leads := make([]int64, len(raw))
	for i, p := range raw {
		leads[i] = microsecond(p.lead)
	}
	ask(raw, question{
		statement: "summary", texts: map[string]string{"part": of.part, "days": days(raw)},
		parameters: append(of.parameters, parameter("leads", leads), parameter("fold", readings.FoldWithin.Microseconds())),
	}, func(row summaryRow) int64 { return row.Part })
	switch {
	case !copied:
		ask(hours, question{statement: "hours"}, func(row summaryRow) int64 { return of.ofHour(row.Hour) })
	case len(hours) > 0:
		group.Go(func() error {
			spans := make([]reading.Span, len(hours))
			for i, p := range hours {
				spans[i] = reading.Span{Channel: p.channel, From: p.from, Until: p.until}
			}
			buckets, err := s.copied.Hours(ctx, node.ID, spans)
			mu.Lock()
			defer mu.Unlock()
			for _, hour := range buckets {
				part := of.ofHour(hour.Start)
				found[part] = readings.Combine(found[part], hour.Stats)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("summarise %s: %w", node.ID, err)
	}
	return found, nil
}

// piece is a part of a visible span. Copies are found among its readings and those
// from lead on, which count for nothing else.
type piece struct {
	channel           reading.Channel
	lead, from, until time.Time
}

// split cuts the visible part of a range into whole hours that are aggregated, before
// complete and without a cut within them, and the raw rest. The first hour of a span
// is aggregated if all is visible that its copies could be of.
func split(visible []reading.Span, start, end, complete time.Time, cuts []time.Time) (raw, hours []piece) {
	for _, span := range visible {
		from, until := start, end
		if span.From.After(from) {
			from = span.From
		}
		if !span.Until.IsZero() && span.Until.Before(until) {
			until = span.Until
		}
		add := func(to *[]piece, from, until time.Time) {
			if from.Before(until) {
				lead := from.Add(-readings.FoldWithin)
				if lead.Before(span.From) {
					lead = span.From
				}
				*to = append(*to, piece{channel: span.Channel, lead: lead, from: from, until: until})
			}
		}
		whole := from
		if !span.From.IsZero() && whole.Before(span.From.Add(readings.FoldWithin)) {
			whole = span.From.Add(readings.FoldWithin)
		}
		at, last := ceilHour(whole), until
		if complete.Before(last) {
			last = complete
		}
		last = last.Truncate(time.Hour)
		if !at.Before(last) {
			add(&raw, from, until)
			continue
		}
		add(&raw, from, at)
		for _, cut := range slices.SortedFunc(slices.Values(cuts), time.Time.Compare) {
			hour := cut.Truncate(time.Hour)
			if cut.Equal(hour) || hour.Before(at) || !hour.Before(last) {
				continue
			}
			add(&hours, at, hour)
			at = hour.Add(time.Hour)
			add(&raw, hour, at)
		}
		add(&hours, at, last)
		add(&raw, last, until)
	}
	return raw, hours
}

func ceilHour(t time.Time) time.Time { return t.Add(time.Hour - time.Nanosecond).Truncate(time.Hour) }

// pieceParameters are pieces as parameters of a statement, and the range of all.
func pieceParameters(pieces []piece) []bigquery.QueryParameter {
	visible := make([]reading.Span, len(pieces))
	from, end := pieces[0].lead, pieces[0].until
	for i, p := range pieces {
		visible[i] = reading.Span{Channel: p.channel, From: p.from, Until: p.until}
		if p.lead.Before(from) {
			from = p.lead
		}
		if p.until.After(end) {
			end = p.until
		}
	}
	return spansOf(readings.NodeRef{Visible: visible}).with(parameter("from", from), parameter("end", end))
}

// days are the days of pieces, as a list in SQL: a constant, so that other partitions
// are not scanned.
func days(pieces []piece) string {
	const day = 24 * time.Hour
	all := map[string]bool{}
	for _, p := range pieces {
		for at := p.lead.UTC().Truncate(day); at.Before(p.until); at = at.Add(day) {
			all[at.Format("'"+time.DateOnly+"'")] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(all)), ", ")
}

// completeness is until when the hourly aggregates are complete: what a run has said,
// asked anew every so often.
type completeness struct {
	mu    sync.Mutex
	known time.Time
	asked time.Time
}

// completeFor is how long an answer is used. A run takes place every few hours.
const completeFor = 15 * time.Minute

// until returns the zero time while there are no aggregates.
func (c *completeness) until(ctx context.Context, s *Store) (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := s.clock()
	if !c.asked.IsZero() && now.Sub(c.asked) < completeFor {
		return c.known, nil
	}
	type row struct {
		Until bigquery.NullTimestamp `bigquery:"until"`
	}
	for r, err := range rows[row](ctx, s, question{statement: "complete", purpose: readings.Page}) {
		if refused, ok := errors.AsType[*googleapi.Error](err); ok && refused.Code == http.StatusNotFound {
			break // of a version that had none
		}
		if err != nil {
			return time.Time{}, fmt.Errorf("hourly aggregates: %w", err)
		}
		c.known = r.Until.Timestamp // zero for null
	}
	c.asked = now
	return c.known, nil
}
