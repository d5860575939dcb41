// Package ledger accounts for readings: what a gateway took must be stored
// exactly once, with exactly the alerts that its values call for. [Replay] sends
// a recorded series through a running system and accounts for every row of it;
// a [Book] writes down what live nodes send and hear while parts of the system
// are killed, and explains every row that is stored, and every one that is not.
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
)

// Account is what was sent and what became of it.
type Account struct {
	Sent      nodesim.Result
	Settled   time.Duration // from the first row sent to the last one stored and judged
	Due       int           // alerts that the accepted values call for, at the default thresholds
	Stored    int           // accepted rows that are stored
	Rows      int           // rows of the table for this replay: more than Stored are duplicates
	Alerts    int           // alerts that are due and stored
	AlertRows int           // rows of alerts for this replay: more than Alerts are duplicates, or wrong
}

// String is the account for a person, a line each.
func (a Account) String() string {
	return fmt.Sprintf("sent %d\nstored %d\nduplicates %d\nalerts %d of %d due, %d too many\nreadings/s %.0f to the gateway's answer, %.0f to the stored row",
		a.Sent.Accepted, a.Stored, a.Rows-a.Stored, a.Alerts, a.Due, a.AlertRows-a.Alerts,
		a.Sent.PerSecond(), float64(a.Stored)/a.Settled.Seconds())
}

// Check returns what does not add up.
func (a Account) Check() error {
	var faults []error
	if a.Sent.Rejected+a.Sent.Failed > 0 {
		faults = append(faults, fmt.Errorf("%d rows were rejected and %d failed", a.Sent.Rejected, a.Sent.Failed))
	}
	if a.Stored != a.Sent.Accepted {
		faults = append(faults, fmt.Errorf("%d of %d accepted rows are stored", a.Stored, a.Sent.Accepted))
	}
	if a.Rows != a.Stored {
		faults = append(faults, fmt.Errorf("%d rows are stored more than once", a.Rows-a.Stored))
	}
	if a.Alerts != a.Due || a.AlertRows != a.Due {
		faults = append(faults, fmt.Errorf("%d alerts stored where %d are due", a.AlertRows, a.Due))
	}
	return errors.Join(faults...)
}

// settleTime is how long the pipeline may take after the last row was sent.
const settleTime = 2 * time.Minute

// sent is one accepted row, as the gateway knows it.
type sent struct {
	node, message         string
	temperature, humidity float64
}

// Replay registers the series' nodes as sensors of a customer of its own, sends
// the series as fast as the gateway answers, waits until the pipeline has done
// its work, and compares.
func Replay(ctx context.Context, running *system.System, series io.Reader, clock func() time.Time) (Account, error) {
	content, err := io.ReadAll(series)
	if err != nil {
		return Account{}, fmt.Errorf("read series: %w", err)
	}
	nodes, err := nodesOf(content)
	if err != nil {
		return Account{}, err
	}
	person := system.NewPerson(running.APIURL)
	login := system.Login{Email: "replay-" + rand.Text() + "@example.com", Password: "Aa1-" + rand.Text()}
	if err := person.SignIn(ctx, login, "r"+rand.Text()[:11]); err != nil {
		return Account{}, err
	}
	if err := person.Furnish(ctx, "Replay", nodes); err != nil {
		return Account{}, err
	}
	var rows []sent
	started := clock()
	result, err := nodesim.Replay(ctx, nodesim.ReplayOptions{
		Gateway: running.GatewayURL, File: bytes.NewReader(content), Clock: clock,
		OnResult: func(e nodesim.RowResult) {
			if e.Accepted {
				rows = append(rows, sent{node: e.NodeID, message: e.MessageID, temperature: e.Temperature, humidity: e.Humidity})
			}
		},
	})
	if err != nil {
		return Account{}, fmt.Errorf("send series: %w", err)
	}
	if running.Bridge != nil {
		settle, cancel := context.WithTimeout(ctx, settleTime)
		defer cancel()
		if err := running.Bridge.Drain(settle); err != nil {
			return Account{}, err
		}
	}
	account := Account{Sent: result, Settled: clock().Sub(started), Due: due(rows)}
	return account, account.count(ctx, running, rows)
}

// due counts the alerts that the rows call for.
func due(rows []sent) int {
	alerts := 0
	for _, r := range rows {
		alerts += len(alert.Exceeded(reading.Reading{Temperature: r.temperature, Humidity: r.humidity}, alert.Defaults()))
	}
	return alerts
}

// count asks the database itself, not the API: what a reader would hide must be
// seen here.
func (a *Account) count(ctx context.Context, running *system.System, rows []sent) error {
	nodes, messages := make([]string, len(rows)), make([]string, len(rows))
	temperatures, humidities := make([]float64, len(rows)), make([]float64, len(rows))
	for i, r := range rows {
		nodes[i], messages[i], temperatures[i], humidities[i] = r.node, r.message, r.temperature, r.humidity
	}
	limits := alert.Defaults()
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
		    (SELECT count(*) FROM sent s WHERE EXISTS (
		        SELECT FROM sensor_data.readings r
		        WHERE r.node_id = s.node_id AND r.message_id = s.message_id
		          AND r.temperature = s.temperature AND r.humidity = s.humidity)),
		    (SELECT count(*) FROM sensor_data.readings r WHERE (r.node_id, r.message_id) IN (SELECT node_id, message_id FROM sent)),
		    (SELECT count(*) FROM due d WHERE EXISTS (
		        SELECT FROM alerts a
		        WHERE a.sensor_id = d.node_id AND a.message_id = d.message_id AND a.alert_type = d.alert_type)),
		    (SELECT count(*) FROM alerts a WHERE (a.sensor_id, a.message_id) IN (SELECT node_id, message_id FROM sent))`,
		pgx.StrictNamedArgs{
			"nodes": nodes, "messages": messages, "temperatures": temperatures, "humidities": humidities,
			"max_temperature": limits.MaxTemperature, "max_humidity": limits.MaxHumidity,
		}).Scan(&a.Stored, &a.Rows, &a.Alerts, &a.AlertRows)
	if err != nil {
		return fmt.Errorf("count what was stored: %w", err)
	}
	return nil
}

// nodesOf lists the nodes of a series, each once.
func nodesOf(content []byte) ([]string, error) {
	lines := csv.NewReader(bytes.NewReader(content))
	lines.ReuseRecord = true
	header, err := lines.Read()
	if err != nil {
		return nil, fmt.Errorf("read series: %w", err)
	}
	column := slices.Index(header, "node_id")
	if column < 0 {
		return nil, errors.New("read series: no column node_id")
	}
	var nodes []string
	for {
		record, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return nodes, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read series: %w", err)
		}
		if !slices.Contains(nodes, record[column]) {
			nodes = append(nodes, record[column])
		}
	}
}
