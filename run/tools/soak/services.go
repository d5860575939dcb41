package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/shared/child"
	"coldaisle.dev/shared/closing"
	"coldaisle.dev/shared/postgres"
	"coldaisle.dev/shared/proxytest"
)

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
		if *proxy, err = proxytest.New(ctx, c.queue.Address()); err != nil {
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
