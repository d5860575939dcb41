package gateway

import (
	"context"
	"sync"
	"time"
)

// uplink is a circuit breaker for Pub/Sub. One failed publish opens it; a refused
// message does not, because it shows that Pub/Sub answers. While Pub/Sub is down,
// readings go straight into the outbox. The outbox's oldest message is then the
// probe, or one live reading when the outbox is empty.
type uplink struct {
	mu       sync.Mutex
	down     bool
	trial    bool  // the next live reading is to be tried though it is down
	refusals int   // since a message was taken
	messages int64 // that were taken
	since    time.Time
	reason   string // why it is down, or why every message is refused
	// period is canceled when the uplink goes down. All publishes in flight then
	// stop waiting.
	period context.Context
	end    context.CancelFunc
}

func newUplink(now time.Time) *uplink {
	u := &uplink{since: now}
	u.period, u.end = context.WithCancel(context.Background())
	return u
}

// allow reports whether a live reading may be published. The context it returns is
// canceled when the uplink goes down.
func (u *uplink) allow() (context.Context, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.down {
		tried := u.trial
		u.trial = false
		return context.Background(), tried
	}
	return u.period, true
}

// allowProbe lets one live reading through while the uplink is down, but only if it
// went down at or before since: the reading that took it down later may not be in
// the outbox yet.
func (u *uplink) allowProbe(since time.Time) {
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

// markDown notes a failed publish and says whether it took the uplink down.
func (u *uplink) markDown(now time.Time, err error) bool {
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

// markUp notes a message that was taken.
func (u *uplink) markUp() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.refusals > maxRefusals && !u.down {
		u.reason = ""
	}
	u.refusals = 0
	u.messages++
}

// taken counts messages that Pub/Sub has taken.
func (u *uplink) taken() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.messages
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
