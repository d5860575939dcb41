package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/store"
)

func TestRooms(t *testing.T) {
	t.Parallel()
	db := open(t)
	second := db.room(t, db.anna) // of the same name
	rooms, err := db.Rooms(t.Context(), db.anna)
	if err != nil {
		t.Fatal(err)
	}
	want := []store.Room{{ID: db.annasRoom, Name: "Room", CustomerID: db.anna}, {ID: second, Name: "Room", CustomerID: db.anna}}
	if diff := cmp.Diff(want, rooms); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	renamed, err := db.RenameRoom(t.Context(), db.anna, second, "Cold aisle")
	if err != nil || renamed.Name != "Cold aisle" {
		t.Errorf("renamed: %+v, %v", renamed, err)
	}
	if found, err := db.Room(t.Context(), db.anna, second); err != nil || found != renamed {
		t.Errorf("found %+v, %v", found, err)
	}
	if err := db.DeleteRoom(t.Context(), db.anna, second); err != nil {
		t.Fatal(err)
	}
	mustFail(t, "delete again", db.DeleteRoom(t.Context(), db.anna, second), store.ErrNoRoom)
	_, err = db.CreateRoom(t.Context(), -1, "Room")
	mustFail(t, "room of nobody", err, store.ErrNoCustomer)
}

// TestTenantIsolation asks for everything of Anna's as Bruno, and for what does not
// exist: the two answers must not differ.
func TestTenantIsolation(t *testing.T) {
	t.Parallel()
	db := open(t)
	db.sensor(t, db.anna, db.annasRoom, "annas")
	db.sensor(t, db.bruno, db.brunosRoom, "brunos")
	if _, err := db.InsertAlert(t.Context(), hot("annas", "a")); err != nil {
		t.Fatal(err)
	}
	active, err := db.active(t.Context(), db.anna)
	if err != nil || len(active) != 1 {
		t.Fatalf("%v, %v", active, err)
	}
	prediction := db.prediction(t, db.anna, "annas", 0)
	ctx := t.Context()
	operations := map[string]struct {
		want error
		do   func(room int64, sensor string, alert, prediction int64) error
	}{
		"Room": {store.ErrNoRoom, func(room int64, _ string, _, _ int64) error { _, err := db.Room(ctx, db.bruno, room); return err }},
		"RenameRoom": {store.ErrNoRoom, func(room int64, _ string, _, _ int64) error {
			_, err := db.RenameRoom(ctx, db.bruno, room, "x")
			return err
		}},
		"DeleteRoom": {store.ErrNoRoom, func(room int64, _ string, _, _ int64) error { return db.DeleteRoom(ctx, db.bruno, room) }},
		"Sensors":    {store.ErrNoRoom, func(room int64, _ string, _, _ int64) error { _, err := db.Sensors(ctx, db.bruno, room); return err }},
		"CreateSensor": {store.ErrNoRoom, func(room int64, _ string, _, _ int64) error {
			_, err := db.CreateSensor(ctx, db.bruno, sensorOf("new", room))
			return err
		}},
		"Sensor": {store.ErrNoSensor, func(_ int64, sensor string, _, _ int64) error { _, err := db.Sensor(ctx, db.bruno, sensor); return err }},
		"UpdateSensor": {store.ErrNoSensor, func(_ int64, sensor string, _, _ int64) error {
			_, err := db.UpdateSensor(ctx, db.bruno, sensor, store.SensorChange{Name: "x", Type: "x", RoomID: db.brunosRoom})
			return err
		}},
		"UpdateSensor into a room": {store.ErrNoRoom, func(room int64, _ string, _, _ int64) error {
			_, err := db.UpdateSensor(ctx, db.bruno, "brunos", store.SensorChange{Name: "x", Type: "x", RoomID: room})
			return err
		}},
		"DeleteSensor": {store.ErrNoSensor, func(_ int64, sensor string, _, _ int64) error { return db.DeleteSensor(ctx, db.bruno, sensor) }},
		"AcknowledgeAlert": {store.ErrNoAlert, func(_ int64, _ string, alert, _ int64) error {
			_, err := db.AcknowledgeAlert(ctx, db.bruno, alert)
			return err
		}},
		"RecordPrediction": {store.ErrNoSensor, func(_ int64, sensor string, _, _ int64) error {
			_, err := db.RecordPrediction(ctx, db.bruno, store.NewPrediction{SensorID: sensor, Time: instant()})
			return err
		}},
		"Prediction": {store.ErrNoPrediction, func(_ int64, _ string, _, prediction int64) error {
			_, err := db.Prediction(ctx, db.bruno, prediction)
			return err
		}},
		"ValidatePrediction": {store.ErrNoPrediction, func(_ int64, _ string, _, prediction int64) error {
			_, err := db.ValidatePrediction(ctx, db.bruno, prediction, store.FeedbackOK)
			return err
		}},
	}
	for name, operation := range operations {
		mustFail(t, name+" of another customer", operation.do(db.annasRoom, "annas", active[0].ID, prediction.ID), operation.want)
		mustFail(t, name+" of nothing", operation.do(-1, "absent", -1, -1), operation.want)
	}
	lists := map[string]func() (int, error){
		"Rooms": func() (int, error) { found, err := db.Rooms(ctx, db.bruno); return len(found) - 1, err },
		"VisibleNodes": func() (int, error) {
			found, err := db.VisibleNodes(ctx, db.bruno, []string{"annas"})
			return len(found), err
		},
		"ActiveAlerts": func() (int, error) { found, err := db.active(ctx, db.bruno); return len(found), err },
		"AlertHistory": func() (int, error) {
			found, err := db.AlertHistory(ctx, db.bruno, store.AlertQuery{Limit: 50})
			return len(found), err
		},
		"Predictions": func() (int, error) {
			found, err := db.Predictions(ctx, db.bruno, store.PredictionFilter{SensorID: "annas", Limit: 50})
			return len(found), err
		},
		"PredictionStats": func() (int, error) { found, err := db.PredictionStats(ctx, db.bruno); return found.Total, err },
	}
	for name, list := range lists {
		if count, err := list(); err != nil || count != 0 {
			t.Errorf("%s shows %d of another customer's, %v", name, count, err)
		}
	}
	// And none of it has changed anything of Anna's.
	sensor, err := db.Sensor(ctx, db.anna, "annas")
	if err != nil || sensor.Name != "Rack" || sensor.RoomID != db.annasRoom {
		t.Errorf("sensor %+v, %v", sensor, err)
	}
	if after, err := db.active(ctx, db.anna); err != nil || len(after) != 1 {
		t.Errorf("alerts %+v, %v", after, err)
	}
	if after, err := db.Prediction(ctx, db.anna, prediction.ID); err != nil || after.Feedback != "" {
		t.Errorf("prediction %+v, %v", after, err)
	}
}
