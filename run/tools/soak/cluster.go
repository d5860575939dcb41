package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/child"
	"coldaisle.dev/shared/closing"
	"coldaisle.dev/shared/postgres"
	"coldaisle.dev/shared/processtest"
	"coldaisle.dev/shared/proxytest"
)

// instances is the number of processes behind each load balancer. The soak never
// kills the first one, so that a leak shows in it.
const instances = 2

// The programs' names, with which the names of their processes begin; the functions are one
// program, whose processes bear the functions' names.
const (
	gatewayProgram   = "gateway"
	apiProgram       = "api"
	functionsProgram = "functions"
	redeliverProgram = "redeliver"
)

// cluster is Coldaisle as it runs in production, every program a process of its own: the
// gateways of several sites, two instances of each function and of the API, a PostgreSQL,
// Pub/Sub and object storage, connected through TCP proxies. Any process can be killed and
// started again, the database can crash, and each proxy can stall, refuse or delay
// connections. It checks nothing itself.
type cluster struct {
	Database  *database
	Gateways  []*processtest.Process
	Functions map[string]*loadBalancer
	API       *loadBalancer

	queue        *queue.Queue
	gatewayProxy *proxytest.Proxy // of the queue, for gateways
	serviceProxy *proxytest.Proxy // of the queue, for functions and API

	dir      string // for data, programs and logs; made when missing
	programs string // folder where buildPrograms put them
	// environ adds to the environment, as NAME=value, of the processes of a program: gateway,
	// api, or a function.
	environ map[string][]string
	log     *slog.Logger
	opened  closing.Stack
}

// start starts everything. The caller stops it, also after an error. ctx bounds the start only.
func (c *cluster) start(ctx context.Context) error {
	c.Functions = map[string]*loadBalancer{}
	if err := os.MkdirAll(c.logs(), 0o755); err != nil { //nolint:gosec // the database's account must traverse it
		return fmt.Errorf("cluster: %w", err)
	}
	if err := c.startDatabase(ctx, filepath.Join(c.dir, "postgres")); err != nil {
		return err
	}
	if err := c.startPubSub(ctx, filepath.Join(c.dir, "pubsub")); err != nil {
		return err
	}
	storage, err := system.OpenStorage(c.dir)
	if err != nil {
		return err
	}
	c.opened.Push("object storage", closing.NoError(storage.Stop))
	backend := []string{
		"PROJECT_ID=" + project, "DATABASE_URL=" + c.Database.URL, "READINGS=postgres",
		"PUBSUB_EMULATOR_HOST=" + c.serviceProxy.Address(),
		"STORAGE_EMULATOR_HOST=" + storage.URL(), "MODEL_BUCKET=" + system.ModelBucket,
	}
	secret := "SECRET_KEY=" + rand.Text() + rand.Text()
	if err := c.run(ctx, apiProgram, append(slices.Clone(backend), secret), "migrate"); err != nil {
		return err
	}
	for _, route := range queue.Routes() {
		c.Functions[route.Function], err = c.startInstances(ctx, route.Function, functionsProgram, append(slices.Clone(backend),
			"FUNCTION_TARGET="+route.Function, "DEAD_LETTER_TOPIC="+route.Topic+queue.DeadLetterSuffix))
		if err != nil {
			return err
		}
	}
	if c.API, err = c.startInstances(ctx, apiProgram, apiProgram, append(slices.Clone(backend), secret)); err != nil {
		return err
	}
	c.push(ctx)
	return c.startGateways(ctx)
}

// buildPrograms compiles the programs into a folder, with what other tests have compiled.
func buildPrograms(ctx context.Context, dir string) error {
	for program, pkg := range map[string]string{
		gatewayProgram: "edge-gateway", apiProgram: "run/server", functionsProgram: "functions/serve", redeliverProgram: "run/tools/redeliver",
	} {
		if err := processtest.Build(ctx, filepath.Join(dir, program), "coldaisle.dev/"+pkg, ""); err != nil {
			return err
		}
	}
	return nil
}

// run runs a program to its end.
func (c *cluster) run(ctx context.Context, program string, environ []string, arguments ...string) error {
	command := exec.CommandContext(ctx, filepath.Join(c.programs, program), arguments...) //nolint:gosec // built by us
	command.Env = environ
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, output)
	}
	return nil
}

func (c *cluster) logs() string { return filepath.Join(c.dir, "logs") }

// startProcess starts process NAME-NUMBER of a program.
func (c *cluster) startProcess(ctx context.Context, name string, number int, program string, environ []string) (*processtest.Process, error) {
	environ = append(slices.Clone(environ), c.environ[name]...)
	name += "-" + strconv.Itoa(number)
	child, err := processtest.New(ctx, name, filepath.Join(c.programs, program), c.logs(), environ...)
	if err != nil {
		return nil, err
	}
	c.opened.Push(name, func() error {
		_, err := child.End(syscall.SIGTERM)
		return err
	})
	return child, child.Start(ctx)
}

func (c *cluster) startInstances(ctx context.Context, name, program string, environ []string) (*loadBalancer, error) {
	members := make([]*processtest.Process, instances)
	for i := range members {
		var err error
		if members[i], err = c.startProcess(ctx, name, i+1, program, environ); err != nil {
			return nil, err
		}
	}
	balancer := newLoadBalancer(members)
	c.opened.Push("load balancer of "+name, closing.NoError(balancer.Close))
	return balancer, nil
}

func (c *cluster) startGateways(ctx context.Context) error {
	for site := range sites {
		environ := []string{
			"PROJECT_ID=" + project, "DATA_TOPIC=" + queue.TopicData,
			"PUBSUB_EMULATOR_HOST=" + c.gatewayProxy.Address(), "OUTBOX_DIR=" + filepath.Join(c.dir, fmt.Sprintf("gateway-%d", site+1)),
			"MDNS=false", // nodes know where it is, and others on this network need not
		}
		gateway, err := c.startProcess(ctx, gatewayProgram, site+1, gatewayProgram, environ)
		if err != nil {
			return err
		}
		c.Gateways = append(c.Gateways, gateway)
	}
	return nil
}

// Redeliver runs run/tools/redeliver for each function, as an operator does.
func (c *cluster) Redeliver(ctx context.Context) error {
	for _, route := range queue.Routes() {
		environ := append(os.Environ(), "PUBSUB_EMULATOR_HOST="+c.queue.Address)
		if err := c.run(ctx, redeliverProgram, environ, "-project", project, "-topic", route.Topic,
			"-function", route.Function, "-endpoint", c.Functions[route.Function].URL, "-idle", "1s"); err != nil {
			return err
		}
	}
	return nil
}

// Processes lists all processes, gateways first.
func (c *cluster) Processes() []*processtest.Process {
	all := slices.Clone(c.Gateways)
	for _, route := range queue.Routes() {
		all = append(all, c.Functions[route.Function].Instances...)
	}
	return append(all, c.API.Instances...)
}

// Stop stops everything in the reverse order of its start.
func (c *cluster) Stop() error { return c.opened.Close() }

// loadBalancer is one address in front of several instances of a program, which get
// requests in turn, as on Cloud Run. A request to an instance that is down fails
// with 502: the client must retry.
type loadBalancer struct {
	*httptest.Server

	Instances []*processtest.Process
	transport *http.Transport
}

// newLoadBalancer listens in front of the instances, which need not run yet.
func newLoadBalancer(instances []*processtest.Process) *loadBalancer {
	transport := &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute}
	var next atomic.Int64
	return &loadBalancer{httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			target, _ := url.Parse(instances[int(next.Add(1))%len(instances)].URL) // always valid
			r.SetURL(target)
		},
		Transport:    transport,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		ErrorLog:     slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}), instances, transport}
}

// database is a PostgreSQL that can crash and recover. Programs connect through its proxy.
type database struct {
	Server *postgres.Server // another after a crash, at the same address
	Proxy  *proxytest.Proxy
	URL    string // of the proxy, with credentials
	// Pool connects to the server directly, past the proxy, as poolName.
	Pool *pgxpool.Pool

	options postgres.Options
}

// poolName is the application_name of the harness's own connections.
const poolName = "soak"

func (c *cluster) startDatabase(ctx context.Context, dir string) error {
	port, err := child.Port(ctx)
	if err != nil {
		return err
	}
	d := &database{options: postgres.Options{Dir: dir, Port: port, Log: c.log}}
	if err := d.Recover(ctx); err != nil {
		return err
	}
	c.Database = d
	c.opened.Push("database", func() error { return d.Server.Stop() })
	address, err := url.Parse(d.Server.URL())
	if err != nil {
		return fmt.Errorf("address of the database: %w", err)
	}
	if d.Proxy, err = proxytest.New(ctx, address.Host); err != nil {
		return err
	}
	c.opened.Push("database's proxy", closing.NoError(d.Proxy.Close))
	address.Host = d.Proxy.Address()
	d.URL = address.String()
	if d.Pool, err = pgxpool.New(context.WithoutCancel(ctx), d.Server.URL()+"&application_name="+poolName); err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	c.opened.Push("database's pool", closing.NoError(d.Pool.Close))
	return nil
}

// Recover starts the server, after a crash on the crashed server's data.
func (d *database) Recover(ctx context.Context) error {
	server, err := postgres.Start(ctx, d.options)
	if err == nil {
		d.Server = server
	}
	return err
}

// project is the name under which topics exist.
const project = "coldaisle-soak"

// maxOutstanding bounds the messages of one function in flight.
const maxOutstanding = 128

// startPubSub starts the local system's queue over a PostgreSQL of its own, which no event
// touches. It runs in this process, so that its memory is not counted as a program's.
func (c *cluster) startPubSub(ctx context.Context, dir string) error {
	database, err := postgres.Start(ctx, postgres.Options{Dir: dir, Log: c.log})
	if err != nil {
		return err
	}
	c.opened.Push("PostgreSQL of Pub/Sub", database.Stop)
	c.queue, err = queue.Open(ctx, queue.Config{
		DatabaseURL: database.URL(), Project: project, Clock: time.Now, Log: c.log, //nolint:forbidigo // as Google's service, which has no clock of ours
		// The soak's outages are shorter than production's, and there must be dead letters to redeliver.
		Policy: queue.Policy{MinBackoff: 500 * time.Millisecond, MaxBackoff: 10 * time.Second, MaxAttempts: 12, MaxOutstanding: maxOutstanding},
	})
	if err != nil {
		return err
	}
	c.opened.Push("queue", closing.NoError(c.queue.Close))
	for _, proxy := range []**proxytest.Proxy{&c.gatewayProxy, &c.serviceProxy} {
		if *proxy, err = proxytest.New(ctx, c.queue.Address); err != nil {
			return err
		}
		c.opened.Push("proxy of Pub/Sub", closing.NoError((*proxy).Close))
	}
	return nil
}

// push starts the pushes to the functions' load balancers.
func (c *cluster) push(ctx context.Context) {
	handlers := map[string]http.Handler{}
	for function, balancer := range c.Functions {
		handlers[function] = balancer.Config.Handler
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { c.queue.Run(ctx, handlers) })
	c.opened.Push("pushes", closing.NoError(func() { stop(); running.Wait() }))
}
