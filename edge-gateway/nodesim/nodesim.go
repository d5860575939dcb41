// Package nodesim simulates sensor nodes. They call the gateway as the hardware
// does. Each node finds the gateway, registers with up to five retries, posts a
// reading every 30 seconds, and sends heartbeats between. After a 500 it sends
// the reading again under the same id on its next cycle. The values are those of
// package site, four nodes to a room; the cooling of a room fails now and then.
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
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/edge-gateway/nodesim/site"
	"coldaisle.dev/shared/alert"
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

	// Faults are sown besides, at the places of package site: room1, room1-node1.
	Faults []fault.Fault
	// Began is when virtual time began, before Run; zero is when Run is called. [Simulation.Backfill]
	// sends what was measured from then on.
	Began time.Time

	// FailureEvery is the mean time between cooling failures of a room; 0 means a day, a
	// negative value none by chance.
	FailureEvery time.Duration
	// HotAfter is the wall time after which the hottest node of the first room
	// passes 50 °C for the first time, within half a minute of virtual time. The
	// cooling fails early enough for that, if necessary before the start. 0 leaves
	// failures to chance.
	HotAfter time.Duration

	Clock     func() time.Time  // wall clock
	Log       *slog.Logger      // nil logs nothing
	Transport http.RoundTripper // nil means connections of the package's own
}

func (c *Config) complete() error {
	c.Speed = cmp.Or(c.Speed, 1)
	c.PerRoom = cmp.Or(c.PerRoom, 4)
	c.Prefix = cmp.Or(c.Prefix, "sim")
	c.FailureEvery = cmp.Or(c.FailureEvery, 24*time.Hour)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	var errs []error
	if c.Nodes < 0 {
		errs = append(errs, fmt.Errorf("nodes must not be negative: got %d", c.Nodes))
	}
	if !(c.Speed > 0 && c.Speed <= maxSpeed) {
		errs = append(errs, fmt.Errorf("speed must be over 0 and at most %g: got %g", maxSpeed, c.Speed))
	}
	if c.Resolve == nil {
		base := strings.TrimRight(c.Gateway, "/")
		if u, err := url.Parse(base); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			errs = append(errs, fmt.Errorf("gateway must be an address such as http://192.168.1.20:8080: got %q", c.Gateway))
		}
		c.Resolve = func(context.Context) (string, error) { return base, nil }
	}
	return errors.Join(errs...)
}

// Stats counts what the nodes did so far.
type Stats struct {
	Nodes      int
	Registered int64 // nodes whose registration the gateway accepted
	Accepted   int64 // readings answered with 200
	Rejected   int64 // readings the gateway found invalid
	Failed     int64 // posts of readings that were to be retried, or not answered
	Retried    int64 // posts that repeated an id
	Lost       int64 // readings that a node dropped because its memory was full
	Heartbeats int64 // that the gateway accepted
}

// String is a status line.
func (s Stats) String() string {
	return fmt.Sprintf("nodes %d/%d  accepted %d  retried %d  rejected %d  failed %d  heartbeats %d",
		s.Registered, s.Nodes, s.Accepted, s.Retried, s.Rejected, s.Failed, s.Heartbeats)
}

// Simulation is a set of nodes, made by [New] and started by Run.
type Simulation struct {
	config Config
	client *http.Client
	site   *site.Site
	nodes  []*device

	started time.Time   // virtual time begins, by the wall clock
	hot     fault.Fault // of the first room, by HotAfter

	mu    sync.Mutex
	stats Stats
}

// New prepares the rooms and their nodes; nothing is sent yet. The error joins
// everything that is wrong with the config.
func New(config Config) (*Simulation, error) {
	if err := config.complete(); err != nil {
		return nil, fmt.Errorf("simulated nodes: %w", err)
	}
	rooms := (config.Nodes + config.PerRoom - 1) / config.PerRoom
	s := &Simulation{
		config: config, client: newClient(config.Nodes, config.Transport), stats: Stats{Nodes: config.Nodes},
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
	if s.config.HotAfter > 0 && s.config.Nodes > 0 {
		s.hot = s.hotAt(s.config.Clock().Add(s.virtual(s.config.HotAfter)))
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
		return n.id == node && slices.ContainsFunc(s.faults(n.number, at.Sub(s.started)), func(f fault.Fault) bool { return f.Affects(at) })
	})
}

// Sow adds faults, before Run.
func (s *Simulation) Sow(faults ...fault.Fault) { s.config.Faults = append(s.config.Faults, faults...) }

// Stats returns what happened so far; it may be called at any time.
func (s *Simulation) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

func (s *Simulation) add(count *int64, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*count += n
}

// Rooms returns the ids of the nodes by room.
func (s *Simulation) Rooms() [][]string {
	var ids []string
	for _, n := range s.nodes {
		ids = append(ids, n.id)
	}
	return slices.Collect(slices.Chunk(ids, s.config.PerRoom))
}

// A cooling failure lasts for an outage and warms the room's air by outagePeak °C with its
// time constant: every node passes 50 °C.
const (
	outage         = 20 * time.Minute
	outagePeak     = 36.0
	outageConstant = 30 * time.Minute
)

func coolingFailure(start time.Time) fault.Fault {
	return fault.Fault{Kind: fault.Cooling, Start: start, End: start.Add(outage), Peak: outagePeak, Constant: outageConstant}
}

// Failures returns the failures of a room's cooling around a virtual time after the start:
// all whose effect is felt then. It fails once in each time of FailureEvery, by chance.
func (s *Simulation) Failures(room int, at time.Duration) []fault.Fault {
	var faults []fault.Fault
	if room == 0 && s.config.HotAfter > 0 {
		faults = append(faults, s.hot)
	}
	every := s.config.FailureEvery
	for slot := at / every; every > 0 && slot >= max(0, at/every-1); slot-- {
		// Not in the first quarter: nothing fails right after the start.
		share := 0.25 + 0.75*fault.Uniform(s.config.Seed, uint64(room), uint64(slot)) //nolint:gosec // not negative
		start := slot*every + time.Duration(share*float64(every-outage))
		faults = append(faults, coolingFailure(s.started.Add(start)))
	}
	return faults
}

func (s *Simulation) faults(number int, at time.Duration) []fault.Fault {
	place := s.site.Places()[number]
	return fault.Of(append(s.Failures(number/s.config.PerRoom, at), s.config.Faults...), place.Room, place.Node)
}

// hotAt returns the failure of the first room's cooling by which its hottest node passes
// the default threshold, and a little for noise, at a time.
func (s *Simulation) hotAt(at time.Time) fault.Fault {
	hottest := 0.0
	for number := range min(s.config.PerRoom, s.config.Nodes) {
		hottest = max(hottest, s.site.Measure(number, at, nil).Temperature)
	}
	missing := (alert.Defaults().MaxTemperature + 0.5 - hottest) / outagePeak // as a share
	tau, lasts := outageConstant.Seconds(), outage.Seconds()
	since := -tau * math.Log1p(missing*math.Expm1(-lasts/tau))
	return coolingFailure(at.Add(-time.Duration(since * float64(time.Second))))
}

func (s *Simulation) virtual(wall time.Duration) time.Duration {
	return time.Duration(float64(wall) * s.config.Speed)
}

func (s *Simulation) wall(virtual time.Duration) time.Duration {
	return time.Duration(float64(virtual) / s.config.Speed)
}

// address returns the address that a node registers with, in a network that does not exist.
func address(network, number int) string {
	return fmt.Sprintf("10.%d.%d.%d", network, number/250%256, number%250+1)
}
