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

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/reading"
)

// late is how much after a node gave up on a request its gateway may still have
// stamped the reading.
const late = 15 * time.Second

// rowsPerQuery bounds what one settling asks for at once.
const rowsPerQuery = 20_000

// Settle compares the readings that nobody has sent since before with what is
// stored, closes those that are as they must be, and returns how many were not
// and stay open: they may still be on their way.
func (b *Book) Settle(ctx context.Context, db *pgx.Conn, before time.Time) (open int, err error) {
	_, open, err = b.settle(ctx, db, before)
	return open, err
}

// Close settles everything; nothing may be on its way any more. It returns what
// does not add up, with a line for each of the first few faults, and compares
// the tables' rows with the sum of all that was ever settled: a row that came
// later, or that nobody sent, is found here.
func (b *Book) Close(ctx context.Context, db *pgx.Conn) error {
	faults, open, err := b.settle(ctx, db, b.clock().Add(time.Hour))
	if err != nil {
		return err
	}
	var found []error
	for _, fault := range faults[:min(len(faults), 20)] {
		found = append(found, errors.New(fault))
	}
	if open > len(found) {
		found = append(found, fmt.Errorf("%d readings do not add up in all", open))
	}
	sum := b.Sum()
	var rows, alerts int
	if err := db.QueryRow(ctx, `SELECT (SELECT count(*) FROM sensor_data.readings), (SELECT count(*) FROM alerts)`).Scan(&rows, &alerts); err != nil {
		return fmt.Errorf("count what is stored: %w", err)
	}
	if want := sum.Stored + sum.Duplicated; open == 0 && rows != want {
		found = append(found, fmt.Errorf("%d rows are stored where the ledger has %d", rows, want))
	}
	if open == 0 && alerts != sum.Alerted {
		found = append(found, fmt.Errorf("%d alerts are stored where the ledger has %d", alerts, sum.Alerted))
	}
	return errors.Join(found...)
}

// Sum adds up all nodes.
func (b *Book) Sum() Totals {
	sum := Totals{Node: "all"}
	for _, totals := range b.Nodes() {
		sum.add(totals)
	}
	return sum
}

// Nodes lists the account of each node, by name. Readings that are not settled
// yet are counted as sent alone, and as unexplained once the book is closed.
func (b *Book) Nodes() []Totals {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []Totals
	for _, name := range slices.Sorted(maps.Keys(b.nodes)) {
		totals := b.nodes[name].totals
		totals.Unexplained = len(b.nodes[name].open)
		all = append(all, totals)
	}
	return all
}

// key names a reading as its node does.
type key struct{ node, message string }

func (b *Book) settle(ctx context.Context, db *pgx.Conn, before time.Time) (faults []string, open int, err error) {
	due := b.ended(before)
	for batch := range slices.Chunk(due, rowsPerQuery) {
		rows, err := stored(ctx, db, batch)
		if err != nil {
			return nil, 0, err
		}
		alerts, err := raised(ctx, db, batch)
		if err != nil {
			return nil, 0, err
		}
		for _, item := range batch {
			totals, fault := b.judge(item, rows[item.key], alerts)
			if fault != "" {
				open++
				faults = append(faults, fmt.Sprintf("reading %s of %s: %s", item.message, item.node, fault))
				continue
			}
			b.fold(item, totals)
		}
	}
	return faults, open, nil
}

// item is an entry with its name.
type item struct {
	key
	entry
}

// ended are the entries that ended before a time, oldest first.
func (b *Book) ended(before time.Time) []item {
	b.mu.Lock()
	defer b.mu.Unlock()
	var due []item
	for node, p := range b.nodes {
		for message, e := range p.open {
			if e.pending == 0 && len(e.attempts) > 0 && e.until().Before(before) {
				due = append(due, item{key{node, message}, *e})
			}
		}
	}
	slices.SortFunc(due, func(a, b item) int { return cmp.Or(a.since().Compare(b.since()), cmp.Compare(a.message, b.message)) })
	return due
}

// fold adds a settled reading to its node's sums and forgets the rest of it,
// unless its node has sent it again meanwhile.
func (b *Book) fold(i item, totals Totals) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.nodes[i.node]
	if now := p.open[i.message]; now.pending > 0 || len(now.attempts) > len(i.attempts) {
		return
	}
	delete(p.open, i.message)
	p.totals.add(totals)
}

// judge says what a reading adds to its node's sums, or what is wrong with it.
func (b *Book) judge(i item, rows []reading.Reading, alerts map[alertKey]bool) (Totals, string) {
	var totals Totals
	heard, silent := false, 0
	for _, a := range i.attempts {
		heard = heard || a.heard()
		if a.status == 0 {
			silent++
		}
	}
	switch {
	case heard:
		totals.Answered = 1
	case len(rows) > 0 || silent > 0:
		totals.Unanswered = 1
	}
	if heard && len(rows) == 0 {
		return totals, "its gateway has taken it, and it is not stored"
	}
	if len(rows) > 1+silent {
		return totals, fmt.Sprintf("it is stored %d times, with %d requests that were not answered", len(rows), silent)
	}
	totals.Stored, totals.Duplicated = min(len(rows), 1), max(len(rows)-1, 0)
	for _, row := range rows {
		if row.Temperature != i.temperature || row.Humidity != i.humidity {
			return totals, fmt.Sprintf("it is stored as %g °C and %g %%, and was sent as %g °C and %g %%", row.Temperature, row.Humidity, i.temperature, i.humidity)
		}
		if !i.during(row.Time) {
			return totals, fmt.Sprintf("it is stored as of %s, when nobody sent it", row.Time)
		}
		due := map[alert.Type]bool{}
		for _, event := range alert.Exceeded(row, b.limits(i.node)) {
			due[event.Type] = true
		}
		for _, kind := range []alert.Type{alert.Temperature, alert.Humidity} {
			switch raised := alerts[alertKey{i.key, row.Time.UnixMicro(), kind}]; {
			case due[kind] && !raised:
				return totals, fmt.Sprintf("its %s alert is missing", kind)
			case raised && !due[kind]:
				return totals, fmt.Sprintf("it has a %s alert that is not due", kind)
			case raised:
				totals.Due++
				totals.Alerted++
			}
		}
	}
	return totals, ""
}

// during reports whether a gateway may have received the reading at a time.
func (e *entry) during(at time.Time) bool {
	for _, a := range e.attempts {
		until := a.ended
		if a.status == 0 {
			until = until.Add(late)
		} else if !a.heard() {
			continue
		}
		if !at.Before(reading.TruncateTime(a.sent)) && !at.After(until) {
			return true
		}
	}
	return false
}

// span is the time in which a batch's readings may have been stamped.
func span(batch []item) (from, to time.Time, nodes []string) {
	names := map[string]bool{}
	from = batch[0].since()
	for _, i := range batch {
		names[i.node] = true
		if i.until().After(to) {
			to = i.until()
		}
	}
	return reading.TruncateTime(from), to.Add(late), slices.Collect(maps.Keys(names))
}

// stored finds the rows of a batch's readings. It asks the table itself, not
// the API: what a reader would hide must be seen here.
func stored(ctx context.Context, db *pgx.Conn, batch []item) (map[key][]reading.Reading, error) {
	from, to, nodes := span(batch)
	rows, err := db.Query(ctx, `
		SELECT r.node_id, r.message_id, r.timestamp, r.temperature, r.humidity
		FROM unnest(@nodes::text[]) AS n (node_id)
		JOIN sensor_data.readings r ON r.node_id = n.node_id AND r.timestamp BETWEEN @from AND @to`,
		pgx.StrictNamedArgs{"nodes": nodes, "from": from, "to": to})
	if err != nil {
		return nil, fmt.Errorf("rows of %d readings: %w", len(batch), err)
	}
	found := map[key][]reading.Reading{}
	var r reading.Reading
	_, err = pgx.ForEachRow(rows, []any{&r.NodeID, &r.MessageID, &r.Time, &r.Temperature, &r.Humidity}, func() error {
		k := key{r.NodeID, r.MessageID}
		found[k] = append(found[k], r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("rows of %d readings: %w", len(batch), err)
	}
	return found, nil
}

// alertKey is the identity of an alert.
type alertKey struct {
	key

	microsecond int64
	kind        alert.Type
}

// raised finds the alerts of a batch's readings; the table's key allows one of
// each.
func raised(ctx context.Context, db *pgx.Conn, batch []item) (map[alertKey]bool, error) {
	from, to, nodes := span(batch)
	rows, err := db.Query(ctx, `
		SELECT a.sensor_id, a.message_id, a.timestamp, a.alert_type
		FROM alerts a
		WHERE a.sensor_id = ANY (@nodes) AND a.timestamp BETWEEN @from AND @to`,
		pgx.StrictNamedArgs{"nodes": nodes, "from": from, "to": to})
	if err != nil {
		return nil, fmt.Errorf("alerts of %d readings: %w", len(batch), err)
	}
	found := map[alertKey]bool{}
	var a alertKey
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&a.node, &a.message, &at, &a.kind}, func() error {
		a.microsecond = at.UnixMicro()
		found[a] = true
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("alerts of %d readings: %w", len(batch), err)
	}
	return found, nil
}
