package store_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
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
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/store/pipeline"
)

// visible returns what a customer may see of the node n1.
func (db fixture) visible(t *testing.T, customer int64) []reading.Span {
	t.Helper()
	node := must.Get(db.VisibleNode(t.Context(), customer, "n1"))(t)
	return node.Visible
}

func (db fixture) openSpans(t *testing.T, customer int64) []reading.Span {
	t.Helper()
	return slices.DeleteFunc(db.visible(t, customer), func(s reading.Span) bool { return s.Channel != reading.Open })
}

// within reports a span of the open channel that does not begin and end between
// the times given; the last two are zero for a hold of today.
func within(t *testing.T, span reading.Span, fromAfter, fromBefore, untilAfter, untilBefore time.Time) {
	t.Helper()
	ends := span.Until.IsZero() && untilAfter.IsZero() || span.Until.After(untilAfter) && span.Until.Before(untilBefore)
	must.Hold(t, span.Channel == reading.Open && span.From.After(fromAfter) && span.From.Before(fromBefore) && ends,
		"visible from %v to %v, want from %v–%v to %v–%v", span.From, span.Until, fromAfter, fromBefore, untilAfter, untilBefore)
}

// TestHoldBeginsWithItsClaim shows contract 4.8: a new holder sees nothing older, a
// former one keeps what was theirs.
func TestHoldBeginsWithItsClaim(t *testing.T) {
	t.Parallel()
	db := open(t)
	t0 := db.now(t)
	db.claim(t, db.anna, db.annasRoom, "n1")
	t1 := db.now(t)
	spans := db.openSpans(t, db.anna)
	if len(spans) != 1 {
		t.Fatalf("Anna sees %v", spans)
	}
	within(t, spans[0], t0, t1, time.Time{}, time.Time{})

	must.Do(t, db.DeleteSensor(t.Context(), db.anna, "n1"))
	t2 := db.now(t)
	db.claim(t, db.bruno, db.brunosRoom, "n1")
	t3 := db.now(t)
	if spans = db.openSpans(t, db.bruno); len(spans) != 1 {
		t.Fatalf("Bruno sees %v", spans)
	}
	within(t, spans[0], t2, t3, time.Time{}, time.Time{})
	must.Do(t, db.DeleteSensor(t.Context(), db.bruno, "n1"))
	t4 := db.now(t)
	db.claim(t, db.anna, db.annasRoom, "n1")
	if spans = db.openSpans(t, db.anna); len(spans) != 2 {
		t.Fatalf("Anna sees %v", spans)
	}
	within(t, spans[0], t0, t1, t1, t2)
	within(t, spans[1], t4, db.now(t), time.Time{}, time.Time{})
}

func TestNewOwnerWhoWaitedForTheDeletionSeesNothingOlder(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.claim(t, db.anna, db.annasRoom, "n1")
	deletion := must.Get(db.pool.Begin(t.Context()))(t)
	must.Get(deletion.Exec(t.Context(), `DELETE FROM sensors WHERE node_id = 'n1'`))(t)
	defer func() { _ = deletion.Rollback(context.WithoutCancel(t.Context())) }()
	db.sql(t, `INSERT INTO gateways (id, customer_id, name, code_hash, code_expires_at, public_key, enrolled_at)
		VALUES ('gw-a', @bruno, 'g', sha256('a'), now(), sha256('a'), now() - interval '1 day')`, pgx.NamedArgs{"bruno": db.bruno})
	var group sync.WaitGroup
	group.Go(func() {
		// The sensor is still there for him: he gets his own channel alone.
		if _, err := db.CreateSensor(t.Context(), db.bruno, sensorOf("n1", db.brunosRoom)); err != nil {
			t.Error(err)
		}
	})
	group.Wait()
	must.Do(t, deletion.Commit(t.Context()))
	spans := db.visible(t, db.bruno)
	must.Hold(t, len(spans) == 1 && spans[0].Channel == reading.Channel(db.bruno), "Bruno sees %v", spans)
}

// TestIDThatAnotherHoldsIsForTheSignedChannelAlone shows contract 4.5, 4.9: it takes an enrolled
// gateway, and one that is revoked or waits for its code is none.
func TestIDThatAnotherHoldsIsForTheSignedChannelAlone(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.claim(t, db.anna, db.annasRoom, "n1")
	refused := func(what string) {
		t.Helper()
		must.Fail(t, what, must.Err(db.CreateSensor(t.Context(), db.bruno, sensorOf("n1", db.brunosRoom))), store.ErrSensorExists)
	}
	refused("without a gateway")
	if _, _, err := db.CreateGateway(t.Context(), db.bruno, 0, "Waiting"); err != nil {
		t.Fatal(err)
	}
	refused("with a gateway that waits for its code")
	must.Do(t, db.RevokeGateway(t.Context(), db.bruno, db.enrolled(t, db.bruno).ID))
	refused("with a revoked gateway")
	db.enrolled(t, db.bruno)
	db.claim(t, db.bruno, db.brunosRoom, "n1")
	spans := db.visible(t, db.bruno)
	must.Hold(t, len(spans) == 1 && spans[0].Channel == reading.Channel(db.bruno) && spans[0].Until.IsZero() && spans[0].From.IsZero(),
		"Bruno sees %v", spans)
	refused("his own again")
	hers := db.openSpans(t, db.anna)
	must.Hold(t, len(hers) == 1 && hers[0].Channel == reading.Open, "Anna sees %v", hers)
	// What happens to his says nothing about hers.
	must.Do(t, db.DeleteSensor(t.Context(), db.bruno, "n1"))
	nodes := []reading.Node{{ID: "n1"}, {Channel: reading.Channel(db.bruno), ID: "n1"}, {Channel: reading.Channel(db.anna), ID: "n1"}}
	got := must.Get(db.SensorStatuses(t.Context(), nodes))(t)
	annas := pipeline.SensorStatus{Owned: true, CustomerID: db.anna, RoomID: db.annasRoom, Budget: 1}
	held := annas
	held.HeldFrom = db.openSpans(t, db.anna)[0].From
	want := map[reading.Node]pipeline.SensorStatus{nodes[0]: held, nodes[1]: {Deleted: true}, nodes[2]: annas}
	must.Equal(t, "statuses", want, got)
	// Created again, it shows all of his channel.
	db.claim(t, db.bruno, db.brunosRoom, "n1")
	must.Equal(t, "after deletion and creation", spans, db.visible(t, db.bruno))
}

// TestNewHoldBeginsEmpty shows contract 4.8.
func TestNewHoldBeginsEmpty(t *testing.T) {
	t.Parallel()
	db := open(t)
	newest := func() float64 {
		t.Helper()
		return must.Get(db.NewestReadings(t.Context(), db.anna, []string{"n1"}))(t)["n1"].Temperature
	}
	before := db.now(t)
	db.heard(t, measured("n1", before, 20))
	db.claim(t, db.anna, db.annasRoom, "n1")
	rows := db.states(t)
	must.Hold(t, len(rows) == 1 && rows[0].MessageID == nil, "its row is %+v", rows)
	must.Equal(t, "it begins", 0.0, newest())
	db.heard(t, measured("n1", before.Add(-time.Second), 21))
	must.Equal(t, "a reading from before it", 0.0, newest())
	db.heard(t, measured("n1", db.now(t), 22))
	must.Equal(t, "newest", 22.0, newest())
}

// TestAlertBelongsToTheHolderAtItsTime shows contract 6.6.
func TestAlertBelongsToTheHolderAtItsTime(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.claim(t, db.anna, db.annasRoom, "n1")
	hers := db.now(t)
	db.enrolled(t, db.anna)
	must.Do(t, db.DeleteSensor(t.Context(), db.anna, "n1")) // her hold ends
	db.claim(t, db.bruno, db.brunosRoom, "n1")
	db.claim(t, db.anna, db.annasRoom, "n1") // signed: he holds the id
	his := db.now(t)
	at := func(channel reading.Channel, message string, when time.Time) alert.Event {
		return alert.Exceeded(reading.Reading{Channel: channel, NodeID: "n1", MessageID: message, Time: when, Temperature: 60, Humidity: 40}, alert.Defaults())[0]
	}
	for _, c := range []struct {
		event alert.Event
		want  incidents.AlertOutcome
	}{
		{at(reading.Open, "late", hers), incidents.AlertStored},
		{at(reading.Open, "live", his), incidents.AlertStored},
		{at(reading.Open, "live", his), incidents.AlertDuplicate},
		{at(reading.Channel(db.anna), "live", his), incidents.AlertStored}, // another node
		{at(reading.Channel(db.bruno), "live", his), incidents.AlertStored},
		{at(reading.Open, "before anybody's", hers.Add(-time.Hour)), incidents.AlertIgnored},
		{at(reading.Open, "live", his.Add(time.Minute)), incidents.AlertDuplicate}, // a copy, by another gateway
		{at(reading.Open, "live", his.Add(11*time.Minute)), incidents.AlertStored}, // the node has counted on
	} {
		must.Equal(t, fmt.Sprintf("%s in channel %d at %v", c.event.MessageID, c.event.Channel, c.event.Time), c.want, must.Get(db.InsertAlert(t.Context(), c.event))(t))
	}
	for customer, want := range map[int64]int{db.anna: 2, db.bruno: 3} {
		all := must.Get(db.AlertHistory(t.Context(), customer, incidents.AlertQuery{PageRequest: store.PageRequest{Limit: 10}}))(t)
		must.Equal(t, fmt.Sprintf("alerts of customer %d", customer), want, len(all.Items))
	}
}

// TestPredictionsOfChannelsDoNotMeet shows contract 4.8.
func TestPredictionsOfChannelsDoNotMeet(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.claim(t, db.anna, db.annasRoom, "n1")
	db.enrolled(t, db.bruno)
	db.claim(t, db.bruno, db.brunosRoom, "n1")
	now := db.now(t)
	for channel, owner := range map[reading.Channel]int64{reading.Open: db.anna, reading.Channel(db.anna): db.anna, reading.Channel(db.bruno): db.bruno} {
		n := detection(0, true)
		n.Channel, n.Time = channel, now
		db.detect(t, owner, n, true)
		db.detect(t, owner, n, false)
	}
	for customer, want := range map[int64]int{db.anna: 2, db.bruno: 1} { // she holds the open channel
		listed := must.Get(db.Predictions(t.Context(), customer, learning.PredictionFilter{PageRequest: store.PageRequest{Limit: 10}}))(t)
		must.Equal(t, fmt.Sprintf("predictions of customer %d", customer), want, len(listed.Items))
		must.Equal(t, fmt.Sprintf("counted of customer %d", customer), want, must.Get(db.PredictionStats(t.Context(), customer))(t).Total)
	}
	his, err := db.Predictions(t.Context(), db.bruno, learning.PredictionFilter{PageRequest: store.PageRequest{Limit: 10}})
	if err != nil || len(his.Items) != 1 {
		t.Fatal(his, err)
	}
	_, err = db.ValidatePrediction(t.Context(), db.anna, his.Items[0].ID, learning.FeedbackOK)
	must.Fail(t, "another's", err, store.ErrNoPrediction)
	recorded := must.Get(db.RecordPrediction(t.Context(), db.bruno, learning.NewPrediction{SensorID: "n1", Time: now}))(t)
	must.Fail(t, "another's of another model", must.Err(db.Prediction(t.Context(), db.anna, recorded.ID)), store.ErrNoPrediction)
}

// ingest stores a reading of n1 as functions/ingest does.
func (db fixture) ingest(t *testing.T, channel int64, at time.Time, temperature float64) reading.Reading {
	t.Helper()
	r := measured("n1", reading.TruncateTime(at), temperature)
	r.Channel = reading.Channel(channel)
	if channel != 0 {
		db.sql(t, store.SignSensor, pgx.NamedArgs{"channel": channel, "node": r.NodeID, "at": r.Time, "gateway": "gw-a"})
	}
	db.heard(t, r)
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
		r := measured("n1", reading.TruncateTime(at), temperature)
		r.Channel = reading.Channel(channel)
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
