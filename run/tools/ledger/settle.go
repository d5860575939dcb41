package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/reading"
)

// maxStampDelay is how long after a node gave up on a request its gateway may still
// have set the reading's time.
const maxStampDelay = 15 * time.Second

// rowsPerQuery bounds the readings of one query.
const rowsPerQuery = 20_000

// Settle compares the readings that were last sent before the given time with the
// stored rows and alerts. It closes those that match and returns how many stay open:
// they may still be in flight.
func (l *Ledger) Settle(ctx context.Context, db *pgxpool.Pool, before time.Time) (open int, err error) {
	problems, err := l.settle(ctx, db, before)
	return len(problems), err
}

// Close settles all readings; none may be in flight any more. It returns an error for
// each of the first 20 readings that do not match. It then compares the number of
// stored rows and alerts with the sum of all settled readings: that finds a row that
// was written after its reading was settled, or that was never sent.
func (l *Ledger) Close(ctx context.Context, db *pgxpool.Pool) error {
	found, err := l.settle(ctx, db, l.clock().Add(time.Hour))
	if err != nil {
		return err
	}
	if open := len(found); open > 20 {
		return errors.Join(append(found[:20], fmt.Errorf("%d readings do not match in all", open))...)
	} else if open > 0 {
		return errors.Join(found...)
	}
	sum := l.Sum()
	var rows, alerts int
	if err := db.QueryRow(ctx, `SELECT (SELECT count(*) FROM sensor_data.readings), (SELECT count(*) FROM alerts)`).Scan(&rows, &alerts); err != nil {
		return fmt.Errorf("count what is stored: %w", err)
	}
	if want := sum.Stored + sum.Duplicated; rows != want || alerts != sum.Alerted {
		return fmt.Errorf("%d rows and %d alerts are stored where the ledger has %d and %d", rows, alerts, want, sum.Alerted)
	}
	return nil
}

// Sum returns the totals. Open readings are counted as sent and as unexplained.
func (l *Ledger) Sum() Totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := l.totals
	sum.Unexplained = len(l.open)
	return sum
}

// settle closes the readings that match, and returns why each of the others does not.
func (l *Ledger) settle(ctx context.Context, db *pgxpool.Pool, before time.Time) (problems []error, err error) {
	for batch := range slices.Chunk(l.endedBefore(before), rowsPerQuery) {
		rows, err := l.storedRows(ctx, db, batch)
		if err != nil {
			return nil, err
		}
		for _, item := range batch {
			totals, problem := l.check(item, rows[item.key])
			if problem != "" {
				problems = append(problems, fmt.Errorf("reading %s of %s: %s", item.message, item.node, problem))
				continue
			}
			l.closeReading(item, totals)
		}
	}
	return problems, nil
}

// namedReading is a reading with its key.
type namedReading struct {
	key
	sentReading
}

// endedBefore lists the readings whose last attempt ended before a time, oldest
// first.
func (l *Ledger) endedBefore(before time.Time) []namedReading {
	l.mu.Lock()
	defer l.mu.Unlock()
	var due []namedReading
	for k, e := range l.open {
		if e.pending == 0 && len(e.attempts) > 0 && e.until().Before(before) {
			due = append(due, namedReading{k, *e})
		}
	}
	slices.SortFunc(due, func(a, b namedReading) int {
		return cmp.Or(a.since().Compare(b.since()), cmp.Compare(a.message, b.message))
	})
	return due
}

// closeReading adds a settled reading to the totals and removes it, unless its node has sent
// it again meanwhile.
func (l *Ledger) closeReading(i namedReading, totals Totals) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.open[i.key]; now.pending > 0 || len(now.attempts) > len(i.attempts) {
		return
	}
	delete(l.open, i.key)
	l.totals.add(totals)
}

// check returns what a reading adds to the totals, or why it does not match.
func (l *Ledger) check(i namedReading, rows []storedRow) (Totals, string) {
	var totals Totals
	accepted, silent := false, 0
	for _, a := range i.attempts {
		accepted = accepted || a.accepted()
		if a.status == 0 {
			silent++
		}
	}
	switch {
	case accepted:
		totals.Answered = 1
	case len(rows) > 0 || silent > 0:
		totals.Unanswered = 1
	}
	if accepted && len(rows) == 0 {
		return totals, "its gateway accepted it, and it is not stored"
	}
	if len(rows) > 1+silent {
		return totals, fmt.Sprintf("it is stored %d times, with %d requests that were not answered", len(rows), silent)
	}
	totals.Stored, totals.Duplicated = min(len(rows), 1), max(len(rows)-1, 0)
	for _, row := range rows {
		if row.Temperature != i.temperature || row.Humidity != i.humidity {
			return totals, fmt.Sprintf("it is stored as %g °C and %g %%, and was sent as %g °C and %g %%", row.Temperature, row.Humidity, i.temperature, i.humidity)
		}
		if !i.during(row.Time, l.ahead) {
			return totals, fmt.Sprintf("it is stored with time %s, at a time when it was not sent", row.Time)
		}
	}
	if len(rows) == 0 {
		return totals, ""
	}
	// Rows of one reading within ten minutes are copies: one of them has the alert.
	missing := map[alert.Type]bool{}
	due := alert.Exceeded(rows[0].Reading, l.thresholds(i.node))
	for _, event := range due {
		missing[event.Type] = true
	}
	for _, row := range rows {
		for _, kind := range row.alerts {
			if !slices.ContainsFunc(due, func(e alert.Event) bool { return e.Type == kind }) {
				return totals, fmt.Sprintf("it has a %s alert that is not due", kind)
			}
			delete(missing, kind)
			totals.Alerted++
		}
	}
	for kind := range missing {
		return totals, fmt.Sprintf("its %s alert is missing", kind)
	}
	return totals, ""
}

// during reports whether a gateway whose clock may be ahead may have received the reading
// at a given time.
func (e *sentReading) during(at time.Time, ahead time.Duration) bool {
	for _, a := range e.attempts {
		until := a.ended.Add(ahead)
		if a.status == 0 {
			until = until.Add(maxStampDelay)
		} else if !a.accepted() {
			continue
		}
		if !at.Before(reading.TruncateTime(a.sent)) && !at.After(until) {
			return true
		}
	}
	return false
}

// storedRow is a row with the types of its alerts.
type storedRow struct {
	reading.Reading

	alerts []alert.Type
}

// storedRows finds the rows of a batch's readings, in the time range in which gateways may have
// set their times. It queries the table and not the API, whose queries hide duplicates.
func (l *Ledger) storedRows(ctx context.Context, db *pgxpool.Pool, batch []namedReading) (map[key][]storedRow, error) {
	nodes, last := map[string]bool{}, time.Time{}
	for _, i := range batch {
		nodes[i.node] = true
		if i.until().After(last) {
			last = i.until()
		}
	}
	rows, _ := db.Query(ctx, `
		SELECT r.node_id, r.message_id, r.timestamp, r.temperature, r.humidity, ARRAY(
		    SELECT a.alert_type FROM alerts a
		    WHERE a.sensor_id = r.node_id AND a.message_id = r.message_id AND a.timestamp = r.timestamp)
		FROM unnest(@nodes::text[]) AS n (node_id)
		JOIN sensor_data.readings r ON r.node_id = n.node_id AND r.timestamp BETWEEN @from AND @to`,
		pgx.StrictNamedArgs{
			"nodes": slices.Collect(maps.Keys(nodes)),
			"from":  reading.TruncateTime(batch[0].since()), "to": last.Add(maxStampDelay + l.ahead),
		})
	found := map[key][]storedRow{}
	var r storedRow
	columns := []any{&r.NodeID, &r.MessageID, &r.Time, &r.Temperature, &r.Humidity, &r.alerts}
	_, err := pgx.ForEachRow(rows, columns, func() error {
		k := key{r.NodeID, r.MessageID}
		found[k] = append(found[k], r)
		return nil
	})
	if err != nil { // or that of the query
		return nil, fmt.Errorf("rows of %d readings: %w", len(batch), err)
	}
	return found, nil
}
