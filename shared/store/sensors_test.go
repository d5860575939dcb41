package store_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/pipeline"
)

func TestVisibleNodesAreTheCallersAlone(t *testing.T) {
	t.Parallel()
	db := openWith(t, "b", "a")
	db.sensor(t, db.bruno, db.brunosRoom, "c")
	found := must.Get(db.VisibleNodes(t.Context(), db.anna, []string{"c", "b", "a", "a", "unknown"}))(t)
	must.Hold(t, len(found) == 2 && found[0].ID == "a" && found[1].ID == "b", "found %+v", found)
}

func TestOneOfManyCreatorsWinsAnIdentifier(t *testing.T) {
	t.Parallel()
	db := open(t)
	var won atomic.Int32
	var group sync.WaitGroup
	for i := range 20 {
		customer, room := db.anna, db.annasRoom
		if i%2 == 1 {
			customer, room = db.bruno, db.brunosRoom
		}
		group.Go(func() {
			_, err := db.CreateSensor(t.Context(), customer, sensorOf("wanted", room))
			switch {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, store.ErrSensorExists):
				t.Error(err)
			}
		})
	}
	group.Wait()
	must.Equal(t, "creations succeeded", int32(1), won.Load())
}

// n1 is what the pipeline is told of the identifier n1.
func (db fixture) n1(t *testing.T) pipeline.SensorStatus {
	t.Helper()
	nodes := must.Get(db.SensorStatuses(t.Context(), openNodes("n1")))(t)
	return nodes[reading.Node{ID: "n1"}]
}

func TestEveryWayOfDeletingASensorLeavesATombstone(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(t *testing.T, db fixture){
		"sensor": func(t *testing.T, db fixture) {
			t.Helper()
			must.Do(t, db.DeleteSensor(t.Context(), db.anna, "n1"))
		},
		"room": func(t *testing.T, db fixture) {
			t.Helper()
			must.Do(t, db.DeleteRoom(t.Context(), db.anna, db.annasRoom))
		},
		"customer": func(t *testing.T, db fixture) {
			t.Helper()
			db.sql(t, `DELETE FROM customers WHERE id = @id`, pgx.NamedArgs{"id": db.anna})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			got := db.n1(t)
			must.Hold(t, !got.Owned && !got.Deleted, "before anyone has it: %+v", got)
			db.sensor(t, db.anna, db.annasRoom, "n1")
			got = db.n1(t)
			must.Hold(t, got.Owned && !got.Deleted, "owned: %+v", got)
			db.insert(t, hot("a"), incidents.AlertStored)
			remove(t, db)
			got = db.n1(t)
			must.Hold(t, !got.Owned && got.Deleted, "deleted: %+v", got)
			must.Hold(t, name == "customer" || len(db.history(t, db.anna)) == 1, "its alerts are gone")
			db.sensor(t, db.bruno, db.brunosRoom, "n1")
			got = db.n1(t)
			must.Hold(t, got.Owned && !got.Deleted, "created again: %+v", got)
		})
	}
}

// now is the database's clock, which dates tombstones.
func (db fixture) now(t *testing.T) time.Time {
	t.Helper()
	var now time.Time
	must.Do(t, db.pool.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&now))
	return now
}

// TestSensorStatusHasTheThresholdsThatItsOwnerSet has an owner choose the defaults, and then others;
// one who only looks at them has set none.
func TestSensorStatusHasTheThresholdsThatItsOwnerSet(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	db.sensor(t, db.bruno, db.brunosRoom, "n2")
	for _, customer := range []int64{db.anna, db.bruno} {
		must.Get(db.Thresholds(t.Context(), customer))(t)
	}
	for _, limit := range []float64{50, 30} {
		must.Get(db.SetThresholds(t.Context(), db.anna, &limit, nil))(t)
		nodes := must.Get(db.SensorStatuses(t.Context(), openNodes("n1", "n2", "n3")))(t)
		set, unset := nodes[reading.Node{ID: "n1"}].Thresholds, nodes[reading.Node{ID: "n2"}].Thresholds
		must.Hold(t, len(nodes) == 2 && set != nil && set.MaxTemperature == limit && unset == nil, "nodes %+v", nodes)
	}
}
