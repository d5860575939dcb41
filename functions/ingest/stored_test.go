package ingest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
)

// storedRows reads all readings of a database.
func storedRows(t *testing.T, url string) []reading.Reading {
	t.Helper()
	conn := must.Get(pgx.Connect(t.Context(), url))(t)
	defer func() { _ = conn.Close(t.Context()) }()
	rows := must.Get(conn.Query(t.Context(), `
		SELECT customer_id, node_id, message_id, timestamp, temperature, humidity
		FROM sensor_data.readings
		ORDER BY timestamp, message_id`))(t)
	all := must.Get(pgx.CollectRows(rows, func(row pgx.CollectableRow) (r reading.Reading, err error) {
		err = row.Scan(&r.Channel, &r.NodeID, &r.MessageID, &r.Time, &r.Temperature, &r.Humidity)
		r.Time = r.Time.UTC()
		return r, err
	}))(t)
	return all
}
