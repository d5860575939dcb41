package gateway

import (
	"context"
	"sync"
	"time"

	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// Run delivers the outbox, oldest first, behind the live readings, watches for
// Pub/Sub's return while it is away, and keeps the list of nodes. It ends with its
// context; the error is always nil, for an errgroup.
func (g *Gateway) Run(ctx context.Context) error {
	var beside sync.WaitGroup
	beside.Go(func() { g.keepNodes(ctx) })
	beside.Go(func() { g.probeIdle(ctx) })
	for _, c := range g.config.Checks {
		beside.Go(func() { g.ask(ctx, c) })
	}
	defer beside.Wait()
	d := newDrain()
	for ctx.Err() == nil {
		pause := g.drainBatch(ctx, d)
		timer := time.NewTimer(pause)
		if pause >= g.config.ProbeEvery {
			// Only then is there something to be woken for.
			select {
			case <-g.wake:
			case <-timer.C:
			case <-ctx.Done():
			}
		} else {
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		}
		timer.Stop()
	}
	return nil
}

// idleInterval is how long Run rests when nothing wakes it.
const idleInterval = time.Minute

// drainBatch sends one batch of the backlog and returns how long to wait before
// the next.
func (g *Gateway) drainBatch(ctx context.Context, d *drain) time.Duration {
	down := g.uplink.isDown()
	size := d.pacer.size
	if down {
		size = 1
	}
	messages, err := g.outbox.Next(size)
	g.tellDamage(ctx)
	if err != nil {
		g.tellDiskFault(ctx, "it cannot be read", err)
		return idleInterval
	}
	if len(messages) == 0 {
		d.windows = nil
		if down {
			g.uplink.allowProbe(g.clock().Add(-g.config.ProbeEvery))
			return g.config.ProbeEvery
		}
		return idleInterval
	}
	messages, withheld := g.withholdFirst(ctx, messages)
	if withheld > 0 {
		g.consume(ctx, messages[:withheld])
		return 0
	}
	if len(messages) == 0 {
		return g.config.ProbeEvery
	}
	started := g.clock()
	sent := g.publishBatch(ctx, d, messages)
	took, live := g.clock().Sub(started), g.live.Load()
	beside := live > d.live
	d.live = live
	g.consume(ctx, messages[:sent])
	if sent < len(messages) && len(messages) > 1 {
		d.windows = nil // those of the others are further on than they
	}
	switch {
	case sent == 0:
		return g.config.ProbeEvery
	case down || sent < len(messages):
		return 0
	default:
		return d.pacer.next(took, beside)
	}
}

// consume takes messages out of the outbox.
func (g *Gateway) consume(ctx context.Context, messages []outbox.Message) {
	if err := g.outbox.Consume(messages); err != nil {
		g.tellDiskFault(ctx, "the cursor cannot be written, readings may be sent once more", err)
	}
}

// tellDiskFault logs a fault of the outbox, once within [logInterval] for each kind: a
// card that has gone read-only fails every write while the backlog goes out.
func (g *Gateway) tellDiskFault(ctx context.Context, kind string, err error) {
	if failed, due := g.diskFaults.add(kind, g.clock()); due {
		g.log.WarnContext(ctx, "the outbox's disk fails", "fault", kind, "error", err.Error(), "failed", failed)
	}
}

// damage is what Run has told of places of the outbox that cannot be read.
type damage struct {
	places int
	at     time.Time
}

// tellDamage logs that there are more of them, at most once within [logInterval].
func (g *Gateway) tellDamage(ctx context.Context) {
	found, now := g.outbox.Stats().Damaged, g.clock()
	if found == g.damage.places || now.Sub(g.damage.at).Abs() < logInterval {
		return
	}
	g.damage = damage{found, now}
	g.log.ErrorContext(ctx, "places of the outbox cannot be read, the readings there are lost: the card or disk may be failing", "damaged", found)
}

// drain is what Run knows of the backlog.
type drain struct {
	pacer *batchPacer
	live  int64 // readings until the end of the last batch
	// windows are those of the nodes at the messages that Next has returned last; nil
	// until there is a backlog.
	windows map[string]*window
	scratch windowBuffer
}

func newDrain() *drain { return &drain{pacer: newBatchPacer()} }

// recent rebuilds the window of a message from the records before it.
func (d *drain) recent(m outbox.Message) reading.Window {
	w, ok := d.windows[m.Reading.NodeID]
	if !ok {
		w = &window{}
		d.windows[m.Reading.NodeID] = w
		w.includeWindow(m.Reading.Time, m.Recent)
	}
	w.restore(m.Record, 0)
	if m.Recent.Len() > 0 {
		return m.Recent
	}
	place := w.find(timedReading{at: m.Reading.Time})
	return w.before(min(place, len(w.entries)-1), &d.scratch)
}

// publishBatch publishes messages of the outbox and returns how many of the first
// ones are done with.
func (g *Gateway) publishBatch(ctx context.Context, d *drain, kept []outbox.Message) int {
	if d.windows == nil {
		d.windows = map[string]*window{}
		for m := range g.outbox.Before(kept[0], OutboxRetention) {
			g.retime(&m)
			d.recent(m)
		}
	}
	messages := make([]Message, 0, len(kept))
	for _, m := range kept {
		age := g.retime(&m)
		encoded, err := encode(wire.Data{Reading: m.Reading, Recent: d.recent(m)})
		if err != nil { // a reading that is valid has a form in JSON
			g.log.ErrorContext(ctx, "reading of the outbox cannot be encoded", "node_id", m.Reading.NodeID, "error", err.Error())
		}
		messages = append(messages, g.keptMessage(m.Record, encoded, age))
	}
	limited, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	for i, err := range g.publisher.PublishBacklog(limited, messages) {
		switch {
		case err == nil:
			g.metrics.delivered.Inc()
			g.publishSucceeded(ctx)
		case ctx.Err() != nil:
			return i
		case !g.publishFailed(ctx, messages[i], err):
			return i
		}
	}
	return len(messages)
}

// batchPacer keeps the uplink and the processor nearly free for live readings while the
// outbox drains. It halves the batch when one takes more than slack longer than the
// fastest, doubles it otherwise, and pauses after each batch for as long as the batch
// took. While live readings come, batches are small and the pauses longer, up to three
// times the batch. The additional pause has a bound: on a line with a long way to Pub/Sub
// a batch takes long and nothing of the processor, and the backlog must get through.
type batchPacer struct {
	size    int
	fastest time.Duration
}

const (
	largestBatch = 64
	// largestBeside is the largest batch while live readings come: a live one may wait for
	// one batch. With 32 the 99th percentile is more than doubled (BenchmarkBacklog).
	largestBeside = 16
	// longestBeside is how much longer the pause may be then.
	longestBeside = 10 * time.Millisecond
	// slack is how much longer than the fastest batch one may take; about what a
	// live reading is delayed by on a slow line.
	slack = 5 * time.Millisecond
)

func newBatchPacer() *batchPacer { return &batchPacer{size: 1} }

// next takes the duration of a batch, and whether live readings came since the one
// before, and returns the pause after it.
func (p *batchPacer) next(took time.Duration, beside bool) time.Duration {
	if p.fastest == 0 || took < p.fastest {
		p.fastest = took
	}
	if took > p.fastest+slack {
		p.size = max(1, p.size/2)
		// On a line that has become slower for good, fastest rises towards it.
		p.fastest += (took - p.fastest) / 16
	} else {
		p.size = min(2*p.size, largestBatch)
	}
	pause := max(took, time.Millisecond)
	if beside {
		p.size = min(p.size, largestBeside)
		pause += min(2*pause, longestBeside)
	}
	return pause
}
