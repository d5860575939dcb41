package accounts

import (
	"context"
	"strings"
	"time"

	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
)

// MaxWatches is how many watches a customer may have.
const MaxWatches = 100

// Watch is a program on site that notifies people, as of its last heartbeat.
type Watch struct {
	ID          int64
	Name        string
	HeartbeatAt time.Time
	PolledAt    time.Time  // when it last read the incidents
	SucceededAt *time.Time // when a message was last sent; nil: never
	WaitingAt   *time.Time // since when the oldest overdue message waits; nil: none does
}

// A watch reports each minute, polls without a pause, and sends a message within its timeout.
// One that is later than these has failed.
const (
	watchSilentAfter  = 3 * time.Minute
	watchWaitingAfter = 5 * time.Minute
)

// State returns a watch's state as the API names it, and what is wrong as the end of a sentence.
func (w Watch) State(probe incident.Probe, now time.Time) (state, trouble string) {
	switch {
	case probe.Missed(w.HeartbeatAt, watchSilentAfter, now):
		return "silent", " has been silent for " + incident.InWords(now.Sub(w.HeartbeatAt))
	case probe.Missed(w.PolledAt, watchSilentAfter, now):
		return "not_reading", " has not read the incidents for " + incident.InWords(now.Sub(w.PolledAt))
	case w.WaitingAt != nil && reading.Earlier(now, w.HeartbeatAt.Add(watchSilentAfter)).Sub(*w.WaitingAt) >= watchWaitingAfter: // as far as it was heard
		return "not_sending", " has not been able to send a message for " + incident.InWords(now.Sub(*w.WaitingAt))
	default:
		return "ok", ""
	}
}

// WatchProblems describes what is wrong with each of a customer's watches, by id. Nobody would be
// woken if none is well; one that has sent a message since another began to wait still wakes people.
func WatchProblems(watches []Watch, probe incident.Probe, now time.Time) map[int64]string {
	problems, nobody := map[int64]string{}, true
	for _, w := range watches {
		switch state, trouble := w.State(probe, now); {
		case trouble == "":
			nobody = false
		case state == "not_sending" && w.SucceededAt != nil && w.SucceededAt.After(*w.WaitingAt):
			problems[w.ID], nobody = "a step of the watch of "+w.Name+trouble, false
		default:
			problems[w.ID] = "the watch of " + w.Name + trouble
		}
	}
	for id, problem := range problems {
		if nobody {
			problems[id] = "Nobody would be woken: " + problem
		} else {
			problems[id] = strings.ToUpper(problem[:1]) + problem[1:]
		}
	}
	return problems
}

const watchColumns = `id, name, heartbeat_at, polled_at, succeeded_at, waiting_at`

// RecordHeartbeat stores a watch's heartbeat under its name. Error: [store.ErrTooManyWatches].
func (s Store) RecordHeartbeat(ctx context.Context, customerID int64, w Watch) error {
	return s.db.Change(ctx, store.ErrTooManyWatches, `
		INSERT INTO watches (customer_id, name, heartbeat_at, polled_at, succeeded_at, waiting_at)
		SELECT @customer, @name::varchar, @heartbeat::timestamptz, @polled::timestamptz, @succeeded::timestamptz, @waiting::timestamptz
		WHERE (SELECT count(*) FROM watches WHERE customer_id = @customer AND name <> @name::varchar) < @max
		ON CONFLICT ON CONSTRAINT watches_name_key DO UPDATE
		SET heartbeat_at = EXCLUDED.heartbeat_at, polled_at = EXCLUDED.polled_at, succeeded_at = EXCLUDED.succeeded_at, waiting_at = EXCLUDED.waiting_at`,
		store.Args{
			"customer": customerID, "name": w.Name, "heartbeat": w.HeartbeatAt, "polled": w.PolledAt, "succeeded": w.SucceededAt, "waiting": w.WaitingAt,
			"max": MaxWatches,
		}, "heartbeat of watch %s", w.Name)
}

// Watches lists a customer's watches by name.
func (s Store) Watches(ctx context.Context, customerID int64) ([]Watch, error) {
	return store.All[Watch](ctx, s.db, `SELECT `+watchColumns+` FROM watches WHERE customer_id = @customer ORDER BY name`,
		store.Args{"customer": customerID}, "watches of customer %d", customerID)
}

// DeleteWatch deletes a customer's watch and returns it, or [store.ErrNoWatch].
func (s Store) DeleteWatch(ctx context.Context, customerID, id int64) (Watch, error) {
	return store.One[Watch](ctx, s.db, store.ErrNoWatch, `
		DELETE FROM watches WHERE id = @id AND customer_id = @customer RETURNING `+watchColumns,
		store.Args{"id": id, "customer": customerID}, "delete watch %d", id)
}
