// Package nodesim simulates sensor nodes. They call the gateway as the hardware
// does. Each node finds the gateway, registers with up to five retries, posts a
// reading every 30 seconds, and sends heartbeats between. After a 500 it sends
// the reading again under the same id on its next cycle. The values are those of
// package site, four nodes to a room, with the faults that are sown.
//
// The same seed gives the same values at the same time. Nodes live in virtual time,
// which begins when they start and passes at speed × wall time. The gateway dates
// readings by its own clock, so a series that is stored at a high speed is compressed.
//
// make run and the soak use it. [Replay] sends a recording instead.
package nodesim

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/edge-gateway/nodesim/site"
)

// Interval is the virtual time between readings of a node.
const Interval = 30 * time.Second

// maxSpeed turns the interval into 30 ms. A faster node could not keep its schedule over HTTP.
const maxSpeed = 1000.0

// Config says which nodes there are. Durations are virtual time unless a comment says
// otherwise.
type Config struct {
	Gateway string // base address, such as http://192.168.1.20:8080
	// Resolve, if given, finds the base address instead: when a node starts, and again when
	// nobody answers there.
	Resolve func(ctx context.Context) (string, error)
	Nodes   int
	PerRoom int     // nodes that share a room's air; 0 means 4
	Speed   float64 // virtual seconds per second; 0 means 1
	Seed    uint64  // of rooms, nodes and noise
	Prefix  string  // of node ids; empty means sim
	Hosts   int     // how many of them, the last ones, are hosts of a source, which measure temperature alone

	// Began is when virtual time began, before Run; zero is when Run is called. [Simulation.Backfill]
	// sends what was measured from then on.
	Began time.Time

	Clock     func() time.Time  // wall clock
	Log       *slog.Logger      // nil logs nothing
	Transport http.RoundTripper // nil means connections of the package's own
}

func (c *Config) complete() error {
	c.Speed = cmp.Or(c.Speed, 1)
	c.PerRoom = cmp.Or(c.PerRoom, 4)
	c.Prefix = cmp.Or(c.Prefix, "sim")
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Resolve == nil {
		c.Resolve = func(context.Context) (string, error) { return c.Gateway, nil }
	}
	if c.Nodes < 0 {
		return fmt.Errorf("nodes must not be negative: got %d", c.Nodes)
	}
	if !(c.Speed > 0 && c.Speed <= maxSpeed) {
		return fmt.Errorf("speed must be over 0 and at most %g: got %g", maxSpeed, c.Speed)
	}
	return nil
}

// Stats counts the posts of readings so far.
type Stats struct {
	Accepted int64 // answered with 200
	Rejected int64 // which the gateway found invalid
	Failed   int64 // that were to be repeated, or not answered
}

// Simulation is a set of nodes, made by [New] and started by Run.
type Simulation struct {
	config Config
	client *http.Client
	site   *site.Site
	nodes  []*device

	started time.Time // virtual time begins, by the wall clock

	accepted, rejected, failed atomic.Int64 // for [Stats]
}

// New prepares the rooms and their nodes; nothing is sent yet.
func New(config Config) (*Simulation, error) {
	if err := config.complete(); err != nil {
		return nil, fmt.Errorf("simulated nodes: %w", err)
	}
	rooms := (config.Nodes + config.PerRoom - 1) / config.PerRoom
	s := &Simulation{
		config: config, client: newClient(config.Nodes, config.Transport),
		site:    site.New(site.Options{Seed: config.Seed, Rooms: rooms, PerRoom: config.PerRoom}),
		started: config.Began,
	}
	for number := range config.Nodes {
		s.nodes = append(s.nodes, newDevice(s, number))
	}
	return s, nil
}

// Run runs the nodes until the context ends, waits for requests in flight, and returns nil. A
// gateway that does not answer is no error: Stats counts it. Call Run once.
func (s *Simulation) Run(ctx context.Context) error {
	defer s.client.CloseIdleConnections()
	if s.started.IsZero() {
		s.started = s.config.Clock()
	}
	s.config.Log.InfoContext(ctx, "simulated nodes started",
		"nodes", len(s.nodes), "speed", s.config.Speed, "seed", s.config.Seed)
	var running sync.WaitGroup
	for _, n := range s.nodes {
		running.Go(func() { n.run(ctx) })
	}
	running.Wait()
	return nil
}

// Backfill posts the nodes' readings between two times to the gateway at a base address, as fast as
// it answers: one reading of each node at once, and the next ones when all are answered. The gateway's
// clock must return the time that step was last called with.
func (s *Simulation) Backfill(ctx context.Context, gateway string, from, to time.Time, every time.Duration, step func(at time.Time) error) error {
	for at := from; at.Before(to); at = at.Add(every) {
		if err := step(at); err != nil {
			return err
		}
		posts, ctx := errgroup.WithContext(ctx)
		for _, n := range s.nodes {
			posts.Go(func() error {
				m := n.message(at.Sub(s.started))
				end, err := post(ctx, s.client, gateway, m.path(), m)
				if end != accepted {
					return fmt.Errorf("reading of %s at %s is not accepted: %w", n.id, at.Format(time.RFC3339), err)
				}
				return nil
			})
		}
		if err := posts.Wait(); err != nil {
			return err //nolint:wrapcheck // it names the reading
		}
	}
	return nil
}

// Faulty reports whether a fault changes what a node measures at a time.
func (s *Simulation) Faulty(node string, at time.Time) bool {
	return slices.ContainsFunc(s.nodes, func(n *device) bool {
		return n.id == node && slices.ContainsFunc(n.faults, func(f fault.Fault) bool { return f.Affects(at) })
	})
}

// Sow adds faults, before Run, at the places of package site: room1, room1-node1.
func (s *Simulation) Sow(faults ...fault.Fault) {
	places := s.site.Places()
	for i, n := range s.nodes {
		n.faults = fault.Of(append(n.faults, faults...), places[i].Room, places[i].Node)
	}
}

// Stats returns what happened so far; it may be called at any time.
func (s *Simulation) Stats() Stats {
	return Stats{s.accepted.Load(), s.rejected.Load(), s.failed.Load()}
}

// Rooms returns the ids of the nodes by room.
func (s *Simulation) Rooms() [][]string {
	var ids []string
	for _, n := range s.nodes {
		ids = append(ids, n.id)
	}
	return slices.Collect(slices.Chunk(ids, s.config.PerRoom))
}

func (s *Simulation) virtual(wall time.Duration) time.Duration {
	return time.Duration(float64(wall) * s.config.Speed)
}

func (s *Simulation) wall(virtual time.Duration) time.Duration {
	return time.Duration(float64(virtual) / s.config.Speed)
}
