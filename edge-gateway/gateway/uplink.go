package gateway

import (
	"context"
	"sync"
	"time"
)

// uplink knows whether Pub/Sub can be reached. One failed publish takes it
// down; a refused message does not, and shows that Pub/Sub answers. While it is
// down readings go straight into the outbox, and the outbox's oldest message is
// the probe; when the outbox is empty a live reading is.
type uplink struct {
	mu       sync.Mutex
	down     bool
	trial    bool // the next live reading is to be tried though it is down
	refusals int  // since a message was taken
	since    time.Time
	reason   string // why it is down, or why every message is refused
	// period ends when the uplink goes down, and with it the wait of all
	// publishes under way: their fate is known.
	period context.Context
	end    context.CancelFunc
}

func newUplink(now time.Time) *uplink {
	u := &uplink{since: now}
	u.period, u.end = context.WithCancel(context.Background())
	return u
}

// pass says whether a live reading may be published, and returns the context
// that ends when that has become pointless.
func (u *uplink) pass() (context.Context, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.down {
		tried := u.trial
		u.trial = false
		return context.Background(), tried
	}
	return u.period, true
}

// offerTrial lets one live reading be tried, if the uplink has been down since a
// time: before that, the reading that took it down may not be in the outbox yet.
func (u *uplink) offerTrial(since time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.trial = u.down && !u.since.After(since)
}

// maxRefusals is how many messages in a row may be refused for their own sake.
const maxRefusals = 64

// refused notes a refused message and returns how many there were in a row. From
// the one after maxRefusals on the fault may not be theirs.
func (u *uplink) refused(err error) (inRow int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.refusals++
	if u.refusals > maxRefusals && !u.down {
		u.reason = err.Error()
	}
	return u.refusals
}

// failed notes a failed publish and says whether it took the uplink down.
func (u *uplink) failed(now time.Time, err error) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.down {
		u.reason = err.Error() // may be another one by now
		return false
	}
	u.down, u.trial, u.since, u.reason = true, false, now, err.Error()
	u.end()
	return true
}

// worked notes a message that was taken.
func (u *uplink) worked() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.refusals > maxRefusals && !u.down {
		u.reason = ""
	}
	u.refusals = 0
}

// answered notes an answer of Pub/Sub's. If it brought the uplink back, away is
// how long it was down.
func (u *uplink) answered(now time.Time) (away time.Duration, back bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.down {
		return 0, false
	}
	away = now.Sub(u.since)
	u.down, u.since, u.reason = false, now, ""
	u.period, u.end = context.WithCancel(context.Background())
	return away, true
}

func (u *uplink) isDown() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.down
}

// state is what GET /health says of it.
func (u *uplink) state() (down bool, since time.Time, reason string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.down, u.since, u.reason
}
