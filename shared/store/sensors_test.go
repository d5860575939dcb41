package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/store"
)

func TestSensorIsCreatedMovedAndDeleted(t *testing.T) {
	t.Parallel()
	h := open(t)
	created := h.sensor(t, h.anna, h.annas, "n1")
	want := store.Sensor{ID: "n1", Name: "Rack", Type: "ESP32-DHT22", RoomID: h.annas}
	if diff := cmp.Diff(want, at(created)); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	second := h.room(t, h.anna)
	moved, err := h.UpdateSensor(t.Context(), h.anna, "n1", store.SensorChange{
		Name: "Top", Type: "Other", RoomID: second, Position: new("U42"),
	})
	want = store.Sensor{ID: "n1", Name: "Top", Type: "Other", RoomID: second, Position: new("U42")}
	if diff := cmp.Diff(want, at(moved)); diff != "" || err != nil {
		t.Errorf("moved, %v (-want +got):\n%s", err, diff)
	}
	kept, err := h.UpdateSensor(t.Context(), h.anna, "n1", store.SensorChange{Name: "Top", Type: "Other", RoomID: second, KeepPosition: true})
	if err != nil || kept.Position == nil || *kept.Position != "U42" {
		t.Errorf("an update that keeps the position gave %+v, %v", kept, err)
	}
	if first, err := h.Sensors(t.Context(), h.anna, h.annas); err != nil || len(first) != 0 {
		t.Errorf("the old room has %+v, %v", first, err)
	}
	found, err := h.Sensors(t.Context(), h.anna, second)
	if err != nil || len(found) != 1 {
		t.Fatalf("the new room has %+v, %v", found, err)
	}
	if diff := cmp.Diff(want, at(found[0])); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	cleared, err := h.UpdateSensor(t.Context(), h.anna, "n1", store.SensorChange{Name: "Top", Type: "Other", RoomID: second})
	if err != nil || cleared.Position != nil {
		t.Errorf("an update that clears the position gave %+v, %v", cleared, err)
	}
	if err := h.DeleteSensor(t.Context(), h.anna, "n1"); err != nil {
		t.Fatal(err)
	}
	mustFail(t, "delete again", h.DeleteSensor(t.Context(), h.anna, "n1"), store.ErrNoSensor)
}

// at brings the time of a sensor into one form.
func at(s store.Sensor) store.Sensor {
	s.VisibleSince = s.VisibleSince.UTC()
	return s
}

func TestOwnedSensorsAreTheCallersAlone(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.sensor(t, h.anna, h.annas, "b")
	h.sensor(t, h.anna, h.annas, "a")
	h.sensor(t, h.bruno, h.brunos, "c")
	found, err := h.OwnedSensors(t.Context(), h.anna, []string{"c", "b", "a", "a", "unknown"})
	if err != nil || len(found) != 2 || found[0].ID != "a" || found[1].ID != "b" {
		t.Errorf("found %+v, %v", found, err)
	}
}

func TestSensorIDInUseByAnyoneIsTaken(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.sensor(t, h.anna, h.annas, "n1")
	_, err := h.CreateSensor(t.Context(), h.anna, sensorOf("n1", h.annas))
	mustFail(t, "one's own", err, store.ErrSensorExists)
	_, err = h.CreateSensor(t.Context(), h.bruno, sensorOf("n1", h.brunos))
	mustFail(t, "another's", err, store.ErrSensorExists)
}

func TestOneOfManyCreatorsWinsAnIdentifier(t *testing.T) {
	t.Parallel()
	h := open(t)
	var won atomic.Int32
	var group sync.WaitGroup
	for i := range 20 {
		customer, room := h.anna, h.annas
		if i%2 == 1 {
			customer, room = h.bruno, h.brunos
		}
		group.Go(func() {
			_, err := h.CreateSensor(t.Context(), customer, sensorOf("wanted", room))
			switch {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, store.ErrSensorExists):
				t.Error(err)
			}
		})
	}
	group.Wait()
	if won.Load() != 1 {
		t.Errorf("%d creations succeeded, want 1", won.Load())
	}
}

// n1 is what the pipeline is told of the identifier n1.
func (h fixture) n1(t *testing.T) store.SensorStatus {
	t.Helper()
	nodes, err := h.SensorStatuses(t.Context(), []string{"n1"})
	if err != nil {
		t.Fatal(err)
	}
	return nodes["n1"]
}

func TestEveryWayOfDeletingASensorLeavesATombstone(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, h fixture){
		"sensor": func(t *testing.T, h fixture) {
			t.Helper()
			if err := h.DeleteSensor(t.Context(), h.anna, "n1"); err != nil {
				t.Fatal(err)
			}
		},
		"room": func(t *testing.T, h fixture) {
			t.Helper()
			if err := h.DeleteRoom(t.Context(), h.anna, h.annas); err != nil {
				t.Fatal(err)
			}
		},
		"customer": func(t *testing.T, h fixture) {
			t.Helper()
			h.sql(t, `DELETE FROM customers WHERE id = @id`, pgx.NamedArgs{"id": h.anna})
		},
	}
	for name, remove := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			if got := h.n1(t); got.Owned || got.Deleted {
				t.Errorf("before anyone has it: %+v", got)
			}
			h.sensor(t, h.anna, h.annas, "n1")
			if got := h.n1(t); !got.Owned || got.Deleted {
				t.Errorf("owned: %+v", got)
			}
			remove(t, h)
			if got := h.n1(t); got.Owned || !got.Deleted {
				t.Errorf("deleted: %+v", got)
			}
			h.sensor(t, h.bruno, h.brunos, "n1")
			if got := h.n1(t); !got.Owned || got.Deleted {
				t.Errorf("created again: %+v", got)
			}
		})
	}
}

func TestNewOwnerSeesOnlyWhatCameSinceTheOthersDeletion(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.sensor(t, h.anna, h.annas, "n1")
	before := h.now(t)
	if err := h.DeleteSensor(t.Context(), h.anna, "n1"); err != nil {
		t.Fatal(err)
	}
	after := h.now(t)
	created := h.sensor(t, h.bruno, h.brunos, "n1")
	if created.VisibleSince.Before(before) || created.VisibleSince.After(after) {
		t.Errorf("visible since %v, deleted between %v and %v", created.VisibleSince, before, after)
	}
	found, err := h.Sensor(t.Context(), h.bruno, "n1")
	if err != nil || !found.VisibleSince.Equal(created.VisibleSince) {
		t.Errorf("found %+v, %v", found, err)
	}
	// It is the last deletion by another that counts, not one's own after it.
	if err := h.DeleteSensor(t.Context(), h.bruno, "n1"); err != nil {
		t.Fatal(err)
	}
	if again := h.sensor(t, h.bruno, h.brunos, "n1"); !again.VisibleSince.Equal(created.VisibleSince) {
		t.Errorf("visible since %v after creating it again, %v before", again.VisibleSince, created.VisibleSince)
	}
}

func TestNewOwnerWhoWaitedForTheDeletionSeesNothingOlder(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.sensor(t, h.anna, h.annas, "n1")
	deletion, err := h.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deletion.Exec(t.Context(), `DELETE FROM sensors WHERE node_id = 'n1'`); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = deletion.Rollback(context.WithoutCancel(t.Context())) }()
	var group sync.WaitGroup
	group.Go(func() {
		created, err := h.CreateSensor(t.Context(), h.bruno, sensorOf("n1", h.brunos))
		if err != nil || created.VisibleSince.IsZero() {
			t.Errorf("Bruno sees Anna's readings: %+v, %v", created, err)
		}
	})
	h.waits(t)
	if err := deletion.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	group.Wait()
}

func TestSameOwnerSeesEverythingAgain(t *testing.T) {
	t.Parallel()
	h := open(t)
	for range 2 {
		if created := h.sensor(t, h.anna, h.annas, "n1"); !created.VisibleSince.IsZero() {
			t.Errorf("visible since %v", created.VisibleSince)
		}
		if err := h.DeleteSensor(t.Context(), h.anna, "n1"); err != nil {
			t.Fatal(err)
		}
	}
}

// now is the database's clock, which dates tombstones.
func (h fixture) now(t *testing.T) time.Time {
	t.Helper()
	var now time.Time
	if err := h.pool.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&now); err != nil {
		t.Fatal(err)
	}
	return now
}

func TestSensorStatusHasThresholdsOfTheOwnerOnly(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.sensor(t, h.anna, h.annas, "n1")
	h.sensor(t, h.bruno, h.brunos, "n2")
	if _, err := h.SetThresholds(t.Context(), h.anna, new(30.0), nil); err != nil {
		t.Fatal(err)
	}
	// A look at the defaults sets nothing.
	if _, err := h.Thresholds(t.Context(), h.bruno); err != nil {
		t.Fatal(err)
	}
	nodes, err := h.SensorStatuses(t.Context(), []string{"n1", "n2", "n3"})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(len(nodes), nodes["n1"].Thresholds != nil && nodes["n1"].Thresholds.MaxTemperature == 30, nodes["n2"].Thresholds == nil)
	if got != "2 true true" {
		t.Errorf("nodes %+v", nodes)
	}
}

func TestSensorStatusHasDefaultsThatTheOwnerChose(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.sensor(t, h.anna, h.annas, "n1")
	h.sensor(t, h.bruno, h.brunos, "n2")
	for _, customer := range []int64{h.anna, h.bruno} {
		if _, err := h.Thresholds(t.Context(), customer); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.SetThresholds(t.Context(), h.anna, new(50.0), nil); err != nil {
		t.Fatal(err)
	}
	// As the version before this one sets it, which does not know of the column.
	h.sql(t, `UPDATE alert_thresholds SET max_humidity = 60 WHERE customer_id = @bruno`, pgx.NamedArgs{"bruno": h.bruno})
	nodes, err := h.SensorStatuses(t.Context(), []string{"n1", "n2"})
	if err != nil || nodes["n1"].Thresholds == nil || nodes["n2"].Thresholds == nil {
		t.Errorf("nodes %+v, %v", nodes, err)
	}
}
