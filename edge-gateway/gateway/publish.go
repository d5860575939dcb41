package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// maxMessage is the most bytes of a message of topic data (contract 9.1).
const maxMessage = 2500

// outcome is what became of a live reading.
type outcome int

const (
	sent outcome = iota // Pub/Sub has it
	kept                // it is in the outbox
	lost                // neither: its node must send it again
)

// send publishes a live reading. When that fails it appends the reading to the
// outbox, unless the outbox has it already. A node that disconnects does not
// cancel this: an accepted reading is published or kept.
func (g *Gateway) send(ctx context.Context, m Message, given timedReading) outcome {
	ctx = context.WithoutCancel(ctx)
	g.live.Add(1)
	if period, open := g.uplink.allow(); open {
		started := g.clock()
		err := g.publisher.Publish(contextWithValuesOf{period, ctx}, m) //nolint:contextcheck // a request's end does not end it
		g.metrics.latency.Observe(g.clock().Sub(started).Seconds())
		if err == nil {
			g.metrics.published.Inc()
			g.publishSucceeded(ctx)
			return sent
		}
		if g.publishFailed(ctx, m, err) {
			return lost
		}
	}
	g.metrics.failed.Inc()
	if given.kept || g.appendToOutbox(ctx, m, given) {
		return kept
	}
	return lost
}

// contextWithValuesOf is canceled with the embedded context and has the values of
// another: the request's trace, and the uplink's cancellation, which all publishes
// in flight share.
type contextWithValuesOf struct {
	context.Context

	values context.Context
}

func (u contextWithValuesOf) Value(key any) any { return u.values.Value(key) }

// appendToOutbox puts a reading into the outbox and reports whether that succeeded.
func (g *Gateway) appendToOutbox(ctx context.Context, m Message, given timedReading) bool {
	err := g.outbox.Append(outbox.Record{
		Reading: given.reading, Earlier: g.nodes.earlierThan(m.NodeID, given),
		Enrolment: g.enrolledAs(), Boot: g.boot.ID, Uptime: given.uptime,
	})
	if err == nil {
		g.metrics.kept.Inc()
		g.nodes.markInOutbox(m.NodeID, given)
		if !g.uplink.isDown() {
			g.wakeRun() // Pub/Sub came back meanwhile
		}
		return true
	}
	reason := "disk"
	switch {
	case errors.Is(err, outbox.ErrShare):
		reason = "share"
	case errors.Is(err, outbox.ErrFull):
		reason = "full"
	}
	g.metrics.dropped.WithLabelValues(reason).Inc()
	if count, due := g.drops.add(g.clock()); due {
		g.log.ErrorContext(ctx, "readings cannot be kept, their nodes must send them again", "dropped", count, "error", err.Error())
	}
	return false
}

// wakeRun tells Run that something has changed.
func (g *Gateway) wakeRun() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// publishFailed notes a failed publish and says whether the message is to be given up.
func (g *Gateway) publishFailed(ctx context.Context, m Message, err error) (giveUp bool) {
	if errors.Is(err, ErrRefused) {
		return g.messageRefused(ctx, m, err)
	}
	g.Unreachable(ctx, err)
	return false
}

// Unreachable tells the gateway that Pub/Sub cannot be reached, before a reading
// finds it out.
func (g *Gateway) Unreachable(ctx context.Context, err error) {
	kind := faultKind(err)
	g.metrics.faults.WithLabelValues(kind).Inc()
	if g.uplink.markDown(g.clock(), err) {
		if count, due := g.outages.add(kind, g.clock()); due {
			g.log.ErrorContext(ctx, "publishing failed, readings go into the outbox", "kind", kind, "outages", count, "error", err.Error())
		}
		g.wakeRun()
	}
}

// messageRefused notes a message that Pub/Sub refuses and says whether to give it up.
// What is given up remains in the log alone.
func (g *Gateway) messageRefused(ctx context.Context, m Message, err error) (giveUp bool) {
	g.serviceAnswered(ctx)
	inRow := g.uplink.refused(err)
	if inRow == maxRefusals+1 {
		g.log.ErrorContext(ctx, "Pub/Sub refuses every message, readings go into the outbox", "error", err.Error())
	}
	if inRow > maxRefusals {
		return false
	}
	g.metrics.refused.Inc()
	if count, due := g.refusals.add(g.clock()); due {
		g.log.ErrorContext(ctx, "Pub/Sub refuses a reading, it is given up",
			"node_id", m.NodeID, "refused", count, "data", string(m.Data), "error", err.Error())
	}
	return true
}

func (g *Gateway) publishSucceeded(ctx context.Context) {
	g.uplink.markUp()
	g.serviceAnswered(ctx)
}

func (g *Gateway) serviceAnswered(ctx context.Context) {
	if away, back := g.uplink.answered(g.clock()); back {
		g.log.InfoContext(ctx, "publishing works again", "away_seconds", away.Seconds(), "backlog", g.outbox.Stats().Pending)
		g.wakeRun()
	}
}

// encode writes the message of a reading. The longest window of the longest
// numbers does not fit the bound beside the longest names; then the oldest
// entries are left out.
func encode(data wire.Data) ([]byte, error) {
	for {
		encoded, err := wire.EncodeData(data)
		excess := len(encoded) - maxMessage
		if err != nil || excess <= 0 || data.Recent.Len() == 0 {
			return encoded, err
		}
		perEntry := len(encoded)/data.Recent.Len() + 1
		without := min(excess/perEntry+1, data.Recent.Len())
		data.Recent = reading.Window{
			Age:         data.Recent.Age[without:],
			Temperature: data.Recent.Temperature[without:],
			Humidity:    data.Recent.Humidity[without:],
		}
	}
}

// logInterval is the least time between two log lines of the same kind: the
// journal is on the same SD card as the outbox.
const logInterval = time.Minute

// kindLimiter is a [logLimiter] for each kind of fault. There are few kinds.
type kindLimiter struct {
	mu    sync.Mutex
	kinds map[string]*logLimiter
}

func (k *kindLimiter) add(kind string, now time.Time) (count int64, due bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kinds == nil {
		k.kinds = map[string]*logLimiter{}
	}
	if k.kinds[kind] == nil {
		k.kinds[kind] = &logLimiter{}
	}
	return k.kinds[kind].add(now)
}

// logLimiter counts events of one kind and says which of them to log.
type logLimiter struct {
	mu     sync.Mutex
	count  int64
	logged time.Time
}

func (n *logLimiter) add(now time.Time) (count int64, due bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count++
	due = now.Sub(n.logged).Abs() >= logInterval
	if due {
		n.logged = now
	}
	return n.count, due
}

func (n *logLimiter) total() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count
}
