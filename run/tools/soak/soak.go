package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"coldaisle.dev/edge-gateway/doctor"
	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/edge-gateway/nodesim/fault"
	"coldaisle.dev/run/tools/ledger"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/pause"
)

// sites is the number of gateways. The first one is never killed, so that a leak
// shows in it.
const sites = 2

// The ledger is settled every settleInterval, for readings that were last sent more
// than settleAfter ago: longer than an outage and the redeliveries after it take.
const (
	settleInterval = 30 * time.Second
	settleAfter    = 90 * time.Second
	// trainingRowsPerNode bounds the readings of one node that a training run reads.
	trainingRowsPerNode = 30
	// quiesceTimeout bounds the wait for empty outboxes and subscriptions at the end.
	quiesceTimeout = 10 * time.Minute
)

// soak is one run.
type soak struct {
	duration           time.Duration
	chaosEvery, outage time.Duration // between two events; how long a component hangs or is cut off
	events             []string      // of chaos, by name; nil for all
	nodes              int
	speed              float64
	seed               uint64
	dir                string
	out                io.Writer
	programs           string // folder where buildPrograms put them
	environ            map[string][]string
	resolve            func(site int) func(context.Context) (string, error) // how nodes find their gateway; nil for its address
	clock              func() time.Time

	cluster   *cluster
	ledger    *ledger.Ledger
	users     *users
	chaos     *chaos
	resources *resources
	sites     []*nodesim.Simulation
	log       *slog.Logger
}

// run starts the cluster, runs the load and the chaos events, waits until nothing is
// in flight and reports. The error lists what went wrong.
func (s *soak) run(ctx context.Context) (err error) {
	file, err := os.Create(filepath.Join(s.dir, "soak.log"))
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	defer func() { _ = file.Close() }()
	if err := s.start(ctx, logging.New(file, slog.LevelInfo, "")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cluster.Stop()) }()
	s.logf("%d nodes send %.0f readings a second, for %s", s.nodes, float64(s.nodes)*s.speed/30, s.duration)
	if err := s.runLoad(ctx); err != nil {
		return err
	}
	s.logf("waiting until nothing is in flight")
	if err := s.quiesce(ctx); err != nil {
		return err
	}
	return s.report(ctx)
}

// start starts the programs and prepares users and nodes. Without an error the
// caller must stop the cluster.
func (s *soak) start(ctx context.Context, log *slog.Logger) (err error) {
	s.log = log
	if s.environ == nil {
		s.environ = map[string][]string{}
	}
	// By default training reads too few rows for so many nodes: a reading is scored with
	// those before it.
	s.environ["train"] = append(s.environ["train"], "TRAINING_ROWS="+strconv.Itoa(trainingRowsPerNode*s.nodes))
	s.logf("starting the programs")
	s.cluster = &cluster{dir: s.dir, programs: s.programs, environ: s.environ, log: log}
	if err = s.cluster.start(ctx); err == nil {
		err = s.prepare(ctx)
	}
	if err != nil {
		return errors.Join(err, s.cluster.Stop())
	}
	return nil
}

func (s *soak) logf(format string, values ...any) {
	_, _ = fmt.Fprintf(s.out, s.clock().UTC().Format("15:04:05 ")+format+"\n", values...)
}

// prepare makes the customers and their sensors, and the nodes.
func (s *soak) prepare(ctx context.Context) error {
	s.users = &users{api: s.cluster.API.URL, clock: s.clock, owner: map[string]*user{}}
	s.ledger = ledger.New(s.users.thresholdsOf, s.clock)
	s.resources = &resources{cluster: s.cluster}
	for _, each := range s.cluster.Processes() {
		if strings.HasSuffix(each.Name, "-1") {
			s.resources.watched = append(s.resources.watched, &usage{Process: each})
		}
	}
	s.chaos = &chaos{
		soak: s, done: map[string]int{}, rng: rand.New(rand.NewPCG(s.seed, 9)), //nolint:gosec // keeps no secret
	}
	var rooms [][]string
	for site := range sites {
		var find func(context.Context) (string, error)
		if s.resolve != nil {
			find = s.resolve(site)
		}
		nodes, err := nodesim.New(nodesim.Config{
			Gateway: s.cluster.Gateways[site].URL, Resolve: find, Nodes: s.nodes / sites, Speed: s.speed, Seed: s.seed + uint64(site),
			Prefix: fmt.Sprintf("site%d", site+1), Clock: s.clock, Log: s.log, Transport: s.ledger.Transport(network(s.nodes)),
		})
		if err != nil {
			return fmt.Errorf("nodes of site %d: %w", site+1, err)
		}
		s.sites = append(s.sites, nodes)
		rooms = append(rooms, nodes.Rooms()...)
	}
	return s.users.createRooms(ctx, rooms)
}

// network connects nodes from many addresses, as on a real site, because a gateway
// limits the connections of one address. Idle connections close soon: those opened
// during an outage would otherwise look like a leak.
func network(nodes int) http.RoundTripper {
	var round atomic.Int64
	return &http.Transport{
		MaxIdleConnsPerHost: nodes, IdleConnTimeout: 15 * time.Second, DisableCompression: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			from := net.IPv4(127, 0, 1, byte(round.Add(1)%200+1)) //nolint:gosec // below 256
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

// runLoad runs nodes, users and chaos events for the time given.
func (s *soak) runLoad(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, s.duration)
	defer stop()
	// A chaos event runs to its end: what it broke must be repaired before quiesce.
	var killing sync.WaitGroup
	if s.chaosEvery > 0 {
		killing.Go(func() { s.chaos.run(ctx, s.chaosEvery, s.duration) })
	}
	var running sync.WaitGroup
	for _, site := range s.sites {
		running.Go(func() { s.runSite(ctx, site) })
	}
	begin, part := s.clock(), s.duration/time.Duration(len(s.users.all)+1)
	for i, user := range s.users.all {
		running.Go(func() { s.users.browse(ctx, user, begin.Add(time.Duration(i+1)*part)) })
	}
	running.Go(func() { s.resources.run(ctx) })
	running.Go(func() { s.settleLedger(ctx) })
	running.Wait()
	killing.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("interrupted: %w", cause)
	}
	return errors.Join(s.chaos.failures...)
}

// runSite runs the nodes of a site. After a quarter of the time the cooling of its rooms begins to fail, of one each
// minute of theirs, and when all have, and the first has recovered, of each again.
func (s *soak) runSite(ctx context.Context, site *nodesim.Simulation) {
	begin, lasts, rooms := s.clock(), time.Duration(s.speed*float64(s.duration)), len(site.Rooms())
	for room := range rooms {
		at := lasts/4 + time.Duration(room)*time.Minute
		var failures []fault.Fault
		for again := true; again; again = at < lasts {
			start := begin.Add(at)
			failures = append(failures, fault.Fault{
				Kind: fault.Cooling, Room: fmt.Sprintf("room%d", room+1), Start: start, End: start.Add(30 * time.Second), Peak: 36, Constant: 30 * time.Minute,
			})
			at += max(time.Duration(rooms)*time.Minute, time.Hour)
		}
		site.Sow(failures...)
	}
	_ = site.Run(ctx) // it never fails
}

// settleLedger settles the ledger from time to time while the nodes send.
func (s *soak) settleLedger(ctx context.Context) {
	for pause.For(ctx, settleInterval) == nil {
		open, err := s.ledger.Settle(ctx, s.cluster.Database.Pool, s.clock().Add(-settleAfter))
		if err != nil {
			continue // the database is down; the next time will do
		}
		sum := s.ledger.Sum()
		s.logf("%d readings sent, %d settled, %d late, %d alerts; %d chaos events", sum.Sent, sum.Answered+sum.Unanswered, len(open), sum.Alerted, s.chaos.count())
	}
}

// quiesce waits until every outbox is empty and every message is delivered, and then
// redelivers the dead letters.
func (s *soak) quiesce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, quiesceTimeout)
	defer cancel()
	for _, gateway := range s.cluster.Gateways {
		if err := waitOutboxEmpty(ctx, gateway.URL); err != nil {
			return err
		}
	}
	if err := s.cluster.queue.Drain(ctx); err != nil {
		return err
	}
	dead := s.cluster.queue.Counts().DeadLettered
	if dead == 0 {
		return nil
	}
	s.logf("redelivering %d dead letters", dead)
	if err := s.cluster.Redeliver(ctx); err != nil {
		return err
	}
	return s.cluster.queue.Drain(ctx)
}

// waitOutboxEmpty waits until a gateway's uplink is not down and its outbox is empty.
func waitOutboxEmpty(ctx context.Context, url string) error {
	for {
		h, err := doctor.Health(ctx, url)
		if err == nil && h.Publishing.Error == "" && h.Outbox.Readings == 0 {
			return nil
		}
		if pause.For(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("%s has %d readings in its outbox: %w", url, h.Outbox.Readings, ctx.Err())
		}
	}
}
