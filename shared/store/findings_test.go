package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/learning"
)

func anomaly(score float64) incident.Finding {
	return incident.Finding{
		Kind: incident.KindAnomaly, Holds: true, Score: score, Cause: "unchanged", Reason: "Unchanged for 52 min", Severity: incident.Warning,
		Quantity: incident.Temperature, Value: float64(float32(22.51)), Low: float64(float32(20.01)), High: 22, Probability: 0.001,
	}
}

func forecast() incident.Finding {
	return incident.Finding{
		Kind: incident.KindForecast, Holds: true, Score: 1, Reason: "Passes 32 °C in 9 to 14 min", Severity: incident.Critical,
		Quantity: incident.Temperature, Value: 31, Limit: 32, Earliest: 9 * time.Minute, Latest: 14 * time.Minute,
	}
}

func over(kind incident.Kind) incident.Finding { return incident.Finding{Kind: kind} }

func found(node string, second int, findings ...incident.Finding) incidents.Judged {
	j := judged(node, second, 22)
	j.Findings = findings
	return j
}

// TestEarlierHolderJudgesNothing shows contract 4.8: detect may know for some seconds the customer who held
// the id before, whose findings and thresholds are not the new holder's.
func TestEarlierHolderJudgesNothing(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	earlier := found("n1", 0, anomaly(3))
	earlier.HeldFrom = instant().Add(-time.Hour)
	must.Hold(t, db.Judge(t.Context(), earlier) != nil, "judged")
	must.Equal(t, "excursions", 0, len(db.excursions(t, db.anna, incidents.ExcursionQuery{})))
}

// TestFindingOpensAndEndsAnIncident shows contract 11.8.
func TestFindingOpensAndEndsAnIncident(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.judge(t, found("n1", 0, over(incident.KindAnomaly)), found("n1", 30, anomaly(3)), found("n1", 30, anomaly(3)))
	all := func() []string { return db.inWords(t, incidents.ExcursionQuery{Kind: "anomaly"}) }
	must.Equal(t, "open", []string{"n1 warning 30–30 lasts: Unchanged for 52 min"}, all())
	first := db.excursions(t, db.anna, incidents.ExcursionQuery{RoomID: db.annasRoom})[0].Finding
	must.Equal(t, "finding", [3]float64{22.51, 20.01, 0.001}, [3]float64{first.Value, *first.Low, first.Probability})
	worse := anomaly(5)
	worse.Reason, worse.Severity = "Step of 4 °C", incident.Critical
	db.judge(t, found("n1", 60, worse), found("n1", 90, anomaly(4)))
	must.Equal(t, "the worst is shown", []string{"n1 critical 30–90 lasts: Step of 4 °C"}, all())
	db.judge(t, found("n1", 100)) // learning could not judge: that ends nothing
	db.judge(t, found("n1", 120, over(incident.KindAnomaly)), found("n1", 90, over(incident.KindAnomaly)))
	must.Equal(t, "ended", []string{"n1 critical 30–120 cleared: Step of 4 °C"}, all())
	db.judge(t, found("n1", 120+9*60, anomaly(2)), found("n1", 120+9*60+30, over(incident.KindAnomaly)))
	must.Equal(t, "within 10 minutes", []string{"n1 critical 30–690 cleared, came back 1: Step of 4 °C"}, all())
	db.judge(t, found("n1", 120+20*60, anomaly(2)))
	must.Equal(t, "after 10 minutes", "n1 warning 1320–1320 lasts: Unchanged for 52 min", all()[0])
	status := must.Get(db.SensorStatuses(t.Context(), openNodes("n1")))(t)
	must.Equal(t, "detection is asked for the next", true, status[openNodes("n1")[0]].Remembers)
}

// TestCauseOfAnAnomaly is the direction in which its value left the band.
func TestCauseOfAnAnomaly(t *testing.T) {
	t.Parallel()
	db := open(t)
	want, got := map[string]incident.Cause{}, map[string]incident.Cause{}
	for node, c := range map[string]struct {
		reason           string
		value, low, high float64
		want             incident.Cause
	}{
		"above": {"own_temperature_1h", 23, 20, 22, incident.TooHot}, "below": {"own_temperature_1h", 19, 20, 22, incident.TooCold},
		"upper-end": {"own_temperature_1h", 22, 20, 22, incident.Unusual}, "lower-end": {"own_temperature_1h", 20, 20, 22, incident.Unusual},
		"no-band": {"own_temperature_1h", 23, 0, 0, incident.Unusual}, "from-0": {"own_temperature_1h", 23, 0, 22, incident.TooHot},
		"to-0": {"own_temperature_1h", -3, -2, 0, incident.TooCold}, "fault": {"unchanged", 23, 20, 22, incident.Faulty},
	} {
		db.sensor(t, db.anna, must.Get(db.CreateRoom(t.Context(), db.anna, node))(t).ID, node)
		f := anomaly(3)
		f.Cause, f.Value, f.Low, f.High = c.reason, c.value, c.low, c.high
		db.judge(t, found(node, 0, f))
		want[node] = c.want
	}
	for _, i := range db.lasting(t, 10) {
		got[i.RoomName] = i.Cause
	}
	must.Equal(t, "causes", want, got)
}

// TestAnomalyIsOneQuestion shows contract 11.9: an anomaly is one prediction, whatever was asked
// before it, and a reading that was drawn as normal is an anomaly from then on.
func TestAnomalyIsOneQuestion(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2", "n3")
	predictions := func(node string) []learning.Prediction {
		t.Helper()
		return must.Get(db.Predictions(t.Context(), db.anna, learning.PredictionFilter{SensorID: node, PageRequest: store.PageRequest{Limit: 10}}))(t).Items
	}
	db.detect(t, db.anna, detection(-9, true), true)
	db.detect(t, db.anna, detection(-5, false), true)
	db.judge(t, found("n1", 0, anomaly(3)), found("n1", 30, anomaly(4)))
	must.Equal(t, "the two drawn and the incident's", 3, len(predictions("n1")))
	open := db.excursions(t, db.anna, incidents.ExcursionQuery{Kind: "anomaly"})
	must.Get(db.JudgeExcursion(t.Context(), db.anna, open[0].ID, incidents.VerdictRight, instant()))(t)
	for i, want := range []learning.Feedback{learning.FeedbackOK, "", ""} { // newest first
		must.Equal(t, fmt.Sprintf("prediction %d is judged", i), want, predictions("n1")[i].Feedback)
	}
	normal := detection(0, false)
	normal.SensorID, normal.Time = "n2", found("n2", 0).Time
	normal.MessageID = found("n2", 0).MessageID
	db.detect(t, db.anna, normal, true)
	db.sql(t, `UPDATE prediction_feedback SET sampling_probability = 0.01 WHERE sensor_id = 'n2'`, nil)
	db.judge(t, found("n2", 0, anomaly(3)))
	drawn := one(t, "a drawn reading that is an anomaly", predictions("n2"))
	must.Equal(t, "it is an anomaly", true, drawn.AnomalyPredicted)
	must.Get(db.ValidatePrediction(t.Context(), db.anna, drawn.ID, learning.FeedbackOK))(t)
	for _, v := range must.Get(db.UnusedVerdicts(t.Context(), db.anna, 10))(t) {
		must.Equal(t, "weight of an incident's verdict", 1.0, v.Weight)
	}
	// Somebody has said that another is not normal: it stays that.
	answered := detection(0, false)
	answered.SensorID, answered.Time, answered.MessageID = "n3", found("n3", 0).Time, found("n3", 0).MessageID
	db.detect(t, db.anna, answered, true)
	must.Get(db.ValidatePrediction(t.Context(), db.anna, predictions("n3")[0].ID, learning.FeedbackNotOK))(t)
	db.judge(t, found("n3", 0, anomaly(3)))
	verdicts := must.Get(db.UnusedVerdicts(t.Context(), db.anna, 10))(t)
	must.Equal(t, "the verdict that a reading is not normal", true, verdicts[len(verdicts)-1].Anomalous())
}

func TestLateFindingIsOfThePast(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.heard(t, judged("n1", 7200, 22).Reading)
	for _, second := range []int{60, 0, 30, 30} {
		db.judge(t, arrived(found("n1", second, anomaly(3)), 7200))
	}
	must.Equal(t, "excursions", []string{"n1 warning 0–60 cleared, late: Unchanged for 52 min"}, db.inWords(t, incidents.ExcursionQuery{}))
}

// TestVerdictOutlivesAMerge judges the second of two anomalies, which a late one between them joins.
func TestVerdictOutlivesAMerge(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.judge(t, found("n1", 0, anomaly(3)), found("n1", 30, over(incident.KindAnomaly)))
	db.judge(t, found("n1", 18*60, anomaly(3)), found("n1", 18*60+30, over(incident.KindAnomaly)))
	second := db.excursions(t, db.anna, incidents.ExcursionQuery{})[0]
	must.Get(db.JudgeExcursion(t.Context(), db.anna, second.ID, incidents.VerdictRight, instant()))(t)
	db.judge(t, found("n1", 9*60, anomaly(3)))
	got := db.excursions(t, db.anna, incidents.ExcursionQuery{})
	must.Hold(t, len(got) == 1 && got[0].ID != second.ID && got[0].Verdict == incidents.VerdictRight, "%+v", got)
	newest := must.Get(db.Predictions(t.Context(), db.anna, learning.PredictionFilter{PageRequest: store.PageRequest{Limit: 1}}))(t).Items[0]
	must.Get(db.ValidatePrediction(t.Context(), db.anna, newest.ID, learning.FeedbackNotOK))(t)
	must.Equal(t, "after another verdict on its prediction", incidents.VerdictWrong, db.excursions(t, db.anna, incidents.ExcursionQuery{})[0].Verdict)
}

// TestForecastsOfARoomAreOneIncident shows contract 11.8: it lasts until no node of the room has one.
func TestForecastsOfARoomAreOneIncident(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	other := db.roomWith(t, "n3")
	db.judge(t, found("n1", 0, forecast()), found("n2", 10, forecast()), found("n3", 10, forecast()))
	newer := forecast()
	newer.Reason = "Passes 32 °C in 3 to 5 min"
	db.judge(t, found("n2", 40, newer), found("n1", 60, over(incident.KindForecast)))
	query := incidents.ExcursionQuery{Kind: "forecast", RoomID: db.annasRoom}
	is := func(what, want string) {
		t.Helper()
		must.Equal(t, what, []string{want}, db.inWords(t, query))
	}
	is("of both nodes", "n1 critical 0–60 lasts: Passes 32 °C in 3 to 5 min")
	first := db.excursions(t, db.anna, query)[0]
	must.Equal(t, "limit", 32.0, first.LimitValue)
	must.Equal(t, "earliest", clock(40+9*60), *first.Finding.Earliest)
	db.judge(t, found("n2", 70, over(incident.KindForecast)))
	is("after the last node", "n1 critical 0–70 cleared: Passes 32 °C in 3 to 5 min")
	db.judge(t, found("n1", 600, forecast()))
	is("within 10 minutes", "n1 critical 0–600 lasts, came back 1: Passes 32 °C in 9 to 14 min")
	must.Equal(t, "of the other room", []string{"n3 critical 10–10 lasts: Passes 32 °C in 9 to 14 min"},
		db.inWords(t, incidents.ExcursionQuery{Kind: "forecast", RoomID: other}))
	// The last node's reading is none of the latest: no node holds it any more.
	db.judge(t, found("n2", 601, forecast()), found("n1", 609, over(incident.KindForecast)), found("n2", 605, over(incident.KindForecast)))
	is("in whatever order they end", "n1 critical 0–609 cleared, came back 1: Passes 32 °C in 9 to 14 min")
	db.judge(t, found("n1", 609, forecast()), found("n1", 610, forecast()))
	// The incident of a room outlives the sensor that began it, not the last one.
	db.judge(t, found("n2", 610, forecast()))
	db.move(t, "n1", other)
	is("after the first sensor left", "n2 critical 0–610 lasts, came back 1: Passes 32 °C in 9 to 14 min")
	db.move(t, "n2", other)
	is("after both sensors left", "n2 critical 0–610 sensor_moved, came back 1: Passes 32 °C in 9 to 14 min")
}

// TestOpenReadingFromBeforeTheSensorWasSignedIsJudged shows contract 11.1: who may see a reading is
// what readings, alerts and incidents agree on.
func TestOpenReadingFromBeforeTheSensorWasSignedIsJudged(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.sql(t, `UPDATE sensors SET signed_from = @at WHERE node_id = 'n1'`, pgx.NamedArgs{"at": instant().Add(time.Hour)})
	db.judge(t, judged("n1", 60, 51), judged("n1", 3700, 51))
	must.Equal(t, "what came before the sensor was signed, and of it nothing that lasts",
		[]string{"n1 critical 60–60 cleared: Temperature above 50.0 °C, peak 51.0 °C"}, db.inWords(t, incidents.ExcursionQuery{}))
	must.Equal(t, "memories", 0, db.count(t, `SELECT count(*) FROM rule_memory`, nil))
}

// TestRuleJudgesWhatCameSinceItsChange shows contract 11.5.
func TestRuleJudgesWhatCameSinceItsChange(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.sql(t, `UPDATE sensors SET placed_at = '2000-01-01'`, nil)
	db.rule(t, incident.Rule{Limit: 30})
	changed := time.Now().Add(time.Second)
	db.sql(t, `ALTER TABLE rules DISABLE TRIGGER USER`, nil)
	db.sql(t, `UPDATE rules SET changed_at = @at`, pgx.NamedArgs{"at": changed})
	at := func(second int, window ...int) incidents.Judged {
		offset := int(changed.Sub(instant()).Seconds()) + second
		var points []incident.Point
		for _, w := range window {
			points = append(points, incident.Point{Time: instant().Add(time.Duration(offset-second+w) * time.Second), Temperature: 31, Humidity: 40})
		}
		return judged("n1", offset, 31, points...)
	}
	for _, second := range []int{-59, -1} { // on their way at the change
		db.judge(t, at(second, -120, second-30))
	}
	must.Equal(t, "excursions of readings from before the change", 0, len(db.excursions(t, db.anna, incidents.ExcursionQuery{})))
	db.judge(t, at(60, -60, -30, 30))
	got := db.excursions(t, db.anna, incidents.ExcursionQuery{})
	must.Hold(t, len(got) == 1 && !got[0].StartTime.Before(changed) && got[0].StartTime.Sub(changed) <= time.Minute,
		"%+v, the rule changed at %s", got, changed)
	late := at(-7200, -7230)
	late.Arrived = changed.Add(time.Hour)
	db.judge(t, late)
	must.Equal(t, "excursions with a late reading", 2, len(db.excursions(t, db.anna, incidents.ExcursionQuery{})))
}

// TestExcursionFromBeforeAChangeStaysWhole judges late readings from both sides of a rule's change, which
// come when the rule is as it is now, some in the wrong order.
func TestExcursionFromBeforeAChangeStaysWhole(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.sql(t, `UPDATE sensors SET placed_at = '2000-01-01'`, nil)
	db.rule(t, incident.Rule{Limit: 30})
	db.sql(t, `ALTER TABLE rules DISABLE TRIGGER USER`, nil)
	db.sql(t, `UPDATE rules SET changed_at = @at`, pgx.NamedArgs{"at": instant().Add(time.Hour)})
	for _, second := range []int{0, 3000, 4000, 20000, 19000, 1500} {
		db.judge(t, arrived(judged("n1", second, 31), 24*3600))
	}
	must.Equal(t, "excursions", []string{"n1 warning 0–20000 lasts, late: Temperature above 30.0 °C for 5 h 33 min, peak 31.0 °C"},
		db.inWords(t, incidents.ExcursionQuery{}))
}

// TestAnomalyOfQuantitiesThatComeApart lasts over the readings that lack its quantity.
func TestAnomalyOfQuantitiesThatComeApart(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	send := func(second int, temperature, humidity float64, f incident.Finding) {
		j := found("n1", second, f)
		j.Temperature, j.Humidity = temperature, humidity
		db.judge(t, j)
	}
	for second := 0; second < 300; second += 60 {
		send(second, 30, reading.Missing(), anomaly(4))
		send(second+1, reading.Missing(), 40, over(incident.KindAnomaly))
	}
	must.Equal(t, "told", []string{"started!"}, db.changes(t, db.anna))
	send(300, 22, reading.Missing(), over(incident.KindAnomaly))
	must.Equal(t, "the temperature is as usual", []string{"started!", "cleared"}, db.changes(t, db.anna))
}

// TestForecastEndsWithItsTemperature: the limit is not passed by a quantity that nobody measures.
func TestForecastEndsWithItsTemperature(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.judge(t, found("n1", 0, forecast()))
	temperature := 22.0
	for minute := range 70 {
		db.heard(t, judged("n1", minute*60, temperature).Reading)
		temperature = reading.Missing()
	}
	db.settle(t, 4000)
	for _, i := range db.lasting(t, 10) {
		must.Equal(t, "lasts", "sensor warning", fmt.Sprint(i.Cause, " ", i.Severity))
	}
	must.Equal(t, "forecast", "not_measured", db.excursions(t, db.anna, incidents.ExcursionQuery{Kind: "forecast"})[0].Resolution)
}

func detection(minutes float64, anomaly bool) learning.NewPrediction {
	return learning.NewPrediction{
		SensorID: "n1", Time: instant().Add(time.Duration(minutes * float64(time.Minute))), MessageID: strconv.FormatFloat(minutes, 'f', -1, 64),
		AnomalyPredicted: anomaly,
	}
}

// detect records a detection of a customer for whom all are drawn.
func (db fixture) detect(t *testing.T, customer int64, n learning.NewPrediction, want bool) {
	t.Helper()
	stored := func() int { return db.count(t, `SELECT count(*) FROM prediction_feedback`, nil) }
	before := stored()
	must.Get(db.RecordDetection(t.Context(), customer, n, 1000))(t)
	must.Equal(t, fmt.Sprintf("detection at %s (anomaly %v) recorded", n.Time, n.AnomalyPredicted), want, stored() > before)
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
		must.Get(db.RecordDetection(t.Context(), customer, n, most[n.AnomalyPredicted]))(t)
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
	must.Hold(t, len(annas) == 5 && len(brunos) == 2,
		"Anna is asked of %v, want 3 of the day and 2 of the one before, Bruno of %v, want 2", annas, brunos)
	must.Hold(t, weights[true] >= 100 && weights[false] >= 20, "verdicts weigh as %v readings, of 450 and 150", weights)
	for _, n := range day { // an answer stays
		n.SensorID = "rack-1"
		deliver(db.anna, n)
	}
	again, _ := asked(db.anna)
	must.Equal(t, "questions after the answers", annas, again)
}

func TestDetectionsAtTheSameMoment(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			n := detection(float64(i)/10, true)
			n.Time = n.Time.Add(time.Duration(i) * time.Second)
			_, err := db.RecordDetection(t.Context(), db.anna, n, 2)
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
	deletion := db.begin(t, `DELETE FROM sensors WHERE node_id = 'n1'`)
	n := detection(0, true)
	n.Time = db.now(t)
	var group sync.WaitGroup
	group.Go(func() { db.detect(t, db.anna, n, false) })
	db.wait(t, 1)
	must.Do(t, deletion.Commit(t.Context()))
	group.Wait()
}

// TestSurroundingsAreOfTheCustomersRoom asks for a room and for a node of another by its
// name. What others have, and what was sent before a hold began, is absent.
func TestSurroundingsAreOfTheCustomersRoom(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "n1", "n2")
	db.roomWith(t, "far", "unnamed")
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
		air := one(t, "nodes", must.Get(db.NodesAir(t.Context(), db.anna, []reading.Node{node}, 0, 0))(t))
		must.Equal(t, "width", []float64{2.5, 2.25, 0.75, 0.1}[i], air.Width, cmpopts.EquateApprox(0, 1e-9))
		must.Equal(t, "judged by", learning.ByWindow, air.JudgedBy)
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
