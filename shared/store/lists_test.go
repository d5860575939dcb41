package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/records"
)

func (db fixture) newest(t *testing.T, room int64) int64 {
	t.Helper()
	return int64(db.count(t, `SELECT id FROM room_incidents WHERE room_id = @room AND merged_into IS NULL ORDER BY start_time DESC LIMIT 1`, pgx.NamedArgs{"room": room}))
}

// TestSeeIncidents marks what is over, each once: some by id, or all.
func TestSeeIncidents(t *testing.T) {
	t.Parallel()
	db := open(t)
	rooms := []int64{db.annasRoom, db.room(t, db.anna), db.room(t, db.anna), db.room(t, db.anna)}
	ids := make([]int64, len(rooms))
	for k, room := range rooms {
		node := fmt.Sprint("n", k)
		db.sensor(t, db.anna, room, node)
		db.judge(t, judged(node, 0, 60))
		ids[k] = db.newest(t, room)
		if k < 3 {
			db.judge(t, judged(node, 30, 20))
		}
	}
	db.sensor(t, db.bruno, db.brunosRoom, "b1")
	db.judge(t, judged("b1", 0, 60), judged("b1", 30, 20))
	must.Do(t, db.SettleAll(t.Context(), clock(700)))
	ctx, inSecond := t.Context(), store.InRooms(t.Context(), rooms[1:2])
	see := func(what string, by context.Context, customer int64, ids []int64, want, left int) {
		t.Helper()
		must.Equal(t, what, want, must.Get(db.See(by, customer, ids, "anna12", clock(800)))(t))
		must.Equal(t, what+": left", left, must.Get(db.Unseen(ctx, db.anna))(t))
	}
	see("one that lasts", ctx, db.anna, ids[3:], 0, 3)
	see("another customer's", ctx, db.bruno, ids[:1], 0, 3)
	see("in another room", inSecond, db.anna, ids[:1], 0, 3)
	see("one by id", ctx, db.anna, ids[:1], 1, 2)
	see("again", ctx, db.anna, ids[:1], 0, 2)
	see("none of no ids", ctx, db.anna, []int64{}, 0, 2)
	see("all in a room", inSecond, db.anna, nil, 1, 1)
	see("all", ctx, db.anna, nil, 1, 0)
	must.Equal(t, "Bruno's", 1, must.Get(db.Unseen(ctx, db.bruno))(t))
	seen := db.count(t, `SELECT count(*) FROM incident_changes WHERE event = 'seen' AND person = 'anna12' AND at = @at AND NOT calls`, pgx.NamedArgs{"at": clock(800)})
	must.Equal(t, "logged", 3, seen)
	i := must.Get(db.Incident(ctx, db.anna, ids[0], clock(800)))(t)
	must.Hold(t, i.Seen, "%+v", i)
	// One that somebody had at its end needs nobody to look.
	db.act(t, ids[3], 801, incident.EventTaken)
	db.judge(t, judged("n3", 810, 20))
	db.settle(t, 3000)
	must.Equal(t, "taken at its end", 0, must.Get(db.Unseen(ctx, db.anna))(t))
}

// TestPlannedIncidentNeedsNoLook ends within a window that covers all of it.
func TestPlannedIncidentNeedsNoLook(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from, until int
		second      bool // another sensor, which the window is not for
		want        int
	}{
		"covered": {-60, 60, false, 0}, "it begins before": {10, 60, false, 1}, "it ends after": {-60, 20, false, 1}, "another sensor": {-60, 60, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openWith(t, "n1", "n2")
			db.window(t, c.from, c.until, incidents.Maintenance{SensorID: "n1"})
			db.judge(t, judged("n1", 0, 60), judged("n1", 30, 20))
			if c.second {
				db.judge(t, judged("n2", 5, 60), judged("n2", 25, 20))
			}
			must.Equal(t, "before its end", 0, must.Get(db.Unseen(t.Context(), db.anna))(t))
			db.settle(t, 700)
			must.Equal(t, "unseen", c.want, must.Get(db.Unseen(t.Context(), db.anna))(t))
			i := must.Get(db.Incident(t.Context(), db.anna, db.newest(t, db.annasRoom), clock(700)))(t)
			must.Hold(t, !i.Lasting && i.Silenced == (c.want == 0) && i.Seen == i.Silenced, "%+v", i)
		})
	}
	// One whose readings all come when it is over.
	db := openWith(t, "n1")
	db.window(t, -60, 60, incidents.Maintenance{RoomIDs: []int64{db.annasRoom}})
	db.ingested(t, arrived(judged("n1", 30, 20), 7200), arrived(judged("n1", 0, 60), 7200))
	all := db.roomIncidents(t, db.anna, db.annasRoom)
	must.Hold(t, len(all) == 1 && must.Get(db.Unseen(t.Context(), db.anna))(t) == 0, "a late one: %v", all)
}

// TestIncidentsAreListed by their state, place, cause, words and time, newest first.
func TestIncidentsAreListed(t *testing.T) {
	t.Parallel()
	db := open(t)
	attic := must.Get(db.CreateRoom(t.Context(), db.anna, "Attic"))(t).ID
	cellar := must.Get(db.CreateRoom(t.Context(), db.anna, "Cellar"))(t).ID
	db.sensor(t, db.anna, attic, "n1")
	db.sensor(t, db.anna, cellar, "n2")
	damp := judged("n1", 2000, 22)
	damp.Humidity = 71
	db.judge(t, judged("n1", 0, 60), judged("n1", 30, 20), judged("n2", 100, 60))
	db.settle(t, 700)
	taken := db.only(t, 700).ID
	must.Get(db.Act(t.Context(), db.anna, taken, incidents.Action{Event: incident.EventTaken, By: "berta1", Comment: "Filter change"}, clock(700)))(t)
	db.judge(t, damp, judged("n1", 2030, 22))
	db.settle(t, 2700)
	humid := db.newest(t, attic)
	must.Get(db.See(t.Context(), db.anna, []int64{humid}, "anna12", clock(2700)))(t)
	db.judge(t, judged("n1", 5000, 60))
	all := must.Get(db.Incidents(t.Context(), db.anna, incidents.IncidentQuery{PageRequest: store.PageRequest{Limit: 4}}, clock(5001)))(t)
	ids := each(all.Items, func(i incidents.Incident) int64 { return i.ID })
	if len(ids) != 4 || all.Total != 4 || all.Next != nil || ids[1] != humid || ids[2] != taken {
		t.Fatalf("%+v", all)
	}
	for _, c := range []struct {
		query incidents.IncidentQuery
		want  []int // of the four, newest first
	}{
		{incidents.IncidentQuery{State: incidents.StateLasting}, []int{0, 2}},
		{incidents.IncidentQuery{State: incidents.StateOpen}, []int{0}},
		{incidents.IncidentQuery{State: incidents.StateTaken}, []int{2}},
		{incidents.IncidentQuery{State: incidents.StateOver}, []int{1, 3}},
		{incidents.IncidentQuery{State: incidents.StateUnseen}, []int{3}},
		{incidents.IncidentQuery{RoomID: attic}, []int{0, 1, 3}},
		{incidents.IncidentQuery{RoomID: db.annasRoom}, nil},
		{incidents.IncidentQuery{SensorID: "n2"}, []int{2}},
		{incidents.IncidentQuery{Cause: incident.TooHumid}, []int{1}},
		{incidents.IncidentQuery{Cause: incident.TooHot, RoomID: attic, State: incidents.StateOver}, []int{3}},
		{incidents.IncidentQuery{Words: []string{"TOO HOT", "attic"}}, []int{0, 3}}, // of itself
		{incidents.IncidentQuery{Words: []string{"cellar", "rack"}}, []int{2}},      // and of its excursions
		{incidents.IncidentQuery{Words: []string{"71.0"}}, []int{1}},
		{incidents.IncidentQuery{Words: []string{"filter", "berta"}}, []int{2}},
		{incidents.IncidentQuery{Words: []string{"filter", "attic"}}, nil},
		{incidents.IncidentQuery{Words: []string{"%"}}, nil},
		{incidents.IncidentQuery{Start: clock(30)}, []int{0, 1, 2, 3}},
		{incidents.IncidentQuery{Start: clock(31)}, []int{0, 1, 2}},
		{incidents.IncidentQuery{End: clock(2000)}, []int{2, 3}},
		{incidents.IncidentQuery{End: clock(2001)}, []int{1, 2, 3}},
		{incidents.IncidentQuery{Start: clock(31), End: clock(100)}, nil},
	} {
		c.query.Limit = 10
		page := must.Get(db.Incidents(t.Context(), db.anna, c.query, clock(5001)))(t)
		got := each(page.Items, func(i incidents.Incident) int { return slices.Index(ids, i.ID) })
		must.Equal(t, fmt.Sprintf("%+v", c.query), c.want, got)
		must.Equal(t, "total", int64(len(c.want)), page.Total)
	}
	first := must.Get(db.Incidents(t.Context(), db.anna, incidents.IncidentQuery{PageRequest: store.PageRequest{Limit: 3}}, clock(5001)))(t)
	rest := must.Get(db.Incidents(t.Context(), db.anna, incidents.IncidentQuery{PageRequest: store.PageRequest{Limit: 3, After: first.Next}}, clock(5001)))(t)
	must.Hold(t, len(first.Items) == 3 && first.Total == 4 && len(rest.Items) == 1 && rest.Items[0].ID == ids[3] && rest.Total == 4 && rest.Next == nil,
		"in pages %+v, %+v", first, rest)
	if i := rest.Items[0]; i.Now != nil || i.Worst.Peak != 60 || i.Worst.Reason == "" || i.RoomName != "Attic" {
		t.Errorf("one that is over: %+v", i)
	}
	must.Equal(t, "incidents of Bruno", int64(0), must.Get(db.Incidents(t.Context(), db.bruno, incidents.IncidentQuery{PageRequest: store.PageRequest{Limit: 3}}, clock(5001)))(t).Total)
}

// TestExcursionsAreListed by their incident, place, kind and time, newest first.
func TestExcursionsAreListed(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1", "n2")
	second := db.roomWith(t, "n3")
	db.judge(t, judged("n1", 0, 60), judged("n2", 60, 60), found("n2", 90, anomaly(3)), judged("n3", 120, 60), judged("n1", 150, 20))
	first := must.Get(db.Incident(t.Context(), db.anna, db.newest(t, db.annasRoom), clock(150)))(t)
	for _, c := range []struct {
		query incidents.ExcursionQuery
		want  []string
	}{
		{incidents.ExcursionQuery{}, []string{"n3 threshold", "n2 anomaly", "n2 threshold", "n1 threshold"}},
		{incidents.ExcursionQuery{IncidentID: first.ID}, []string{"n2 anomaly", "n2 threshold", "n1 threshold"}},
		{incidents.ExcursionQuery{IncidentID: db.newest(t, second)}, []string{"n3 threshold"}},
		{incidents.ExcursionQuery{RoomID: second}, []string{"n3 threshold"}},
		{incidents.ExcursionQuery{SensorID: "n2"}, []string{"n2 anomaly", "n2 threshold"}},
		{incidents.ExcursionQuery{SensorID: "n2", Kind: incident.KindThreshold}, []string{"n2 threshold"}},
		{incidents.ExcursionQuery{Start: clock(151)}, []string{"n3 threshold", "n2 anomaly"}},
		{incidents.ExcursionQuery{End: clock(60)}, []string{"n1 threshold"}},
	} {
		var got []string
		for next := (*store.Position)(nil); ; {
			c.query.PageRequest = store.PageRequest{Limit: 2, After: next}
			page := must.Get(db.Excursions(t.Context(), db.anna, c.query, clock(160)))(t)
			for _, e := range page.Items {
				got = append(got, fmt.Sprint(e.NodeID, " ", e.Kind))
			}
			must.Equal(t, "total", int64(len(c.want)), page.Total)
			if next = page.Next; next == nil {
				break
			}
		}
		must.Equal(t, fmt.Sprintf("%+v", c.query), c.want, got)
	}
	must.Equal(t, "its parts", 3, first.Parts)
	must.Equal(t, "excursions in the second room", int64(1), must.Get(db.Excursions(store.InRooms(t.Context(), []int64{second}), db.anna, incidents.ExcursionQuery{PageRequest: store.PageRequest{Limit: 9}}, clock(160)))(t).Total)
}

// TestKeyOfSomeRooms reads a silent gateway's incident if a node of it is in them, without its nodes
// in other rooms, and acts on none that is of other rooms, too.
func TestKeyOfSomeRooms(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n0")
	second, third := db.roomWith(t, "n1"), db.roomWith(t, "n2")
	heard := func(second int) {
		t.Helper()
		db.heardBy(t, "gw-a", judged("n0", second, 22).Reading, judged("n1", second, 22).Reading)
	}
	heard(0)
	db.settle(t, 310)
	db.judge(t, judged("n2", 300, 60))
	gateway := int64(db.count(t, `SELECT id FROM room_incidents WHERE gateway_id = 'gw-a'`, nil))
	ofThird := db.newest(t, third)
	take := incidents.Action{Event: incident.EventTaken, By: "key 7"}
	for _, c := range []struct {
		room     int64
		want     []int64
		act, see error // on the gateway's
	}{
		{second, []int64{gateway}, incidents.ErrOtherRooms, nil},
		{third, []int64{ofThird}, store.ErrNoIncident, store.ErrNoIncident},
		{db.brunosRoom, nil, store.ErrNoIncident, store.ErrNoIncident},
	} {
		ctx := store.InRooms(t.Context(), []int64{c.room})
		page := must.Get(db.Incidents(ctx, db.anna, incidents.IncidentQuery{PageRequest: store.PageRequest{Limit: 9}}, clock(320)))(t)
		id := func(i incidents.Incident) int64 { return i.ID }
		must.Equal(t, "listed", c.want, each(page.Items, id))
		must.Equal(t, "lasting", c.want, each(must.Get(db.Lasting(ctx, db.anna, nil, clock(320)))(t), id))
		must.Equal(t, "total", int64(len(c.want)), page.Total)
		must.Fail(t, "read the gateway's", must.Err(db.Incident(ctx, db.anna, gateway, clock(320))), c.see)
		must.Fail(t, "take the gateway's", must.Err(db.Act(ctx, db.anna, gateway, take, clock(320))), c.act)
		must.Equal(t, "nobody took it", 0, db.count(t, `SELECT count(*) FROM room_incidents WHERE id = @id AND taken_at IS NOT NULL`, pgx.NamedArgs{"id": gateway}))
	}
	inSecond, inThird := store.InRooms(t.Context(), []int64{second}), store.InRooms(t.Context(), []int64{third})
	if i := must.Get(db.Incident(inSecond, db.anna, gateway, clock(320)))(t); i.Worst.NodeID != "n1" || i.Now.Sensors != 1 || i.Parts != 1 {
		t.Errorf("a node of another room is shown: %+v", i)
	}
	for _, query := range []incidents.IncidentQuery{{SensorID: "n0"}, {RoomID: db.annasRoom}, {Words: []string{"n0"}}} {
		query.Limit = 9
		must.Equal(t, "found by a node of another room", int64(0), must.Get(db.Incidents(inSecond, db.anna, query, clock(320)))(t).Total)
		must.Equal(t, "found by those who may see it", int64(1), must.Get(db.Incidents(t.Context(), db.anna, query, clock(320)))(t).Total)
	}
	must.Equal(t, "taken by", "key 7", must.Get(db.Act(inThird, db.anna, ofThird, take, clock(320)))(t).TakenBy)
	for _, room := range []int64{db.annasRoom, second} {
		page := must.Get(db.Incidents(t.Context(), db.anna, incidents.IncidentQuery{RoomID: room, PageRequest: store.PageRequest{Limit: 9}}, clock(320)))(t)
		must.Hold(t, len(page.Items) == 1 && page.Items[0].ID == gateway && page.Items[0].Now.Sensors == 2 && page.Items[0].Now.Heard == 0,
			"of a room: %+v", page)
	}
	heard(400)
	db.settle(t, 410)
	heard(700)
	heard(990)
	db.settle(t, 1001)
	must.Equal(t, "over, in the second", 1, must.Get(db.Unseen(inSecond, db.anna))(t))
	must.Equal(t, "seen by a key of one room", 0, must.Get(db.See(inSecond, db.anna, nil, "key 7", clock(1001)))(t))
	must.Equal(t, "over, in the third", 0, must.Get(db.Unseen(inThird, db.anna))(t))
	for _, f := range must.Get(records.New(db.DB).Files(t.Context(), db.anna, second, clock(0), clock(2000)))(t) {
		must.Hold(t, f.Name != "incidents.jsonl" || (strings.Contains(string(f.Content), `"n1"`) && !strings.Contains(string(f.Content), `"n0"`)),
			"the record of the second room: %s", f.Content)
	}
}

// TestChangesAreReadInOrder has eight rooms change at once, and those of another customer, while a reader follows
// the log: it reads each number once, in order, and none is missing. Contract 11.10.
func TestChangesAreReadInOrder(t *testing.T) {
	t.Parallel()
	const writers, nodes = 8, 25
	db := open(t)
	customers := []int64{db.anna, db.customer(t, "dora12")}
	for _, customer := range customers {
		for w := range writers {
			room := db.room(t, customer)
			for k := range nodes {
				db.sensor(t, customer, room, fmt.Sprintf("c%d-%d-%d", customer, w, k))
			}
		}
	}
	var written sync.WaitGroup
	for _, customer := range customers {
		for w := range writers {
			written.Go(func() {
				for k := range nodes { // the first begins an incident, each of the others joins it
					must.Fail(t, "judge", db.Judge(t.Context(), judged(fmt.Sprintf("c%d-%d-%d", customer, w, k), k, 60)), nil)
				}
			})
		}
	}
	var read sync.WaitGroup
	var over atomic.Bool
	for _, customer := range customers {
		read.Go(func() {
			last := int64(0)
			for all := false; !all && !t.Failed(); {
				ended := over.Load() // before this part is read
				part, err := db.Changes(t.Context(), customer, last, 7, instant())
				must.Fail(t, "changes", err, nil)
				for _, c := range part.Changes {
					last++
					must.Hold(t, c.Number == last && part.Incidents[c.IncidentID].Cause == incident.TooHot, "change %+v, want number %d", c, last)
				}
				must.Equal(t, "next", last, part.Next)
				must.Hold(t, !part.More || len(part.Changes) == 7, "more than %d", len(part.Changes))
				all = ended && !part.More
			}
			must.Equal(t, "changes that are read", int64(writers*nodes), last)
			must.Equal(t, "changes that are logged", last, must.Get(db.LastChange(t.Context(), customer))(t))
		})
	}
	written.Wait()
	over.Store(true)
	read.Wait()
}

// TestChangesLeadToWhatIncidentsBecame shows contract 11.10 and 12.4: the id of an incident
// that became part of another, and of that again, leads to the last; a withdrawn one has its
// id alone; and a key for some rooms sees theirs, and nothing of where a sensor has gone.
func TestChangesLeadToWhatIncidentsBecame(t *testing.T) {
	t.Parallel()
	db := open(t)
	rooms := []int64{db.annasRoom, db.room(t, db.anna), db.room(t, db.anna), db.room(t, db.anna)}
	ids := make([]int64, len(rooms))
	for i, room := range rooms {
		db.sensor(t, db.anna, room, fmt.Sprint("n", i))
		db.judge(t, judged(fmt.Sprint("n", i), i, 60))
		ids[i] = int64(db.count(t, `SELECT max(id) FROM room_incidents WHERE room_id = @room`, pgx.NamedArgs{"room": room}))
	}
	for from, into := range []int{1, 2} { // the first became part of the second, and that of the third
		db.sql(t, `UPDATE room_incidents SET merged_into = @into, lasting = false, breaking = false WHERE id = @id`, pgx.NamedArgs{"id": ids[from], "into": ids[into]})
	}
	db.sql(t, `DELETE FROM room_incidents WHERE id = @id`, pgx.NamedArgs{"id": ids[3]})
	db.sql(t, `INSERT INTO incident_changes (customer_id, number, incident_id, at, event, calls) VALUES (@anna, 5, @id, now(), 'started', true)`,
		pgx.NamedArgs{"anna": db.anna, "id": ids[2]}) // as of a node that was in no room then
	read := func(ctx context.Context) (seen []string) {
		t.Helper()
		part := must.Get(db.Changes(ctx, db.anna, 0, 5, instant()))(t)
		for _, c := range part.Changes {
			i, present := part.Incidents[c.IncidentID]
			seen = append(seen, fmt.Sprint(c.Number, " ", c.IncidentID, " ", present && i.ID == c.IncidentID))
		}
		must.Hold(t, part.Next == 5 && !part.More, "next %d, more %t", part.Next, part.More)
		return seen
	}
	last := fmt.Sprint(ids[2], " true")
	must.Equal(t, "all rooms", []string{"1 " + last, "2 " + last, "3 " + last, fmt.Sprint("4 ", ids[3], " false"), "5 " + last}, read(t.Context()))
	must.Equal(t, "the first room", []string{fmt.Sprint("1 ", ids[0], " false")}, read(store.InRooms(t.Context(), rooms[:1])))
	must.Equal(t, "the third room", []string{"3 " + last, "5 " + last}, read(store.InRooms(t.Context(), rooms[2:3])))
	seen := read(store.InRooms(t.Context(), []int64{}))
	must.Hold(t, len(seen) == 0, "no room: %v", seen)

	must.Fail(t, "a cursor beyond the end", must.Err(db.Changes(t.Context(), db.anna, 6, 100, instant())), incidents.ErrAfterLast)
}

// TestListenChanges has a listener hear of each commit's customer, and end with its connection.
func TestListenChanges(t *testing.T) {
	t.Parallel()
	db := openWith(t, "n1")
	listening, heard, ended := make(chan struct{}), make(chan int64, 1), make(chan error, 1)
	go func() {
		ended <- db.ListenChanges(t.Context(), func() { close(listening) }, func(customer int64) { heard <- customer })
	}()
	select {
	case <-listening:
	case err := <-ended:
		t.Fatal(err)
	}
	db.judge(t, judged("n1", 0, 60))
	select {
	case customer := <-heard:
		must.Equal(t, "customer", db.anna, customer)
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("nothing is heard")
	}
	db.sql(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'`, nil)
	must.Hold(t, <-ended != nil, "no error when the connection ends")
}
