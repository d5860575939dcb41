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
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
)

// maxStampDelay is how long after a node gave up on a request its gateway may still
// have set the reading's time.
const maxStampDelay = 15 * time.Second

// rowsPerQuery bounds the readings of one query.
const rowsPerQuery = 20_000

// Close settles all readings; none may be in flight any more. It returns an error for
// each of the first 20 readings that do not match. It then compares the number of
// stored rows and alerts with the sum of all settled readings: that finds a row that
// was written after its reading was settled, or that was never sent.
func (l *Ledger) Close(ctx context.Context, db *pgxpool.Pool) error {
	found, err := l.Settle(ctx, db, l.clock().Add(time.Hour))
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

// Settle compares the readings that were last sent before the given time with the
// stored rows and alerts. It closes those that match and returns why each of the others does not: it
// may still be in flight.
func (l *Ledger) Settle(ctx context.Context, db *pgxpool.Pool, before time.Time) (problems []error, err error) {
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

// endedBefore lists the readings whose last attempt ended before a time, oldest
// first.
func (l *Ledger) endedBefore(before time.Time) []sentReading {
	l.mu.Lock()
	defer l.mu.Unlock()
	var due []sentReading
	for _, e := range l.open {
		if e.pending == 0 && len(e.attempts) > 0 && e.until().Before(before) {
			due = append(due, *e)
		}
	}
	slices.SortFunc(due, func(a, b sentReading) int {
		return cmp.Or(a.since().Compare(b.since()), cmp.Compare(a.message, b.message))
	})
	return due
}

// closeReading adds a settled reading to the totals and removes it, unless its node has sent
// it again meanwhile.
func (l *Ledger) closeReading(i sentReading, totals Totals) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.open[i.key]; now.pending > 0 || len(now.attempts) > len(i.attempts) {
		return
	}
	delete(l.open, i.key)
	l.totals.add(totals)
}

// check returns what a reading adds to the totals, or why it does not match.
func (l *Ledger) check(i sentReading, rows []storedRow) (Totals, string) {
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
		if !i.during(row.Time, l.Ahead) {
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
func (l *Ledger) storedRows(ctx context.Context, db *pgxpool.Pool, batch []sentReading) (map[key][]storedRow, error) {
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
			"from":  reading.TruncateTime(batch[0].since()), "to": last.Add(maxStampDelay + l.Ahead),
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

// knownWithin is how long it may take until detection knows a changed rule, or that a node's
// rules remember something, and the node's next reading has come.
const knownWithin = time.Minute

// Incidents compares the stored incidents of thresholds with the stored alerts, once
// nothing is in flight any more. It returns how many incidents there are, and an error
// for each of the first 20 differences: an alert that is in no incident, or in two; an
// incident that does not begin with the reading of its first alert, or whose peak is not
// the highest of its alerts; two that should be one; one that lasts though its node went
// on without it. Of a reading that a node sent through two gateways an incident has the
// earlier time, its alert the one that was stored first.
func Incidents(ctx context.Context, db *pgxpool.Pool) (count int, err error) {
	rows, err := db.Query(ctx, `
		WITH i AS (
		    SELECT * FROM excursions WHERE specified AND merged_into IS NULL
		), a AS (
		    SELECT a.*, CASE a.alert_type WHEN 'temperature' THEN t.temperature_changed_at ELSE t.humidity_changed_at END AS changed_at
		    FROM alerts a
		    JOIN alert_thresholds t ON t.customer_id = a.customer_id
		), differences AS (
		    SELECT format('alert %s of %s at %s is in %s incidents', a.message_id, a.sensor_id, a.timestamp, count(i.id)) AS difference
		    FROM a
		    LEFT JOIN i ON i.customer_id = a.customer_id AND i.channel = a.channel AND i.node_id = a.sensor_id COLLATE "C"
		        AND i.quantity = a.alert_type AND a.timestamp BETWEEN i.start_time AND i.end_time
		    WHERE a.changed_at IS NULL OR a.timestamp > a.changed_at + @known::interval
		    GROUP BY a.id, a.message_id, a.sensor_id, a.timestamp
		    HAVING count(i.id) <> 1
		    UNION ALL
		    SELECT format('incident %s of %s from %s to %s has peak %s, its alerts begin %s and have %s',
		        i.id, i.node_id, i.start_time, i.end_time, i.peak, min(a.timestamp), max(a.value))
		    FROM i
		    LEFT JOIN a ON a.customer_id = i.customer_id AND a.channel = i.channel AND a.sensor_id = i.node_id COLLATE "default"
		        AND a.alert_type = i.quantity AND a.timestamp BETWEEN i.start_time AND i.end_time
		    GROUP BY i.id, i.channel, i.node_id, i.start_time, i.end_time, i.peak
		    HAVING max(a.value) IS DISTINCT FROM i.peak OR NOT EXISTS (
		        SELECT FROM sensor_data.readings r
		        WHERE r.node_id = i.node_id COLLATE "default" AND r.customer_id = i.channel AND r.timestamp = i.start_time
		          AND r.message_id = (array_agg(a.message_id ORDER BY a.timestamp))[1])
		    UNION ALL
		    SELECT format('incidents %s and %s of %s should be one', i.id, j.id, i.node_id)
		    FROM i
		    JOIN i j ON j.rule_id = i.rule_id AND j.channel = i.channel AND j.node_id = i.node_id AND j.id <> i.id AND i.resolution IN ('', 'cleared')
		        AND j.start_time >= i.start_time AND (i.lasting OR j.start_time < i.end_time + @gap::interval) AND j.resolution IN ('', 'cleared')
		    UNION ALL
		    SELECT format('incident %s of %s lasts since %s, its node sent at %s', i.id, i.node_id, i.end_time, n.timestamp)
		    FROM i
		    JOIN node_state n ON n.channel = i.channel AND n.node_id = i.node_id
		    WHERE i.lasting AND n.timestamp > i.end_time + @known::interval
		)
		SELECT (SELECT count(*) FROM i), d.difference
		FROM (SELECT) AS one
		LEFT JOIN (SELECT difference FROM differences LIMIT 20) d ON true`,
		pgx.StrictNamedArgs{"known": knownWithin, "gap": incident.JoinGap})
	if err != nil {
		return 0, fmt.Errorf("compare incidents: %w", err)
	}
	var found []error
	var difference *string
	_, err = pgx.ForEachRow(rows, []any{&count, &difference}, func() error {
		if difference != nil {
			found = append(found, errors.New(*difference))
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("compare incidents: %w", err)
	}
	return count, errors.Join(found...)
}
