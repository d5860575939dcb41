package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/run/tools/ledger"
	"coldaisle.dev/run/tools/soak/cluster"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/logging"
)

// sites is how many gateways there are. The first one is never killed, so that
// a leak shows in it; the second one is.
const sites = 2

// settleEvery is how often the ledger is settled meanwhile, for what nobody has
// touched for settleAfter: longer than any fault and its consequences take.
const (
	settleEvery = 30 * time.Second
	settleAfter = 90 * time.Second
	// rowsEach is how many readings of a node training may read.
	rowsEach = 30
	// patience is how long everything may take to come to rest at the end.
	patience = 3 * time.Minute
)

// soak is one run.
type soak struct {
	lasting           time.Duration
	killEvery, outage time.Duration
	nodes, dashboards int
	speed             float64
	seed              uint64
	dir               string
	out               io.Writer
	programs          cluster.Programs // nil builds them
	environ           map[string][]string
	resolve           func(site int) nodesim.Resolve // how nodes find their gateway; nil for its address
	clock             func() time.Time

	plant  *cluster.Plant
	book   *ledger.Book
	people *people
	faults *faults
	gauges *gauges
	sites  []*nodesim.Simulation
	log    *slog.Logger
}

// run starts everything, lets it run, brings it to rest and reports. The error
// says what did not hold.
func (s *soak) run(ctx context.Context) (err error) {
	file, err := os.Create(filepath.Join(s.dir, "soak.log"))
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	defer func() { _ = file.Close() }()
	if err := s.start(ctx, logging.New(file, slog.LevelInfo, "")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.plant.Stop()) }()
	s.say("%d nodes send %.0f readings a second, for %s", s.nodes, float64(s.nodes)*s.speed/30, s.lasting)
	if err := s.live(ctx); err != nil {
		return err
	}
	s.say("coming to rest")
	if err := s.rest(ctx); err != nil {
		return err
	}
	return s.verdict(ctx)
}

// start starts the programs and prepares everybody; whoever calls stops the
// plant when there is no error.
func (s *soak) start(ctx context.Context, log *slog.Logger) (err error) {
	s.log = log
	if s.environ == nil {
		// By default training reads fewer rows than so many nodes need: each is
		// judged by what came before it.
		s.environ = map[string][]string{"train": {"TRAINING_ROWS=" + strconv.Itoa(rowsEach*s.nodes)}}
	}
	s.say("starting the programs")
	s.plant, err = cluster.Start(ctx, cluster.Options{Dir: s.dir, Sites: sites, Programs: s.programs, Environ: s.environ, Log: log})
	if err != nil {
		return err
	}
	if err := s.prepare(ctx); err != nil {
		return errors.Join(err, s.plant.Stop())
	}
	return nil
}

func (s *soak) say(format string, values ...any) {
	_, _ = fmt.Fprintf(s.out, s.clock().UTC().Format("15:04:05 ")+format+"\n", values...)
}

// prepare makes the customers and their sensors, and the nodes.
func (s *soak) prepare(ctx context.Context) error {
	s.people = newPeople(s.plant.API.URL, s.clock)
	s.book = ledger.NewBook(s.people.limits, s.clock)
	s.gauges = newGauges(s.plant, s.clock)
	s.faults = newFaults(s.plant, s.outage, s.seed, s.clock, s.say)
	var rooms [][]string
	for site := range sites {
		find, err := nodesim.FixedAddress(s.plant.Gateways[site].URL())
		if s.resolve != nil {
			find = s.resolve(site)
		}
		if err != nil {
			return fmt.Errorf("site %d: %w", site+1, err)
		}
		nodes, err := nodesim.New(nodesim.Config{
			Resolve: find, Nodes: s.nodes / sites, Speed: s.speed, Seed: s.seed + uint64(site),
			Prefix: fmt.Sprintf("site%d", site+1), HotAfter: s.lasting / 4, FailureEvery: 4 * time.Hour,
			Clock: s.clock, Log: s.log, Transport: s.book.Over(network(s.nodes)),
		})
		if err != nil {
			return fmt.Errorf("nodes of site %d: %w", site+1, err)
		}
		s.sites = append(s.sites, nodes)
		rooms = append(rooms, nodes.Rooms()...)
	}
	return s.people.furnish(ctx, rooms)
}

// network connects nodes from many addresses, as on a real site: a gateway
// grants one address only so many connections. What nodes opened while their
// posts waited for a fault to end closes soon: kept, it would pass for a leak.
func network(nodes int) http.RoundTripper {
	var turn atomic.Int64
	return &http.Transport{
		MaxIdleConnsPerHost: nodes, IdleConnTimeout: 15 * time.Second, DisableCompression: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			from := net.IPv4(127, 0, 1, byte(turn.Add(1)%200+1)) //nolint:gosec // below 256
			conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}).DialContext(ctx, network, address)
			if errors.Is(err, syscall.EADDRNOTAVAIL) { // no such addresses but on Linux
				conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			}
			if err != nil {
				return nil, fmt.Errorf("node: %w", err)
			}
			return conn, nil
		},
	}
}

// live lets everything run for the time given.
func (s *soak) live(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, s.lasting)
	defer stop()
	// Whoever kills must be done before everything is brought to rest, and ends
	// in order: what is down is up again.
	var killing sync.WaitGroup
	if s.killEvery > 0 {
		killing.Go(func() { s.faults.run(ctx, s.killEvery, s.lasting) })
	}
	var running sync.WaitGroup
	for _, site := range s.sites {
		running.Go(func() { _ = site.Run(ctx) }) // it never fails
	}
	for i := range s.dashboards {
		running.Go(func() { s.people.look(ctx, i) })
	}
	running.Go(func() { s.people.judge(ctx) })
	running.Go(func() { s.gauges.run(ctx) })
	running.Go(func() { s.settle(ctx) })
	running.Wait()
	killing.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("interrupted: %w", cause)
	}
	return s.faults.err()
}

// settle closes the ledger's readings while the nodes send more of them.
func (s *soak) settle(ctx context.Context) {
	ticker := time.NewTicker(settleEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		open, err := s.settled(ctx, s.clock().Add(-settleAfter))
		if err != nil {
			continue // the database is down; the next time will do
		}
		sum := s.book.Sum()
		s.say("%d readings sent, %d settled, %d late, %d alerts; %d faults", sum.Sent, sum.Answered+sum.Unanswered, open, sum.Alerted, s.faults.count())
	}
}

func (s *soak) settled(ctx context.Context, before time.Time) (int, error) {
	db, err := s.plant.Database.Connect(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	return s.book.Settle(ctx, db, before)
}

// defaults are the limits of customers who have set none.
func defaults() alert.Thresholds { return alert.Defaults() }
