// Package cluster runs Coldaisle as it runs in production, every program a
// process of its own, on lines that can be cut: the gateways of several sites,
// two instances of each function and of the API, a PostgreSQL, Pub/Sub and
// object storage. Any process can be killed and started again, the database can
// crash, and every line can fall silent or become slow.
//
// The soak and the chaos scenarios of run/tools/soak break it; it decides nothing of
// what must hold meanwhile.
package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/fsouza/fake-gcs-server/fakestorage"

	"coldaisle.dev/run/local/pushbridge"
	"coldaisle.dev/shared/httpserver"
)

// instances is how many processes stand behind each pool: the first ones never
// die in a soak, so that a leak shows in them, the second ones do.
const instances = 2

// modelBucket holds the models in object storage.
const modelBucket = "models"

// Options say what runs.
type Options struct {
	Dir   string // for data, programs and logs; made when missing
	Sites int    // gateways
	// Programs are what runs; nil builds it first.
	Programs Programs
	// Environ adds to the environment, as NAME=value, of the processes of a
	// program: gateway, api, or a function.
	Environ map[string][]string
	Log     *slog.Logger
}

// Plant is a running system.
type Plant struct {
	Database  *Database
	PubSub    *PubSub
	Gateways  []*Process
	Functions map[string]*Pool
	API       *Pool

	options Options
	closers []func() error
}

// Start builds the programs and starts everything. ctx bounds the start only.
func Start(ctx context.Context, o Options) (*Plant, error) {
	p := &Plant{options: o, Functions: map[string]*Pool{}}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (p *Plant) start(ctx context.Context) error {
	if err := os.MkdirAll(p.logs(), 0o755); err != nil { //nolint:gosec // the database's account must pass
		return fmt.Errorf("plant: %w", err)
	}
	var err error
	if p.options.Programs == nil {
		if p.options.Programs, err = Build(ctx, filepath.Join(p.options.Dir, "bin")); err != nil {
			return err
		}
	}
	if p.Database, err = startDatabase(ctx, filepath.Join(p.options.Dir, "postgres"), p.options.Log); err != nil {
		return err
	}
	p.onStop(p.Database.close)
	if p.PubSub, err = startPubSub(ctx); err != nil {
		return err
	}
	p.onStop(p.PubSub.close)
	storage, err := p.startStorage(ctx)
	if err != nil {
		return err
	}
	backend := []string{
		"PROJECT_ID=" + Project, "DATABASE_URL=" + p.Database.URL(), "READINGS=postgres",
		"PUBSUB_EMULATOR_HOST=" + p.PubSub.Backend.Address(),
		"STORAGE_EMULATOR_HOST=" + storage, "MODEL_BUCKET=" + modelBucket,
	}
	secret := "SECRET_KEY=" + rand.Text() + rand.Text()
	if err := run(ctx, p.options.Programs[apiProgram], append(slices.Clone(backend), secret), "migrate"); err != nil {
		return err
	}
	for _, function := range functions() {
		pool, err := p.startPool(ctx, function, append(slices.Clone(backend), "FUNCTION_TARGET="+function))
		if err != nil {
			return err
		}
		p.Functions[function] = pool
	}
	if p.API, err = p.startPool(ctx, apiProgram, append(slices.Clone(backend), secret)); err != nil {
		return err
	}
	err = p.PubSub.push(ctx, func(function string) string { return p.Functions[function].URL }, p.options.Log)
	if err != nil {
		return err
	}
	return p.startGateways(ctx)
}

// functions are those that the bridge pushes to.
func functions() []string {
	var names []string
	for _, route := range pushbridge.Routes() {
		names = append(names, route.Function)
	}
	return names
}

func (p *Plant) logs() string { return filepath.Join(p.options.Dir, "logs") }

// process prepares and starts one.
func (p *Plant) process(ctx context.Context, name, program string, environ []string) (*Process, error) {
	environ = append(slices.Clone(environ), p.options.Environ[program]...)
	process, err := newProcess(ctx, name, p.options.Programs[program], p.logs(), environ)
	if err != nil {
		return nil, err
	}
	p.onStop(func() error { return process.End(syscall.SIGTERM) })
	return process, process.Start(ctx)
}

func (p *Plant) startPool(ctx context.Context, program string, environ []string) (*Pool, error) {
	members := make([]*Process, instances)
	for i := range members {
		var err error
		if members[i], err = p.process(ctx, program+"-"+strconv.Itoa(i+1), program, environ); err != nil {
			return nil, err
		}
	}
	pool, err := newPool(ctx, p.options.Log, members...)
	if err != nil {
		return nil, err
	}
	p.onStop(pool.close)
	return pool, nil
}

func (p *Plant) startGateways(ctx context.Context) error {
	for site := range p.options.Sites {
		name := gatewayProgram + "-" + strconv.Itoa(site+1)
		environ := []string{
			"PROJECT_ID=" + Project, "DATA_TOPIC=" + pushbridge.TopicData,
			"PUBSUB_EMULATOR_HOST=" + p.PubSub.Sites.Address(), "OUTBOX_DIR=" + filepath.Join(p.options.Dir, name),
			"MDNS=false", // nodes know where it is, and others on this network need not
		}
		gateway, err := p.process(ctx, name, gatewayProgram, environ)
		if err != nil {
			return err
		}
		p.Gateways = append(p.Gateways, gateway)
	}
	return nil
}

// startStorage serves object storage over files and returns its address.
func (p *Plant) startStorage(ctx context.Context) (string, error) {
	root := filepath.Join(p.options.Dir, "objects")
	if err := os.MkdirAll(filepath.Join(root, modelBucket), 0o700); err != nil {
		return "", fmt.Errorf("object storage: %w", err)
	}
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		Scheme: "http", NoListener: true, StorageRoot: root, Writer: io.Discard,
	})
	if err != nil {
		return "", fmt.Errorf("object storage: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("object storage: %w", err)
	}
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() {
		ended <- httpserver.Run(ctx, listener, server.HTTPHandler(), httpserver.Config{}, p.options.Log, slog.LevelDebug)
	}()
	p.onStop(func() error {
		end()
		server.Stop()
		return <-ended
	})
	return "http://" + listener.Addr().String(), nil
}

// Replay moves dead letters back to their topics, as an operator does.
func (p *Plant) Replay(ctx context.Context) error {
	for _, topic := range []string{pushbridge.TopicData, pushbridge.TopicAlerts} {
		environ := append(os.Environ(), "PUBSUB_EMULATOR_HOST="+p.PubSub.server.Addr)
		if err := run(ctx, p.options.Programs[replayProgram], environ, "-project", Project, "-topic", topic, "-idle", "1s"); err != nil {
			return err
		}
	}
	return nil
}

// Processes are all that run, gateways first.
func (p *Plant) Processes() []*Process {
	all := slices.Clone(p.Gateways)
	for _, function := range functions() {
		all = append(all, p.Functions[function].Instances...)
	}
	return append(all, p.API.Instances...)
}

func (p *Plant) onStop(end func() error) { p.closers = append(p.closers, end) }

// Stop ends everything, what was started last first.
func (p *Plant) Stop() error {
	var faults []error
	for _, end := range slices.Backward(p.closers) {
		faults = append(faults, end())
	}
	p.closers = nil
	return errors.Join(faults...)
}
