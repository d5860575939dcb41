// Package nodesim simulates sensor nodes. They call the gateway as the hardware
// does. Each node finds the gateway, registers with up to five retries, posts a
// reading every 30 seconds, and sends heartbeats between. After a 500 it sends
// the reading again under the same id on its next cycle. The values come from a
// small thermal model of server rooms with four nodes each, whose cooling fails
// now and then.
//
// The same seed gives the same rooms and the same values. Message ids differ from
// run to run, as on hardware: the gateway would take a known id for a reading that
// is sent again. Rooms live in virtual time, which is wall time × speed. The
// gateway dates readings by its own clock, so a series that is stored at a high
// speed is compressed.
//
// run/local and the program simulate-nodes use this package. Load tests use
// [Replay], which sends a recording instead. It knows the node's three calls and
// nothing else of the gateway.
package nodesim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/shared/reading"
)

// nodesPerRoom is how many nodes share a room's physics.
const nodesPerRoom = 4

// Defaults of [Config].
const (
	DefaultInterval     = 30 * time.Second
	DefaultPrefix       = "sim"
	DefaultFailureEvery = 24 * time.Hour
)

// Config says which nodes there are and what they do. Durations are virtual time
// unless a comment says otherwise.
type Config struct {
	Gateway string  // base address; empty if Resolve is given
	Resolve Resolve // how nodes find the gateway; nil for the address of Gateway
	Nodes   int

	Speed    float64       // virtual seconds per second; 0 means 1
	Seed     uint64        // of rooms, places and noise
	Interval time.Duration // between readings of a node; 0 means DefaultInterval
	Prefix   string        // of node ids; empty means DefaultPrefix

	// FailureEvery is the mean time between cooling failures of a room; 0 means
	// DefaultFailureEvery, a negative value none by chance.
	FailureEvery time.Duration
	// HotAfter is the wall time after which the hottest node of the first room
	// passes 50 °C for the first time, within half a minute of virtual time. The
	// cooling fails early enough for that, if necessary before the start. 0 leaves
	// failures to chance.
	HotAfter time.Duration

	// Faults are what goes wrong beside the cooling, by the names of [Simulation.NodeIDs]
	// and of rooms, which are those without the node, at times of the wall clock: the truth about what a gateway receives.
	Faults []fault.Fault

	Misbehave []Misbehaviour // rogue clients beside the nodes

	Clock     func() time.Time  // wall clock
	Log       *slog.Logger      // nil logs nothing
	Transport http.RoundTripper // nil means connections of the package's own
}

func (c *Config) complete() error {
	c.Speed = orDefault(c.Speed, 1)
	c.Interval = orDefault(c.Interval, DefaultInterval)
	c.Prefix = orDefault(c.Prefix, DefaultPrefix)
	c.FailureEvery = orDefault(c.FailureEvery, DefaultFailureEvery)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	var errs []error
	if c.Clock == nil {
		errs = append(errs, errors.New("a clock is required"))
	}
	if c.Nodes < 0 {
		errs = append(errs, fmt.Errorf("nodes must not be negative: got %d", c.Nodes))
	}
	if !(c.Speed > 0 && c.Speed <= maxSpeed) {
		errs = append(errs, fmt.Errorf("speed must be over 0 and at most %g: got %g", maxSpeed, c.Speed))
	}
	if c.Interval < step {
		errs = append(errs, fmt.Errorf("interval must be at least %s: got %s", step, c.Interval))
	}
	if err := reading.ValidateNodeID(nodeID(c.Prefix, max(0, c.Nodes-1))); err != nil {
		errs = append(errs, fmt.Errorf("prefix: %w", err))
	}
	if c.Resolve == nil {
		var err error
		if c.Resolve, err = FixedAddress(c.Gateway); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// maxSpeed turns the default interval into 30 ms. A faster node could not keep its
// schedule over HTTP.
const maxSpeed = 1000.0

func orDefault[T comparable](value, standard T) T {
	var zero T
	if value == zero {
		return standard
	}
	return value
}

// Simulation is a set of nodes, made by [New] and started by Run.
type Simulation struct {
	config   Config
	client   *client
	nodes    []*device
	rooms    []*scheduledOutages
	counters counters

	mu      sync.Mutex
	started time.Time
}

// New prepares the rooms and their nodes; nothing is sent yet. The error joins
// everything that is wrong with the config.
func New(config Config) (*Simulation, error) {
	if err := config.complete(); err != nil {
		return nil, fmt.Errorf("simulated nodes: %w", err)
	}
	s := &Simulation{config: config, client: newClient(config.Nodes+rogueConnections, config.Transport)}
	for number := range (config.Nodes + nodesPerRoom - 1) / nodesPerRoom {
		s.addRoom(number)
	}
	return s, nil
}

// addRoom makes a room and its nodes.
func (s *Simulation) addRoom(number int) {
	scheduled := &scheduledOutages{}
	s.rooms = append(s.rooms, scheduled)
	cold := newRoom(s.config.Seed, uint64(number), s.config.FailureEvery, scheduled) //nolint:gosec // not negative
	first := number * nodesPerRoom
	last := min(first+nodesPerRoom, s.config.Nodes) - 1
	if number == 0 && s.config.HotAfter > 0 {
		hottest := newSensor(cold, s.config.Seed, uint64(last)) //nolint:gosec // not negative
		from := hottest.failureBefore(s.virtual(s.config.HotAfter))
		scheduled.add(interval{from: from, to: from + scheduledOutage})
	}
	for cold.at < 0 {
		cold.step()
	}
	for i := first; i <= last; i++ {
		s.nodes = append(s.nodes, newDevice(s, i, cold))
	}
}

// Run runs the nodes until the context ends, waits until all have stopped, and
// returns nil. A gateway that does not answer is no error: Stats counts it. Call
// Run once.
func (s *Simulation) Run(ctx context.Context) error {
	s.mu.Lock()
	if !s.started.IsZero() {
		s.mu.Unlock()
		return errors.New("simulated nodes run only once")
	}
	s.started = s.config.Clock()
	start := s.started
	s.mu.Unlock()
	defer s.client.close()

	var alive sync.WaitGroup
	for _, n := range s.nodes {
		alive.Go(func() { n.run(ctx, start) })
	}
	for _, kind := range s.config.Misbehave {
		alive.Go(func() { s.misbehave(ctx, kind) })
	}
	s.config.Log.InfoContext(ctx, "simulated nodes started",
		"nodes", len(s.nodes), "rooms", len(s.rooms), "speed", s.config.Speed, "seed", s.config.Seed)
	alive.Wait()
	return nil
}

// Stats returns what happened so far; it may be called at any time.
func (s *Simulation) Stats() Stats {
	stats := s.counters.snapshot()
	stats.Nodes = len(s.nodes)
	stats.Virtual = s.now()
	return stats
}

// NodeIDs returns the identifiers of the nodes, rooms one after the other.
// Misbehaving clients are not among them.
func (s *Simulation) NodeIDs() []string {
	ids := make([]string, len(s.nodes))
	for i, n := range s.nodes {
		ids[i] = n.id
	}
	return ids
}

// Rooms returns the identifiers of the nodes by room.
func (s *Simulation) Rooms() [][]string {
	ids := s.NodeIDs()
	rooms := make([][]string, 0, len(s.rooms))
	for first := 0; first < len(ids); first += nodesPerRoom {
		rooms = append(rooms, ids[first:min(first+nodesPerRoom, len(ids))])
	}
	return rooms
}

// scheduledOutage is how long a failure of [Config.HotAfter] or FailCooling lasts.
const scheduledOutage = 20 * time.Minute

// FailCooling stops the cooling of a room, numbered from 0, for the next twenty
// minutes of virtual time. Its hot aisle passes 50 °C after about nine of them,
// its cold aisle after about twelve. A room that does not exist is an error.
func (s *Simulation) FailCooling(room int) error {
	if room < 0 || room >= len(s.rooms) {
		return fmt.Errorf("no simulated room %d: there are %d", room, len(s.rooms))
	}
	from := s.now()
	s.rooms[room].add(interval{from: from, to: from + scheduledOutage})
	return nil
}

// now is the present virtual time.
func (s *Simulation) now() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started.IsZero() {
		return 0
	}
	return s.virtual(s.config.Clock().Sub(s.started))
}

// virtual converts a duration of wall time to virtual time.
func (s *Simulation) virtual(wall time.Duration) time.Duration {
	return time.Duration(float64(wall) * s.config.Speed)
}

// wall converts a duration of virtual time to wall time.
func (s *Simulation) wall(virtual time.Duration) time.Duration {
	return time.Duration(float64(virtual) / s.config.Speed)
}

// roomID names a room after its number, from 1.
func roomID(prefix string, number int) string {
	return fmt.Sprintf("%s-r%d", prefix, number/nodesPerRoom+1)
}

// nodeID names a node after its room and its place there, from 1.
func nodeID(prefix string, number int) string {
	return fmt.Sprintf("%s-n%d", roomID(prefix, number), number%nodesPerRoom+1)
}
