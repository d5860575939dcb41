package nodesim

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/shared/reading"
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

	// maxPending is how many unanswered readings a node keeps for its next cycle.
	maxPending = 4
	// minAge is the age below which a node says nothing of it, as the reference node does.
	minAge = 100 * time.Millisecond
	// maxIntervalsBehind is how many intervals a node may be behind before it leaves out
	// measurements.
	maxIntervalsBehind = 4
)

// device is one simulated node. Like the firmware it does one thing at a time.
type device struct {
	sim        *Simulation
	id         string
	addr       string
	sensor     sensor
	boot       time.Duration // virtual
	ids        rng
	heartbeats rng

	faults []fault.Fault
	last   fault.Values // measured

	base    string // of the gateway; empty until found
	pending []message
}

func newDevice(s *Simulation, number int, r room) *device {
	place := uint64(number) //nolint:gosec // not negative
	nodes := time.Duration(s.config.Nodes)
	spread := min(max(bootSpread, nodes*bootGap), s.config.Interval)
	return &device{
		sim:        s,
		id:         nodeID(s.config.Prefix, number),
		addr:       fmt.Sprintf("10.77.%d.%d", number/250%256, number%250+1),
		sensor:     newSensor(r, s.config.Seed, place),
		boot:       spread * time.Duration(number) / nodes,
		heartbeats: newRNG(s.config.Seed, 2*noiseStream+place),
		faults:     fault.Of(s.config.Faults, roomID(s.config.Prefix, number), nodeID(s.config.Prefix, number)),
	}
}

// run is the firmware's main loop, from power on to the end of the context.
func (n *device) run(ctx context.Context, start time.Time) {
	// The time of the start makes the ids differ from run to run.
	n.ids = newRNG(n.sim.config.Seed^uint64(start.UnixNano()), 3*noiseStream+n.sensor.place)
	if n.until(ctx, start, n.boot) != nil {
		return
	}
	n.register(ctx)

	reading := n.boot
	beat := n.boot + n.heartbeats.between(heartbeatFrom, heartbeatTo)
	for {
		if n.until(ctx, start, min(reading, beat)) != nil {
			return
		}
		if beat < reading {
			if _, sent := fault.Sent(n.faults, start.Add(n.sim.wall(beat))); sent {
				n.heartbeat(ctx)
			}
			beat += n.heartbeats.between(heartbeatFrom, heartbeatTo)
			continue
		}
		n.cycle(ctx, start, reading)
		reading = n.next(start, reading)
	}
}

// until waits for a virtual time.
func (n *device) until(ctx context.Context, start time.Time, at time.Duration) error {
	return wait(ctx, start.Add(n.sim.wall(at)).Sub(n.sim.config.Clock()))
}

// next is the virtual time of the measurement after the last one. It leaves out
// measurements that the node missed because the gateway was slow.
func (n *device) next(start time.Time, last time.Duration) time.Duration {
	interval := n.sim.config.Interval
	following := last + interval
	behind := (n.sim.virtual(n.sim.config.Clock().Sub(start)) - following) / interval
	if behind > maxIntervalsBehind {
		n.sim.counters.missed.Add(int64(behind))
		following += behind * interval
	}
	return following
}

// register registers the node, with at most five retries. If all fail, the node
// goes on: the gateway also registers it with its first message.
func (n *device) register(ctx context.Context) {
	backoff := firstBackoff
	for attempt := range 1 + registerRetries {
		if attempt > 0 {
			if wait(ctx, n.sim.wall(backoff)) != nil {
				return
			}
			backoff *= 2
			n.sim.counters.registerRetries.Add(1)
		}
		if n.post(ctx, registerPath, registration{NodeID: n.id, IPAddr: n.addr}) == accepted {
			n.sim.counters.registered.Add(1)
			return
		}
	}
	if ctx.Err() == nil {
		n.sim.config.Log.WarnContext(ctx, "simulated node could not register",
			"node_id", n.id, "retries", registerRetries)
	}
}

func (n *device) heartbeat(ctx context.Context) {
	end := n.post(ctx, heartbeatPath, heartbeat{NodeID: n.id})
	switch {
	case end == accepted:
		n.sim.counters.heartbeats.Add(1)
	case ctx.Err() == nil: // the end of the simulation is no failure
		n.sim.counters.heartbeatsFailed.Add(1)
	}
}

// cycle measures, and sends the unanswered readings of earlier cycles before the
// new one.
func (n *device) cycle(ctx context.Context, start time.Time, at time.Duration) {
	now := start.Add(n.sim.wall(at))
	temperature, humidity := n.measure(now, at)
	late, sent := fault.Sent(n.faults, now)
	if !sent || wait(ctx, late) != nil {
		return
	}
	repeated := len(n.pending)
	n.pending = append(n.pending, message{
		ID:          n.messageID(),
		NodeID:      n.id,
		Temperature: temperature,
		Humidity:    humidity,
		at:          n.sim.config.Clock(),
	})
	kept := n.pending[:0]
	reached := true
	for i, m := range n.pending {
		if !reached || ctx.Err() != nil || !n.send(ctx, m, i < repeated, &reached) {
			kept = append(kept, m)
		}
	}
	if excess := len(kept) - maxPending; excess > 0 {
		n.sim.counters.lost.Add(int64(excess))
		kept = kept[:copy(kept, kept[excess:])]
	}
	n.pending = kept
}

// measure is what the node measures at a virtual time, which is now, with its faults.
func (n *device) measure(now time.Time, at time.Duration) (temperature, humidity float64) {
	var healthy fault.Values
	healthy.Temperature, healthy.Humidity = n.sensor.measure(at)
	v := fault.Measure(n.faults, now, healthy, func(time.Time) fault.Values { return cmp.Or(n.last, healthy) })
	n.last = fault.Values{
		Temperature: roundToTenth(v.Temperature, reading.MinTemperature, reading.MaxTemperature),
		Humidity:    roundToTenth(v.Humidity, reading.MinHumidity, reading.MaxHumidity),
	}
	return n.last.Temperature, n.last.Humidity
}

// send posts one reading and reports whether the node is done with it. It sets
// reached to false when the gateway does not answer at all.
func (n *device) send(ctx context.Context, m message, again bool, reached *bool) bool {
	count := &n.sim.counters
	count.sent.Add(1)
	if again {
		count.retried.Add(1)
	}
	end := unreachable
	if n.find(ctx) { // which may take seconds, in which the reading grows older
		if age := n.sim.config.Clock().Sub(m.at); age >= minAge {
			m.Age = age.Seconds()
		}
		end = n.post(ctx, messagePath, m)
	}
	switch end {
	case accepted:
		count.accepted.Add(1)
		return true
	case rejected:
		count.rejected.Add(1)
		n.sim.config.Log.WarnContext(ctx, "gateway rejected a simulated reading", "node_id", n.id, "message_id", m.ID)
		return true
	case unreachable:
		*reached = false
	case retryLater:
	}
	if ctx.Err() == nil {
		count.failed.Add(1)
	}
	return false
}

// messageID makes an id as the hardware does: four random bytes.
func (n *device) messageID() string {
	return fmt.Sprintf("%08x", uint32(n.ids.pcg.Uint64())) //nolint:gosec // the low half is what is wanted
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

// post sends a request to the gateway.
func (n *device) post(ctx context.Context, path string, body any) outcome {
	if !n.find(ctx) {
		return unreachable
	}
	status, err := n.sim.client.post(ctx, n.base, path, body)
	if err != nil {
		n.base = "" // it may have moved
		n.sim.config.Log.DebugContext(ctx, "gateway did not answer a simulated node", "node_id", n.id, "error", err)
		return unreachable
	}
	return outcomeOf(status)
}
