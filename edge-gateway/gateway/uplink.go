package gateway

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// uplink is a circuit breaker for Pub/Sub. One failed publish opens it; a refused
// message does not, because it shows that Pub/Sub answers. While Pub/Sub is down,
// readings go straight into the outbox. The outbox's oldest message is then the
// probe, or one live reading when the outbox is empty.
type uplink struct {
	mu       sync.Mutex
	down     bool
	trial    bool  // the next live reading is published although it is down
	refusals int   // refused since a message was last acknowledged
	messages int64 // acknowledged
	since    time.Time
	failed   time.Time // when it went down, by the monotonic clock: the other may be set meanwhile
	reason   string    // why it is down, or why every message is refused
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
// canceled when the uplink goes down, not when the request ends, whose trace it has.
func (u *uplink) allow(request context.Context) (context.Context, bool) {
	span := trace.SpanFromContext(request)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.down {
		tried := u.trial
		u.trial = false
		return trace.ContextWithSpan(context.Background(), span), tried
	}
	return trace.ContextWithSpan(u.period, span), true
}

// allowProbe lets one live reading through while the uplink is down, unless it went down
// after since: the reading that took it down may not be in the outbox yet.
func (u *uplink) allowProbe(since time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.trial = u.down && !u.since.After(since)
}

// maxRefusals is how many messages in a row may be discarded as refused.
const maxRefusals = 64

// refused records a refused message and returns how many there were in a row. After
// maxRefusals the topic may be at fault.
func (u *uplink) refused(err error) (inRow int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.refusals++
	if u.refusals > maxRefusals && !u.down {
		u.reason = err.Error()
	}
	return u.refusals
}

// markDown records a failed publish and reports whether it took the uplink down.
func (u *uplink) markDown(now time.Time, err error) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.down {
		u.reason = err.Error() // it may have changed
		return false
	}
	u.down, u.trial, u.since, u.reason = true, false, now, err.Error()
	u.failed = time.Now() //nolint:forbidigo // for its monotonic reading, which times of the gateway's clock have not
	u.end()
	return true
}

func (u *uplink) acknowledged() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.messages
}

// answered records that Pub/Sub acknowledged a message or refused it. If that brought
// the uplink back, away is how long it was down.
func (u *uplink) answered(now time.Time, acknowledged bool) (away time.Duration, back bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if acknowledged {
		if u.refusals > maxRefusals && !u.down {
			u.reason = ""
		}
		u.refusals = 0
		u.messages++
	}
	if !u.down {
		return 0, false
	}
	u.down, u.since, u.reason = false, now, ""
	u.period, u.end = context.WithCancel(context.Background())
	return time.Since(u.failed), true
}

func (u *uplink) isDown() bool {
	down, _, _ := u.state()
	return down
}

func (u *uplink) state() (down bool, since time.Time, reason string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.down, u.since, u.reason
}
