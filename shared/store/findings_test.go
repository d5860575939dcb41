package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
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
	lasting := lastingOf(db.excursions(t, db.anna, incidents.ExcursionQuery{Kind: "anomaly"}))
	if len(lasting) != 1 || lasting[0].Reason != "Unchanged for 52 min" || lasting[0].Severity != "warning" || lasting[0].Finding.Value != 22.51 ||
		*lasting[0].Finding.Low != 20.01 || lasting[0].Finding.Probability != 0.001 || lasting[0].RoomID != db.annasRoom {
		t.Fatalf("%+v", lasting)
	}
	worse := anomaly(5)
	worse.Reason, worse.Severity = "Step of 4 °C", incident.Critical
	db.judge(t, found("n1", 60, worse), found("n1", 90, anomaly(4)))
	if now := db.excursions(t, db.anna, incidents.ExcursionQuery{}); len(now) != 1 || now[0].Reason != "Step of 4 °C" || now[0].Severity != "critical" {
		t.Errorf("the worst is shown: %+v", now)
	}
	db.judge(t, found("n1", 100)) // learning could not judge: that ends nothing
	db.judge(t, found("n1", 120, over(incident.KindAnomaly)), found("n1", 90, over(incident.KindAnomaly)))
	ended := endedOf(db.excursions(t, db.anna, incidents.ExcursionQuery{}))
	must.Hold(t, len(ended) == 1 && ended[0].EndTime.Equal(instant().Add(2*time.Minute)) && ended[0].Resolution == "cleared",
		"%+v", ended)
	db.judge(t, found("n1", 120+9*60, anomaly(2)), found("n1", 120+9*60+30, over(incident.KindAnomaly)))
	if again := db.excursions(t, db.anna, incidents.ExcursionQuery{}); len(again) != 1 || again[0].Reopened != 1 || again[0].Reason != "Step of 4 °C" {
		t.Errorf("within 10 minutes: %+v", again)
	}
	db.judge(t, found("n1", 120+20*60, anomaly(2)))
	two := db.excursions(t, db.anna, incidents.ExcursionQuery{})
	must.Hold(t, len(two) == 2 && two[0].Reason == "Unchanged for 52 min", "after 10 minutes: %+v", two)
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
	if all := predictions("n1"); len(all) != 3 {
		t.Fatalf("%d predictions, want the two drawn and the incident's: %+v", len(all), all)
	}
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
	all := predictions("n2")
	if len(all) != 1 || !all[0].AnomalyPredicted {
		t.Fatalf("a drawn reading that is an anomaly: %+v", all)
	}
	must.Get(db.ValidatePrediction(t.Context(), db.anna, all[0].ID, learning.FeedbackOK))(t)
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
		late := found("n1", second, anomaly(3))
		late.Arrived = instant().Add(2 * time.Hour)
		db.judge(t, late)
	}
	got := db.excursions(t, db.anna, incidents.ExcursionQuery{})
	if len(got) != 1 || !got[0].Late || got[0].Lasting || !got[0].StartTime.Equal(instant()) || !got[0].EndTime.Equal(instant().Add(time.Minute)) {
		t.Fatalf("%+v", got)
	}
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

// TestForecastsOfARoomAreOneIncident shows contract 11.8: it lasts until no node of the
// room has one.
func TestForecastsOfARoomAreOneIncident(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	other := db.room(t, db.anna)
	db.sensor(t, db.anna, other, "n3")
	db.judge(t, found("n1", 0, forecast()), found("n2", 10, forecast()), found("n3", 10, forecast()))
	newer := forecast()
	newer.Reason = "Passes 32 °C in 3 to 5 min"
	db.judge(t, found("n2", 40, newer), found("n1", 60, over(incident.KindForecast)))
	query := incidents.ExcursionQuery{Kind: "forecast", RoomID: db.annasRoom}
	got := db.excursions(t, db.anna, query)
	if len(got) != 1 || !got[0].Lasting || got[0].NodeID != "n1" || got[0].LimitValue != 32 || got[0].Reason != newer.Reason ||
		!got[0].Finding.Earliest.Equal(instant().Add(40*time.Second+9*time.Minute)) {
		t.Fatalf("%+v", got)
	}
	db.judge(t, found("n2", 70, over(incident.KindForecast)))
	if got = db.excursions(t, db.anna, query); len(got) != 1 || got[0].Lasting || !got[0].EndTime.Equal(instant().Add(70*time.Second)) {
		t.Errorf("after the last node: %+v", got)
	}
	db.judge(t, found("n1", 600, forecast()))
	got = db.excursions(t, db.anna, query)
	must.Hold(t, len(got) == 1 && got[0].Reopened == 1, "within 10 minutes: %+v", got)
	got = db.excursions(t, db.anna, incidents.ExcursionQuery{Kind: "forecast", RoomID: other})
	must.Hold(t, len(got) == 1 && got[0].Lasting, "of the other room: %+v", got)
	// The last node's reading is none of the latest: no node holds it any more.
	db.judge(t, found("n2", 601, forecast()), found("n1", 609, over(incident.KindForecast)), found("n2", 605, over(incident.KindForecast)))
	if got = db.excursions(t, db.anna, query); len(got) != 1 || got[0].Lasting || got[0].EndTime.Sub(instant()).Round(time.Second) != 609*time.Second {
		t.Errorf("in whatever order they end: %+v", got)
	}
	db.judge(t, found("n1", 609, forecast()), found("n1", 610, forecast()))
	// The incident of a room outlives the sensor that began it, not the last one.
	db.judge(t, found("n2", 610, forecast()))
	move := func(id string) {
		must.Get(db.UpdateSensor(t.Context(), db.anna, id, accounts.SensorChange{Name: "Rack", Type: "T", RoomID: other}))(t)
	}
	move("n1")
	got = db.excursions(t, db.anna, query)
	must.Hold(t, len(got) == 1 && got[0].Lasting && got[0].NodeID == "n2", "after the first sensor left: %+v", got)
	move("n2")
	if got = db.excursions(t, db.anna, query); len(got) != 1 || got[0].Lasting || got[0].Resolution != "sensor_moved" {
		t.Errorf("after both sensors left: %+v", got)
	}
}

// TestOpenReadingFromBeforeTheSensorWasSignedIsJudged shows contract 11.1: who may see a reading is
// what readings, alerts and incidents agree on.
func TestOpenReadingFromBeforeTheSensorWasSignedIsJudged(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.sql(t, `UPDATE sensors SET signed_from = @at WHERE node_id = 'n1'`, pgx.NamedArgs{"at": instant().Add(time.Hour)})
	db.judge(t, judged("n1", 60, 51), judged("n1", 3700, 51))
	got := db.excursions(t, db.anna, incidents.ExcursionQuery{})
	must.Hold(t, len(got) == 1 && !got[0].Lasting && got[0].StartTime.Equal(instant().Add(time.Minute)),
		"%+v: what came before the sensor was signed, and of it nothing that lasts", got)
	must.Equal(t, "memories", 0, db.count(t, `SELECT count(*) FROM rule_memory`, nil))
}

// TestRuleJudgesWhatCameSinceItsChange shows contract 11.5.
func TestRuleJudgesWhatCameSinceItsChange(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.sql(t, `UPDATE sensors SET placed_at = '2000-01-01'`, nil)
	db.rule(t, incident.Temperature, incident.Above, 30, incident.Warning)
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
	db.rule(t, incident.Temperature, incident.Above, 30, incident.Warning)
	db.sql(t, `ALTER TABLE rules DISABLE TRIGGER USER`, nil)
	db.sql(t, `UPDATE rules SET changed_at = @at`, pgx.NamedArgs{"at": instant().Add(time.Hour)})
	for _, second := range []int{0, 3000, 4000, 20000, 19000, 1500} {
		late := judged("n1", second, 31)
		late.Arrived = instant().Add(24 * time.Hour)
		db.judge(t, late)
	}
	got := db.excursions(t, db.anna, incidents.ExcursionQuery{})
	must.Hold(t, len(got) == 1 && got[0].StartTime.Equal(instant()) && got[0].Lasting,
		"%+v, the first reading is of %s", got, instant())
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
