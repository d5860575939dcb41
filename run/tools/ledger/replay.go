// Package ledger compares sent readings with the stores: a reading that a gateway
// accepted must be stored exactly once, with exactly the alerts that its values
// require. [Replay] sends a recording through a running system and compares every
// row of it. A [Ledger] records what live nodes send while components are killed, and
// compares that with the stored rows. Only run/tools and tests use the package.
package ledger

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
)

// ReplayReport is the result of a replay: rows sent, rows stored, alerts.
type ReplayReport struct {
	Sent      nodesim.Result
	Settled   time.Duration // from the first row sent until the subscriptions were empty
	Due       int           // alerts that the accepted rows require at the default thresholds
	Stored    int           // accepted rows that are stored
	Rows      int           // rows of the table for this replay; more than Stored means duplicates
	Alerts    int           // alerts that are due and stored
	AlertRows int           // alerts of this replay; more than Alerts means duplicates, or alerts that are not due
}

// String lists the figures, one a line.
func (a ReplayReport) String() string {
	return fmt.Sprintf("sent %d\nstored %d\nduplicates %d\nalerts %d of %d due, %d too many\nreadings/s %.0f to the gateway's answer, %.0f to the stored row",
		a.Sent.Accepted, a.Stored, a.Rows-a.Stored, a.Alerts, a.Due, a.AlertRows-a.Alerts,
		a.Sent.PerSecond(), float64(a.Stored)/a.Settled.Seconds())
}

// Check returns an error for each figure that does not match.
func (a ReplayReport) Check() error {
	var errs []error
	if a.Sent.Rejected+a.Sent.Failed > 0 {
		errs = append(errs, fmt.Errorf("%d rows were rejected and %d failed", a.Sent.Rejected, a.Sent.Failed))
	}
	if a.Stored != a.Sent.Accepted {
		errs = append(errs, fmt.Errorf("%d of %d accepted rows are stored", a.Stored, a.Sent.Accepted))
	}
	if a.Rows != a.Stored {
		errs = append(errs, fmt.Errorf("%d rows are stored more than once", a.Rows-a.Stored))
	}
	if a.Alerts != a.Due || a.AlertRows != a.Due {
		errs = append(errs, fmt.Errorf("%d alerts stored where %d are due", a.AlertRows, a.Due))
	}
	return errors.Join(errs...)
}

const (
	// settleTime bounds the wait for the pipeline after the last row was sent, or,
	// where only the stores can be looked at, after the last one came.
	settleTime = 2 * time.Minute
	// settleInterval is the time between two looks at the stores.
	settleInterval = 500 * time.Millisecond
)

// acceptedRow is one row that the gateway accepted, with the values that it has.
type acceptedRow struct {
	node, message         string
	temperature, humidity float64
}

// Replay registers the recording's nodes as sensors of a new customer, sends the
// recording as fast as the gateway answers, waits until the subscriptions are empty,
// and compares.
func Replay(ctx context.Context, running *system.System, series io.Reader, clock func() time.Time) (ReplayReport, error) {
	content, err := io.ReadAll(series)
	if err != nil {
		return ReplayReport{}, fmt.Errorf("read recording: %w", err)
	}
	nodes, err := nodesOf(content)
	if err != nil {
		return ReplayReport{}, err
	}
	user := system.NewAPIUser(running.APIURL)
	credentials := system.Credentials{Email: "replay-" + rand.Text() + "@example.com", Password: "Aa1-" + rand.Text()}
	if err := user.SignIn(ctx, credentials, "r"+rand.Text()[:11]); err != nil {
		return ReplayReport{}, err
	}
	if err := user.CreateRoom(ctx, "Replay", nodes); err != nil {
		return ReplayReport{}, err
	}
	var rows []acceptedRow
	started := clock()
	result, err := nodesim.Replay(ctx, nodesim.ReplayOptions{
		Gateway: running.GatewayURL, File: bytes.NewReader(content), Clock: clock,
		OnResult: func(e nodesim.RowResult) {
			if e.Accepted {
				rows = append(rows, acceptedRow{node: e.NodeID, message: e.MessageID, temperature: e.Temperature, humidity: e.Humidity})
			}
		},
	})
	if err != nil {
		return ReplayReport{}, fmt.Errorf("send recording: %w", err)
	}
	report := ReplayReport{Sent: result, Due: dueAlerts(rows)}
	if err := report.settle(ctx, running, rows, clock); err != nil {
		return report, err
	}
	report.Settled = clock().Sub(started)
	return report, report.countStored(ctx, running, rows)
}

// settle waits until everything is delivered. An emulator that pushes by itself does not
// say when: there it waits until what was accepted is stored and every alert that is due
// is there, or nothing more has come for settleTime.
func (a *ReplayReport) settle(ctx context.Context, running *system.System, rows []acceptedRow, clock func() time.Time) error {
	if running.Bridge != nil {
		ctx, cancel := context.WithTimeout(ctx, settleTime)
		defer cancel()
		return running.Bridge.Drain(ctx)
	}
	for progress, came := clock(), -1; ; {
		if err := a.countStored(ctx, running, rows); err != nil {
			return err
		}
		if a.Stored == a.Sent.Accepted && a.Alerts == a.Due {
			return nil
		}
		if now := clock(); a.Stored+a.Alerts > came {
			progress, came = now, a.Stored+a.Alerts
		} else if now.Sub(progress) > settleTime {
			return nil // Check tells what is missing
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for delivery: %w", ctx.Err())
		case <-time.After(settleInterval):
		}
	}
}

// dueAlerts counts the alerts that the rows require.
func dueAlerts(rows []acceptedRow) int {
	alerts := 0
	for _, r := range rows {
		alerts += len(alert.Exceeded(reading.Reading{Temperature: r.temperature, Humidity: r.humidity}, alert.Defaults()))
	}
	return alerts
}

// countStored counts what the stores hold. A table of readings in PostgreSQL cannot hold
// one twice under one time; what BigQuery holds twice its readers count once.
func (a *ReplayReport) countStored(ctx context.Context, running *system.System, rows []acceptedRow) error {
	wanted := make(map[[2]string]acceptedRow, len(rows))
	nodes := map[string]bool{}
	for _, r := range rows {
		wanted[[2]string{r.node, r.message}] = r
		nodes[r.node] = true
	}
	a.Stored, a.Rows = 0, 0
	always := reading.Calendar() // of the open channel
	found := map[[2]string]bool{}
	for node := range nodes {
		for r, err := range running.Readings.Range(ctx, readings.NodeRef{ID: node, Visible: []reading.Span{always}}, always.From, always.Until) {
			if err != nil {
				return fmt.Errorf("count what was stored: %w", err)
			}
			key := [2]string{r.NodeID, r.MessageID}
			sent, ours := wanted[key]
			if !ours {
				continue
			}
			a.Rows++
			if r.Temperature == sent.temperature && r.Humidity == sent.humidity && !found[key] {
				found[key] = true
				a.Stored++
			}
		}
	}
	return a.countAlerts(ctx, running, rows)
}

// countAlerts counts in the database and not through the API, whose queries hide
// duplicates.
func (a *ReplayReport) countAlerts(ctx context.Context, running *system.System, rows []acceptedRow) error {
	nodes, messages := make([]string, len(rows)), make([]string, len(rows))
	temperatures, humidities := make([]float64, len(rows)), make([]float64, len(rows))
	for i, r := range rows {
		nodes[i], messages[i], temperatures[i], humidities[i] = r.node, r.message, r.temperature, r.humidity
	}
	thresholds := alert.Defaults()
	err := running.Pool.QueryRow(ctx, `
		WITH sent AS (
		    SELECT * FROM unnest(@nodes::text[], @messages::text[], @temperatures::float8[], @humidities::float8[])
		        AS s (node_id, message_id, temperature, humidity)
		), due AS (
		    SELECT node_id, message_id, 'temperature' AS alert_type FROM sent WHERE temperature > @max_temperature
		    UNION ALL
		    SELECT node_id, message_id, 'humidity' FROM sent WHERE humidity > @max_humidity
		)
		SELECT
		    (SELECT count(*) FROM due d WHERE EXISTS (
		        SELECT FROM alerts a
		        WHERE a.sensor_id = d.node_id AND a.message_id = d.message_id AND a.alert_type = d.alert_type)),
		    (SELECT count(*) FROM alerts a WHERE (a.sensor_id, a.message_id) IN (SELECT node_id, message_id FROM sent))`,
		pgx.StrictNamedArgs{
			"nodes": nodes, "messages": messages, "temperatures": temperatures, "humidities": humidities,
			"max_temperature": thresholds.MaxTemperature, "max_humidity": thresholds.MaxHumidity,
		}).Scan(&a.Alerts, &a.AlertRows)
	if err != nil {
		return fmt.Errorf("count what was stored: %w", err)
	}
	return nil
}

// nodesOf lists the nodes of a recording, each once.
func nodesOf(content []byte) ([]string, error) {
	lines := csv.NewReader(bytes.NewReader(content))
	lines.ReuseRecord = true
	header, err := lines.Read()
	if err != nil {
		return nil, fmt.Errorf("read recording: %w", err)
	}
	column := slices.Index(header, "node_id")
	if column < 0 {
		return nil, errors.New("read recording: no column node_id")
	}
	var nodes []string
	for {
		record, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return nodes, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read recording: %w", err)
		}
		if !slices.Contains(nodes, record[column]) {
			nodes = append(nodes, record[column])
		}
	}
}
