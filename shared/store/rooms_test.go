package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/store"
)

func TestRooms(t *testing.T) {
	t.Parallel()
	h := open(t)
	second := h.room(t, h.anna) // of the same name
	rooms, err := h.Rooms(t.Context(), h.anna)
	if err != nil {
		t.Fatal(err)
	}
	want := []store.Room{{ID: h.annas, Name: "Room", CustomerID: h.anna}, {ID: second, Name: "Room", CustomerID: h.anna}}
	if diff := cmp.Diff(want, rooms); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	renamed, err := h.RenameRoom(t.Context(), h.anna, second, "Cold aisle")
	if err != nil || renamed.Name != "Cold aisle" {
		t.Errorf("renamed: %+v, %v", renamed, err)
	}
	if found, err := h.Room(t.Context(), h.anna, second); err != nil || found != renamed {
		t.Errorf("found %+v, %v", found, err)
	}
	if err := h.DeleteRoom(t.Context(), h.anna, second); err != nil {
		t.Fatal(err)
	}
	mustFail(t, "delete again", h.DeleteRoom(t.Context(), h.anna, second), store.ErrNoRoom)
	_, err = h.CreateRoom(t.Context(), -1, "Room")
	mustFail(t, "room of nobody", err, store.ErrNoCustomer)
}

// TestTenantIsolation asks for everything of Anna's as Bruno, and for what does not
// exist: the two answers must not differ.
func TestTenantIsolation(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.sensor(t, h.anna, h.annas, "annas")
	h.sensor(t, h.bruno, h.brunos, "brunos")
	if _, err := h.InsertAlert(t.Context(), hot("annas", "a")); err != nil {
		t.Fatal(err)
	}
	active, err := h.ActiveAlerts(t.Context(), h.anna)
	if err != nil || len(active) != 1 {
		t.Fatalf("%v, %v", active, err)
	}
	prediction := h.prediction(t, h.anna, "annas", 0)
	ctx := t.Context()
	operations := map[string]struct {
		want error
		do   func(room int64, sensor string, alert, prediction int64) error
	}{
		"Room": {store.ErrNoRoom, func(room int64, _ string, _, _ int64) error { _, err := h.Room(ctx, h.bruno, room); return err }},
		"RenameRoom": {store.ErrNoRoom, func(room int64, _ string, _, _ int64) error {
			_, err := h.RenameRoom(ctx, h.bruno, room, "x")
			return err
		}},
		"DeleteRoom": {store.ErrNoRoom, func(room int64, _ string, _, _ int64) error { return h.DeleteRoom(ctx, h.bruno, room) }},
		"Sensors":    {store.ErrNoRoom, func(room int64, _ string, _, _ int64) error { _, err := h.Sensors(ctx, h.bruno, room); return err }},
		"CreateSensor": {store.ErrNoRoom, func(room int64, _ string, _, _ int64) error {
			_, err := h.CreateSensor(ctx, h.bruno, sensorOf("new", room))
			return err
		}},
		"Sensor": {store.ErrNoSensor, func(_ int64, sensor string, _, _ int64) error { _, err := h.Sensor(ctx, h.bruno, sensor); return err }},
		"UpdateSensor": {store.ErrNoSensor, func(_ int64, sensor string, _, _ int64) error {
			_, err := h.UpdateSensor(ctx, h.bruno, sensor, store.SensorChange{Name: "x", Type: "x", RoomID: h.brunos})
			return err
		}},
		"UpdateSensor into a room": {store.ErrNoRoom, func(room int64, _ string, _, _ int64) error {
			_, err := h.UpdateSensor(ctx, h.bruno, "brunos", store.SensorChange{Name: "x", Type: "x", RoomID: room})
			return err
		}},
		"DeleteSensor": {store.ErrNoSensor, func(_ int64, sensor string, _, _ int64) error { return h.DeleteSensor(ctx, h.bruno, sensor) }},
		"AcknowledgeAlert": {store.ErrNoAlert, func(_ int64, _ string, alert, _ int64) error {
			_, err := h.AcknowledgeAlert(ctx, h.bruno, alert)
			return err
		}},
		"RecordPrediction": {store.ErrNoSensor, func(_ int64, sensor string, _, _ int64) error {
			_, err := h.RecordPrediction(ctx, h.bruno, store.NewPrediction{SensorID: sensor, Time: instant()})
			return err
		}},
		"Prediction": {store.ErrNoPrediction, func(_ int64, _ string, _, prediction int64) error {
			_, err := h.Prediction(ctx, h.bruno, prediction)
			return err
		}},
		"ValidatePrediction": {store.ErrNoPrediction, func(_ int64, _ string, _, prediction int64) error {
			_, err := h.ValidatePrediction(ctx, h.bruno, prediction, store.FeedbackOK)
			return err
		}},
	}
	for name, operation := range operations {
		mustFail(t, name+" of another customer", operation.do(h.annas, "annas", active[0].ID, prediction.ID), operation.want)
		mustFail(t, name+" of nothing", operation.do(-1, "absent", -1, -1), operation.want)
	}
	lists := map[string]func() (int, error){
		"Rooms": func() (int, error) { found, err := h.Rooms(ctx, h.bruno); return len(found) - 1, err },
		"OwnedSensors": func() (int, error) {
			found, err := h.OwnedSensors(ctx, h.bruno, []string{"annas"})
			return len(found), err
		},
		"ActiveAlerts": func() (int, error) { found, err := h.ActiveAlerts(ctx, h.bruno); return len(found), err },
		"Episodes": func() (int, error) {
			found, err := h.Episodes(ctx, h.bruno, store.EpisodeQuery{Limit: 50})
			return len(found), err
		},
		"AlertHistory": func() (int, error) {
			found, err := h.AlertHistory(ctx, h.bruno, store.AlertQuery{Limit: 50})
			return len(found), err
		},
		"Predictions": func() (int, error) {
			found, err := h.Predictions(ctx, h.bruno, store.PredictionFilter{SensorID: "annas", Limit: 50})
			return len(found), err
		},
		"PredictionStats": func() (int, error) { found, err := h.PredictionStats(ctx, h.bruno); return found.Total, err },
	}
	for name, list := range lists {
		if count, err := list(); err != nil || count != 0 {
			t.Errorf("%s shows %d of another customer's, %v", name, count, err)
		}
	}
	// And none of it has changed anything of Anna's.
	sensor, err := h.Sensor(ctx, h.anna, "annas")
	if err != nil || sensor.Name != "Rack" || sensor.RoomID != h.annas {
		t.Errorf("sensor %+v, %v", sensor, err)
	}
	if after, err := h.ActiveAlerts(ctx, h.anna); err != nil || len(after) != 1 {
		t.Errorf("alerts %+v, %v", after, err)
	}
	if after, err := h.Prediction(ctx, h.anna, prediction.ID); err != nil || after.Feedback != "" {
		t.Errorf("prediction %+v, %v", after, err)
	}
}
