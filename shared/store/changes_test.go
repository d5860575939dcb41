package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
)

// TestChangesAreReadInOrder has eight rooms change at once, and those of another customer,
// while a reader follows the log: it reads each number once, in order, and none is missing.
// Contract 11.10.
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
					if err := db.Judge(t.Context(), judged(fmt.Sprintf("c%d-%d-%d", customer, w, k), k, 60)); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	var read sync.WaitGroup
	for _, customer := range customers {
		read.Go(func() {
			var last, cursor int64
			deadline := time.Now().Add(3 * time.Minute)
			for last < writers*nodes && time.Now().Before(deadline) {
				part, err := db.Changes(t.Context(), customer, cursor, 7, instant())
				if err != nil {
					t.Error(err)
					return
				}
				for _, c := range part.Changes {
					if last++; c.Number != last || part.Incidents[c.IncidentID].Cause != incident.TooHot {
						t.Errorf("customer %d: change %+v, want number %d", customer, c, last)
						return
					}
				}
				if part.Next != last || part.More && len(part.Changes) != 7 {
					t.Errorf("customer %d: after %d the next is %d, more %t", customer, last, part.Next, part.More)
					return
				}
				cursor = part.Next
			}
			if end := must.Get(db.LastChange(t.Context(), customer))(t); last != writers*nodes || end != last {
				t.Errorf("customer %d: %d changes are read, %d logged, want %d", customer, last, end, writers*nodes)
			}
		})
	}
	written.Wait()
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
