package nodesim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/shared/pause"
)

// What a node does, in virtual time.
const (
	registerRetries = 5
	firstBackoff    = time.Second // doubles with each retry

	// Nodes are switched on one after the other and keep this distance, so that
	// they do not all send at once. All are on within bootSpread, or within an
	// interval where that is too short for bootGap between two.
	bootSpread = 5 * time.Second
	bootGap    = 50 * time.Millisecond

	heartbeatFrom = 30 * time.Second
	heartbeatTo   = 60 * time.Second

	maxPending         = 4                      // unanswered readings that a node keeps for its next cycle
	minAge             = 100 * time.Millisecond // below it a node says nothing of a reading's age, as the reference node does
	maxIntervalsBehind = 4                      // then a node leaves out measurements
)

// device is one simulated node. Like the firmware it does one thing at a time.
type device struct {
	sim    *Simulation
	number int
	id     string
	host   bool          // measures temperature alone, and neither registers nor beats
	boot   time.Duration // virtual
	faults []fault.Fault

	base    string // of the gateway; empty until found
	pending []message
}

func newDevice(s *Simulation, number int) *device {
	nodes := time.Duration(s.config.Nodes)
	spread := min(max(bootSpread, nodes*bootGap), Interval)
	return &device{
		sim: s, number: number, host: number >= s.config.Nodes-s.config.Hosts, boot: spread * time.Duration(number) / nodes,
		id: fmt.Sprintf("%s-r%d-n%d", s.config.Prefix, number/s.config.PerRoom+1, number%s.config.PerRoom+1),
	}
}

// run is the firmware's main loop, from power on to the end of the context.
func (n *device) run(ctx context.Context) {
	if n.until(ctx, n.boot) != nil {
		return
	}
	if !n.host {
		n.register(ctx)
	}

	reading := n.next(n.boot - Interval) // what it measured before is sent by [Simulation.Backfill]
	beat := reading + heartbeatPause()
	for {
		if n.until(ctx, min(reading, beat)) != nil {
			return
		}
		if beat < reading {
			if !n.host {
				n.post(ctx, heartbeatPath, map[string]string{"node_id": n.id})
			}
			beat += heartbeatPause()
			continue
		}
		n.cycle(ctx, reading)
		reading = n.next(reading)
	}
}

func heartbeatPause() time.Duration {
	return heartbeatFrom + rand.N(heartbeatTo-heartbeatFrom) //nolint:gosec // keeps no secret
}

func (n *device) until(ctx context.Context, at time.Duration) error {
	return pause.For(ctx, n.sim.started.Add(n.sim.wall(at)).Sub(n.sim.config.Clock()))
}

// next is the virtual time of the measurement after the last one. It leaves out
// measurements that the node missed because the gateway was slow, or before Run.
func (n *device) next(last time.Duration) time.Duration {
	following := last + Interval
	behind := (n.sim.virtual(n.sim.config.Clock().Sub(n.sim.started)) - following) / Interval
	if behind > maxIntervalsBehind {
		following += behind * Interval
	}
	return following
}

// register registers the node, with at most five retries. If all fail, the node
// goes on: the gateway also registers it with its first message.
func (n *device) register(ctx context.Context) {
	for attempt := range 1 + registerRetries {
		if n.post(ctx, registerPath, registration(n.id, 77, n.number)) == accepted {
			return
		}
		if attempt < registerRetries && pause.For(ctx, n.sim.wall(firstBackoff<<attempt)) != nil {
			return
		}
	}
	if ctx.Err() == nil {
		n.sim.config.Log.WarnContext(ctx, "simulated node could not register",
			"node_id", n.id, "retries", registerRetries)
	}
}

// cycle measures, and sends the unanswered readings of earlier cycles before the
// new one.
func (n *device) cycle(ctx context.Context, at time.Duration) {
	n.pending = append(n.pending, n.message(at))
	kept := n.pending[:0]
	reached := true
	for _, m := range n.pending {
		if !reached || ctx.Err() != nil {
			kept = append(kept, m)
			continue
		}
		end := n.send(ctx, m)
		if end == retryLater || end == unreachable {
			kept = append(kept, m)
		}
		reached = end != unreachable
	}
	if excess := len(kept) - maxPending; excess > 0 {
		kept = kept[:copy(kept, kept[excess:])]
	}
	n.pending = kept
}

func (n *device) message(at time.Duration) message {
	measured := n.sim.site.Measure(n.number, n.sim.started.Add(at), n.faults)
	// The hardware's ids are four random bytes, too. They differ from run to run: the gateway would
	// take a known id for a reading that is sent again.
	id := fmt.Sprintf("%08x", rand.Uint32()) //nolint:gosec // keeps no secret
	m := message{ID: id, NodeID: n.id, Temperature: measured.Temperature, at: n.sim.config.Clock()}
	if !n.host {
		m.Humidity = &measured.Humidity
	}
	return m
}

func (n *device) send(ctx context.Context, m message) outcome {
	end := unreachable
	if n.find(ctx) { // which may take seconds, in which the reading grows older
		if age := n.sim.config.Clock().Sub(m.at); age >= minAge {
			m.Age = age.Seconds()
		}
		end = n.post(ctx, m.path(), m)
	}
	switch {
	case end == accepted:
		n.sim.accepted.Add(1)
	case end == rejected:
		n.sim.rejected.Add(1)
		n.sim.config.Log.WarnContext(ctx, "gateway rejected a simulated reading", "node_id", n.id, "message_id", m.ID)
	case ctx.Err() == nil:
		n.sim.failed.Add(1)
	}
	return end
}

// find finds the gateway if necessary, and reports whether it is found.
func (n *device) find(ctx context.Context) bool {
	if n.base != "" {
		return true
	}
	base, err := n.sim.config.Resolve(ctx)
	if err != nil {
		n.sim.config.Log.DebugContext(ctx, "simulated node did not find the gateway", "node_id", n.id, "error", err)
	}
	n.base = base
	return err == nil
}

// post sends a request to the gateway. The end of the simulation does not cancel it: else the
// gateway might accept a reading that is not counted.
func (n *device) post(ctx context.Context, path string, body any) outcome {
	if !n.find(ctx) {
		return unreachable
	}
	end, err := post(context.WithoutCancel(ctx), n.sim.client, n.base, path, body)
	if end == unreachable {
		n.base = "" // it may have moved
		n.sim.config.Log.DebugContext(ctx, "gateway did not answer a simulated node", "node_id", n.id, "error", err)
	}
	return end
}
