package rest

import (
	"context"
	"time"

	"coldaisle.dev/shared/fairqueue"
)

const (
	// maxTurnWait is how long a request waits for its turn.
	maxTurnWait = 10 * time.Second
	// maxTurnsWaiting is how many requests of an instance wait for a turn of one kind.
	maxTurnsWaiting = 40
)

// Turns are slots for work that must be limited. They go from account to account, so that one
// that asks for a hundred waits only for its own.
type Turns struct{ queue *fairqueue.Queue[int64] }

// NewTurns returns turns with a number of slots, at least one.
func NewTurns(slots int) *Turns {
	return &Turns{fairqueue.New[int64](fairqueue.Limits{Slots: slots, MaxWaiting: [2]int{fairqueue.Unknown: maxTurnsWaiting}, MaxWait: maxTurnWait})}
}

// Wait waits for a turn of the calling account; done ends it.
func (t *Turns) Wait(ctx context.Context) (done func(), err error) {
	return t.queue.Acquire(ctx, fairqueue.Unknown, accountOf(ctx)) //nolint:wrapcheck // errorOf knows it
}

type changesKey struct{}

// WaitToChange waits for the turn of a change in an operation. Call it before taking a database
// connection, so that those who wait do not keep others from one.
func WaitToChange(ctx context.Context) (done func(), err error) {
	return ctx.Value(changesKey{}).(*Turns).Wait(ctx) //nolint:errcheck,forcetypeassert // Register sets it
}
