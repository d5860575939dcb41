package detect_test

import (
	"testing"
	"time"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/pipeline"
	"coldaisle.dev/shared/wire"
)

// TestCorrectionIsNoStep lets a correction of one node of a room begin: neither it nor its
// neighbours are unusual, by the live state that the database keeps. The same step in the air
// is found, of that node alone. Contract 5.16.
func TestCorrectionIsNoStep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ corrected, moved float64 }{
		"a correction":      {-8, 0},
		"a step of the air": {0, -8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := findingsAround(t, c.corrected, c.moved)
			must.Hold(t, c.moved != 0 || len(found) == 0, "found %v", found)
			must.Hold(t, c.moved == 0 || len(found["n003"]) != 0, "nothing found of the node that moved: %v", found)
		})
	}
}

// findingsAround returns the anomalies of a room whose node n003 gets a correction, or moves, by
// so many °C and minus twice as many percent.
func findingsAround(t *testing.T, corrected, moved float64) map[string][]incident.Finding {
	t.Helper()
	ctx := t.Context()
	pool := pgtest.New(t)
	s := pgtest.NewStores(pool)
	customer, room := s.Owner(t, "customer1")
	nodes := calm(8).rooms[1]
	for _, n := range nodes {
		s.AddSensors(t, customer, room, n.ID)
	}
	must.Get(pool.Exec(ctx, `UPDATE open_holds SET held_from = '-infinity'`))(t)
	from := time.Now().Add(-90 * time.Minute).Truncate(time.Minute).UTC()
	if corrected != 0 {
		must.Get(pool.Exec(ctx, `
			INSERT INTO corrections (customer_id, node_id, from_time, temperature_offset, humidity_offset, added_by, added_at)
			VALUES ($1, 'n003', $2, $3, $4, 'Ana', $2::timestamptz - interval '1 hour')`, customer, from, corrected, -2*corrected))(t)
	}
	site := &site{air: func(node string, at time.Time) (float64, float64) {
		temperature, humidity := usualAir(node, at)
		if node == "n003" && !at.Before(from) {
			temperature, humidity = reading.Round(temperature+moved), reading.Round(humidity-2*moved)
		}
		return temperature, humidity
	}}
	detector := detect.NewAnomalyDetector(detect.NoModels{}, metadata{s, s}, detect.Questions, site.clock, logging.Discard())
	statuses := must.Get(s.SensorStatuses(ctx, nodes))(t)
	store := func() { // as ingest does
		batch := make([]pipeline.NodeReading, len(nodes))
		for i, n := range nodes {
			r, _ := statuses[n].Corrections.Apply(site.data(n.ID, 0).Reading, reading.Window{})
			batch[i] = pipeline.NodeReading{Reading: r}
		}
		must.Do(t, s.UpdateNodeStates(ctx, batch))
	}
	for site.now = from.Add(-25 * time.Hour); site.now.Before(from.Add(-20 * time.Minute)); site.now = site.now.Add(10 * time.Minute) {
		store()
	}
	found := map[string][]incident.Finding{}
	for ; site.now.Before(from.Add(80 * time.Minute)); site.now = site.now.Add(time.Minute) {
		store()
		for _, n := range nodes {
			findings := must.Get(detector.Observe(ctx, site.data(n.ID, 100), statuses[n]))(t)
			if one, ok := ofKind(findings, incident.KindAnomaly); ok && one.Holds {
				found[n.ID] = append(found[n.ID], one)
			}
		}
	}
	return found
}

// TestCorrectedReadingsAreJudged shows that detect compares corrected values: with thresholds, in
// what it judges, and in the window. Learning observes what was measured. Contract 5.16.
func TestCorrectedReadingsAreJudged(t *testing.T) {
	t.Parallel()
	alerts, server := topic(t)
	judge, observer := &fakeJudge{}, &fakeObserver{}
	status := pipeline.SensorStatus{
		Owned: true, Thresholds: &alert.Thresholds{MaxTemperature: 25, MaxHumidity: 60},
		Corrections: reading.Corrections{{From: noon.Add(-time.Minute), Temperature: 0.5}},
	}
	d := detect.New(from, fakeStatuses{"n1": status}, alerts, judge, observer, alert.Defaults(), logging.Discard(), nil)
	r := measured("n1", 24.8, 40)
	w := reading.Window{Age: []float64{90, 30}, Temperature: []float64{24, 24}, Humidity: []float64{40, 40}}
	data := must.Get(wire.EncodeData(wire.Data{Reading: r, Recent: w}))(t)
	must.Do(t, d.Handle(t.Context(), push.Message{ID: "1", Data: data, PublishTime: noon}))
	if len(server.Messages()) != 1 {
		t.Fatalf("%d alerts, want one", len(server.Messages()))
	}
	must.Equal(t, "alert", 25.3, must.Get(wire.DecodeAlert(server.Messages()[0].Data))(t).Value)
	if j := judge.judged[0]; j.Temperature != 25.3 || j.Window.Temperature[0] != 24 || j.Window.Temperature[1] != 24.5 || j.AsMeasured().Temperature != 24.8 {
		t.Errorf("judged %+v", j)
	}
	o := observer.seen[0]
	must.Hold(t, o.Reading.Temperature == 24.8 && o.Recent.Temperature[1] == 24, "observed %+v", o)
}
