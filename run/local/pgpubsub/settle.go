package pgpubsub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// settleDelay lets acknowledgements gather.
	settleDelay = 10 * time.Millisecond
	// othersWait is how long a message that one subscription has acknowledged waits
	// for the others, so that it is deleted once instead of updated first.
	othersWait = 200 * time.Millisecond
	// settleRows is the most rows that one round stores.
	settleRows = 5000
	// maxSettling bounds the acknowledgements that are not stored. Beyond it,
	// callers wait.
	maxSettling = 200_000
	// settleTimeout bounds a round, and retryDelay is the pause after a failure.
	settleTimeout = 2 * time.Minute
	retryDelay    = 500 * time.Millisecond
	// vacuumRows is how many dead rows are worth a VACUUM: with messages of a
	// kilobyte, 20 MB.
	vacuumRows = 20_000
	// vacuumTimeout bounds it.
	vacuumTimeout = 10 * time.Minute
)

// settler stores acknowledgements, those of many callers at once.
type settler struct {
	pool  *pgxpool.Pool
	clock func() time.Time
	log   *slog.Logger
	check func(context.Context) error // of the connection that inserts
	wake  chan struct{}
	stop  chan struct{}
	work  sync.WaitGroup
	// cancel ends a VACUUM.
	cancel context.CancelFunc

	mu       sync.Mutex
	acks     map[int64]*ack // by message
	complete []*ack         // acknowledged by all
	partial  []*ack         // acknowledged by some, in the order of since; some of them complete by now
	room     chan struct{}  // closed when there is room again; nil while there is
	dead     int            // rows since the last VACUUM
	vacuum   bool           // one is running
}

// ack is a message that some subscription has acknowledged.
type ack struct {
	topic   int32
	id      int64
	waiting []int32 // of the row, as far as known
	by      []int32 // who has acknowledged it and is not stored
	since   time.Time
	// storing is the part of by that the round in flight stores; nil when it has
	// none of it. Else the message is not queued.
	storing []int32
}

func (a *ack) complete() bool {
	return !slices.ContainsFunc(a.waiting, func(sub int32) bool { return !slices.Contains(a.by, sub) })
}

// newSettler returns a settler that works until it is closed. It takes the values
// of ctx, and not its end.
func newSettler(ctx context.Context, pool *pgxpool.Pool, clock func() time.Time, log *slog.Logger, check func(context.Context) error) *settler {
	s := &settler{
		pool: pool, clock: clock, log: log, check: check,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), acks: map[int64]*ack{},
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	s.work.Go(func() { s.run(ctx) })
	return s
}

var errClosing = errors.New("the server is closing")

// admit waits until there is room for more acknowledgements.
func (s *settler) admit(ctx context.Context) error {
	s.mu.Lock()
	room := s.room
	s.mu.Unlock()
	if room == nil {
		return nil
	}
	select {
	case <-room:
		return nil
	case <-s.stop:
		return errClosing
	case <-ctx.Done():
		return fmt.Errorf("wait for the database to store acknowledgements: %w", ctx.Err())
	}
}

// add takes what a subscription has acknowledged.
func (s *settler) add(sub *subscription, deliveries []*delivery) {
	if len(deliveries) == 0 {
		return
	}
	now := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range deliveries {
		a := s.acks[d.id]
		known := a != nil
		if !known {
			a = &ack{topic: sub.topic.id, id: d.id, waiting: d.waiting, since: now}
			s.acks[d.id] = a
		}
		if slices.Contains(a.by, sub.id) {
			continue
		}
		a.by = append(a.by, sub.id)
		switch {
		case a.storing != nil: // the round in flight queues it again
		case a.complete():
			s.complete = append(s.complete, a)
		case !known:
			s.partial = append(s.partial, a)
		}
	}
	if len(s.acks) >= maxSettling && s.room == nil {
		s.room = make(chan struct{})
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// settling says whether a message's acknowledgement is not stored yet.
func (s *settler) settling(id int64, by int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.acks[id]
	return a != nil && slices.Contains(a.by, by)
}

// close stores what is left.
func (s *settler) close() error {
	close(s.stop)
	s.cancel()
	s.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	for {
		acks := s.take(true)
		if len(acks) == 0 {
			return nil
		}
		if err := s.store(ctx, acks); err != nil {
			return fmt.Errorf("store acknowledgements: %w", err)
		}
		s.stored(acks)
	}
}

// run stores rounds until the server closes.
func (s *settler) run(ctx context.Context) {
	for {
		select {
		case <-s.stop:
			return
		case <-s.wake:
		}
		for more := true; more; {
			if !s.pause(settleDelay) {
				return
			}
			more = s.round(ctx)
		}
	}
}

// pause waits, and says whether the server goes on.
func (s *settler) pause(d time.Duration) bool {
	select {
	case <-s.stop:
		return false
	case <-time.After(d):
		return true
	}
}

// round stores what is due and says whether more is waiting.
func (s *settler) round(ctx context.Context) bool {
	if acks := s.take(false); len(acks) > 0 {
		storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		err := s.store(storing, acks)
		if err != nil {
			err = errors.Join(err, s.check(storing)) // PostgreSQL may have restarted
		}
		cancel()
		if err != nil {
			s.log.WarnContext(ctx, "acknowledgements are not stored yet", "error", err.Error())
			s.requeue(acks)
			return s.pause(retryDelay)
		}
		s.stored(acks)
		s.clean(ctx, len(acks))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.acks) > 0
}

// take removes what is due from the queues, at most settleRows of each. all takes
// partial acknowledgements before their time.
func (s *settler) take(all bool) []*ack {
	now := s.clock()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.complete), settleRows)
	due := slices.Clone(s.complete[:n])
	s.complete = slices.Delete(s.complete, 0, n)
	for parts := 0; len(s.partial) > 0 && parts < settleRows; {
		a := s.partial[0]
		if !a.complete() {
			if !all && now.Sub(a.since) < othersWait {
				break
			}
			due = append(due, a)
			parts++
		}
		s.partial[0] = nil
		s.partial = s.partial[1:]
	}
	for _, a := range due {
		a.storing = slices.Clip(a.by)
	}
	return due
}

// store makes acknowledgements last. It may be repeated.
func (s *settler) store(ctx context.Context, acks []*ack) error {
	topics, ids, by := make([]int32, len(acks)), make([]int64, len(acks)), make([]string, len(acks))
	for i, a := range acks {
		topics[i], ids[i], by[i] = a.topic, a.id, array(a.storing)
	}
	if _, err := s.pool.Exec(ctx, `SELECT pubsub.settle($1, $2, $3)`, topics, ids, by); err != nil {
		return fmt.Errorf("settle %d messages: %w", len(acks), err)
	}
	return nil
}

// array writes ids as PostgreSQL does: an array of arrays must be rectangular, an
// array of their texts need not.
func array(ids []int32) string {
	text := []byte{'{'}
	for i, id := range ids {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(id), 10)
	}
	return string(append(text, '}'))
}

// stored forgets what a round has made last, but for what was acknowledged
// meanwhile.
func (s *settler) stored(acks []*ack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range acks {
		a.waiting = slices.DeleteFunc(slices.Clone(a.waiting), func(sub int32) bool { return slices.Contains(a.storing, sub) })
		a.by, a.storing = a.by[len(a.storing):], nil
		if len(a.by) == 0 {
			delete(s.acks, a.id)
			continue
		}
		s.queue(a)
	}
	if s.room != nil && len(s.acks) < maxSettling/2 {
		close(s.room)
		s.room = nil
	}
}

// requeue takes back what a round has failed to store.
func (s *settler) requeue(acks []*ack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range acks {
		a.storing = nil
		s.queue(a)
	}
}

// queue puts an acknowledgement where the next rounds look. The caller holds the
// lock.
func (s *settler) queue(a *ack) {
	if a.complete() {
		s.complete = append(s.complete, a)
	} else {
		s.partial = append(s.partial, a)
	}
}

// clean vacuums the table, beside the rounds, when enough rows more are dead.
// Autovacuum comes once a minute, and the table would keep the room for all that
// is published in a minute.
func (s *settler) clean(ctx context.Context, rows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead += rows
	if s.dead < vacuumRows || s.vacuum {
		return
	}
	s.dead, s.vacuum = 0, true
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, vacuumTimeout)
		defer cancel()
		if _, err := s.pool.Exec(ctx, `VACUUM (SKIP_LOCKED) pubsub.messages`); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "vacuum of Pub/Sub's table failed", "error", err.Error())
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.vacuum = false
	})
}
