// Package cluster runs Coldaisle as it runs in production, every program a process
// of its own: the gateways of several sites, two instances of each function and of
// the API, a PostgreSQL, Pub/Sub and object storage, connected through TCP proxies.
// Any process can be killed and started again, the database can crash, and each
// proxy can stall, refuse or delay connections.
//
// run/tools/soak uses it for `make soak` and `make chaos`, run/tools/bench to measure
// start times. It checks nothing itself.
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
	"coldaisle.dev/shared/closing"
	"coldaisle.dev/shared/httpserver"
)

// instances is the number of processes behind each load balancer. The soak never
// kills the first one, so that a leak shows in it.
const instances = 2

// modelBucket holds the models in object storage.
const modelBucket = "models"

// Options configure a cluster.
type Options struct {
	Dir   string // for data, programs and logs; made when missing
	Sites int    // gateways
	// Programs are the built programs; nil builds them first.
	Programs Programs
	// Environ adds to the environment, as NAME=value, of the processes of a
	// program: gateway, api, or a function.
	Environ map[string][]string
	Log     *slog.Logger
}

// Cluster is a running cluster.
type Cluster struct {
	Database  *Database
	PubSub    *PubSub
	Gateways  []*Process
	Functions map[string]*LoadBalancer
	API       *LoadBalancer

	options Options
	opened  closing.Stack
}

// Start builds the programs and starts everything. ctx bounds the start only.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	p := &Cluster{options: o, Functions: map[string]*LoadBalancer{}}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (p *Cluster) start(ctx context.Context) error {
	if err := os.MkdirAll(p.logs(), 0o755); err != nil { //nolint:gosec // the database's account must traverse it
		return fmt.Errorf("cluster: %w", err)
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
	p.opened.Push("database", p.Database.close)
	if p.PubSub, err = startPubSub(ctx, filepath.Join(p.options.Dir, "pubsub"), p.options.Log); err != nil {
		return err
	}
	p.opened.Push("Pub/Sub", p.PubSub.close)
	storage, err := p.startStorage(ctx)
	if err != nil {
		return err
	}
	backend := []string{
		"PROJECT_ID=" + Project, "DATABASE_URL=" + p.Database.URL(), "READINGS=postgres",
		"PUBSUB_EMULATOR_HOST=" + p.PubSub.ServiceProxy.Address(),
		"STORAGE_EMULATOR_HOST=" + storage, "MODEL_BUCKET=" + modelBucket,
	}
	secret := "SECRET_KEY=" + rand.Text() + rand.Text()
	if err := run(ctx, p.options.Programs[apiProgram], append(slices.Clone(backend), secret), "migrate"); err != nil {
		return err
	}
	for _, route := range pushbridge.Routes() {
		balancer, err := p.startInstances(ctx, route.Function, append(slices.Clone(backend),
			"FUNCTION_TARGET="+route.Function, "DEAD_LETTER_TOPIC="+route.Topic+pushbridge.DeadLetterSuffix))
		if err != nil {
			return err
		}
		p.Functions[route.Function] = balancer
	}
	if p.API, err = p.startInstances(ctx, apiProgram, append(slices.Clone(backend), secret)); err != nil {
		return err
	}
	err = p.PubSub.push(ctx, func(function string) string { return p.Functions[function].URL }, p.options.Log)
	if err != nil {
		return err
	}
	return p.startGateways(ctx)
}

// functions lists the functions that the bridge pushes to.
func functions() []string {
	var names []string
	for _, route := range pushbridge.Routes() {
		names = append(names, route.Function)
	}
	return names
}

func (p *Cluster) logs() string { return filepath.Join(p.options.Dir, "logs") }

// startProcess prepares and starts a process.
func (p *Cluster) startProcess(ctx context.Context, name, program string, environ []string) (*Process, error) {
	environ = append(slices.Clone(environ), p.options.Environ[program]...)
	process, err := newProcess(ctx, name, p.options.Programs[program], p.logs(), environ)
	if err != nil {
		return nil, err
	}
	p.opened.Push(name, func() error { return process.End(syscall.SIGTERM) })
	return process, process.Start(ctx)
}

func (p *Cluster) startInstances(ctx context.Context, program string, environ []string) (*LoadBalancer, error) {
	members := make([]*Process, instances)
	for i := range members {
		var err error
		if members[i], err = p.startProcess(ctx, program+"-"+strconv.Itoa(i+1), program, environ); err != nil {
			return nil, err
		}
	}
	balancer, err := newLoadBalancer(ctx, p.options.Log, members...)
	if err != nil {
		return nil, err
	}
	p.opened.Push("load balancer of "+program, balancer.close)
	return balancer, nil
}

func (p *Cluster) startGateways(ctx context.Context) error {
	for site := range p.options.Sites {
		name := gatewayProgram + "-" + strconv.Itoa(site+1)
		environ := []string{
			"PROJECT_ID=" + Project, "DATA_TOPIC=" + pushbridge.TopicData,
			"PUBSUB_EMULATOR_HOST=" + p.PubSub.GatewayProxy.Address(), "OUTBOX_DIR=" + filepath.Join(p.options.Dir, name),
			"MDNS=false", // nodes know where it is, and others on this network need not
		}
		gateway, err := p.startProcess(ctx, name, gatewayProgram, environ)
		if err != nil {
			return err
		}
		p.Gateways = append(p.Gateways, gateway)
	}
	return nil
}

// startStorage serves object storage over files and returns its address.
func (p *Cluster) startStorage(ctx context.Context) (string, error) {
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
	p.opened.Push("object storage", func() error {
		end()
		server.Stop()
		return <-ended
	})
	return "http://" + listener.Addr().String(), nil
}

// Redeliver runs run/tools/redeliver for each function, as an operator does.
func (p *Cluster) Redeliver(ctx context.Context) error {
	for _, route := range pushbridge.Routes() {
		environ := append(os.Environ(), "PUBSUB_EMULATOR_HOST="+p.PubSub.server.Address())
		if err := run(ctx, p.options.Programs[redeliverProgram], environ, "-project", Project, "-topic", route.Topic,
			"-function", route.Function, "-endpoint", p.Functions[route.Function].URL, "-idle", "1s"); err != nil {
			return err
		}
	}
	return nil
}

// Processes lists all processes, gateways first.
func (p *Cluster) Processes() []*Process {
	all := slices.Clone(p.Gateways)
	for _, function := range functions() {
		all = append(all, p.Functions[function].Instances...)
	}
	return append(all, p.API.Instances...)
}

// Stop stops everything in the reverse order of its start.
func (p *Cluster) Stop() error { return p.opened.Close() }
