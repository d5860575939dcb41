package gateway

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// Check is a question that the gateway asks itself as a node or a person would: the
// answer of /health says what came of it.
type Check struct {
	// Name stands before the reason in /health.
	Name string
	// Every is how often it is asked.
	Every time.Duration
	// Fatal says that nodes cannot use a gateway for which it fails.
	Fatal bool
	Ask   func(ctx context.Context) error
}

// verdicts are the faults of the checks, by name.
type verdicts struct {
	mu     sync.Mutex
	faults map[string]error
}

func (v *verdicts) set(name string, fault error) (before error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before = v.faults[name]
	if v.faults == nil {
		v.faults = map[string]error{}
	}
	v.faults[name] = fault
	return before
}

func (v *verdicts) of(name string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.faults[name]
}

// ask asks a check again and again until the context ends. A change is logged, the
// same fault is not.
func (g *Gateway) ask(ctx context.Context, c Check) {
	for {
		fault := c.Ask(ctx)
		if ctx.Err() != nil {
			return
		}
		before := g.verdicts.set(c.Name, fault)
		switch {
		case fault != nil && before == nil:
			g.log.ErrorContext(ctx, "check failed", "check", c.Name, "error", fault.Error())
		case fault == nil && before != nil:
			g.log.InfoContext(ctx, "check is in order again", "check", c.Name)
		}
		timer := time.NewTimer(c.Every)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// States of a gateway in /health.
const (
	stateHealthy = "healthy"
	// stateDegraded is that something should be looked after; no reading is lost yet.
	stateDegraded = "degraded"
	// stateFailing is that readings are lost, or nodes do not reach the gateway.
	stateFailing = "failing"
)

// state says how the gateway is, and why it is not healthy.
func (g *Gateway) state() (state string, reasons []string) {
	state = stateHealthy
	add := func(worst, reason string) {
		if state != stateFailing {
			state = worst
		}
		reasons = append(reasons, reason)
	}
	down, _, reason := g.uplink.state()
	stats := g.outbox.Stats()
	if reason != "" {
		add(stateDegraded, "publishing: "+reason)
	}
	if stats.Err != nil && (down || reason != "") {
		add(stateFailing, "outbox: "+stats.Err.Error()) // neither published nor kept
	} else if stats.Err != nil {
		add(stateDegraded, "outbox: "+stats.Err.Error())
	}
	if stats.Damaged > 0 {
		add(stateDegraded, "outbox: places of the disk cannot be read")
	}
	if n := g.withheldCount(); n > 0 {
		add(stateDegraded, fmt.Sprintf("withheld: %d readings are kept and not published, taken under another enrolment or at a time that nobody knows", n))
	}
	if g.config.Degraded != nil {
		if reason := g.config.Degraded(); reason != "" {
			add(stateDegraded, "name: "+reason)
		}
	}
	for _, c := range g.config.Checks {
		fault := g.verdicts.of(c.Name)
		if fault == nil {
			continue
		}
		if c.Fatal {
			add(stateFailing, c.Name+": "+fault.Error())
		} else {
			add(stateDegraded, c.Name+": "+fault.Error())
		}
	}
	return state, slices.Compact(reasons)
}

// probeIdle publishes a reading of the probe at the start, and whenever nothing has
// been published for a time: an idle gateway knows whether Pub/Sub would take a
// reading, before a node finds out.
func (g *Gateway) probeIdle(ctx context.Context) {
	if g.config.IdleProbe <= 0 {
		return
	}
	tick := time.NewTicker(g.config.IdleProbe)
	defer tick.Stop()
	for answered := int64(-1); ; {
		if now := g.uplink.taken(); now == answered || answered < 0 {
			g.publishProbe(ctx)
		}
		answered = g.uplink.taken()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// publishProbe publishes a reading. That of an open gateway has no time: it is of the
// moment at which Pub/Sub takes it.
func (g *Gateway) publishProbe(ctx context.Context) {
	probe := reading.Reading{NodeID: reading.ProbeNodeID, MessageID: "gateway"}
	if g.config.Enrolment != nil {
		probe.Time = reading.TruncateTime(g.clock()) // what is signed has one
	}
	encoded, err := wire.EncodeData(wire.Data{Reading: probe})
	if err != nil {
		return // a reading of zeros has a form in JSON
	}
	limited, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	m := g.liveMessage(probe, encoded, 0)
	switch err := g.publisher.Publish(limited, m); {
	case err == nil:
		g.publishSucceeded(ctx)
	case ctx.Err() == nil:
		g.publishFailed(ctx, m, err)
	}
}
