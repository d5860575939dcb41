package gateway

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/wire"
)

// idleInterval is how long the drain rests when nothing wakes it.
const idleInterval = time.Minute

// drain delivers the outbox in the order of appending, behind the live readings. Its methods are
// called by one goroutine.
type drain struct {
	sender     *sender
	outbox     Outbox
	withheld   Outbox // nil: readings that may not be published stay in the outbox
	probeEvery time.Duration

	pacer   *batchPacer
	live    int64 // live readings up to the end of the last batch
	damaged int   // unreadable places of the outbox that have been logged
	// windows holds each node's window, by enrolment, before the messages that Next returned
	// last; nil without a backlog.
	windows map[[2]string]*window
}

func (d *drain) run(ctx context.Context) {
	for ctx.Err() == nil {
		pause := d.batch(ctx)
		wake := d.sender.wake
		if pause < d.probeEvery {
			wake = nil // a pause between two batches is not shortened
		}
		select {
		case <-wake:
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// batch sends one batch of the backlog and returns how long to wait before the next.
func (d *drain) batch(ctx context.Context) time.Duration {
	down := d.sender.uplink.isDown()
	size := d.pacer.size
	if down {
		size = 1
	}
	messages, err := d.outbox.Next(size)
	d.logDamage(ctx)
	if err != nil {
		d.logDiskError(ctx, "it cannot be read", err)
		return idleInterval
	}
	if len(messages) == 0 {
		d.windows = nil
		if down {
			d.sender.uplink.allowProbe(d.sender.clock().Add(-d.probeEvery))
			return d.probeEvery
		}
		d.consume(ctx, nil)
		return idleInterval
	}
	mayPublish := d.sender.signer.mayPublish
	if reason := mayPublish(messages[0].Record); reason != "" {
		if reason == undated || !d.withhold(ctx, messages[0].Record, reason) {
			return d.probeEvery
		}
		d.consume(ctx, messages[:1])
		return 0
	}
	if i := slices.IndexFunc(messages[1:], func(m outbox.Message) bool { return mayPublish(m.Record) != "" }); i >= 0 {
		messages = messages[:1+i]
	}
	started := d.sender.clock()
	sent := d.publish(ctx, messages)
	took, live := d.sender.clock().Sub(started), d.sender.live.Load()
	withLive := live > d.live
	d.live = live
	d.consume(ctx, messages[:sent])
	if sent < len(messages) && len(messages) > 1 {
		d.windows = nil // the windows of those not published are ahead of them: rebuild all
	}
	switch {
	case sent == 0:
		return d.probeEvery
	case down || sent < len(messages):
		return 0
	default:
		return d.pacer.next(took, withLive)
	}
}

func (d *drain) consume(ctx context.Context, messages []outbox.Message) {
	if err := d.outbox.Consume(messages); err != nil {
		d.logDiskError(ctx, "the cursor cannot be written, readings may be sent once more", err)
	}
}

// logDiskError logs an error of the outbox, once within [logInterval] for each kind: a
// card that has gone read-only fails every write of a drain.
func (d *drain) logDiskError(ctx context.Context, kind string, err error) {
	d.sender.events.add(ctx, slog.LevelWarn, kind, "the outbox's disk fails", "fault", kind, "error", err.Error())
}

// logDamage logs damage once. A folder that is opened in place of another may have less.
func (d *drain) logDamage(ctx context.Context) {
	found := d.outbox.Stats().Damaged
	if found < d.damaged || found > d.damaged && d.sender.events.add(ctx, slog.LevelError, "",
		"places of the outbox cannot be read, the readings there are lost: the card or disk may be failing", "damaged", found) {
		d.damaged = found
	}
}

// window adds a message to the window of its node and enrolment.
func (d *drain) window(m outbox.Message) *window {
	of := [2]string{m.Enrolment, m.Reading.NodeID}
	w, ok := d.windows[of]
	if !ok {
		w = &window{}
		d.windows[of] = w
	}
	w.restore(m.Record, 0)
	return w
}

// publish publishes messages of the outbox and returns how many of the first ones may be
// consumed.
func (d *drain) publish(ctx context.Context, backlog []outbox.Message) int {
	signer := d.sender.signer
	if d.windows == nil {
		d.windows = map[[2]string]*window{}
		for m := range d.outbox.Before(backlog[0], OutboxRetention) {
			signer.retime(&m)
			d.window(m)
		}
	}
	messages := make([]Message, 0, len(backlog))
	for _, m := range backlog {
		age := signer.retime(&m)
		w := d.window(m)
		recent := w.before(min(w.find(timedReading{Reading: m.Reading}), len(w.entries)-1))
		encoded := encode(wire.Data{Reading: m.Reading, Recent: recent}, dataLimit(m.Reading.NodeID, m.Enrolment))
		messages = append(messages, signer.message(m.Reading, encoded, age, m.Enrolment))
	}
	limited, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	for i, err := range d.sender.publisher.Publish(limited, false, messages...) {
		if err != nil && ctx.Err() != nil || d.sender.judge(ctx, messages[i], err) == lost {
			return i
		}
	}
	return len(messages)
}

// withhold moves one reading to the withheld ones and reports whether the backlog goes on. Where
// they have no room, one that may not be published is lost, rather than all behind it.
func (d *drain) withhold(ctx context.Context, r outbox.Record, reason string) bool {
	if d.withheld == nil {
		return false
	}
	err := d.withheld.AppendAll([]outbox.Record{r})[0]
	if full := errors.Is(err, outbox.ErrFull); err != nil {
		d.sender.events.add(ctx, slog.LevelError, "", "a reading that may not be published cannot be withheld", "lost", full, "error", err.Error())
		if full {
			d.sender.countLoss(err)
		}
		return full
	}
	d.sender.events.add(ctx, slog.LevelError, "", "readings are kept and not published", "reason", reason, "enrolment", r.Enrolment, "kept", d.withheldCount())
	return true
}

func (d *drain) withheldCount() int {
	if d.withheld == nil {
		return 0
	}
	return d.withheld.Stats().Pending
}
