// Package system runs the whole of Coldaisle in one process: the gateway and
// simulated nodes, the queue, the functions, object storage, the API
// with its dashboard, and a PostgreSQL beside them. The components are those of
// production; only the endpoints differ.
//
// run/local's main starts it for a developer; end-to-end tests start it too. A server
// that [Options] names, such as a database, is used instead of an embedded one.
package system

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/run/api"
	"coldaisle.dev/run/api/alerting"
	"coldaisle.dev/run/api/training"
	"coldaisle.dev/run/dashboard"
	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/shared/closing"
	"coldaisle.dev/shared/modelstore"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/readings/bqreadings"
	"coldaisle.dev/shared/readings/pgreadings"
	"coldaisle.dev/shared/store"
)

// Project is the name under which topics exist locally.
const Project = "coldaisle-local"

// Options configure a system. A program takes from its environment which servers are used
// instead of embedded ones.
type Options struct {
	DataDir     string // everything that survives a restart
	Host        string // address to listen on; empty means 127.0.0.1
	APIPort     int    // 0 takes a free one
	GatewayPort int    // 0 takes a free one

	// Enrol enrols the gateway to the demo customer; else its readings are in the open
	// channel.
	Enrol bool

	Nodes int     // simulated nodes, with a customer who owns them; 0 for none
	Speed float64 // simulated seconds per second; 0 means 1
	Seed  uint64
	// History is how long a past a new demo gets; 0 for none.
	History time.Duration

	SecretKey       string   `env:"SECRET_KEY"`            // empty makes one and keeps it in DataDir
	TrustedProxies  []string `env:"TRUSTED_PROXIES"`       // before the API; see api.Config
	DatabaseURL     string   `env:"DATABASE_URL"`          // empty runs a PostgreSQL in DataDir
	PubSubEmulator  string   `env:"PUBSUB_EMULATOR_HOST"`  // host:port; empty runs the queue
	StorageEmulator string   `env:"STORAGE_EMULATOR_HOST"` // host:port; empty runs one in this process
	// BigQuery keeps readings in an emulator, where it names one.
	BigQuery bqreadings.Config

	// ModelRefreshInterval is the time between two looks for newly published models;
	// 0 means a minute.
	ModelRefreshInterval time.Duration
	// Questions is how many readings without an incident users are asked about in a day; 0
	// means detect's default.
	Questions int
	// PasswordCost is bcrypt's cost; 0 means the API's default. Only tests set less.
	PasswordCost int

	// WrapHandler, if not nil, wraps each function's handler: a test makes it fail.
	WrapHandler func(function string, next push.HandleFunc) push.HandleFunc
	// Delivery is how messages are pushed, by default as in production; tests shorten the
	// backoff.
	Delivery queue.Policy

	Clock func() time.Time
	Log   *slog.Logger
}

// System is a running system.
type System struct {
	APIURL     string
	GatewayURL string
	StorageURL string

	PubSubAddress string              // what PUBSUB_EMULATOR_HOST is set to for other programs
	FunctionsURL  string              // with a function's name behind it: where its messages are posted
	PubSub        *pubsub.Client      // of the system's Pub/Sub; tests publish and pull with it
	Pool          *pgxpool.Pool       // of the metadata database
	Readings      *pgreadings.Store   // the time-series table
	Models        *modelstore.Bucket  // that of the models
	Queue         *queue.Queue        // the system's Pub/Sub; nil where an emulator is
	Nodes         *nodesim.Simulation // nil for none

	options     Options
	db          *store.DB        // of the pool
	archive     readings.Archive // nil without a BigQuery emulator
	databaseURL string
	log         *slog.Logger
	failed      chan error    // of a component that exited unexpectedly
	pipeline    *pgxpool.Pool // of the functions
	pastOver    chan struct{} // closed: the demo's past is complete
	pastDone    atomic.Int64  // percent of it
	opened      closing.Stack
}

// CollectLess makes the garbage collector of the whole process run a quarter as often, below a
// heap of a GiB. The live heap is some 20 MB: with Go's own setting it is collected each 300
// readings, a tenth of the processor time of Go's part in a reading (BenchmarkReading).
func CollectLess() {
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(1 << 30)
}

// Start starts the components one after the other. When one fails, those before it
// are stopped again. ctx bounds the start only.
func Start(ctx context.Context, o Options) (*System, error) {
	o.Host = cmp.Or(o.Host, "127.0.0.1")
	s := &System{options: o, log: o.Log, failed: make(chan error, 8), pastOver: make(chan struct{})}
	if _, err := os.Stat(s.pastMark()); err == nil || !o.hasPast() {
		close(s.pastOver)
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *System) start(ctx context.Context) error {
	o := s.options
	// Ports first: a port in use is reported before anything else starts.
	apiListener, err := s.listen(ctx, o.APIPort, "the API", "--api-port")
	if err != nil {
		return err
	}
	gatewayListener, err := s.listen(ctx, o.GatewayPort, "the gateway", "--gateway-port")
	if err != nil {
		return err
	}
	s.APIURL, s.GatewayURL = urlOf(apiListener), urlOf(gatewayListener)
	for _, start := range []func(context.Context) error{
		s.startDatabase, s.startPubSub, s.startStorage, s.openReadings, s.openModels, s.startPipeline,
	} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	for name, j := range jobs() {
		s.runComponent(ctx, name, func(ctx context.Context) error { return s.runJob(ctx, name, j) })
	}
	retraining := training.NewPublisher(s.PubSub, queue.TopicRetraining)
	s.opened.Push("retraining topic", closing.NoError(retraining.Stop))
	drills := alerting.NewDrillPublisher(s.PubSub, queue.TopicData)
	s.opened.Push("data topic", closing.NoError(drills.Stop))
	secret := o.SecretKey
	if secret == "" {
		file := filepath.Join(o.DataDir, "secret_key")
		secret, err = readOrCreateSecret(file, func() string { return rand.Text() + rand.Text() })
	}
	if err != nil {
		return err
	}
	recordKeys, archive, err := s.openRecords(ctx)
	if err != nil {
		return err
	}
	handler, err := api.New(api.Config{
		DB: s.db, Readings: s.Readings, Publisher: retraining, Drills: drills, SecretKey: secret, RecordKeys: recordKeys, Records: archive,
		ProjectID: Project, DataTopic: queue.TopicData,
		Models: s.loader(), Clock: o.Clock, Log: s.log,
		PasswordCost: o.PasswordCost, TrustedProxies: o.TrustedProxies,
	})
	if err != nil {
		return err
	}
	s.runComponent(ctx, "API", func(ctx context.Context) error {
		return api.Serve(ctx, apiListener, s.addPastHeader(dashboard.WithPage(handler)), s.log)
	})
	s.runComponent(ctx, "API's loops", handler.Run) // whose end, before the server's, answers requests that wait for changes
	return s.startGateway(ctx, gatewayListener)
}

// Failed receives the error of a component that exited unexpectedly.
func (s *System) Failed() <-chan error { return s.failed }

// Stop stops the components in the reverse order of their start: nodes, gateway and
// API first, then the pushes and the functions, then the queue and the database. What is
// not delivered is delivered after the next start.
func (s *System) Stop() error {
	if err := s.opened.Close(); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}

// runComponent runs a component until the system stops. The component gets a context
// that outlives the start's, and must return when it ends.
func (s *System) runComponent(ctx context.Context, name string, component func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	var result error
	running.Go(func() {
		result = component(ctx)
		if ctx.Err() == nil {
			s.failed <- fmt.Errorf("%s: %w", name, errors.Join(result, errors.New("exited unexpectedly")))
		}
	})
	s.opened.Push(name, func() error {
		cancel()
		running.Wait()
		return result
	})
}

// listen opens a port. The component that serves the listener closes it; a second
// close at the end does no harm.
func (s *System) listen(ctx context.Context, port int, what, flag string) (net.Listener, error) {
	address := net.JoinHostPort(s.options.Host, strconv.Itoa(port))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s cannot listen on %s: stop what uses the port, or choose another with %s (%w)", what, address, flag, err)
	}
	s.opened.Push(what+"'s port", func() error { _ = listener.Close(); return nil })
	return listener, nil
}

func urlOf(listener net.Listener) string {
	if address, ok := listener.Addr().(*net.TCPAddr); ok && address.IP.IsUnspecified() {
		return fmt.Sprint("http://127.0.0.1:", address.Port)
	}
	return "http://" + listener.Addr().String()
}

// Status says on one line what the system has done: the simulated nodes and
// their readings that the gateway accepted, the stored readings of the last hour of any node, the lasting
// incidents and the dead letters; at first, how much of the past is sent. It is asked for as long as the
// system runs, so it counts nothing that grows.
func (s *System) Status(ctx context.Context) (string, error) {
	if arriving := s.arriving(); arriving != "" {
		return arriving, nil
	}
	var sent, deadLetters int64
	if s.Nodes != nil {
		sent = s.Nodes.Stats().Accepted
	}
	if s.Queue != nil {
		deadLetters = s.Queue.Counts().DeadLettered
	}
	type counts struct{ Stored, Incidents int64 }
	found, err := store.AllPlanned(ctx, s.db, pgx.RowToStructByName[counts], `
		SELECT (SELECT count(*) FROM sensor_data.readings WHERE timestamp >= @from) AS stored,
		       (SELECT count(*) FROM room_incidents WHERE lasting AND merged_into IS NULL) AS incidents`,
		store.Args{"from": s.options.Clock().Add(-time.Hour)}, "status")
	if err != nil {
		return "", err //nolint:wrapcheck // it says what it is
	}
	return fmt.Sprintf("simulated nodes %d · readings sent %d · stored in the last hour %d · lasting incidents %d · dead letters %d",
		s.options.Nodes, sent, found[0].Stored, found[0].Incidents, deadLetters), nil
}
