package train_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"coldaisle.dev/shared/anomaly"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/tooltest"
)

// TestDailyRefresh delivers the day's request twice, and on the next day: each customer has
// a calibration of the days that were, with neighbours, and only a new day is read.
func TestDailyRefresh(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	p := newFixture(t, 0)
	today := p.now.UTC().Truncate(24 * time.Hour)
	p.now = today.Add(time.Hour)
	var rows []reading.Reading
	for node := range 6 {
		id := fmt.Sprintf("c%d", node)
		p.sensor(p.customer, p.room, id)
		for i := range 3 * 24 * 60 {
			rows = append(rows, reading.Reading{
				NodeID: id, MessageID: "m", Time: today.Add(time.Duration(i-2*24*60) * time.Minute),
				Temperature: 20 + math.Sin(float64(i)/90) + 0.1*math.Sin(float64(i*i+node)), Humidity: 40 + math.Cos(float64(i)/70),
			})
		}
	}
	p.store(rows)
	refresh := func(want int) *anomaly.Calibration {
		t.Helper()
		p.refresh()
		live := p.live()
		must.Equal(t, "calibration in use", "calibration_air_"+p.now.Format("20060102"), live.Calibration)
		pair, _, err := p.bucket.Load(t.Context(), p.customer, live)
		must.Do(t, err)
		must.Equal(t, "artifacts", want, len(must.Get(p.bucket.List(t.Context(), p.customer))(t)))
		return pair.Calibration
	}
	first := refresh(28 + 1)
	got := first.Neighbours("c0")
	must.Hold(t, len(got) == 6 && !slices.Contains(got, "c0"), "neighbours of c0 are %v", got)
	refresh(28 + 1)
	p.exec(`DELETE FROM sensor_data.readings WHERE timestamp < $1`, today.Add(-24*time.Hour))
	for calibrations := 2; calibrations <= 9; calibrations++ { // the last seven stay, and the hours of 28 days
		p.now = p.now.Add(24 * time.Hour)
		refresh(28 + min(calibrations, 7))
	}
}

// TestSlowCustomerKeepsNobodyWaiting holds that customers get their calibrations though those
// before and after them by id take all of the time of each delivery.
func TestSlowCustomerKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 0)
	bruno, _ := p.newCustomer("brunobruno", "b1")
	p.newCustomer("carlacarla", "c1")
	var end context.CancelFunc
	p.use(&watched{Readings: p.table, ranges: func(nodes []readings.NodeRef) {
		if nodes[0].ID != "b1" { // whose readings are read at once, those of others until the delivery's time has ended
			end()
		}
	}}, 5000)
	deliveries := 0
	for live := (modelstore.Manifest{}); live.Calibration == ""; live = must.Get(p.bucket.Manifest(t.Context(), bruno))(t) {
		if deliveries++; deliveries > 100 {
			t.Fatal("no calibration after the last delivery")
		}
		ctx, cancel := context.WithCancel(t.Context())
		end = cancel
		m := push.Message{Data: []byte(`{"triggered_by":"daily_refresh"}`), DeliveryAttempt: deliveries}
		must.Hold(t, p.step.Handle(ctx, m) != nil, "a delivery whose time ended is acknowledged")
	}
}

// TestRightVerdictsLeaveThePast makes calibrations of one past, in which a node jumped about for an hour. The anomaly
// of that hour counts as usual unless it was judged right, also by a verdict that comes after the hours were read.
func TestRightVerdictsLeaveThePast(t *testing.T) {
	t.Parallel()
	p := newFixture(t, 0)
	today := p.now.UTC().Truncate(24 * time.Hour)
	p.now = today.Add(time.Hour)
	wild := today.Add(-20 * time.Hour)
	rows := make([]reading.Reading, 5*24*60)
	for i := range rows {
		rows[i] = reading.Reading{
			NodeID: "n1", MessageID: "m", Time: today.Add(time.Duration(i-len(rows)) * time.Minute),
			Temperature: 20 + math.Sin(float64(i)/90) + 0.1*math.Sin(float64(i*i)), Humidity: 40 + math.Cos(float64(i)/70),
		}
		if at := rows[i].Time; !at.Before(wild) && at.Before(wild.Add(time.Hour)) && i%2 == 0 {
			rows[i].Temperature += 6
		}
	}
	p.store(rows)
	calibrate := func() []byte {
		t.Helper()
		p.refresh()
		live := p.live()
		content := p.artifact(live.Calibration)
		// The next is made again, of the same days.
		if err := p.bucket.PublishCalibration(t.Context(), p.customer, "calibration_20200101", anomaly.Calibrate(nil)); err != nil && !errors.Is(err, modelstore.ErrConflict) {
			t.Fatal(err)
		}
		must.Do(t, p.bucket.Delete(t.Context(), p.customer, live.Calibration))
		return content
	}
	unjudged := calibrate()
	var id int64
	must.Do(t, p.pool.QueryRow(t.Context(), `
		INSERT INTO excursions (customer_id, kind, channel, node_id, quantity, direction, limit_value, severity, start_time, end_time, lasting, peak, peak_time, resolution)
		VALUES ($1, 'anomaly', 0, 'n1', 'temperature', 'above', 0, 'warning', $2, $3, false, 0, $2, 'cleared')
		RETURNING id`, p.customer, wild, wild.Add(59*time.Minute)).Scan(&id))
	judged := func(verdict incidents.Verdict) []byte {
		t.Helper()
		must.Get(p.JudgeExcursion(t.Context(), p.customer, id, verdict, wild))(t)
		return calibrate()
	}
	for _, verdict := range []incidents.Verdict{incidents.VerdictWrong, incidents.VerdictExpected} {
		must.Equal(t, string(verdict)+" leaves what is usual", true, bytes.Equal(judged(verdict), unjudged))
	}
	must.Equal(t, "right leaves what is usual", false, bytes.Equal(judged(incidents.VerdictRight), unjudged))
	must.Equal(t, "right, taken back, leaves it", true, bytes.Equal(judged(incidents.VerdictWrong), unjudged))
}

// TestMovedNodeStartsAnew moves a node from a room of 28 °C to one of 22 °C: there it is no colder than before.
func TestMovedNodeStartsAnew(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	p := newFixture(t, 0)
	today := p.now.UTC().Truncate(24 * time.Hour)
	for today.Weekday() != time.Wednesday { // the last days are compared with working days
		today = today.AddDate(0, 0, -1)
	}
	var cold int64
	must.Do(t, p.pool.QueryRow(t.Context(), `INSERT INTO server_rooms (customer_id, name) VALUES ($1, 'Cold') RETURNING id`, p.customer).Scan(&cold))
	for _, id := range []string{"c1", "c2", "c3"} {
		p.sensor(p.customer, cold, id)
	}
	for _, id := range []string{"h1", "h2", "h3", "m"} {
		p.sensor(p.customer, p.room, id)
	}
	var rows []reading.Reading
	const hours = 16 * 24
	for i := range 2 * hours {
		for _, id := range []string{"c1", "c2", "c3", "h1", "h2", "h3", "m"} {
			level := 28.0
			if id < "d" || id == "m" && i >= 2*(hours-3*24) {
				level = 22
			}
			rows = append(rows, reading.Reading{
				NodeID: id, MessageID: "m", Time: today.Add(time.Duration(i-2*hours) * 30 * time.Minute), Temperature: level + 0.1*float64(i%5), Humidity: 40,
			})
		}
	}
	p.store(rows)
	for day := -3; day <= 0; day++ {
		p.now = today.AddDate(0, 0, day).Add(time.Hour)
		p.refresh()
		p.exec(`UPDATE sensors SET room_id = $1 WHERE node_id = 'm'`, cold) // on the day that now begins, as its readings are
	}
	pair, _, err := p.bucket.Load(t.Context(), p.customer, p.live())
	must.Do(t, err)
	calm := anomaly.Moves{Level: 22.2}
	told, _ := pair.Calibration.Cooling("m", strconv.FormatInt(cold, 10), p.now, calm, calm, 4)
	must.Equal(t, "told of the node that was moved", "", told.Reason)
}
