package store_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/learning"
)

func detection(minutes float64, anomaly bool) learning.NewPrediction {
	return learning.NewPrediction{
		SensorID: "n1", Time: instant().Add(time.Duration(minutes * float64(time.Minute))), MessageID: strconv.FormatFloat(minutes, 'f', -1, 64),
		AnomalyPredicted: anomaly,
	}
}

// detect records a detection of a customer for whom all are drawn.
func (db fixture) detect(t *testing.T, customer int64, n learning.NewPrediction, want bool) {
	t.Helper()
	recorded, _, err := db.RecordDetection(t.Context(), customer, n, 1000)
	must.Do(t, err)
	must.Equal(t, fmt.Sprintf("detection at %s (anomaly %v) recorded", n.Time, n.AnomalyPredicted), want, recorded)
}

// TestQuestionsOfADay holds that of an account's day of flagged readings, and of others, at most
// three are recorded, the same however they are delivered, whatever another account has, and that
// their weights are of all readings. Contract 7.2.
func TestQuestionsOfADay(t *testing.T) {
	t.Parallel()
	nodes := make([]string, 30)
	for i := range nodes {
		nodes[i] = fmt.Sprintf("rack-%d", i)
	}
	db := openWith(t, nodes...)
	db.sensor(t, db.bruno, db.brunosRoom, "brunos")
	midnight := instant().Truncate(24 * time.Hour)
	var day []learning.NewPrediction
	for i := range 600 {
		n := detection(0, i%4 > 0)
		n.SensorID, n.Time, n.MessageID = nodes[i%len(nodes)], midnight.Add(time.Duration(i)*144*time.Second), strconv.Itoa(i)
		day = append(day, n)
	}
	most := map[bool]int{true: 2, false: 1}
	deliver := func(customer int64, n learning.NewPrediction) {
		t.Helper()
		_, _, err := db.RecordDetection(t.Context(), customer, n, most[n.AnomalyPredicted])
		must.Do(t, err)
	}
	asked := func(customer int64) (identities []string, weights map[bool]float64) {
		t.Helper()
		listed := must.Get(db.Predictions(t.Context(), customer, learning.PredictionFilter{PageRequest: store.PageRequest{Limit: 100}}))(t).Items
		weights = map[bool]float64{}
		for _, p := range listed {
			must.Get(db.ValidatePrediction(t.Context(), customer, p.ID, learning.FeedbackOK))(t)
		}
		for _, v := range must.Get(db.UnusedVerdicts(t.Context(), customer, 100))(t) {
			identities = append(identities, v.SensorID+" "+v.MessageID)
			weights[v.AnomalyPredicted] += v.Weight
		}
		slices.Sort(identities)
		return identities, weights
	}
	for _, n := range day {
		deliver(db.anna, n)
	}
	for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(len(day)) { //nolint:gosec // an order
		deliver(db.anna, day[i]) // delivered again
	}
	for i := range 5 { // another account and another day have draws of their own
		n := detection(float64(i), true)
		n.SensorID = "brunos"
		deliver(db.bruno, n)
		n = detection(float64(i)-24*60, true)
		n.SensorID = nodes[0]
		deliver(db.anna, n)
	}
	annas, weights := asked(db.anna)
	brunos, _ := asked(db.bruno)
	if len(annas) != 5 || len(brunos) != 2 {
		t.Fatalf("Anna is asked of %v, want 3 of the day and 2 of the one before, Bruno of %v, want 2", annas, brunos)
	}
	if weights[true] < 100 || weights[false] < 20 { // of 450 and 150, give or take as much
		t.Errorf("verdicts weigh as %v readings", weights)
	}
	for _, n := range day { // an answer stays
		n.SensorID = "rack-1"
		deliver(db.anna, n)
	}
	again, _ := asked(db.anna)
	must.Equal(t, "questions after the answers", annas, again)
}

func TestDetectionsAreRecordedOnce(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.detect(t, db.anna, detection(0, true), true)
	db.detect(t, db.anna, detection(0, true), false) // delivered again
	db.detect(t, db.anna, detection(5, false), true)
	db.detect(t, db.anna, detection(5, false), false)
	db.detect(t, db.bruno, detection(1, true), false) // not Bruno's
}

func TestDetectionsAtTheSameMoment(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			n := detection(float64(i)/10, true)
			n.Time = n.Time.Add(time.Duration(i) * time.Second)
			_, _, err := db.RecordDetection(t.Context(), db.anna, n, 2)
			must.Hold(t, err == nil, "%v", err)
		})
	}
	group.Wait()
	must.Equal(t, "questions", int64(2), must.Get(db.Predictions(t.Context(), db.anna, learning.PredictionFilter{PageRequest: store.PageRequest{Limit: 10}}))(t).Total)
}

// TestDetectionOfADeletedSensorIsNotRecorded shows contract 4.6 for predictions.
func TestDetectionOfADeletedSensorIsNotRecorded(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	said := func(ago time.Duration) learning.NewPrediction {
		n := detection(0, false)
		n.Time = db.now(t).Add(-ago)
		n.MessageID = n.Time.String()[:30]
		return n
	}
	db.detect(t, db.anna, said(0), true)
	must.Do(t, db.DeleteSensor(t.Context(), db.anna, "n1"))
	db.detect(t, db.anna, said(0), false)
	db.detect(t, db.anna, said(time.Minute), false)
	db.sensor(t, db.bruno, db.brunosRoom, "n1")
	db.detect(t, db.bruno, said(time.Minute), false) // was Anna's
	db.detect(t, db.bruno, said(0), true)
	must.Equal(t, "the next owner sees predictions", 1, len(must.Get(db.Predictions(t.Context(), db.bruno, learning.PredictionFilter{PageRequest: store.PageRequest{Limit: 10}}))(t).Items))
}

// TestDetectionBesideTheDeletionStaysHidden records a prediction while the
// deletion of its sensor has begun and is not committed.
func TestDetectionBesideTheDeletionStaysHidden(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	deletion := must.Get(db.pool.Begin(t.Context()))(t)
	defer func() { _ = deletion.Rollback(context.WithoutCancel(t.Context())) }()
	must.Get(deletion.Exec(t.Context(), `DELETE FROM sensors WHERE node_id = 'n1'`))(t)
	n := detection(0, true)
	n.Time = db.now(t)
	var group sync.WaitGroup
	group.Go(func() { db.detect(t, db.anna, n, false) })
	db.waits(t)
	must.Do(t, deletion.Commit(t.Context()))
	group.Wait()
}

// TestSurroundingsAreOfTheCustomersRoom asks for a room and for a node of another by its
// name. What others have, and what was sent before a hold began, is absent.
func TestSurroundingsAreOfTheCustomersRoom(t *testing.T) {
	t.Parallel()
	db := open(t)
	other := db.room(t, db.anna)
	db.sensor(t, db.anna, db.annasRoom, "n1")
	db.sensor(t, db.anna, db.annasRoom, "n2")
	db.sensor(t, db.anna, other, "far")
	db.sensor(t, db.anna, other, "unnamed")
	db.sensor(t, db.bruno, db.brunosRoom, "bruno")
	at := db.now(t).Add(-time.Hour).Truncate(10 * time.Minute)
	send := func(channel int64, node string, when time.Time, temperature float64) {
		t.Helper()
		r := measured(node, when, temperature)
		r.Channel = reading.Channel(channel)
		db.heard(t, r)
	}
	for _, node := range []string{"n1", "far", "unnamed", "bruno"} {
		for i := range 3 {
			send(0, node, at.Add(time.Duration(i*10+3)*time.Minute), 20+float64(i))
		}
	}
	send(db.anna, "n2", at, 30)
	send(db.bruno, "n1", at, 99) // another's node of this id
	nodes := must.Get(db.RoomNodes(t.Context(), db.anna, db.annasRoom, []string{"far", "bruno"}))(t)
	want := []reading.Node{{ID: "far"}, {ID: "n1"}, {Channel: reading.Channel(db.anna), ID: "n2"}}
	must.Equal(t, "nodes", want, nodes)
	first := at.Unix() / 600
	air := must.Get(db.NodesAir(t.Context(), db.anna, []reading.Node{{ID: "n1"}}, first, first+2))(t)
	wantAir := []learning.NodeAir{{
		Node: reading.Node{ID: "n1"}, RoomID: db.annasRoom, At: at.Add(23 * time.Minute), Temperature: 22, Humidity: 40,
		Slots: []int64{first, first + 1}, Temperatures: []float64{20, 21}, Humidities: []float64{40, 40},
	}}
	diff := cmp.Diff(wantAir, air)
	must.Hold(t, diff == "" && air[0].At.Location() == time.UTC, "air (-want +got):\n%s", diff)
	air = must.Get(db.NodesAir(t.Context(), db.anna, []reading.Node{{ID: "n1"}}, first, first))(t)
	must.Equal(t, "nodes", 1, len(air))
	must.Equal(t, "slots", 0, len(air[0].Slots))
	must.Do(t, db.DeleteSensor(t.Context(), db.anna, "n1"))
	db.sensor(t, db.bruno, db.brunosRoom, "n1")
	send(0, "n1", db.now(t), 50)
	must.Equal(t, "nodes that have become another's", 0, len(must.Get(db.NodesAir(t.Context(), db.anna, []reading.Node{{ID: "n1"}}, first, first))(t)))
	must.Equal(t, "theirs", 1, len(must.Get(db.NodesAir(t.Context(), db.bruno, []reading.Node{{ID: "n1"}}, first, first))(t)))
}

// TestLearnedAddsUp holds that what several instances learn of a node adds up, and that
// the next owner of the node begins again.
func TestLearnedAddsUp(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	node := reading.Node{ID: "n1"}
	db.heard(t, measured("n1", db.now(t), 20))
	for i, wider := range []float64{0.5, -0.25, -1.5, -1.5} {
		must.Do(t, db.RecordLearned(t.Context(), db.anna, []learning.Learned{{Node: node, Wider: wider, JudgedBy: learning.ByWindow}}, 2))
		air, err := db.NodesAir(t.Context(), db.anna, []reading.Node{node}, 0, 0)
		if want := []float64{2.5, 2.25, 0.75, 0.1}[i]; err != nil || math.Abs(air[0].Width-want) > 1e-9 || air[0].JudgedBy != learning.ByWindow {
			t.Errorf("%+v %v, want the width %g", air, err, want)
		}
	}
	must.Do(t, db.DeleteSensor(t.Context(), db.anna, "n1"))
	db.sensor(t, db.bruno, db.brunosRoom, "n1")
	db.heard(t, measured("n1", db.now(t), 20))
	must.Do(t, db.RecordLearned(t.Context(), db.anna, []learning.Learned{{Node: node, Wider: 1, JudgedBy: learning.ByWindow}}, 2)) // of a room read before
	must.Equal(t, "rows that the next owner begins with", 0, db.count(t, `SELECT count(*) FROM node_learning`, nil))
}

// TestQuantitiesApartAreAsMeasured: a correction that began between the two values of a node is taken
// from the later one alone.
func TestQuantitiesApartAreAsMeasured(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	from := db.now(t).Add(-time.Minute).UTC()
	must.Get(db.pool.Exec(t.Context(), `UPDATE open_holds SET held_from = '-infinity'`))(t)
	must.Get(db.pool.Exec(t.Context(), `
		INSERT INTO corrections (customer_id, node_id, from_time, temperature_offset, humidity_offset, added_by, added_at)
		VALUES ($1, 'n1', $2, 2, 5, 'Ana', $2::timestamptz - interval '1 hour')`, db.anna, from))(t)
	db.heard(t,
		reading.Reading{NodeID: "n1", MessageID: "t", Time: from.Add(-time.Second), Temperature: 22, Humidity: reading.Missing()},
		reading.Reading{NodeID: "n1", MessageID: "h", Time: from.Add(time.Second), Temperature: reading.Missing(), Humidity: 45})
	air := must.Get(db.NodesAir(t.Context(), db.anna, []reading.Node{{ID: "n1"}}, 0, 0))(t)
	must.Hold(t, len(air) == 1 && air[0].Temperature == 22 && air[0].Humidity == 40, "%+v, want 22 °C and 40 %%", air)
}
