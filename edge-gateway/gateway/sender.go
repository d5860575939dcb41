package gateway

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// maxMessage bounds a message of topic data in bytes, with its attributes and all else that
// Pub/Sub counts (contract 9.1): Pub/Sub bills at least this much.
const maxMessage = 1000

// outcome is the fate of a live reading.
type outcome int

const (
	lost          outcome = iota // neither of these: its node must send it again
	sent                         // Pub/Sub has it
	kept                         // it is in the outbox
	unpublishable                // discarded, because Pub/Sub will never accept it
)

// sender publishes live readings and puts those that Pub/Sub does not acknowledge into
// the outbox. It also follows whether Pub/Sub answers, for the backlog too.
type sender struct {
	publisher Publisher
	outbox    Outbox
	nodes     *nodeTable
	signer    *signer
	uplink    *uplink
	metrics   *metrics
	events    *eventLog
	clock     func() time.Time
	log       *slog.Logger

	wake chan struct{} // for the drain: something changed
	// Since the start: live readings, those that could not be kept, and those that
	// were discarded because Pub/Sub refused them.
	live, dropped, discarded atomic.Int64
	// noRoom is when the outbox last had no room for a reading, in nanoseconds since 1970; 0 for never.
	noRoom atomic.Int64
}

// send publishes live readings and appends those that Pub/Sub does not acknowledge to the outbox,
// by one write, unless it has them already. A node that disconnects does not cancel this: an
// accepted reading is published or kept.
func (s *sender) send(ctx context.Context, batch ...timedReading) []outcome {
	ctx = context.WithoutCancel(ctx)
	s.live.Add(int64(len(batch)))
	outcomes := make([]outcome, len(batch))
	if len(batch) == 0 {
		return outcomes
	}
	if period, open := s.uplink.allow(ctx); open {
		messages := make([]Message, len(batch))
		for i, t := range batch {
			messages[i] = s.signer.message(t.Reading, t.data, t.age, s.signer.enrolmentID())
		}
		limited, cancel := context.WithTimeout(period, publishLimit)
		defer cancel()
		started := s.clock()
		errs := s.publisher.Publish(limited, len(batch) == 1, messages...)
		s.metrics.latency.Observe(s.clock().Sub(started).Seconds())
		for i, t := range batch {
			outcomes[i] = s.judge(ctx, messages[i], errs[i])
			if outcomes[i] == sent {
				s.metrics.published.Inc()
				s.nodes.mark(t, sent)
			}
		}
	}
	var unsent []timedReading
	var places []int
	for i, t := range batch {
		switch {
		case outcomes[i] != lost:
		case t.kept:
			outcomes[i] = kept
		default:
			unsent, places = append(unsent, t), append(places, i)
		}
	}
	for j, result := range s.keep(ctx, unsent) {
		outcomes[places[j]] = result
	}
	return outcomes
}

// keep appends readings to the outbox by one write, and returns for each whether it is kept
// or lost. A revoked gateway would never publish them: their nodes ask for the name again and
// find another.
func (s *sender) keep(ctx context.Context, batch []timedReading) []outcome {
	outcomes, records := make([]outcome, len(batch)), make([]outbox.Record, len(batch))
	if e := s.signer.enrolment; len(batch) == 0 || e != nil && e.Revoked() {
		return outcomes
	}
	for i, t := range batch {
		records[i] = s.signer.record(t, s.nodes.takeEarlier(t))
	}
	errs := s.outbox.AppendAll(records)
	for i, t := range batch {
		err := errs[i]
		if err == nil {
			outcomes[i] = kept
			s.nodes.mark(t, kept)
			continue
		}
		s.countLoss(err)
		s.events.add(ctx, slog.LevelError, "", "readings cannot be kept, their nodes must send them again", "error", err.Error())
	}
	if slices.Contains(outcomes, kept) && !s.uplink.isDown() {
		s.wakeDrain() // Pub/Sub has come back
	}
	return outcomes
}

func (s *sender) countLoss(err error) {
	reason := "disk"
	switch {
	case errors.Is(err, outbox.ErrShare):
		reason = "share"
	case errors.Is(err, outbox.ErrFull):
		reason = "full"
	}
	if reason != "disk" { // which the outbox logs itself
		s.noRoom.Store(s.clock().UnixNano())
	}
	s.dropped.Add(1)
	s.metrics.dropped.WithLabelValues(reason).Inc()
}

func (s *sender) wakeDrain() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// judge records the result of a publish; the message is lost unless it is sent or discarded.
func (s *sender) judge(ctx context.Context, m Message, err error) outcome {
	switch {
	case err == nil:
		s.answered(ctx, true)
		return sent
	case errors.Is(err, ErrRefused):
		return s.refused(ctx, m, err)
	default:
		s.unreachable(ctx, err)
		return lost
	}
}

// unreachable records that Pub/Sub cannot be reached. It ignores a publish that stopped waiting
// because another failed: its error would hide the cause.
func (s *sender) unreachable(ctx context.Context, err error) {
	if errors.Is(err, context.Canceled) && s.uplink.isDown() {
		return
	}
	kind := errorKind(err)
	s.metrics.faults.WithLabelValues(kind).Inc()
	if s.uplink.markDown(s.clock(), err) {
		s.events.add(ctx, slog.LevelError, kind, "publishing failed, readings go into the outbox", "kind", kind, "error", err.Error())
		s.wakeDrain()
	}
}

// refused records a message that Pub/Sub refuses, and discards it unless it refuses every one. A
// discarded message is only in the log.
func (s *sender) refused(ctx context.Context, m Message, err error) outcome {
	s.answered(ctx, false)
	inRow := s.uplink.refused(err)
	if inRow == maxRefusals+1 {
		s.log.ErrorContext(ctx, "Pub/Sub refuses every message, readings go into the outbox", "error", err.Error())
	}
	if inRow > maxRefusals {
		return lost
	}
	s.discarded.Add(1)
	s.events.add(ctx, slog.LevelError, "", "Pub/Sub refuses a reading, it is discarded",
		"node_id", m.NodeID, "data", string(m.Data), "error", err.Error())
	return unpublishable
}

// answered records an answer of Pub/Sub, which acknowledged a message or refused it.
func (s *sender) answered(ctx context.Context, acknowledged bool) {
	if away, back := s.uplink.answered(s.clock(), acknowledged); back {
		s.log.InfoContext(ctx, "publishing works again", "away_seconds", away.Seconds(), "backlog", s.outbox.Stats().Pending)
		s.wakeDrain()
	}
}

// probeIdle publishes a reading of the probe at the start, and whenever nothing was
// published for an interval, a shorter one while Pub/Sub is away: an idle gateway finds
// out whether Pub/Sub would take a reading before a node does.
func (s *sender) probeIdle(ctx context.Context, interval time.Duration) {
	for before := int64(-1); interval > 0; {
		if before < 0 || s.uplink.acknowledged() == before {
			s.publishProbe(ctx)
		}
		before = s.uplink.acknowledged()
		wait := interval
		if s.uplink.isDown() {
			wait = min(wait, recheckFailing)
		}
		if pause.For(ctx, wait) != nil {
			return
		}
	}
}

// publishProbe publishes one reading of the probe. An open gateway's has no time: consumers
// use the time at which it was published.
func (s *sender) publishProbe(ctx context.Context) {
	probe := reading.Reading{NodeID: reading.ProbeNodeID, MessageID: "gateway"}
	if s.signer.enrolment != nil {
		probe.Time = reading.TruncateTime(s.clock()) // a signed message needs one
	}
	encoded := encode(wire.Data{Reading: probe}, maxMessage)
	_ = s.publishNow(ctx, s.signer.message(probe, encoded, 0, s.signer.enrolmentID())) // it is recorded
}

// publishNow publishes a message without keeping it, even while Pub/Sub is known to be down.
func (s *sender) publishNow(ctx context.Context, m Message) error {
	limited, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	err := s.publisher.Publish(limited, true, m)[0]
	if err == nil || ctx.Err() == nil { // else the program ends
		s.judge(ctx, m, err)
	}
	return err //nolint:wrapcheck // it says what it is
}

// encode encodes a reading within limit bytes. It leaves out the oldest entries of the window
// that do not fit.
func encode(data wire.Data, limit int) []byte {
	for {
		encoded, _ := wire.EncodeData(data) // fails for numbers that no valid reading has
		excess := len(encoded) - limit
		if excess <= 0 || data.Recent.Len() == 0 {
			return encoded
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
