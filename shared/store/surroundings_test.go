package store_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/store/pipeline"
)

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
		r := reading.Reading{Channel: reading.Channel(channel), NodeID: node, MessageID: "m", Time: when, Temperature: temperature, Humidity: 40}
		must.Do(t, db.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: r}}))
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
	must.Do(t, db.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: reading.Reading{NodeID: "n1", MessageID: "m", Time: db.now(t)}}}))
	for i, wider := range []float64{0.5, -0.25, -1.5, -1.5} {
		must.Do(t, db.RecordLearned(t.Context(), db.anna, []learning.Learned{{Node: node, Wider: wider, JudgedBy: learning.ByWindow}}, 2))
		air, err := db.NodesAir(t.Context(), db.anna, []reading.Node{node}, 0, 0)
		if want := []float64{2.5, 2.25, 0.75, 0.1}[i]; err != nil || math.Abs(air[0].Width-want) > 1e-9 || air[0].JudgedBy != learning.ByWindow {
			t.Errorf("%+v %v, want the width %g", air, err, want)
		}
	}
	must.Do(t, db.DeleteSensor(t.Context(), db.anna, "n1"))
	db.sensor(t, db.bruno, db.brunosRoom, "n1")
	must.Do(t, db.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: reading.Reading{NodeID: "n1", MessageID: "m", Time: db.now(t)}}}))
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
	for _, r := range []reading.Reading{
		{NodeID: "n1", MessageID: "t", Time: from.Add(-time.Second), Temperature: 22, Humidity: reading.Missing()},
		{NodeID: "n1", MessageID: "h", Time: from.Add(time.Second), Temperature: reading.Missing(), Humidity: 45},
	} {
		must.Do(t, db.UpdateNodeStates(t.Context(), []pipeline.NodeReading{{Reading: r}}))
	}
	air := must.Get(db.NodesAir(t.Context(), db.anna, []reading.Node{{ID: "n1"}}, 0, 0))(t)
	must.Hold(t, len(air) == 1 && air[0].Temperature == 22 && air[0].Humidity == 40, "%+v, want 22 °C and 40 %%", air)
}
