package main

import (
	"context"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5/pgxpool"

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
