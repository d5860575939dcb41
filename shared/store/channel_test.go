package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
)

// ingest stores a reading of n1 as functions/ingest does.
func (db fixture) ingest(t *testing.T, channel int64, at time.Time, temperature float64) reading.Reading {
	t.Helper()
	r := reading.Reading{
		Channel: reading.Channel(channel), NodeID: "n1", MessageID: fmt.Sprint(temperature), Time: reading.TruncateTime(at),
		Temperature: temperature, Humidity: 40,
	}
	if channel != 0 {
		db.sql(t, store.SignSensor, pgx.NamedArgs{"channel": channel, "node": r.NodeID, "at": r.Time, "gateway": "gw-a"})
	}
	must.Do(t, db.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: r}}))
	return r
}

// shown returns the temperature that Anna's overview shows of n1, and her sensor.
func (db fixture) shown(t *testing.T) (float64, accounts.Sensor) {
	t.Helper()
	live, err := db.LiveSensors(t.Context(), db.anna)
	if err != nil || len(live) != 1 || live[0].Temperature == nil {
		t.Fatalf("%+v, %v", live, err)
	}
	sensor := must.Get(db.Sensor(t.Context(), db.anna, "n1"))(t)
	return *live[0].Temperature, sensor
}

// TestHistoryStaysVisibleAfterTheGatewayIsGone: all of a customer's own channel is theirs,
// from before the first enrolment until long after the gateway was revoked and removed.
func TestHistoryStaysVisibleAfterTheGatewayIsGone(t *testing.T) {
	t.Parallel()
	db := open(t)
	gateway := db.enrolled(t, db.anna)
	db.ingest(t, db.anna, gateway.EnrolledAt.Add(-40*24*time.Hour), 20)
	db.claim(t, db.anna, db.annasRoom, "n1")
	all := []reading.Span{{Channel: reading.Channel(db.anna)}}
	must.Equal(t, "readings from before the enrolment", all, db.visible(t, db.anna))
	must.Do(t, db.RevokeGateway(t.Context(), db.anna, gateway.ID))
	db.sql(t, `UPDATE gateways SET enrolled_at = enrolled_at - interval '2 years', revoked_at = revoked_at - interval '2 years'`, nil)
	for range accounts.MaxEnrolmentCodes { // removes old ones
		if _, _, err := db.CreateGateway(t.Context(), db.bruno, 0, "another"); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := db.CreateGateway(t.Context(), db.bruno, 0, "one more")
	must.Fail(t, "one more code", err, store.ErrTooManyGateways)
	must.Fail(t, "a node of another customer", must.Err(db.VisibleNode(t.Context(), db.bruno, "n1")), store.ErrNoSensor)
	must.Equal(t, "gateways left", 0, db.count(t, `SELECT count(*) FROM gateways WHERE id = @id`, pgx.NamedArgs{"id": gateway.ID}))
	must.Equal(t, "after the gateway is gone", all, db.visible(t, db.anna))
	temperature, _ := db.shown(t)
	must.Equal(t, "the overview shows", 20.0, temperature)
}

// TestUnenrolledGatewayCannotSpeakForASignedSensor: from the first signed reading on, what
// an unenrolled gateway sends under the id is stored and reported, and nothing else.
func TestUnenrolledGatewayCannotSpeakForASignedSensor(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.claim(t, db.anna, db.annasRoom, "n1")
	db.enrolled(t, db.anna)
	start := db.now(t)
	db.ingest(t, 0, start, 21)
	temperature, sensor := db.shown(t)
	must.Hold(t, temperature == 21 && !sensor.Signed, "open: %v, %+v", temperature, sensor)
	db.ingest(t, db.anna, start.Add(time.Second), 22)
	temperature, sensor = db.shown(t)
	must.Hold(t, temperature == 22 && sensor.Signed && !sensor.AlsoUnenrolled, "signed: %v, %+v", temperature, sensor)
	forged := db.ingest(t, 0, start.Add(2*time.Second), 99)
	temperature, sensor = db.shown(t)
	must.Hold(t, temperature == 22 && sensor.AlsoUnenrolled, "after a forged reading: %v, %+v", temperature, sensor)
	must.Do(t, db.Judge(t.Context(), incidents.Judged{Reading: forged, Arrived: forged.Time, Defaults: alert.Defaults()}))
	must.Equal(t, "excursions", 0, len(db.excursions(t, db.anna, incidents.ExcursionQuery{})))
	must.Equal(t, "its alert", incidents.AlertIgnored, must.Get(db.InsertAlert(t.Context(), alert.Exceeded(forged, alert.Defaults())[0]))(t))
	late := forged
	late.Time = start // from before the signed reading
	must.Equal(t, "an alert of before", incidents.AlertStored, must.Get(db.InsertAlert(t.Context(), alert.Exceeded(late, alert.Defaults())[0]))(t))
	nodes := must.Get(db.RoomNodes(t.Context(), db.anna, db.annasRoom, nil))(t)
	must.Hold(t, len(nodes) == 1 && nodes[0].Channel == reading.Channel(db.anna), "detection compares with %+v", nodes)
	must.Fail(t, "the id, which Anna still holds", must.Err(db.CreateSensor(t.Context(), db.bruno, sensorOf("n1", db.brunosRoom))),
		store.ErrSensorExists)
}

// TestMemoryMovesWithTheSensor: an incident goes on when its sensor becomes signed, though
// detection sees the first signed reading before ingest does.
func TestMemoryMovesWithTheSensor(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.claim(t, db.anna, db.annasRoom, "n1")
	start := db.now(t)
	judge := func(channel int64, at time.Time, temperature float64) {
		t.Helper()
		r := reading.Reading{Channel: reading.Channel(channel), NodeID: "n1", MessageID: at.String(), Time: reading.TruncateTime(at), Temperature: temperature, Humidity: 40}
		must.Do(t, db.Judge(t.Context(), incidents.Judged{Reading: r, GatewayID: "gw-a", Arrived: at, Defaults: alert.Defaults()}))
	}
	judge(0, start, 60)
	e := hot("open")
	e.Time = start
	db.insert(t, e, incidents.AlertStored)
	must.Get(db.Act(t.Context(), db.anna, must.Get(db.Lasting(t.Context(), db.anna, nil, start))(t)[0].ID, incidents.Action{Event: incident.EventTaken, By: "anna12"}, start))(t)
	must.Equal(t, "active alerts once it is taken", 0, len(must.Get(db.active(t.Context(), db.anna))(t)))
	judge(db.anna, start.Add(time.Second), 61)
	must.Equal(t, "active alerts once it is signed", 0, len(must.Get(db.active(t.Context(), db.anna))(t)))
	got := db.excursions(t, db.anna, incidents.ExcursionQuery{})
	must.Hold(t, len(got) == 1 && got[0].Lasting && got[0].Peak == 61 && got[0].StartTime.Equal(reading.TruncateTime(start)),
		"incidents %+v", got)
	must.Equal(t, "memories stayed", 0, db.count(t, `SELECT count(*) FROM rule_memory WHERE channel = 0`, nil))
	judge(db.anna, start.Add(2*time.Second), 20)
	got = db.excursions(t, db.anna, incidents.ExcursionQuery{})
	must.Hold(t, len(got) == 1 && !got[0].Lasting, "incidents %+v", got)
	if n := db.count(t, `SELECT count(*) FROM audit_log WHERE customer_id = @anna AND actor = 'gateway:gw-a' AND operation = 'signSensor' AND subject = 'sensor:n1'`,
		pgx.NamedArgs{"anna": db.anna}); n != 1 {
		t.Errorf("%d audit entries", n)
	}
}

// TestSensorIsSetBackByHand: a signed sensor listens to the open channel again from then
// on, until the next signed reading. What came while it was signed stays hidden.
func TestSensorIsSetBackByHand(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.claim(t, db.anna, db.annasRoom, "n1")
	signed := db.now(t)
	db.ingest(t, db.anna, signed, 22)
	db.ingest(t, 0, db.now(t), 99)
	before := db.now(t)
	must.Equal(t, "signed", false, must.Get(db.SetBackSensor(t.Context(), db.anna, "n1", 0))(t).Signed)
	after := db.now(t)
	spans := db.openSpans(t, db.anna)
	if len(spans) != 2 || !spans[0].Until.Equal(reading.TruncateTime(signed)) {
		t.Fatalf("visible %v", spans)
	}
	within(t, spans[1], before, after, time.Time{}, time.Time{})
	temperature, _ := db.shown(t)
	must.Hold(t, temperature == 22, "shows %v", temperature)
	db.ingest(t, db.anna, signed.Add(time.Millisecond), 23) // a backlog
	db.ingest(t, 0, db.now(t), 24)
	temperature, sensor := db.shown(t)
	must.Hold(t, temperature == 24 && !sensor.Signed, "set back: %v, %+v", temperature, sensor)
	must.Equal(t, "signed again", false, must.Get(db.SetBackSensor(t.Context(), db.anna, "n1", 0))(t).Signed)
	db.ingest(t, db.anna, db.now(t), 25)
	temperature, sensor = db.shown(t)
	must.Hold(t, temperature == 25 && sensor.Signed, "signed again: %v, %+v", temperature, sensor)
	// Deleted and created again, its open time ends where it was signed.
	end := db.openSpans(t, db.anna)[1].Until
	must.Do(t, db.DeleteSensor(t.Context(), db.anna, "n1"))
	db.claim(t, db.anna, db.annasRoom, "n1") // signed at once: her gateways report it
	spans = db.openSpans(t, db.anna)
	must.Hold(t, len(spans) == 2 && spans[1].Until.Equal(end), "visible %v, want an end at %v", spans, end)
	// Another may hold the id now. Then hers cannot be set back.
	db.claim(t, db.bruno, db.brunosRoom, "n1")
	must.Fail(t, "while another holds the id", must.Err(db.SetBackSensor(t.Context(), db.anna, "n1", 0)), store.ErrSensorExists)
	must.Fail(t, "no sensor", must.Err(db.SetBackSensor(t.Context(), db.anna, "n2", 0)), store.ErrNoSensor)
}
